"""A draft beside the version others saved meanwhile: what differs, whose value is taken, one draft of both.

Texts and policy are decided value by value, evaluators one by one. Which evaluators there are, and in
which order, is one decision; an evaluator that only one side has goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, EvaluatorSpec, walk
from evaluators.scoring.types import DomainError
from runs.specs.suites import SuiteSpec
from runs.suites.differences import OF_CHILDREN, facts_of, matched
from runs.suites.edits import Content, begin_draft, nodes_with_paths
from runs.suites.tree_edits import guard, options_of, weigh

ARRANGEMENT = "arrangement"
POLICY = "policy."
EVALUATORS = "evaluators."


class MergeSide(StrEnum):
    """Whose value it is; where both changed one, whose is to be kept."""

    MINE = "mine"
    THEIRS = "theirs"


class Who(StrEnum):
    """Who changed a value since the version the draft is based on."""

    MINE = "mine"
    THEIRS = "theirs"
    SAME = "same"
    BOTH = "both"


class UndecidedError(DomainError):
    """A value that both changed was not decided by mine or theirs; `key` names it."""

    code = "undecided"

    def __init__(self, key: str) -> None:
        """Say which value."""
        self.key = key
        super().__init__(f"Both changed {key}. Choose whose is to be kept.")


@dataclass(frozen=True, slots=True)
class Value:
    """One value that differs: what it was, what it is now, and what it is in the draft; None for none.

    `key` names it in forms. `evaluator` is a path, None for a value of no evaluator; the values of an
    evaluator are its facts that differ. Those of the arrangement are the evaluators there are, in
    order. `who` is None for an evaluator that only one side has: it goes with the arrangement.
    """

    key: str
    name: str
    evaluator: str | None
    base: Any
    theirs: Any
    mine: Any
    who: Who | None

    @property
    def is_open(self) -> bool:
        """Tell whether both changed it, each otherwise, so that somebody has to decide."""
        return self.who is Who.BOTH


def differing_values(base: SuiteSpec, theirs: SuiteSpec, mine: SuiteSpec) -> tuple[Value, ...]:
    """Return every value in which the draft and their version differ, in the order of the suite."""
    sides = [side.plain().as_json() for side in (base, theirs, mine)]
    values = [
        _value(name, name, None, *(side[name] for side in sides))
        for name in sides[0]
        if name not in ("policy", "evaluators")
    ]
    values += [
        _value(f"{POLICY}{name}", name, None, *(side["policy"][name] for side in sides))
        for name in sides[0]["policy"]
    ]
    values += _evaluator_values(base.evaluators, theirs.evaluators, mine.evaluators)
    return tuple(value for value in values if value is not None)


def _value(
    key: str, name: str, evaluator: str | None, base: Any, theirs: Any, mine: Any
) -> Value | None:
    if theirs == mine:
        return None
    who = Who.MINE if theirs == base else Who.THEIRS if mine == base else Who.BOTH
    return Value(key, name, evaluator, base, theirs, mine, who)


def _evaluator_values(
    base: EvaluatorSpec, theirs: EvaluatorSpec, mine: EvaluatorSpec
) -> Iterator[Value | None]:
    trees = (base, theirs, mine)
    arrangements = (
        [f"{path} ({node.kind})" for path, node in walk(tree) if path] for tree in trees
    )
    arrangement = _value(ARRANGEMENT, ARRANGEMENT, None, *arrangements)
    old, new, own = (facts_of(tree) for tree in trees)
    shared = {path for path in new if path in own and new[path]["kind"] == own[path]["kind"]}
    if arrangement is not None and arrangement.who is not Who.BOTH:
        # What the one changed would go with what the other removed, so that somebody has to decide.
        kept = new if arrangement.who is Who.MINE else own
        if any(path not in shared and kept[path] != old.get(path) for path in kept):
            arrangement = replace(arrangement, who=Who.BOTH)
    yield arrangement
    for path in {**old, **new, **own}:
        sides = [facts.get(path) for facts in (old, new, own)]
        value = _value(f"{EVALUATORS}{path}", path, path, *sides)
        if value is not None:
            was, now, wanted = _differing(sides)
            who = value.who if path in shared else None
            yield replace(value, base=was, theirs=now, mine=wanted, who=who)


def _differing(sides: Sequence[Mapping[str, Any] | None]) -> Iterator[dict[str, Any] | None]:
    """Yield of each side the facts that are not the same on all."""
    present = [side for side in sides if side is not None]
    names = [
        name
        for name in {name: None for side in present for name in side}
        if any(side.get(name) != present[0].get(name) for side in present)
    ]
    for side in sides:
        shown = names if len(present) > 1 else side or ()
        yield None if side is None else {name: side[name] for name in shown if name in side}


def take(
    base: SuiteSpec, theirs: SuiteSpec, draft: Content, choices: Mapping[str, str]
) -> dict[str, Any]:
    """Return a draft of their version that holds what either changed, and of both what was chosen.

    `choices` has "mine" or "theirs" for the key of each open value. Raises UndecidedError. Whether
    the tree that comes of it can be scored is left to `check`.
    """
    mine = SuiteSpec.model_validate(draft)
    values = [value for value in differing_values(base, theirs, mine) if value.who is not None]
    sides = {value.key: _side(value, choices) for value in values}
    arranged = sides.get(ARRANGEMENT, MergeSide.THEIRS)
    content = begin_draft(theirs) if arranged is MergeSide.THEIRS else _rebased(theirs, mine, draft)
    content |= theirs.plain().model_dump(mode="json", exclude={"evaluators"})
    for value in values:
        side = sides[value.key]
        if value.evaluator is not None:
            if side is not arranged:
                tree = mine.evaluators if side is MergeSide.MINE else theirs.evaluators
                _take_evaluator(content, value.evaluator, tree)
        elif side is MergeSide.MINE and value.key != ARRANGEMENT:
            holder = content["policy"] if value.key.startswith(POLICY) else content
            holder[value.name] = value.mine
    return content


def _side(value: Value, choices: Mapping[str, str]) -> MergeSide:
    if not value.is_open:
        return MergeSide(str(value.who))
    if choices.get(value.key) not in tuple(MergeSide):
        raise UndecidedError(value.key)
    return MergeSide(choices[value.key])


def _rebased(theirs: SuiteSpec, mine: SuiteSpec, draft: Content) -> dict[str, Any]:
    """Return the draft with the places its evaluators have in their version."""
    content = deepcopy(dict(draft))
    origins = {new: old for old, new in matched(theirs.evaluators, mine.evaluators).items()}
    for path, node in nodes_with_paths(content["evaluators"]):
        node["origin"] = origins.get(path)
    return content


def _take_evaluator(content: dict[str, Any], path: str, tree: EvaluatorSpec) -> None:
    """Give the evaluator at a path the facts it has in another tree; what it holds stays."""
    nodes = dict(nodes_with_paths(content["evaluators"]))
    node, other = nodes[path], dict(walk(tree))[path].as_json()
    config = other["config"]
    if node["kind"] == COMPOSITE:
        ties = {name: value for name, value in options_of(node).items() if name in OF_CHILDREN}
        rule = {n: v for n, v in config["aggregator"].items() if n not in OF_CHILDREN}
        config = {**config, "aggregator": rule | ties}
    node |= {name: other[name] for name in ("required", "required_below", "negate")}
    node["config"] = config
    if path != ROOT_PATH:
        parent, facts = nodes[path.rpartition("/")[0]], facts_of(tree)[path]
        weigh(parent, node, facts["weight"])
        guard(parent, node, gate=facts["gate"])

"""A draft and what others saved meanwhile, value by value, and one content made of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evaluators.scoring.types import DomainError
from runs.drafting.content import Content, edited_parts
from runs.drafting.differences import SAID
from runs.drafting.facts import put_fact
from runs.drafting.three_trees import ThreeTrees

ARRANGEMENT = "arrangement"
POLICY = "policy."
EVALUATORS = "evaluators."


class Side(StrEnum):
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
class Field:
    """One value that somebody changed: what it was, what it is now, and what it is in the draft.

    `key` names it in forms. `evaluator` is its path in the base version, None for a value of no
    evaluator; `name` is that of the value: `title`, `pass_threshold`, `weight`, `config.prompt`. None
    stands where there is no value. Of the `arrangement` the values are the paths there are, in order.
    """

    key: str
    name: str
    evaluator: str | None
    base: Any
    theirs: Any
    mine: Any
    who: Who

    @property
    def is_open(self) -> bool:
        """Tell whether both changed it, each otherwise, so that somebody has to decide."""
        return self.who is Who.BOTH


@dataclass(frozen=True, slots=True)
class Merge:
    """Base, theirs and mine side by side: every value that somebody changed.

    `only_mine` and `only_theirs` are the paths of evaluators that the other side lacks: it removed
    them, or never had them. With the other side's arrangement they are left out.
    """

    fields: tuple[Field, ...]
    only_mine: tuple[str, ...] = ()
    only_theirs: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[Field, ...]:
        """Return the values somebody has to decide."""
        return tuple(one for one in self.fields if one.is_open)


def merge_of(base: Content, theirs: Content, mine: Content) -> Merge:
    """Return every value that somebody changed since the base version, and who did."""
    trees = ThreeTrees.read(base, theirs, mine)
    fields = (*_described(base, theirs, mine), _arrangement(trees), *_settings(trees))
    return Merge(
        fields=tuple(one for one in fields if one is not None),
        only_mine=tuple(trees.missing(trees.theirs, trees.mine)),
        only_theirs=tuple(trees.missing(trees.mine, trees.theirs)),
    )


def merged(
    base: Content, theirs: Content, mine: Content, choices: Mapping[str, str]
) -> dict[str, Any]:
    """Return a draft of their version that holds what either changed, and of both what was chosen.

    `choices` has "mine" or "theirs" for the key of each open field. Raises UndecidedError. Whether
    the tree that comes of it can be scored is left to `check`.
    """
    trees = ThreeTrees.read(base, theirs, mine)
    taken = {one.key: (one, _side(one, choices)) for one in merge_of(base, theirs, mine).fields}
    arranged = taken.get(ARRANGEMENT)
    content = trees.draft(of_mine=arranged is not None and arranged[1] is Side.MINE)
    content |= {name: theirs.get(name) for name in SAID}
    content["policy"] = dict(edited_parts(theirs)["policy"])
    places = trees.places(content)
    for key, (one, side) in taken.items():
        value = one.mine if side is Side.MINE else one.theirs
        if key.startswith(POLICY):
            content["policy"][one.name] = value
        elif one.evaluator is None:
            content |= {} if key == ARRANGEMENT else {one.name: value}
        elif one.evaluator in places:
            facts = (trees.mine if side is Side.MINE else trees.theirs).facts[one.evaluator]
            put_fact(*places[one.evaluator], one.name, facts)
    return content


def _side(one: Field, choices: Mapping[str, str]) -> Side:
    if not one.is_open:
        return Side.MINE if one.who is Who.MINE else Side.THEIRS
    chosen = choices.get(one.key)
    if chosen not in tuple(Side):
        raise UndecidedError(one.key)
    return Side(chosen)


def _described(base: Content, theirs: Content, mine: Content) -> Iterator[Field | None]:
    sides = [edited_parts(one) for one in (base, theirs, mine)]
    for name in SAID:
        yield _field(name, name, None, [side[name] for side in sides])
    for name in sides[0]["policy"]:
        yield _field(f"{POLICY}{name}", name, None, [side["policy"][name] for side in sides])


def _arrangement(trees: ThreeTrees) -> Field | None:
    """Return how the evaluators stand; open too where one side changed what the other removed."""
    forms = [side.arrangement for side in (trees.base, trees.theirs, trees.mine)]
    who = _who(*forms)
    if who is None:
        return None
    one_sided = {
        Who.MINE: (trees.theirs, trees.mine),
        Who.THEIRS: (trees.mine, trees.theirs),
    }
    if who in one_sided:
        kept, arranged = one_sided[who]
        gone = [path for path in kept.facts if path not in arranged.facts]
        if any(kept.facts[path] != trees.base.facts[path] for path in gone):
            who = Who.BOTH
    base, theirs, mine = (list(side.nodes) for side in (trees.base, trees.theirs, trees.mine))
    return Field(ARRANGEMENT, ARRANGEMENT, None, base, theirs, mine, who)


def _settings(trees: ThreeTrees) -> Iterator[Field | None]:
    """Yield the facts of the evaluators that all three have."""
    for path, facts in trees.base.facts.items():
        if path not in trees.theirs.facts or path not in trees.mine.facts:
            continue
        sides = [facts, trees.theirs.facts[path], trees.mine.facts[path]]
        for name in dict.fromkeys(name for side in sides for name in side):
            key = f"{EVALUATORS}{path}.{name}"
            yield _field(key, name, path, [side.get(name) for side in sides])


def _field(key: str, name: str, evaluator: str | None, values: Sequence[Any]) -> Field | None:
    base, theirs, mine = values
    who = _who(base, theirs, mine)
    return None if who is None else Field(key, name, evaluator, base, theirs, mine, who)


def _who(base: Any, theirs: Any, mine: Any) -> Who | None:
    if theirs == mine:
        return None if mine == base else Who.SAME
    if theirs == base:
        return Who.MINE
    return Who.THEIRS if mine == base else Who.BOTH

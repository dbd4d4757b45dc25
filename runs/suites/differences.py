"""What differs between two versions of a suite, and how a draft and a newer version become one.

In a conflict, texts and policy are decided value by value, and evaluators one by one. Which evaluators
there are, and in which order, is one decision; an evaluator that only one side has goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, EvaluatorSpec, below, walk
from evaluators.scoring.types import DomainError
from runs.specs.suites import CaseRevision, SuiteSpec, VersionSpec
from runs.suites.edits import (
    Content,
    aggregator_options,
    begin_draft,
    guard,
    nodes_with_paths,
    set_weight,
)

AGGREGATOR = "aggregator."
CONFIG = "config."
# Of a metrics judge, where one run chooses its metrics.
METRIC = "metric."
# Options of a composite that are facts of its children: `weight` and `gate`.
OF_CHILDREN = ("weights", "required")


def evaluator_facts(root: EvaluatorSpec) -> dict[str, dict[str, Any]]:
    """Return the facts of every evaluator by path, in tree order, without names and places."""
    facts: dict[str, dict[str, Any]] = {}
    _gather(root, ROOT_PATH, None, facts)
    return facts


def _gather(
    node: EvaluatorSpec, path: str, above: EvaluatorSpec | None, facts: dict[str, dict[str, Any]]
) -> None:
    facts[path] = _facts(node, above)
    for child in node.children:
        _gather(child, below(path, child.name), node, facts)


def _facts(node: EvaluatorSpec, above: EvaluatorSpec | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": node.kind}
    if above is not None:
        facts["weight"] = above.child_weight(node)
        gates = above.aggregator.required if above.aggregator else ()
        facts["gate"] = node.name in gates
    below_which = node.required_below
    facts["required"] = node.required if below_which is None else below_which
    facts["negate"] = node.negate
    if node.pass_mark is not None:
        facts["pass_mark"] = node.pass_mark
    stored = node.as_json()["config"]
    options = stored.pop("aggregator", None) or {}
    facts |= {f"{CONFIG}{name}": value for name, value in stored.items()}
    return facts | {
        f"{AGGREGATOR}{name}": value for name, value in options.items() if name not in OF_CHILDREN
    }


def match_evaluators(before: EvaluatorSpec, after: EvaluatorSpec) -> dict[str, str]:
    """Return the path of the same evaluator in the newer tree, by its path in the older one.

    Evaluators at the same path are the same. Of the rest, the same are those with the same name and kind,
    which were moved; then with the same kind and settings, which were renamed; then of the same kind in
    the same composite. An evaluator that matches several matches none.
    """
    old, new = dict(walk(before)), dict(walk(after))
    pairs = {path: path for path in old if path in new}
    pairs[ROOT_PATH] = ROOT_PATH
    facts = evaluator_facts(before), evaluator_facts(after)
    likenesses: tuple[Callable[[str, EvaluatorSpec, Mapping[str, Any]], Any], ...] = (
        lambda _, node, __: (node.name, node.kind),
        lambda path, node, facts: (path.rpartition("/")[0], node.kind, _settings(facts)),
        lambda _, node, facts: (node.kind, _settings(facts)),
        lambda path, node, _: (path.rpartition("/")[0], node.kind),
    )
    for like in likenesses:
        left = [path for path in old if path not in pairs]
        taken = set(pairs.values())
        right = [path for path in new if path not in taken]
        ours = _by_likeness(left, old, facts[0], like)
        theirs = _by_likeness(right, new, facts[1], like)
        pairs |= {
            ours[key][0]: theirs[key][0]
            for key in ours
            if len(ours[key]) == 1 and len(theirs.get(key, ())) == 1
        }
    return pairs


def _by_likeness(
    paths: list[str],
    nodes: Mapping[str, EvaluatorSpec],
    facts: Mapping[str, Mapping[str, Any]],
    like: Callable[[str, EvaluatorSpec, Mapping[str, Any]], Any],
) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for path in paths:
        groups.setdefault(like(path, nodes[path], facts[path]), []).append(path)
    return groups


def _settings(facts: Mapping[str, Any]) -> str:
    """Return the settings of the kind in a hashable form."""
    return repr(sorted((name, repr(value)) for name, value in facts.items() if CONFIG in name))


WHAT = ("added", "changed", "moved", "renamed", "removed")


@dataclass(frozen=True, slots=True)
class Change:
    """One value that differs; None for no value."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class EvaluatorChange:
    """One evaluator that differs: `what` is added, removed, moved, renamed or changed.

    `path` is its path in the newer version, in the older one if it was removed; `old_path` is its path in
    the older version, "" if it was added. A moved or renamed evaluator may have changes too.
    """

    what: str
    path: str
    old_path: str
    kind: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseDifference:
    """One case that differs: `what` is added, removed or changed; a revision is None where there is none."""

    what: str
    key: str
    old_revision: int | None
    new_revision: int | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs: `what` is added, removed or changed; a hash is "" where there is no file."""

    what: str
    path: str
    old_hash: str
    new_hash: str


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """Everything that differs between an older and a newer version."""

    texts: tuple[Change, ...] = ()
    policy: tuple[Change, ...] = ()
    evaluators: tuple[EvaluatorChange, ...] = ()
    files: tuple[FileChange, ...] = ()
    cases: tuple[CaseDifference, ...] = ()
    is_reordered: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing differs."""
        return not (self.scoring or self.files or self.cases or self.is_reordered)

    @property
    def scoring(self) -> bool:
        """Tell whether anything differs that a draft edits: texts, policy, evaluators."""
        return bool(self.texts or self.policy or self.evaluators)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many of each differ, without zeros: "cases added" 2, "evaluators changed" 1 and so on."""
        counts: dict[str, int] = {}
        parts: tuple[tuple[str, Sequence[CaseDifference | EvaluatorChange | FileChange]], ...] = (
            ("cases", self.cases),
            ("evaluators", self.evaluators),
            ("files", self.files),
        )
        for noun, changes in parts:
            actions = [change.what for change in changes]
            counts |= {f"{noun} {what}": actions.count(what) for what in WHAT if what in actions}
        for noun, values in (("policy values", self.policy), ("texts", self.texts)):
            if values:
                counts[f"{noun} changed"] = len(values)
        return counts

    @property
    def words(self) -> tuple[str, ...]:
        """Return the counts in words: "2 cases added", "1 evaluator changed"."""
        words = [_counted(name, count) for name, count in self.counts.items()]
        return (*words, "cases reordered") if self.is_reordered else tuple(words)


def _counted(name: str, count: int) -> str:
    noun, _, what = name.rpartition(" ")
    return f"{count} {noun if count != 1 else noun.removesuffix('s')} {what}"


def compare_specs(older: SuiteSpec, newer: SuiteSpec) -> VersionDifference:
    """Return what differs between two versions; cases and files are compared only where both sides have them."""
    before, after = older.plain().as_json(), newer.plain().as_json()
    texts = [name for name in SuiteSpec.model_fields if name not in ("policy", "evaluators")]
    difference = VersionDifference(
        texts=_changed({n: before[n] for n in texts}, {n: after[n] for n in texts}),
        policy=_changed(before["policy"], after["policy"]),
        evaluators=tuple(_evaluators(older.evaluators, newer.evaluators)),
    )
    if not (isinstance(older, VersionSpec) and isinstance(newer, VersionSpec)):
        return difference
    difference = replace(difference, files=tuple(_files(older.files, newer.files)))
    # Most versions change no case; comparing thousands one by one would then be wasted.
    if older.cases == newer.cases:
        return difference
    return replace(
        difference,
        cases=tuple(_cases(older.cases, newer.cases)),
        is_reordered=_are_reordered(older.cases, newer.cases),
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the values that differ, in the order of the newer ones."""
    names = [*after, *(name for name in before if name not in after)]
    return tuple(
        Change(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _evaluators(before: EvaluatorSpec, after: EvaluatorSpec) -> Iterator[EvaluatorChange]:
    pairs = match_evaluators(before, after)
    came_from = {new: old for old, new in pairs.items()}
    old_facts, new_facts = evaluator_facts(before), evaluator_facts(after)
    shuffled = _shuffled(before, after, pairs)
    for path, node in walk(after):
        old = came_from.get(path)
        if old is None:
            yield EvaluatorChange("added", path, "", node.kind)
            continue
        changes = _changed(old_facts[old], new_facts[path])
        if what := _what(old, path, pairs, path in shuffled, changes):
            yield EvaluatorChange(what, path, old, node.kind, changes)
    for path, node in walk(before):
        if path not in pairs:
            yield EvaluatorChange("removed", path, path, node.kind)


def _what(
    old: str,
    new: str,
    pairs: Mapping[str, str],
    is_shuffled: bool,
    changes: Sequence[Change],
) -> str:
    """Say what happened to an evaluator, "" for nothing; moving along with its composite is nothing."""
    (old_above, _, old_name), (new_above, _, new_name) = old.rpartition("/"), new.rpartition("/")
    if pairs.get(old_above) != new_above or is_shuffled:
        return "moved"
    if old_name != new_name:
        return "renamed"
    return "changed" if changes else ""


def _shuffled(before: EvaluatorSpec, after: EvaluatorSpec, pairs: Mapping[str, str]) -> set[str]:
    """Return the paths, in the newer tree, of evaluators that moved among the same siblings."""
    old_order = {path: place for place, (path, _) in enumerate(walk(before))}
    back = {new: old for old, new in pairs.items()}
    moved: set[str] = set()
    for path, node in walk(after):
        inner = [f"{path}/{child.name}" if path else child.name for child in node.children]
        old = back.get(path)
        stayed = [
            inner_path
            for inner_path in inner
            if inner_path in back and back[inner_path].rpartition("/")[0] == (old or "")
        ]
        moved |= _out_of_order(stayed, [old_order[back[inner_path]] for inner_path in stayed])
    return moved


def _out_of_order(names: Sequence[str], places: Sequence[int]) -> set[str]:
    """Return the names outside a longest rising run: the fewest moves that explain the new order."""
    best: list[list[int]] = []
    for index, place in enumerate(places):
        fits = [run for run in best if places[run[-1]] < place]
        best.append([*_longest(fits), index])
    kept = set(_longest(best))
    return {name for index, name in enumerate(names) if index not in kept}


def _longest(runs: Sequence[list[int]]) -> list[int]:
    return max(runs, key=len) if runs else []


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FileChange]:
    for path in sorted({*before, *after}):
        old, new = before.get(path, ""), after.get(path, "")
        if old != new:
            yield FileChange(_how(old, new), path, old, new)


def _cases(
    before: Sequence[CaseRevision], after: Sequence[CaseRevision]
) -> Iterator[CaseDifference]:
    """Yield the cases that differ: those of the newer version in its order, then the removed ones.

    Two revisions with the same content do not differ.
    """
    old, new = ({case["key"]: case for case in cases} for cases in (before, after))
    for key, case in new.items():
        past = old.get(key)
        if past is None:
            yield CaseDifference("added", key, None, case["revision"])
        elif _are_different(past, case):
            yield CaseDifference("changed", key, past["revision"], case["revision"])
    for key, case in old.items():
        if key not in new:
            yield CaseDifference("removed", key, case["revision"], None)


def _are_different(past: CaseRevision, now: CaseRevision) -> bool:
    if past.get("hash") and now.get("hash"):
        return bool(past["hash"] != now["hash"])
    return bool(past["revision"] != now["revision"])


def _are_reordered(before: Sequence[CaseRevision], after: Sequence[CaseRevision]) -> bool:
    """Tell whether the cases that both versions have are in another order."""
    shared = {case["key"] for case in before} & {case["key"] for case in after}
    orders = ([c["key"] for c in cases if c["key"] in shared] for cases in (before, after))
    return next(orders) != next(orders)


def _how(old: Any, new: Any) -> str:
    if not old:
        return "added"
    return "changed" if new else "removed"


MAX_FACTS = 200
MAX_FACT_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """The values before and after, by the name of what differs."""

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def change_facts(difference: VersionDifference) -> ChangeFacts:
    """Return the changed values, evaluators by path and setting; long texts are cut, and long lists too."""
    facts = ChangeFacts()
    for change in (*difference.texts, *difference.policy):
        _note(facts, change.name, change.old, change.new)
    for evaluator in difference.evaluators:
        _note_evaluator(facts, evaluator)
    for file in difference.files:
        _note(facts, f"file {file.path}", file.old_hash[:12] or None, file.new_hash[:12] or None)
    for case in difference.cases:
        _note(facts, f"case {case.key}", case.old_revision, case.new_revision)
    return facts


def _note_evaluator(facts: ChangeFacts, evaluator: EvaluatorChange) -> None:
    name = f"evaluator {evaluator.path or 'of the whole suite'}"
    if evaluator.what == "added":
        _note(facts, name, None, evaluator.kind)
    elif evaluator.what == "removed":
        _note(facts, name, evaluator.kind, None)
    elif evaluator.what != "changed":
        _note(facts, f"{name}: {evaluator.what}", evaluator.old_path, evaluator.path)
    for change in evaluator.changes:
        _note(facts, f"{name}: {change.name}", change.old, change.new)


def _note(facts: ChangeFacts, name: str, old: Any, new: Any) -> None:
    if len(facts.before) < MAX_FACTS:
        facts.before[name], facts.after[name] = _cut(old), _cut(new)


def _cut(value: Any) -> Any:
    if value == "":
        return None
    is_long = isinstance(value, str) and len(value) > MAX_FACT_LENGTH
    return f"{value[:MAX_FACT_LENGTH]} …" if is_long else value


ARRANGEMENT = "arrangement"
POLICY = "policy."
EVALUATORS = "evaluators."


class MergeSide(StrEnum):
    """Whose value it is, or whose value to keep where both changed it."""

    MINE = "mine"
    THEIRS = "theirs"


class ChangedBy(StrEnum):
    """Who changed a value since the version the draft is based on."""

    MINE = "mine"
    THEIRS = "theirs"
    SAME = "same"
    BOTH = "both"


class UndecidedError(DomainError):
    """Nobody chose mine or theirs for a value that both sides changed; `key` names it."""

    code = "undecided"

    def __init__(self, key: str) -> None:
        """Name the value."""
        self.key = key
        super().__init__(f"Both sides changed {key}. Choose which to keep.")


@dataclass(frozen=True, slots=True)
class DifferingValue:
    """One value that differs: in the base version, in theirs and in the draft; None for no value.

    `key` names it in forms. `evaluator` is a path, None for a value outside the tree; an evaluator's
    value holds its facts that differ. The arrangement's value is the list of evaluators in order.
    `who` is None for an evaluator that only one side has: it goes with the arrangement.
    """

    key: str
    name: str
    evaluator: str | None
    base: Any
    theirs: Any
    mine: Any
    who: ChangedBy | None

    @property
    def is_open(self) -> bool:
        """Tell whether both sides changed it differently, so that somebody has to decide."""
        return self.who is ChangedBy.BOTH


def differing_values(
    base: SuiteSpec, theirs: SuiteSpec, mine: SuiteSpec
) -> tuple[DifferingValue, ...]:
    """Return every value that differs between the draft and their version, in the order of the suite."""
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
) -> DifferingValue | None:
    if theirs == mine:
        return None
    who = ChangedBy.MINE if theirs == base else ChangedBy.THEIRS if mine == base else ChangedBy.BOTH
    return DifferingValue(key, name, evaluator, base, theirs, mine, who)


def _evaluator_values(
    base: EvaluatorSpec, theirs: EvaluatorSpec, mine: EvaluatorSpec
) -> Iterator[DifferingValue | None]:
    trees = (base, theirs, mine)
    arrangements = (
        [f"{path} ({node.kind})" for path, node in walk(tree) if path] for tree in trees
    )
    arrangement = _value(ARRANGEMENT, ARRANGEMENT, None, *arrangements)
    old, new, own = (evaluator_facts(tree) for tree in trees)
    shared = {path for path in new if path in own and new[path]["kind"] == own[path]["kind"]}
    if arrangement is not None and arrangement.who is not ChangedBy.BOTH:
        # One side changed an evaluator that the other removed, so somebody has to decide.
        kept = new if arrangement.who is ChangedBy.MINE else own
        if any(path not in shared and kept[path] != old.get(path) for path in kept):
            arrangement = replace(arrangement, who=ChangedBy.BOTH)
    yield arrangement
    for path in {**old, **new, **own}:
        sides = [facts.get(path) for facts in (old, new, own)]
        value = _value(f"{EVALUATORS}{path}", path, path, *sides)
        if value is not None:
            was, now, wanted = _differing(sides)
            who = value.who if path in shared else None
            yield replace(value, base=was, theirs=now, mine=wanted, who=who)


def _differing(sides: Sequence[Mapping[str, Any] | None]) -> Iterator[dict[str, Any] | None]:
    """Yield, for each side, the facts that are not the same on all sides."""
    present = [side for side in sides if side is not None]
    names = [
        name
        for name in {name: None for side in present for name in side}
        if any(side.get(name) != present[0].get(name) for side in present)
    ]
    for side in sides:
        shown = names if len(present) > 1 else side or ()
        yield None if side is None else {name: side[name] for name in shown if name in side}


def merge_draft(
    base: SuiteSpec, theirs: SuiteSpec, draft: Content, choices: Mapping[str, str]
) -> dict[str, Any]:
    """Return a draft of their version with the changes of both sides, and the chosen one where both changed.

    `choices` has "mine" or "theirs" for the key of each open value. Raises UndecidedError. The caller
    checks whether the resulting tree can be scored.
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


def _side(value: DifferingValue, choices: Mapping[str, str]) -> MergeSide:
    if not value.is_open:
        return MergeSide(str(value.who))
    if choices.get(value.key) not in tuple(MergeSide):
        raise UndecidedError(value.key)
    return MergeSide(choices[value.key])


def _rebased(theirs: SuiteSpec, mine: SuiteSpec, draft: Content) -> dict[str, Any]:
    """Return the draft, its evaluators pointing to their places in the other version."""
    content = deepcopy(dict(draft))
    origins = {
        new: old for old, new in match_evaluators(theirs.evaluators, mine.evaluators).items()
    }
    for path, node in nodes_with_paths(content["evaluators"]):
        node["origin"] = origins.get(path)
    return content


def _take_evaluator(content: dict[str, Any], path: str, tree: EvaluatorSpec) -> None:
    """Give the evaluator at a path its facts from another tree; its children stay."""
    nodes = dict(nodes_with_paths(content["evaluators"]))
    node, other = nodes[path], dict(walk(tree))[path].as_json()
    config = other["config"]
    if node["kind"] == COMPOSITE:
        ties = {
            name: value for name, value in aggregator_options(node).items() if name in OF_CHILDREN
        }
        rule = {n: v for n, v in config["aggregator"].items() if n not in OF_CHILDREN}
        config = {**config, "aggregator": rule | ties}
    node |= {name: other[name] for name in ("required", "required_below", "negate")}
    node.pop("pass_mark", None)
    if "pass_mark" in other:
        node["pass_mark"] = other["pass_mark"]
    node["config"] = config
    if path != ROOT_PATH:
        parent, facts = nodes[path.rpartition("/")[0]], evaluator_facts(tree)[path]
        set_weight(parent, node, facts["weight"])
        guard(parent, node, gate=facts["gate"])

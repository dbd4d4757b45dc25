"""What differs between two versions of a suite: cases, evaluators, weights, thresholds, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.tree import Node, walk
from runs.drafting.content import Content, edited_parts, tree_of
from runs.drafting.facts import facts_of
from runs.drafting.matching import matched

WHAT = ("added", "changed", "moved", "renamed", "removed")
SAID = ("title", "description", "tags", "judge")


@dataclass(frozen=True, slots=True)
class Change:
    """One value that differs; None where there was or is none."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class EvaluatorChange:
    """One evaluator that differs: `what` is added, removed, moved, renamed or changed.

    `path` is where it stands in the newer version, in the older one where it was removed; `old_path`
    where it stood in the older one, "" for an added one. A moved or renamed one may have changes too.
    """

    what: str
    path: str
    old_path: str
    kind: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case that differs: `what` is added, removed or changed; revisions are None where there is none."""

    what: str
    key: str
    old_revision: int | None
    new_revision: int | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs: `what` is added, removed or changed; the hashes are "" where there is none."""

    what: str
    path: str
    old_hash: str
    new_hash: str


@dataclass(frozen=True, slots=True)
class VersionDifference:
    """Everything that differs between an older and a newer version."""

    said: tuple[Change, ...] = ()
    policy: tuple[Change, ...] = ()
    evaluators: tuple[EvaluatorChange, ...] = ()
    files: tuple[FileChange, ...] = ()
    cases: tuple[CaseChange, ...] = ()
    is_reordered: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing differs."""
        return not (self.scoring or self.files or self.cases or self.is_reordered)

    @property
    def scoring(self) -> bool:
        """Tell whether anything differs that a draft edits: what is said, policy, evaluators."""
        return bool(self.said or self.policy or self.evaluators)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many of each differ, those that do: "cases added" 2, "evaluators changed" 1 and so on."""
        found: dict[str, int] = {}
        parts: tuple[tuple[str, Sequence[CaseChange | EvaluatorChange | FileChange]], ...] = (
            ("cases", self.cases),
            ("evaluators", self.evaluators),
            ("files", self.files),
        )
        for noun, changes in parts:
            told = [one.what for one in changes]
            found |= {f"{noun} {what}": told.count(what) for what in WHAT if what in told}
        for noun, values in (("policy values", self.policy), ("texts", self.said)):
            if values:
                found[f"{noun} changed"] = len(values)
        return found

    @property
    def words(self) -> tuple[str, ...]:
        """Return the counts in words: "2 cases added", "1 evaluator changed"."""
        found = [_counted(name, count) for name, count in self.counts.items()]
        return (*found, "cases reordered") if self.is_reordered else tuple(found)


def _counted(name: str, count: int) -> str:
    noun, _, what = name.rpartition(" ")
    return f"{count} {noun if count != 1 else noun.removesuffix('s')} {what}"


def compare_versions(older: Content, newer: Content) -> VersionDifference:
    """Return what differs between the contents of two stored versions, or of a version and a draft.

    Of a draft what it does not edit, cases and files, is taken to be the same.
    """
    before, after = edited_parts(older), edited_parts(newer)
    is_whole = "cases" in older and "cases" in newer
    # Most versions change no case, and thousands of them are not worth a closer look then.
    has_other_cases = is_whole and older["cases"] != newer["cases"]
    return VersionDifference(
        said=_changed({n: before[n] for n in SAID}, {n: after[n] for n in SAID}),
        policy=_changed(before["policy"], after["policy"]),
        evaluators=tuple(_evaluators(tree_of(before), tree_of(after))),
        files=tuple(_files(older.get("files") or {}, newer.get("files") or {})) if is_whole else (),
        cases=tuple(_cases(older["cases"], newer["cases"])) if has_other_cases else (),
        is_reordered=has_other_cases and _are_reordered(older["cases"], newer["cases"]),
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the values that differ, in the order of the newer ones."""
    names = [*after, *(name for name in before if name not in after)]
    return tuple(
        Change(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _evaluators(before: Node, after: Node) -> Iterator[EvaluatorChange]:
    pairs = matched(before, after)
    came_from = {new: old for old, new in pairs.items()}
    old_facts, new_facts = facts_of(before), facts_of(after)
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
    """Say what became of an evaluator; "" for nothing. What merely went along with its composite stayed."""
    (old_above, _, old_name), (new_above, _, new_name) = old.rpartition("/"), new.rpartition("/")
    if pairs.get(old_above) != new_above or is_shuffled:
        return "moved"
    if old_name != new_name:
        return "renamed"
    return "changed" if changes else ""


def _shuffled(before: Node, after: Node, pairs: Mapping[str, str]) -> set[str]:
    """Return the paths in the newer tree of evaluators that stand elsewhere among the same siblings."""
    old_order = {path: place for place, (path, _) in enumerate(walk(before))}
    back = {new: old for old, new in pairs.items()}
    found: set[str] = set()
    for path, node in walk(after):
        inner = [f"{path}/{child.name}" if path else child.name for child in node.children]
        old = back.get(path)
        stayed = [
            one for one in inner if one in back and back[one].rpartition("/")[0] == (old or "")
        ]
        found |= _out_of_order(stayed, [old_order[back[one]] for one in stayed])
    return found


def _out_of_order(names: Sequence[str], places: Sequence[int]) -> set[str]:
    """Return the names outside a longest rising run: the fewest whose move explains the order."""
    best: list[list[int]] = []
    for index, place in enumerate(places):
        fits = [run for run in best if places[run[-1]] < place]
        best.append([*_longest(fits), index])
    kept = set(_longest(best))
    return {name for index, name in enumerate(names) if index not in kept}


def _longest(found: Sequence[list[int]]) -> list[int]:
    return max(found, key=len) if found else []


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FileChange]:
    for path in sorted({*before, *after}):
        old, new = before.get(path, ""), after.get(path, "")
        if old != new:
            yield FileChange(_how(old, new), path, old, new)


def _cases(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[CaseChange]:
    """Yield the cases that differ: those of the newer version in its order, then the removed ones.

    Two revisions of one content are the same case.
    """
    old, new = ({case["key"]: case for case in cases} for cases in (before, after))
    for key, case in new.items():
        past = old.get(key)
        if past is None:
            yield CaseChange("added", key, None, case["revision"])
        elif _are_different(past, case):
            yield CaseChange("changed", key, past["revision"], case["revision"])
    for key, case in old.items():
        if key not in new:
            yield CaseChange("removed", key, case["revision"], None)


def _are_different(past: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    if past.get("hash") and now.get("hash"):
        return bool(past["hash"] != now["hash"])
    return bool(past["revision"] != now["revision"])


def _are_reordered(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the cases that are in both stand in another order."""
    shared = {case["key"] for case in before} & {case["key"] for case in after}
    orders = ([c["key"] for c in cases if c["key"] in shared] for cases in (before, after))
    return next(orders) != next(orders)


def _how(old: Any, new: Any) -> str:
    if not old:
        return "added"
    return "changed" if new else "removed"

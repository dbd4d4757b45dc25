"""Evaluators whose change the stored scores cannot follow, counted over the executions it concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.kinds._base import Kind
from evaluators.scoring.tree import ROOT_PATH, walk
from runs.plan import OUTCOMES_KIND, OUTCOMES_PATH
from runs.what_if.changes import LeafChange, Reach
from runs.what_if.executions import BY_OUTCOMES, Decided
from runs.what_if.figures import Stale
from runs.what_if.rescoring import PartsRead
from runs.what_if.rules import CaseTrees, RuleSet
from runs.what_if.stored import StoredResult, StoredRun

KEPT, OPEN = "kept", "open"
NOT_RUN = "it was not run behind a gate that would pass now"
OUTCOMES_UNJUDGED = "nobody judged the expected outcomes in this run"
OUTCOMES_REJUDGED = "another language model judges them"
OUTCOMES_ORPHANED = "the evaluator that judged them is gone"

Key = tuple[str, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Watched:
    """What of a tree may be stale: changed evaluators, and whether the source of the outcomes is gone."""

    changes: tuple[LeafChange, ...]
    is_orphaned: bool


class Staleness:
    """Counts, for every evaluator and reason, the executions that stored scores leave unanswered."""

    def __init__(
        self,
        sides: tuple[RuleSet, RuleSet],
        stored: StoredRun,
        parts: Mapping[str, PartsRead],
        kinds: Mapping[str, Kind],
    ) -> None:
        before, after = sides
        self.stored, self.parts = stored, parts
        self.supplying = {name for name, kind in kinds.items() if kind.supplies_outcomes}
        self.rejudges = before.judge != after.judge
        self.by_outcomes = after.policy.case_gate == BY_OUTCOMES
        self.beside = stored.columns.get(OUTCOMES_PATH)
        self.counts: Counter[Key] = Counter()
        self.total = 0
        self.watched: dict[int, _Watched] = {}

    def add(
        self,
        result: StoredResult,
        trees: CaseTrees,
        leaves: Mapping[str, LeafChange],
        found: Decided,
    ) -> None:
        """Count one answered execution."""
        self.total += 1
        for path in found.unrun:
            change = leaves.get(path)
            self._note(path, change, _why_unrun(change), OPEN)
        watched = self.watched.get(id(leaves))
        if watched is None:
            watched = self.watched[id(leaves)] = self._watch(trees, leaves)
        row = self.stored.scores[result.id]
        for change in watched.changes:
            if why := self._why_kept(change, result, row):
                self._note(change.path, change, why, KEPT)
        if why := self._why_outcomes(result, row, watched):
            self._note(OUTCOMES_PATH, None, why, KEPT)

    def found(self) -> tuple[Stale, ...]:
        """Return the evaluators with how many executions each leaves unanswered."""
        return tuple(
            Stale(path, name, kind, why, instead, asks, results, self.total)
            for (path, name, kind, why, instead, asks), results in self.counts.items()
        )

    def _watch(self, trees: CaseTrees, leaves: Mapping[str, LeafChange]) -> _Watched:
        reaches = (Reach.OLD, Reach.RESCORED)
        changes = tuple(change for change in leaves.values() if change.reach in reaches)
        sources = {path for path, node in walk(trees.before) if node.kind in self.supplying}
        origins = {change.origin for change in leaves.values()}
        return _Watched(changes, bool(sources) and sources.isdisjoint(origins))

    def _why_kept(self, change: LeafChange, result: StoredResult, row: Sequence[Any]) -> str:
        if change.reach is Reach.RESCORED:
            read = self.parts.get(change.path)
            return read.missing.get(result.id, "") if read is not None else ""
        at = self.stored.columns.get(change.origin or ROOT_PATH, -1)
        return change.why if at >= 0 and row[at] is not None else ""

    def _why_outcomes(self, result: StoredResult, row: Sequence[Any], watched: _Watched) -> str:
        """Return why the outcomes that are stored may not be those that these rules would give."""
        if self.beside is not None and row[self.beside] is not None:
            return OUTCOMES_REJUDGED if self.rejudges else ""
        # Marks without a call beside the tree come from an evaluator of it.
        is_counted = self.by_outcomes and bool(result.marks)
        return OUTCOMES_ORPHANED if is_counted and watched.is_orphaned else ""

    def _note(self, path: str, change: LeafChange | None, why: str, instead: str) -> None:
        if change is None:
            key = (path, "expected outcomes", OUTCOMES_KIND, why, instead, "judge")
        else:
            key = (path, change.node.name, change.node.kind, why, instead, change.asks)
        self.counts[key] += 1


def _why_unrun(change: LeafChange | None) -> str:
    if change is None:
        return OUTCOMES_UNJUDGED
    return change.why if change.reach is Reach.NEW else NOT_RUN

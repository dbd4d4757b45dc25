"""Decide every execution of a run by a set of rules, from plain stored numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from evaluators.kinds._base import Kind
from evaluators.scoring.decision import FORCING_RULES
from evaluators.scoring.evaluation import HYBRID_KIND, Values, is_held
from evaluators.scoring.frames import Frame
from evaluators.scoring.numbers import rounded
from evaluators.scoring.ruling import CaseGate, Ruling, case_gate
from evaluators.scoring.types import OutcomeResult, Unscored, Verdict
from evaluators.scoring.verdict import Rules
from evaluators.scoring.wording import decided_by
from runs.plan import OUTCOMES_PATH
from runs.what_if.changes import LeafChange, Reach
from runs.what_if.stored import StoredCase, StoredResult, StoredRun

SCORED, ERROR, OPEN = "scored", "error", "open"
JUDGE_OVERALL = "judge_overall"
BY_OUTCOMES = "expected_outcomes"
SCORE_GATE = CaseGate()
# A rule of the root that may fail the result once a score that is open is known.
FAILING_ROOTS = ("safety_gate", "all_or_nothing", "threshold")


@dataclass(frozen=True, slots=True)
class Rescored:
    """What stored parts of one score come to under other settings; `overall` is a judge's own, 0 to 1."""

    score: float
    missed: tuple[str, ...] = ()
    overall: float | None = None


# By path in the new tree and result.
RescoredScores = Mapping[str, Mapping[int, Rescored]]


@dataclass(frozen=True, slots=True)
class Decided:
    """How one execution stands. `status` is open where it takes new calls to tell.

    `unrun` are the paths of evaluators that were not run and would be; one that the verdict can do without
    leaves it standing. `decided_by` fits a table cell.
    """

    status: str
    verdict: Verdict | None = None
    score: float | None = None
    is_forced: bool = False
    decided_by: str = ""
    unrun: tuple[str, ...] = ()


@dataclass(slots=True)
class _Leaf:
    """Where the score of a leaf is found."""

    frame: Frame
    column: int
    rescored: Mapping[int, Rescored]
    overalls: Mapping[int, float]


@dataclass(slots=True)
class _Ruled:
    """A ruling with what it was made of.

    `live` are the leaves that were not run and would be, `needed` those that verdict or score cannot
    do without.
    """

    values: Values
    ruling: Ruling
    gate: CaseGate
    live: Sequence[Frame] = ()
    needed: Sequence[Frame] = ()
    waits_for_outcomes: bool = False


class Deciding:
    """A tree and a policy ready to decide the stored executions of some cases.

    `tells_open` has an execution that takes new calls stand open; without it what was not run has
    no score, as when the run was carried out. `is_judged` tells that expected outcomes nobody
    judged were to be judged under these rules too, so that their absence means the same.
    """

    def __init__(  # noqa: PLR0913 - what is stored, what is made of it, and how to read it
        self,
        rules: Rules,
        leaves: Mapping[str, LeafChange],
        stored: StoredRun,
        *,
        rescored: RescoredScores,
        kinds: Mapping[str, Kind],
        tells_open: bool,
        is_judged: bool,
    ) -> None:
        self.rules, self.stored = rules, stored
        self.tells_open, self.is_judged = tells_open, is_judged
        layout = rules.layout
        self.count = len(layout.frames)
        self.leaves = [
            _Leaf(
                frame,
                stored.columns.get(origin, -1)
                if (origin := leaves[frame.path].origin) is not None
                else -1,
                rescored.get(frame.path, {}) if leaves[frame.path].reach is Reach.RESCORED else {},
                stored.overalls.get(origin, {}) if origin is not None else {},
            )
            for frame in layout.leaves
        ]
        self.takes_overall = rules.policy.final_score == JUDGE_OVERALL
        self.by_outcomes = rules.policy.case_gate == BY_OUTCOMES
        self.sources = [
            leaf
            for leaf in self.leaves
            if (kind := kinds.get(leaf.frame.node.kind)) is not None and kind.supplies_outcomes
        ]

    def decide(self, result: StoredResult, case: StoredCase) -> Decided:
        """Return how an answered execution stands under the rules; `decided_by` is left to `said`."""
        return self._decided(self._ruled(result, case))

    def said(self, result: StoredResult, case: StoredCase) -> Decided:
        """Return how it stands with the words for what decided."""
        ruled = self._ruled(result, case)
        found = self._decided(ruled)
        layout = self.rules.layout
        if found.status == OPEN:
            names = (path or layout.frames[0].node.name for path in found.unrun)
            text = f"needs {', '.join(names)} to be scored anew"
        else:
            text = decided_by(layout, ruled.values, ruled.gate, ruled.ruling)
        return replace(found, decided_by=text)

    def _ruled(self, result: StoredResult, case: StoredCase) -> _Ruled:
        row = self.stored.scores.get(result.id, ())
        scores: list[float | None] = [None] * self.count
        parts: dict[int, tuple[str, ...]] = {}
        unrun: list[_Leaf] = []
        for leaf in self.leaves:
            said: Any = row[leaf.column] if leaf.column >= 0 else None
            frame = leaf.frame
            if said is None:
                unrun.append(leaf)
                continue
            if said is False:
                continue
            if leaf.rescored and (made := leaf.rescored.get(result.id)) is not None:
                said = [made.score, made.missed] if made.missed else made.score
            if said.__class__ is list:
                parts[frame.index] = tuple(said[1])
                said = said[0]
            scores[frame.index] = 1.0 - said if frame.negate else said
        judged = self._judged(result.id, scores) if self.takes_overall else None
        gate, lacks = self._gate(result, case, row) if self.by_outcomes else (SCORE_GATE, False)
        values, ruling = self.rules.rule_scores(scores, parts, gate, judged)
        if not self.tells_open or not (unrun or lacks):
            return _Ruled(values, ruling, gate)
        live = [leaf.frame for leaf in unrun if not is_held(self.rules.layout, leaf.frame, values)]
        waits = lacks and (not self.sources or any(one.frame in live for one in self.sources))
        needed = [frame for frame in live if frame.needed or frame is judged]
        return _Ruled(values, ruling, gate, live, needed, waits)

    def _decided(self, ruled: _Ruled) -> Decided:
        beside = (OUTCOMES_PATH,) if ruled.waits_for_outcomes and not self.sources else ()
        unrun = (*(frame.path for frame in ruled.live), *beside)
        if self._is_open(ruled):
            return Decided(OPEN, unrun=unrun)
        ruling = ruled.ruling
        if ruling.is_error:
            return Decided(ERROR, unrun=unrun)
        score = None if ruling.score is None or ruled.needed else rounded(ruling.score)
        is_forced = ruling.verdict is Verdict.FAIL and ruling.rule in FORCING_RULES
        return Decided(SCORED, ruling.verdict, score, is_forced, unrun=unrun)

    def _is_open(self, ruled: _Ruled) -> bool:
        """Tell whether the verdict hangs on what was not run; under the outcomes gate only the score may."""
        if ruled.waits_for_outcomes:
            return True
        if ruled.gate.rule != BY_OUTCOMES or self.rules.layout.frames[0].rule in FAILING_ROOTS:
            return bool(ruled.needed)
        return any(frame.strict for frame in ruled.needed)

    def _judged(self, result_id: int, scores: list[float | None]) -> Frame | None:
        """Return the leaf that counts by its judge's overall score, having put that in its place."""
        hybrid = next((one for one in self.leaves if one.frame.node.kind == HYBRID_KIND), None)
        leaf = hybrid or next(
            (one for one in self.leaves if self._overall(one, result_id) is not None), None
        )
        if leaf is None:
            return None
        overall = self._overall(leaf, result_id)
        if overall is not None and scores[leaf.frame.index] is not None:
            scores[leaf.frame.index] = 1.0 - overall if leaf.frame.negate else overall
        return leaf.frame

    def _overall(self, leaf: _Leaf, result_id: int) -> float | None:
        made = leaf.rescored.get(result_id)
        return leaf.overalls.get(result_id) if made is None else made.overall

    def _gate(
        self, result: StoredResult, case: StoredCase, row: Sequence[Any]
    ) -> tuple[CaseGate, bool]:
        """Return what decides the case, and whether its outcomes are yet to be judged."""
        expected = _blank(case.expected)
        policy = self.rules.policy
        if not case.expected or result.marks:
            return case_gate(policy, expected, _marked(result.marks)), False
        told = [row[at] for at in self._source_columns() if at < len(row)]
        if any(said is False for said in told):
            return case_gate(policy, expected, Unscored("their judge gave no score")), False
        nobody = all(said is None for said in told) and not self.is_judged
        return case_gate(policy, expected, None), nobody

    def _source_columns(self) -> Iterable[int]:
        beside = self.stored.columns.get(OUTCOMES_PATH)
        columns = [leaf.column for leaf in self.sources if leaf.column >= 0]
        return columns if beside is None else [beside, *columns]


@lru_cache(maxsize=1024)
def _marked(marks: str) -> tuple[OutcomeResult, ...]:
    return tuple(OutcomeResult("", mark == "1") for mark in marks)


@lru_cache(maxsize=256)
def _blank(count: int) -> tuple[str, ...]:
    return ("",) * count

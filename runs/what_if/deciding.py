"""Decide every execution of a run by a set of rules from stored scores, and list what these leave unanswered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from evaluators.kinds._base import Kind
from evaluators.scoring.aggregate import HYBRID_KIND, HYBRID_SCALE, JUDGE_OVERALL, Values, is_held
from evaluators.scoring.compile import CompiledNode
from evaluators.scoring.decision import FORCING_RULES, CaseBasis, VerdictResult, case_basis
from evaluators.scoring.explain import decided_by
from evaluators.scoring.numbers import rounded
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import ROOT_PATH, walk
from evaluators.scoring.types import DomainError, OutcomeResult, Score, Unscored, Verdict
from runs.engine.plan import OUTCOMES_KIND, OUTCOMES_PATH
from runs.what_if.changes import CaseTrees, LeafChange, Reach, RuleSet

SCORED, ERROR, OPEN_STATE = "scored", "error", "open"
FINAL_FROM_JUDGE = "judge_overall"
BY_OUTCOMES = "expected_outcomes"
SCORE_BASIS = CaseBasis()
# A rule of the root that may fail the result once a score that is open is known.
FAILING_ROOTS = ("safety_gate", "all_or_nothing", "threshold")


class StoredResult(NamedTuple):
    """One execution as it was recorded; `marks` has a character for each expected outcome, 1 met and 0 missed."""

    id: int
    case: int
    repetition: int
    status: str
    verdict: str
    score: float | None
    is_forced: bool
    reviewed: str
    marks: str
    decided_by: str
    error: str


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case in the revision that ran: how many outcomes it expects, and evaluators of its own."""

    key: str
    expected: int = 0
    evaluators: Mapping[str, Any] | None = None
    append: bool = False


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The executions of a run in the order of the suite, with what every evaluator said.

    `scores` holds by result one entry for each of the `columns`, which are found by path: the
    score before negation, False where the evaluator could not score, None where it was not run,
    [score, required parts missed] where it missed some. `overalls` holds by path and result the
    judge's own overall score, 0 to 1, where it gave one. `is_completed` tells whether nothing was left out.
    """

    results: Sequence[StoredResult]
    cases: Mapping[int, StoredCase]
    columns: Mapping[str, int]
    scores: Mapping[int, Sequence[Any]]
    overalls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    is_completed: bool = True

    def is_answered(self, result_id: int) -> bool:
        """Tell whether an evaluator saw an output of this execution."""
        return any(explain is not None for explain in self.scores.get(result_id, ()))


@dataclass(frozen=True, slots=True)
class Stale:
    """An evaluator whose change the stored scores cannot follow in `results` of `total` executions.

    `instead` is kept where the stored score stands in, open where there is none and the execution
    waits. `asks` tells what scoring it anew takes: judge for new model calls, script for a program, "" for
    a new scoring pass alone.
    """

    path: str
    name: str
    kind: str
    why: str
    instead: str
    asks: str
    results: int
    total: int


@dataclass(frozen=True, slots=True)
class Rescored:
    """The score that stored parts give under other settings; `overall` is the judge's overall score, 0 to 1."""

    score: float
    missed: tuple[str, ...] = ()
    overall: float | None = None


# By path in the new tree and result.
RescoredScores = Mapping[str, Mapping[int, Rescored]]


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of one execution; `status` is open where it needs new calls.

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
    """Where the score of a leaf is stored."""

    frame: CompiledNode
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
    ruling: VerdictResult
    basis: CaseBasis
    live: Sequence[CompiledNode] = ()
    needed: Sequence[CompiledNode] = ()
    waits_for_outcomes: bool = False


class Deciding:
    """A tree and a policy ready to decide the stored executions of some cases.

    `tells_open` has an execution that takes new calls stand open; without it what was not run has
    no score, as when the run was carried out. `is_judged` tells that expected outcomes nobody
    judged were to be judged under these rules too, so that their absence means the same.
    """

    def __init__(
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
        tree = rules.tree
        self.count = len(tree.nodes)
        self.leaves = [
            _Leaf(
                frame,
                stored.columns.get(origin, -1)
                if (origin := leaves[frame.path].origin) is not None
                else -1,
                rescored.get(frame.path, {}) if leaves[frame.path].reach is Reach.RESCORED else {},
                stored.overalls.get(origin, {}) if origin is not None else {},
            )
            for frame in tree.leaves
        ]
        self.takes_overall = rules.policy.final_score == FINAL_FROM_JUDGE
        self.by_outcomes = rules.policy.case_gate == BY_OUTCOMES
        self.sources = [
            leaf
            for leaf in self.leaves
            if (kind := kinds.get(leaf.frame.spec.kind)) is not None and kind.supplies_outcomes
        ]

    def decide(self, result: StoredResult, case: StoredCase) -> Decided:
        """Return how an answered execution stands under the rules; `decided_by` is left to `said`."""
        return self._decided(self._ruled(result, case))

    def explain(self, result: StoredResult, case: StoredCase) -> Decided:
        """Return how it stands with the words for what decided."""
        apply_rules = self._ruled(result, case)
        found = self._decided(apply_rules)
        tree = self.rules.tree
        if found.status == OPEN_STATE:
            names = (path or tree.nodes[0].spec.name for path in found.unrun)
            text = f"needs {', '.join(names)} to be scored anew"
        else:
            text = decided_by(tree, apply_rules.values, apply_rules.basis, apply_rules.ruling)
        return replace(found, decided_by=text)

    def _ruled(self, result: StoredResult, case: StoredCase) -> _Ruled:
        row = self.stored.scores.get(result.id, ())
        scores: list[float | None] = [None] * self.count
        parts: dict[int, tuple[str, ...]] = {}
        unrun: list[_Leaf] = []
        for leaf in self.leaves:
            explain: Any = row[leaf.column] if leaf.column >= 0 else None
            frame = leaf.frame
            if explain is None:
                unrun.append(leaf)
                continue
            if explain is False:
                continue
            if leaf.rescored and (made := leaf.rescored.get(result.id)) is not None:
                explain = [made.score, made.missed] if made.missed else made.score
            if explain.__class__ is list:
                parts[frame.index] = tuple(explain[1])
                explain = explain[0]
            scores[frame.index] = 1.0 - explain if frame.negate else explain
        judged = self._judged(result.id, scores) if self.takes_overall else None
        basis, is_missing = (
            self._basis(result, case, row) if self.by_outcomes else (SCORE_BASIS, False)
        )
        values, ruling = self.rules.decide_scores(scores, parts, basis, judged)
        if not self.tells_open or not (unrun or is_missing):
            return _Ruled(values, ruling, basis)
        live = [leaf.frame for leaf in unrun if not is_held(self.rules.tree, leaf.frame, values)]
        waits = is_missing and (not self.sources or any(one.frame in live for one in self.sources))
        needed = [frame for frame in live if frame.needed or frame is judged]
        return _Ruled(values, ruling, basis, live, needed, waits)

    def _decided(self, apply_rules: _Ruled) -> Decided:
        outcomes_column = (
            (OUTCOMES_PATH,) if apply_rules.waits_for_outcomes and not self.sources else ()
        )
        unrun = (*(frame.path for frame in apply_rules.live), *outcomes_column)
        if self._is_open(apply_rules):
            return Decided(OPEN_STATE, unrun=unrun)
        ruling = apply_rules.ruling
        if ruling.is_error:
            return Decided(ERROR, unrun=unrun)
        score = None if ruling.score is None or apply_rules.needed else rounded(ruling.score)
        is_forced = ruling.verdict is Verdict.FAIL and ruling.rule in FORCING_RULES
        return Decided(SCORED, ruling.verdict, score, is_forced, unrun=unrun)

    def _is_open(self, apply_rules: _Ruled) -> bool:
        """Tell whether the verdict hangs on what was not run; under the outcomes gate only the score may."""
        if apply_rules.waits_for_outcomes:
            return True
        if apply_rules.basis.rule != BY_OUTCOMES or self.rules.tree.nodes[0].rule in FAILING_ROOTS:
            return bool(apply_rules.needed)
        return any(frame.strict for frame in apply_rules.needed)

    def _judged(self, result_id: int, scores: list[float | None]) -> CompiledNode | None:
        """Return the leaf that counts by its judge's overall score, having put that in its place."""
        hybrid = next((one for one in self.leaves if one.frame.spec.kind == HYBRID_KIND), None)
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

    def _basis(
        self, result: StoredResult, case: StoredCase, row: Sequence[Any]
    ) -> tuple[CaseBasis, bool]:
        """Return what decides the case, and whether its outcomes are yet to be judged."""
        expected = _blank(case.expected)
        policy = self.rules.policy
        if not case.expected or result.marks:
            return case_basis(policy, expected, _marked(result.marks)), False
        scores_of_judges = [row[at] for at in self._source_columns() if at < len(row)]
        if any(explain is False for explain in scores_of_judges):
            return case_basis(policy, expected, Unscored("their judge gave no score")), False
        nobody = all(explain is None for explain in scores_of_judges) and not self.is_judged
        return case_basis(policy, expected, None), nobody

    def _source_columns(self) -> Iterable[int]:
        outcomes_column = self.stored.columns.get(OUTCOMES_PATH)
        columns = [leaf.column for leaf in self.sources if leaf.column >= 0]
        return columns if outcomes_column is None else [outcomes_column, *columns]


@lru_cache(maxsize=1024)
def _marked(marks: str) -> tuple[OutcomeResult, ...]:
    return tuple(OutcomeResult("", mark == "1") for mark in marks)


@lru_cache(maxsize=256)
def _blank(count: int) -> tuple[str, ...]:
    return ("",) * count


# Errors that parts of an older version or of a file can raise.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class PartsRead:
    """By result the score of one changed evaluator, or why its parts are missing."""

    scores: dict[int, Rescored] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


def rescore_parts(
    changes: Iterable[LeafChange],
    kinds: Mapping[str, Kind],
    rows: Iterable[tuple[str, int, Mapping[str, Any]]],
) -> dict[str, PartsRead]:
    """Return by path what changed evaluators come to; `rows` are path in the run, result and details."""
    by_origin: dict[str | None, list[LeafChange]] = {}
    for change in changes:
        by_origin.setdefault(change.origin, []).append(change)
    read = {change.path: PartsRead() for found in by_origin.values() for change in found}
    for origin, result, details in rows:
        for change in by_origin[origin]:
            found = rescored(change, kinds[change.node.kind], details)
            if isinstance(found, str):
                read[change.path].missing[result] = found
            else:
                overall = overall_of(found.details.get(JUDGE_OVERALL))
                read[change.path].scores[result] = Rescored(
                    found.score, found.failed_required, overall
                )
    return read


def rescored(change: LeafChange, kind: Kind, details: Mapping[str, Any]) -> Score | str:
    """Return the score that stored details give under the changed settings, or a text on what they lack."""
    if kind.rescore is None:
        raise AssertionError(f"{change.path} is of a kind that makes no score of stored parts")
    try:
        return kind.rescore(change.config, details)
    except DomainError as error:
        return str(error)
    except UNREADABLE:
        return "Its stored parts cannot be read."


def overall_of(judged: Any) -> float | None:
    """Return the overall score of a judge from its details, 0 to 1; None where there is none."""
    if not isinstance(judged, Mapping) or not isinstance(judged.get("score"), int | float):
        return None
    return float(judged["score"]) / HYBRID_SCALE


KEPT, OPEN_SCORE = "kept", "open"
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
    """Counts by evaluator and reason the executions that stored scores leave unanswered."""

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
        self.outcomes_column = stored.columns.get(OUTCOMES_PATH)
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
            self._note(path, change, _why_unrun(change), OPEN_SCORE)
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
        """Say why stored outcomes may differ from those under these rules, "" when they cannot."""
        if self.outcomes_column is not None and row[self.outcomes_column] is not None:
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

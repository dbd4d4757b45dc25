"""Decide the executions of a run by other rules from stored scores, and list what stored scores cannot answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from evaluators.kinds._base import Kind
from evaluators.scoring.aggregate import (
    HYBRID_KIND,
    HYBRID_SCALE,
    JUDGE_OVERALL,
    Values,
    is_held_back,
)
from evaluators.scoring.compile import CompiledNode
from evaluators.scoring.decision import FORCING_RULES, CaseBasis, VerdictResult, case_basis
from evaluators.scoring.explain import decided_by
from evaluators.scoring.numbers import rounded
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import ROOT_PATH, walk
from evaluators.scoring.types import DomainError, OutcomeResult, Score, Unscored, Verdict
from runs.engine.plan import OUTCOMES_KIND, OUTCOMES_PATH
from runs.what_if.changes import CaseTrees, LeafChange, RuleSet, ScoreSource

SCORED, ERROR, OPEN_STATE = "scored", "error", "open"
FINAL_FROM_JUDGE = "judge_overall"
BY_OUTCOMES = "expected_outcomes"
SCORE_BASIS = CaseBasis()
# Rules of the root that may fail the result once an open score is known.
FAILING_ROOTS = ("safety_gate", "all_or_nothing", "threshold")


class StoredResult(NamedTuple):
    """A recorded execution. `marks` has a character for each expected outcome, 1 for met and 0 for missed.

    The fields of FACTS and the scores are what rules decide by.
    """

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


FACTS = slice(3, 9)


class StoredCase(NamedTuple):
    """A case in the revision that ran: its number of expected outcomes, and its own evaluators."""

    key: str
    expected: int = 0
    evaluators: Mapping[str, Any] | None = None
    append: bool = False


# Cases by the places of results that are decided like theirs, repetition by repetition.
AlikeCases = Mapping[tuple[int, ...], Sequence[int]]


@dataclass(frozen=True)
class StoredRun:
    """The executions of a run in the order of the suite, with the scores of every evaluator.

    `columns` are the positions of evaluators by path. `scores` holds by result an entry for each
    position: the score before negation, False if the evaluator could not score, None if it did not run,
    or [score, missed parts] if it missed required parts. `overalls` holds the overall scores of judges by
    path and result, 0 to 1. `is_completed` tells whether no execution was left out.
    """

    results: Sequence[StoredResult]
    cases: Mapping[int, StoredCase]
    columns: Mapping[str, int]
    scores: Mapping[int, Sequence[Any]]
    overalls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    is_completed: bool = True

    @cached_property
    def firsts(self) -> Sequence[int]:
        """Return for each result the place of the first one with the same facts, which all rules decide alike.

        Overall scores of judges and parts that are scored anew are not looked at.
        """
        known: dict[tuple[Any, ...], int] = {}
        firsts = []
        for place, result in enumerate(self.results):
            case, scores = self.cases[result.case], self.scores.get(result.id, ())
            own = case.expected, id(case.evaluators), case.append
            # With their types, for False, which is no score, equals 0.
            facts = (result[FACTS], own, *scores, *map(type, scores))
            try:
                firsts.append(known.setdefault(facts, place))
            except TypeError:
                # A list of missed parts cannot be looked up.
                firsts.append(place)
        return firsts

    @cached_property
    def places(self) -> Mapping[int, Sequence[int]]:
        """Return the places of the results of each case."""
        places: dict[int, list[int]] = {case: [] for case in self.cases}
        for place, result in enumerate(self.results):
            places[result.case].append(place)
        return places

    @cached_property
    def alike(self) -> AlikeCases:
        """Return the cases whose results all rules decide alike, as `firsts` has them."""
        alike: dict[tuple[int, ...], list[int]] = {}
        for case, places in self.places.items():
            alike.setdefault(tuple([self.firsts[place] for place in places]), []).append(case)
        return alike

    @property
    def alone(self) -> AlikeCases:
        """Return every case alone, for rules that may decide any two results differently."""
        return {tuple(places): (case,) for case, places in self.places.items()}

    def is_answered(self, result_id: int) -> bool:
        """Tell whether any evaluator ran on this execution."""
        scores = self.scores.get(result_id, ())
        return scores.count(None) < len(scores)


@dataclass(frozen=True, slots=True)
class Stale:
    """An evaluator that stored scores cannot answer for in `results` of `total` executions.

    `instead` is kept if the stored score is used, open if there is none and the execution waits.
    `asks` tells what a new score needs: judge for model calls, script for a program, "" for neither.
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
class RescoredScore:
    """The score of stored parts under other settings; `overall` is the overall score of a judge, 0 to 1."""

    score: float
    missed: tuple[str, ...] = ()
    overall: float | None = None


# By path in the new tree and result.
RescoredScores = Mapping[str, Mapping[int, RescoredScore]]


@dataclass(frozen=True, slots=True)
class DecidedResult:
    """The result of an execution under other rules; `status` is open if it needs new calls.

    `unrun` are the paths of evaluators that did not run but would under these rules. The verdict may not
    depend on them. `decided_by` is a short text for a table.
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

    node: CompiledNode
    column: int
    rescored: Mapping[int, RescoredScore]
    overalls: Mapping[int, float]


@dataclass(slots=True)
class _Decision:
    """A verdict with the values that it was decided from.

    `unrun` are the leaves that did not run but would under these rules; verdict or score depend on those
    in `needed`.
    """

    values: Values
    verdict: VerdictResult
    basis: CaseBasis
    unrun: Sequence[CompiledNode] = ()
    needed: Sequence[CompiledNode] = ()
    waits_for_outcomes: bool = False


class ResultDecider:
    """Decides the stored executions of some cases by a tree and a policy.

    With `tells_open`, an execution that needs new calls is open; without it, an evaluator that did not
    run has no score, as in the run itself. `is_judged` tells that these rules, like those of the run,
    judge expected outcomes, so that outcomes without a judgement stay so.
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
                node,
                stored.columns.get(origin, -1)
                if (origin := leaves[node.path].origin) is not None
                else -1,
                rescored.get(node.path, {})
                if leaves[node.path].reach is ScoreSource.RESCORED
                else {},
                stored.overalls.get(origin, {}) if origin is not None else {},
            )
            for node in tree.leaves
        ]
        self.takes_overall = rules.policy.final_score == FINAL_FROM_JUDGE
        self.by_outcomes = rules.policy.outcomes_decide
        self.sources = [
            leaf
            for leaf in self.leaves
            if (kind := kinds.get(leaf.node.spec.kind)) is not None and kind.supplies_outcomes
        ]

    def decide(self, result: StoredResult, case: StoredCase) -> DecidedResult:
        """Return the result of an answered execution under the rules, without the text of `explain`."""
        return self._result(self._apply_rules(result, case))

    def explain(self, result: StoredResult, case: StoredCase) -> DecidedResult:
        """Return the result with a text on what decided it."""
        decision = self._apply_rules(result, case)
        decided = self._result(decision)
        tree = self.rules.tree
        if decided.status == OPEN_STATE:
            names = (path or tree.nodes[0].spec.name for path in decided.unrun)
            text = f"needs {', '.join(names)} to be rescored"
        else:
            text = decided_by(tree, decision.values, decision.basis, decision.verdict)
        return replace(decided, decided_by=text)

    def _apply_rules(self, result: StoredResult, case: StoredCase) -> _Decision:
        row = self.stored.scores.get(result.id, ())
        scores: list[float | None] = [None] * self.count
        parts: dict[int, tuple[str, ...]] = {}
        unrun: list[_Leaf] = []
        for leaf in self.leaves:
            entry: Any = row[leaf.column] if leaf.column >= 0 else None
            node = leaf.node
            if entry is None:
                unrun.append(leaf)
                continue
            if entry is False:
                continue
            if leaf.rescored and (rescored := leaf.rescored.get(result.id)) is not None:
                entry = [rescored.score, rescored.missed] if rescored.missed else rescored.score
            if entry.__class__ is list:
                parts[node.index] = tuple(entry[1])
                entry = entry[0]
            scores[node.index] = 1.0 - entry if node.negate else entry
        judged = self._use_overall(result.id, scores) if self.takes_overall else None
        basis, is_missing = (
            self._basis(result, case, row) if self.by_outcomes else (SCORE_BASIS, False)
        )
        values, verdict = self.rules.decide_scores(scores, parts, basis, judged)
        if not self.tells_open or not (unrun or is_missing):
            return _Decision(values, verdict, basis)
        nodes = [
            leaf.node for leaf in unrun if not is_held_back(self.rules.tree, leaf.node, values)
        ]
        waits = is_missing and (
            not self.sources or any(leaf.node in nodes for leaf in self.sources)
        )
        needed = [node for node in nodes if node.needed or node is judged]
        return _Decision(values, verdict, basis, nodes, needed, waits)

    def _result(self, decision: _Decision) -> DecidedResult:
        outcomes_column = (
            (OUTCOMES_PATH,) if decision.waits_for_outcomes and not self.sources else ()
        )
        unrun = (*(node.path for node in decision.unrun), *outcomes_column)
        if self._is_open(decision):
            return DecidedResult(OPEN_STATE, unrun=unrun)
        verdict = decision.verdict
        if verdict.is_error:
            return DecidedResult(ERROR, unrun=unrun)
        score = None if verdict.score is None or decision.needed else rounded(verdict.score)
        is_forced = verdict.verdict is Verdict.FAIL and verdict.rule in FORCING_RULES
        return DecidedResult(SCORED, verdict.verdict, score, is_forced, unrun=unrun)

    def _is_open(self, decision: _Decision) -> bool:
        """Tell whether the verdict depends on leaves that did not run."""
        if decision.waits_for_outcomes:
            return True
        # Under the outcomes gate most leaves change only the score.
        if decision.basis.rule != BY_OUTCOMES or self.rules.tree.nodes[0].rule in FAILING_ROOTS:
            return bool(decision.needed)
        return any(node.strict for node in decision.needed)

    def _use_overall(self, result_id: int, scores: list[float | None]) -> CompiledNode | None:
        """Replace the score of a judge by its overall score, and return its leaf."""
        hybrid = next((leaf for leaf in self.leaves if leaf.node.spec.kind == HYBRID_KIND), None)
        judge = hybrid or next(
            (leaf for leaf in self.leaves if self._overall(leaf, result_id) is not None), None
        )
        if judge is None:
            return None
        overall = self._overall(judge, result_id)
        if overall is not None and scores[judge.node.index] is not None:
            scores[judge.node.index] = 1.0 - overall if judge.node.negate else overall
        return judge.node

    def _overall(self, leaf: _Leaf, result_id: int) -> float | None:
        rescored = leaf.rescored.get(result_id)
        return leaf.overalls.get(result_id) if rescored is None else rescored.overall

    def _basis(
        self, result: StoredResult, case: StoredCase, row: Sequence[Any]
    ) -> tuple[CaseBasis, bool]:
        """Return the basis of the case's verdict, and whether its expected outcomes still need a judge."""
        expected = _blank(case.expected)
        policy = self.rules.policy
        if not case.expected or result.marks:
            return case_basis(policy, expected, _marked(result.marks)), False
        entries = [row[column] for column in self._source_columns() if column < len(row)]
        if any(entry is False for entry in entries):
            return case_basis(policy, expected, Unscored("their judge gave no score")), False
        needs_judge = all(entry is None for entry in entries) and not self.is_judged
        return case_basis(policy, expected, None), needs_judge

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


# Errors from stored parts of an older version or of an imported file.
UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError)


@dataclass(slots=True)
class PartsRead:
    """The scores of a changed evaluator by result, or why its parts are missing."""

    scores: dict[int, RescoredScore] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


def rescore_parts(
    changes: Iterable[LeafChange],
    kinds: Mapping[str, Kind],
    rows: Iterable[tuple[str, int, Mapping[str, Any]]],
) -> dict[str, PartsRead]:
    """Return the scores of changed evaluators by path. `rows` are path in the run, result and details."""
    by_origin: dict[str | None, list[LeafChange]] = {}
    for change in changes:
        by_origin.setdefault(change.origin, []).append(change)
    read = {change.path: PartsRead() for changes in by_origin.values() for change in changes}
    for origin, result, details in rows:
        for change in by_origin[origin]:
            score = rescore(change, kinds[change.node.kind], details)
            if isinstance(score, str):
                read[change.path].missing[result] = score
            else:
                overall = read_overall(score.details.get(JUDGE_OVERALL))
                read[change.path].scores[result] = RescoredScore(
                    score.score, score.failed_required, overall
                )
    return read


def rescore(change: LeafChange, kind: Kind, details: Mapping[str, Any]) -> Score | str:
    """Return the score of stored details under the changed settings, or a text on what is missing."""
    if kind.rescore is None:
        raise AssertionError(f"{change.path} is of a kind that cannot rescore stored parts")
    try:
        return kind.rescore(change.config, details)
    except DomainError as error:
        return str(error)
    except UNREADABLE:
        return "Its stored parts cannot be read."


def read_overall(judged: Any) -> float | None:
    """Return the overall score of a judge from its details, 0 to 1; None without one."""
    if not isinstance(judged, Mapping) or not isinstance(judged.get("score"), int | float):
        return None
    return float(judged["score"]) / HYBRID_SCALE


KEPT, OPEN_SCORE = "kept", "open"
NOT_RUN = "it was skipped after a failed gate that would pass now"
OUTCOMES_UNJUDGED = "the expected outcomes were not judged in this run"
OUTCOMES_REJUDGED = "another language model judges them"
OUTCOMES_ORPHANED = "the evaluator that judged them was removed"

StaleKey = tuple[str, str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Watched:
    """The changed evaluators of a tree, and whether the evaluator that judged its outcomes is gone."""

    changes: tuple[LeafChange, ...]
    is_orphaned: bool


class Staleness:
    """Counts the executions that stored scores cannot answer for, by evaluator and reason."""

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
        self.by_outcomes = after.policy.outcomes_decide
        self.outcomes_column = stored.columns.get(OUTCOMES_PATH)
        self.counts: Counter[StaleKey] = Counter()
        self.total = 0
        self.watched: dict[int, _Watched] = {}

    def add(
        self,
        result: StoredResult,
        trees: CaseTrees,
        leaves: Mapping[str, LeafChange],
        decided: DecidedResult,
        *,
        alike: int,
    ) -> None:
        """Count an answered execution, and with it all that are `alike`."""
        self.total += alike
        for path in decided.unrun:
            change = leaves.get(path)
            self._note(path, change, (_why_unrun(change), OPEN_SCORE), alike)
        watched = self.watched.get(id(leaves))
        if watched is None:
            watched = self.watched[id(leaves)] = self._watch(trees, leaves)
        row = self.stored.scores[result.id]
        for change in watched.changes:
            if why := self._why_kept(change, result, row):
                self._note(change.path, change, (why, KEPT), alike)
        if why := self._why_outcomes(result, row, watched):
            self._note(OUTCOMES_PATH, None, (why, KEPT), alike)

    def stale(self) -> tuple[Stale, ...]:
        """Return the stale evaluators, each with its number of executions."""
        return tuple(
            Stale(path, name, kind, why, instead, asks, results, self.total)
            for (path, name, kind, why, instead, asks), results in self.counts.items()
        )

    def _watch(self, trees: CaseTrees, leaves: Mapping[str, LeafChange]) -> _Watched:
        reaches = (ScoreSource.OLD, ScoreSource.RESCORED)
        changes = tuple(change for change in leaves.values() if change.reach in reaches)
        sources = {path for path, node in walk(trees.before) if node.kind in self.supplying}
        origins = {change.origin for change in leaves.values()}
        return _Watched(changes, bool(sources) and sources.isdisjoint(origins))

    def _why_kept(self, change: LeafChange, result: StoredResult, row: Sequence[Any]) -> str:
        if change.reach is ScoreSource.RESCORED:
            read = self.parts.get(change.path)
            return read.missing.get(result.id, "") if read is not None else ""
        column = self.stored.columns.get(change.origin or ROOT_PATH, -1)
        return change.why if column >= 0 and row[column] is not None else ""

    def _why_outcomes(self, result: StoredResult, row: Sequence[Any], watched: _Watched) -> str:
        """Return why stored outcomes may differ from those under these rules, "" if they cannot."""
        if self.outcomes_column is not None and row[self.outcomes_column] is not None:
            return OUTCOMES_REJUDGED if self.rejudges else ""
        # Marks without a separate call for outcomes come from an evaluator of the tree.
        is_counted = self.by_outcomes and bool(result.marks)
        return OUTCOMES_ORPHANED if is_counted and watched.is_orphaned else ""

    def _note(
        self, path: str, change: LeafChange | None, reason: tuple[str, str], alike: int
    ) -> None:
        if change is None:
            key = (path, "expected outcomes", OUTCOMES_KIND, *reason, "judge")
        else:
            key = (path, change.node.name, change.node.kind, *reason, change.asks)
        self.counts[key] += alike


def _why_unrun(change: LeafChange | None) -> str:
    if change is None:
        return OUTCOMES_UNJUDGED
    return change.why if change.reach is ScoreSource.NEW else NOT_RUN

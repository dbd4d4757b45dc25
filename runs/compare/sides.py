"""One side of a comparison: the executions of a run, its cases and figures, and what its evaluators measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import combined_cost, mean, nearest_rank, sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.significance import MIN_CASES
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, negated_paths, walk
from evaluators.scoring.types import Verdict
from runs.compare.evidence import (
    DIMENSION,
    EVALUATOR,
    METRIC,
    Columns,
    Measured,
    MeasuredFigure,
    MeasuredRun,
    Places,
)
from runs.compare.rules import CaseSide, CaseSideFigures, RunSide
from runs.costs import CostPair, run_costs
from runs.engine.plan import METRICS_KIND, OUTCOMES_PATH, read_plan, read_policy
from runs.models.results import EvaluatorScore, Result, ScoreState
from runs.models.run_cases import VERDICTS, RunCase
from runs.models.runs import Run
from runs.models.stored import unpack_leaf_scores
from runs.models.suites import Case
from runs.results.result_state import Override
from runs.results.runs import RunGate, cases_gate, metrics_gate
from runs.summary.cases import (
    ENDED,
    SCORED,
    ExecutionRecord,
    both_verdicts,
    case_decision,
    counted_verdict,
    summary_state,
)


def run_gates(run: Run) -> tuple[RunGate, RunGate]:
    """Return the gates of a run by mean score and pass rate, over all its cases."""
    policy = run.policy
    return metrics_gate(run, policy), cases_gate(run, policy)


# Of each execution its case and id, what decides the case (status, verdict, score, whether it was forced, the review),
# and its own figures: the marks of its outcomes, its latency, and both costs.
COLUMNS = (
    *("case_id", "id", "status", "verdict", "score", "is_forced", "reviewed_verdict"),
    *("outcome_marks", "latency_ms", "run_cost_usd", "evaluation_cost_usd"),
)
FACTS, FIGURES = slice(2, 7), slice(7, 11)
MET = "1"
Facts = tuple[str, str, float | None, bool, str]
# A row of COLUMNS, a plain tuple: a comparison reads forty thousand.
Execution = tuple[Any, ...]
# By the keys of cases, in the order of the suite.
Executions = Mapping[str, Sequence[Execution]]


class CaseNames(NamedTuple):
    """A revision of a case: its id, its key, the hash of its content, and its title."""

    pk: int
    key: str
    content_hash: str
    title: str


@dataclass(frozen=True)
class ComparisonSide:
    """One of the two runs: its cases by key, and its figures over all its executions.

    The figures are computed when they are asked for: a list of cases does without them.
    """

    run: Run
    groups: Executions
    cases: Mapping[str, CaseSide]

    def case_figures(self, key: str) -> CaseSideFigures | None:
        """Return the figures of one case; None where the run does not have it."""
        return _figures(group) if (group := self.groups.get(key)) else None

    @property
    def gates(self) -> tuple[RunGate, RunGate]:
        """Return the Score gate and the Pass-rate gate of the run, over all its cases."""
        return run_gates(self.run)

    @cached_property
    def _columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the values of all executions by column."""
        rows = chain.from_iterable(self.groups.values())
        values = zip(*rows, strict=True) if self.cases else [()] * len(COLUMNS)
        return dict(zip(COLUMNS, values, strict=True))

    @cached_property
    def _scores(self) -> Sequence[float]:
        pairs = zip(self._columns["status"], self._columns["score"], strict=True)
        return [score for status, score in pairs if score is not None and status == SCORED]

    @cached_property
    def _latencies(self) -> Sequence[float]:
        return sorted(value for value in self._columns["latency_ms"] if value is not None)

    @cached_property
    def figures(self) -> RunSide:
        """Return what the tolerances compare."""
        return RunSide(
            passed=sum(case.passed for case in self.cases.values()),
            total=len(self._columns["id"]),
            mean_score=mean(self._scores),
            mean_latency_ms=mean(self._latencies),
        )

    @property
    def scored(self) -> int:
        """Return how many executions have a score."""
        return len(self._scores)

    @property
    def timed(self) -> int:
        """Return how many executions have a latency."""
        return len(self._latencies)

    @property
    def p95_ms(self) -> float | None:
        """Return the 95th percentile of the latencies."""
        return nearest_rank(self._latencies, 0.95)

    @cached_property
    def errors(self) -> int:
        """Return how many executions ended without a verdict."""
        ended = sum(status in ENDED for status in self._columns["status"])
        return ended - sum(case.scored for case in self.cases.values())

    @cached_property
    def reviews(self) -> int:
        """Return how many decisions of reviewers the figures count."""
        if not read_policy(self.run.snapshot).count_reviews:
            return 0
        pairs = zip(self._columns["status"], self._columns["reviewed_verdict"], strict=True)
        return sum(bool(reviewed) and status in ENDED for status, reviewed in pairs)

    @cached_property
    def run_cost_usd(self) -> Decimal | None:
        """Return the cost of the target; None where nothing is known."""
        return sum_known(self._columns["run_cost_usd"])

    @cached_property
    def evaluation_cost_usd(self) -> Decimal | None:
        """Return the cost of evaluation; 0 where no execution reports one because no judge was paid."""
        cost = sum_known(self._columns["evaluation_cost_usd"])
        if cost is not None or self.run.is_active:
            return cost
        spent = self._costs.evaluation.usd
        return None if spent else spent

    @property
    def cost_usd(self) -> Decimal | None:
        """Return both costs together; None when it is zero and a cost is unknown."""
        return combined_cost(self.run_cost_usd, self.evaluation_cost_usd)

    @property
    def costs_are_partial(self) -> bool:
        """Tell whether more was spent than is known."""
        return self._costs.is_partial

    @cached_property
    def _costs(self) -> CostPair:
        """Return the costs of the run; at most three queries."""
        return run_costs(self.run)


def read_executions(*runs: Run) -> tuple[Mapping[int, CaseNames], Sequence[Executions]]:
    """Return the names of the cases of runs, and the executions of each run; one query, and one for each run."""
    cases = Case.objects.filter(pk__in=RunCase.objects.filter(run__in=runs).values("case_id"))
    rows = cases.order_by().values_list(*CaseNames._fields)
    names = {known.pk: known for known in map(CaseNames._make, rows)}
    return names, [_by_case(run, names) for run in runs]


def _by_case(run: Run, names: Mapping[int, CaseNames]) -> Executions:
    groups: dict[str, list[Execution]] = {}
    for row in run.results.order_by("position", "repetition", "id").values_list(*COLUMNS):
        key = names[row[0]].key
        if key in groups:
            groups[key].append(row)
        else:
            groups[key] = [row]
    return groups


def decide_cases(run: Run, groups: Executions) -> Mapping[str, CaseSide]:
    """Return the cases of a run by key; the policy frozen with the run decides their verdicts.

    Raises UnreadableSnapshotError for a run of another version.
    """
    policy = read_plan(run.snapshot).policy
    known: dict[tuple[Facts, ...], CaseSide] = {}
    cases = {}
    for key, group in groups.items():
        facts = tuple([row[FACTS] for row in group])
        if (side := known.get(facts)) is None:
            side = known[facts] = _decide(facts, policy)
        cases[key] = side
    return cases


def case_side(results: Sequence[Result], policy: PolicySpec) -> tuple[CaseSide, CaseSideFigures]:
    """Return one case of a run from its results, as the comparison of whole runs shows it."""
    group = list(map(attrgetter(*COLUMNS), results))
    return _decide([row[FACTS] for row in group], policy), _figures(group)


def _figures(group: Sequence[Execution]) -> CaseSideFigures:
    """Return the figures of a case over its repetitions."""
    # Most cases have one execution; what lists, sums and means of one take would double the time.
    if len(group) == 1:
        marks, latency_ms, run_cost, evaluation_cost = group[0][FIGURES]
        return CaseSideFigures(latency_ms, run_cost, evaluation_cost, len(marks), marks.count(MET))
    every_marks, latencies, costs, judged = zip(*[row[FIGURES] for row in group], strict=True)
    known_marks = [marks for marks in every_marks if marks]
    return CaseSideFigures(
        latency_ms=mean([latency for latency in latencies if latency is not None]),
        run_cost_usd=sum_known(costs),
        evaluation_cost_usd=sum_known(judged),
        outcomes=len(known_marks[0]) if known_marks else 0,
        outcomes_met=sum(set(column) == {MET} for column in zip(*known_marks, strict=False)),
    )


def _decide(facts: Sequence[Facts], policy: PolicySpec) -> CaseSide:
    """Decide a case (SCORING §8), without words."""
    group = [
        ExecutionRecord("", status, VERDICTS.get(verdict), score, is_forced, VERDICTS.get(reviewed))
        for status, verdict, score, is_forced, reviewed in facts
    ]
    decided = case_decision(group, policy, has_words=False).verdict
    verdicts = [verdict for row in group if (verdict := counted_verdict(row, policy)) is not None]
    machine = reviewed = None
    if any(row.reviewed_verdict is not None and row.is_ended for row in group):
        machine, reviewed = both_verdicts(group, policy)
    return CaseSide(
        verdict=decided,
        mean_score=mean(
            [row.score for row in group if row.score is not None and row.status == SCORED]
        ),
        passed=verdicts.count(Verdict.PASS),
        scored=len(verdicts),
        executions=len(group),
        state=summary_state(group, decided),
        is_flaky=len(set(verdicts)) > 1,
        machine=machine,
        reviewed=reviewed,
    )


def case_override(side: CaseSide | None, *, is_counted: bool) -> Override | None:
    """Return the verdict of a case without and with its reviews; None without a review."""
    if side is None or side.reviewed is None:
        return None
    machine = "error" if side.machine is None else side.machine.value
    return Override(machine, side.reviewed.value, is_counted=is_counted)


CHUNK = 5000
# The place of a case that is not compared.
NOWHERE = -1
# By the kind of an evaluator: the name of its parts, the detail that holds them, and the number that counts.
PARTS = {
    METRICS_KIND: (METRIC, "metrics", "score"),
    HYBRID_KIND: (DIMENSION, "dimensions", "final"),
}

# The judge of the outcomes is no evaluator of the tree and has no name of its suite.
NAMES = {OUTCOMES_PATH: "Expected outcomes"}


def measured_scores(side: ComparisonSide) -> MeasuredRun:
    """Return the scores that evaluators gave each case, in tree order; at most four queries.

    Every evaluator below the root is there, inside composites too. One that could not score gives
    nothing, never 0. The score of a negated evaluator is the one that counts. Evaluators that only some
    cases have come last.
    """
    root = read_plan(side.run.snapshot).root
    cases = {key: place for place, key in enumerate(side.groups)}
    places = {row[1]: place for place, group in enumerate(side.groups.values()) for row in group}
    figures: dict[MeasuredFigure, Measured] = {}
    for kind in _kinds(side.run, root):
        for figure, name, at, values in _part_scores(side.run, kind, places):
            figures[figure] = Measured.make(name, at, values, cases=len(cases))
    negated = negated_paths(root)
    has_own_tree = np.zeros(len(cases), dtype=bool)
    negated_at: dict[str, list[int]] = defaultdict(list)
    for _, key, tree in side.run.own_trees(root):
        if (place := cases.get(key)) is not None:
            has_own_tree[place] = True
            for path in negated_paths(tree):
                negated_at[path].append(place)
    for path, results, scores in _score_columns(side.run):
        is_negated = ~has_own_tree if path in negated else np.zeros(len(cases), dtype=bool)
        is_negated[negated_at.get(path, [])] = True
        at = np.array([places.get(result, NOWHERE) for result in results], dtype=int)
        values = np.array(scores, dtype=float)
        is_counted = (at != NOWHERE) & ~np.isnan(values)
        at, values = at[is_counted], values[is_counted]
        if at.size:
            values = np.where(is_negated[at], 1.0 - values, values)
            measured = Measured.make(NAMES.get(path, path), at, values, cases=len(cases))
            figures[MeasuredFigure(EVALUATOR, path)] = measured
    in_tree = {path: place for place, (path, _) in enumerate(walk(root))}
    in_order = sorted(
        figures,
        key=lambda figure: (figure.kind == EVALUATOR, in_tree.get(figure.path, len(in_tree))),
    )
    return MeasuredRun(cases, {figure: figures[figure] for figure in in_order})


# Beside those of the trees. A test lays every case beside every figure, many times over.
MAX_OWN_TESTED = 500


def scores_to_test(
    sides: Sequence[ComparisonSide], measured: Sequence[MeasuredRun]
) -> list[MeasuredRun]:
    """Leave out evaluators that only some cases have, and fewer of them than a test needs.

    Of many others that only some cases have, those stay that the most cases have.
    """
    trees = [{path for path, _ in walk(read_plan(side.run.snapshot).root)} for side in sides]
    enough = [
        {
            figure: found
            for figure, found in run.figures.items()
            if figure.path in in_tree or found.cases >= MIN_CASES
        }
        for run, in_tree in zip(measured, trees, strict=True)
    ]
    own = Counter[MeasuredFigure]()
    for figures in enough:
        own |= Counter({figure: found.cases for figure, found in figures.items()})
    in_trees = trees[0].union(*trees)
    by_cases = [figure for figure, _ in own.most_common() if figure.path not in in_trees]
    too_many = {*by_cases[MAX_OWN_TESTED:]}
    return [
        MeasuredRun(run.places, {key: figures[key] for key in figures if key not in too_many})
        for run, figures in zip(measured, enough, strict=True)
    ]


def _kinds(run: Run, root: EvaluatorSpec) -> list[str]:
    """Return the kinds of judges with parts in a run; only its summary knows those of single cases."""
    summary = run.summary or {}
    kinds = {node.kind for _, node in walk(root)}
    return [kind for kind, (part, *_) in PARTS.items() if kind in kinds or summary.get(f"{part}s")]


def _part_scores(
    run: Run, kind: str, places: Mapping[int, int]
) -> Iterator[tuple[MeasuredFigure, str, Places, Columns]]:
    """Yield the metrics or dimensions of judges of a kind, each with its name, the places of cases, and their scores.

    `places` are those of the cases by result, for results that are compared.
    """
    part, details, number = PARTS[kind]
    rows = EvaluatorScore.objects.filter(
        result__run=run, kind=kind, state=ScoreState.SCORED
    ).order_by()
    columns = rows.values_list("result_id", "path", f"details__{details}")
    found: dict[MeasuredFigure, tuple[str, list[int], list[float]]] = {}
    for result, path, entries in columns.iterator(chunk_size=CHUNK):
        if (place := places.get(result)) is None:
            continue
        for entry in entries or ():
            if entry.get(number) is not None:
                figure = MeasuredFigure(part, path, entry["key"])
                _, at, scores = found.setdefault(figure, (entry["name"], [], []))
                at.append(place)
                scores.append(entry[number])
    for figure, (name, at, scores) in found.items():
        yield figure, name, np.array(at), np.array(scores, dtype=float)


def _score_columns(run: Run) -> Iterator[tuple[str, Sequence[int], Sequence[float | None]]]:
    """Yield for each evaluator under the root its path, and results with its scores, None for no score.

    An ended run has them packed in one column.
    """
    packed = unpack_leaf_scores(bytes(run.leaf_scores)) if run.leaf_scores else None
    if packed is not None:
        paths = (path for path in packed.scores if path != ROOT_PATH)
        yield from ((path, packed.results, packed.known(path)) for path in paths)
        return
    rows = EvaluatorScore.objects.filter(result__run=run, state=ScoreState.SCORED)
    columns: dict[str, tuple[list[int], list[float | None]]] = {}
    for path, result, score in rows.order_by().values_list("path", "result_id", "score"):
        results, scores = columns.setdefault(path, ([], []))
        results.append(result)
        scores.append(score)
    yield from ((path, *column) for path, column in columns.items() if path != ROOT_PATH)

"""Two runs side by side: what differs beside their targets, the figures of both, every case, and the evidence."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from evaluators.scoring.aggregate import HYBRID_KIND
from evaluators.scoring.numbers import mean
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, walk
from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import pct, threshold
from runs import lists
from runs.compare.cases import (
    CaseChange,
    CaseSide,
    RunComparison,
    RunSide,
    Tolerances,
    compare_cases,
    compare_runs,
)
from runs.compare.comparability import Difference, RunFacts, differences
from runs.compare.evidence import (
    DIMENSION,
    EVALUATOR,
    METRIC,
    MIN_CASES,
    Measured,
    MeasuredFigure,
    Significance,
    measured_pairs,
    shared_changes,
    significance,
)
from runs.costs import run_costs
from runs.engine.plan import METRICS_KIND, OUTCOMES_PATH, read_plan
from runs.lists import ListQuery
from runs.models.results import EvaluatorScore, Result, ScoreState
from runs.models.runs import Run, RunStatus
from runs.models.stored import unpack_leaf_scores
from runs.results.overrides import Override
from runs.results.run_figures import (
    RunGate,
    cases_gate,
    metrics_gate,
    negated_paths,
    negated_paths_of_cases,
)
from runs.summary.cases import (
    case_decision,
    case_verdict,
    count_reviews,
    latencies_of,
    means_of,
    state_of,
    verdict_of,
)
from runs.summary.figures import ExecutionRecord, known_of_both, total_of

SHARED = "shared"
CHANGED, EVERY, FLIPPED = "changed", "all", "flipped"
SHOW_REGRESSED, SHOW_IMPROVED, SHOW_UNCHANGED, SHOW_ERRORED = (
    "regressed",
    "improved",
    "unchanged",
    "errored",
)
ADDED, REMOVED = "added", "removed"
SHOWS = (
    CHANGED,
    SHOW_REGRESSED,
    SHOW_IMPROVED,
    SHOW_UNCHANGED,
    SHOW_ERRORED,
    ADDED,
    REMOVED,
    FLIPPED,
    EVERY,
)
LIMITS = ("max_pass_rate_drop", "max_avg_score_drop", "max_latency_increase_pct")
BY_CASE, BY_SCORE, BY_COST, BY_LATENCY = "case", "score", "cost", "latency"
SORTS = (BY_CASE, BY_SCORE, BY_COST, BY_LATENCY)
MAX_LIMIT_LENGTH = 24


@dataclass(frozen=True, slots=True)
class ComparisonQuery(ListQuery):
    """Two runs, whether their shared cases alone count, which rows are shown, and other tolerances.

    `sort` is case, score, cost or latency, "" by harm. `cell` is one of the matrix, as `pass-fail`. Tolerances
    stand as they were written, in the units of the command line: a share, points of 100, and percent.
    """

    baseline: str = lists.setting()
    candidate: str = lists.setting()
    cases: str = lists.option((SHARED,), "")
    max_pass_rate_drop: str = lists.setting(max_length=MAX_LIMIT_LENGTH)
    max_avg_score_drop: str = lists.setting(max_length=MAX_LIMIT_LENGTH)
    max_latency_increase_pct: str = lists.setting(max_length=MAX_LIMIT_LENGTH)
    show: str = lists.option(SHOWS, CHANGED)
    cell: str = lists.text(max_length=40)
    text: str = lists.search()
    sort: str = lists.option(SORTS, "")
    page: int = lists.page_number()

    @property
    def limits(self) -> tuple[tuple[str, str], ...]:
        """Return the tolerances that are given."""
        return tuple((name, value) for name in LIMITS if (value := getattr(self, name)))

    @property
    def run_fields(self) -> tuple[tuple[str, str], ...]:
        """Return the fields that every form of the page sends again: the runs and their cases."""
        pairs = (("baseline", self.baseline), ("candidate", self.candidate), ("cases", self.cases))
        return tuple(pair for pair in pairs if pair[1])


def gates_of(run: Run) -> tuple[RunGate, RunGate]:
    """Return the Metrics and the Cases gate as the run's own page shows them, over all its cases."""
    policy = run.policy
    return metrics_gate(run, policy), cases_gate(run, policy)


def gates_missed(run: Run) -> str:
    """Say which gates an ended run failed or left open, each with figure and threshold.

    "" where both passed, and where the run is still on.
    """
    if run.is_active:
        return ""
    gates = gates_of(run)
    if run.status != RunStatus.COMPLETED:
        return f"the gates of {run} are not judged: the run was not completed"
    failed = [one for one in gates if one.state == "failed"]
    if len(failed) == len(gates):
        told = ", ".join(f"{one.name} {_figure(one)}" for one in failed)
        return f"both gates of {run} failed: {told}"
    parts = [f"the {one.name} gate of {run} failed: {_figure(one)}" for one in failed]
    parts += [
        f"the {one.name} gate of {run} is not judged: {one.note}"
        for one in gates
        if one.state == "open"
    ]
    return "; ".join(parts)


def gates_in_short(run: Run) -> str:
    """Say in two or three words that gates of a completed run failed or are open, "" where both passed."""
    if run.status != RunStatus.COMPLETED:
        return ""
    states = [gate.state for gate in gates_of(run)]
    if failed := states.count("failed"):
        return "gate failed" if failed == 1 else "gates failed"
    return "gate not judged" if "open" in states else ""


def _figure(gate: RunGate) -> str:
    told = f"{pct(gate.share)} of {threshold(gate.limit)} needed"
    return f"{told}, {gate.with_reviews}" if gate.reviews else told


COLUMNS = (
    *("id", "case__key", "case__content_hash", "case__title", "outcome_marks"),
    *("status", "verdict", "score", "is_forced", "reviewed_verdict", "latency_ms"),
    *("run_cost_usd", "evaluation_cost_usd"),
)
MET, SCORED = "1", "scored"


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """One of the two runs: its own figures over all its executions, and its cases by key.

    Of the executions that the figures count, `scored` have a score and `timed` a latency, the 95th
    percentile of which is `p95_ms`; `reviews` is how many decisions of people they count. `keys` are the cases of its results by the results' ids.
    """

    run: Run
    figures: RunSide
    scored: int
    timed: int
    errors: int
    reviews: int
    cost_usd: Decimal | None
    run_cost_usd: Decimal | None
    evaluation_cost_usd: Decimal | None
    p95_ms: float | None
    cases: Mapping[str, CaseSide]
    titles: Mapping[str, str]
    keys: Mapping[int, str]
    facts: RunFacts

    @property
    def gates(self) -> tuple[RunGate, RunGate]:
        """Return the Metrics and the Cases gate of the run, over all its cases."""
        return gates_of(self.run)


@dataclass(slots=True)
class Recorded:
    """What is stored of a run's executions, in the order of the suite."""

    rows: list[ExecutionRecord] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)

    def of(self, cases: Container[str]) -> Recorded:
        """Return the executions of these cases alone."""
        return Recorded(
            rows=[row for row in self.rows if row.case in cases],
            hashes={key: digest for key, digest in self.hashes.items() if key in cases},
            titles={key: title for key, title in self.titles.items() if key in cases},
            keys={result: key for result, key in self.keys.items() if key in cases},
            marks={key: marks for key, marks in self.marks.items() if key in cases},
        )


def recorded(run: Run) -> Recorded:
    """Return the executions of a run; one query."""
    found = Recorded()
    results = run.results.order_by("position", "repetition", "id").values_list(*COLUMNS)
    for result, key, digest, title, marks, *row in results:
        status, verdict, score, forced, reviewed, latency, paid, judged = row
        found.hashes[key], found.titles[key], found.keys[result] = digest, title, key
        if marks:
            found.marks.setdefault(key, []).append(marks)
        found.rows.append(
            ExecutionRecord(
                case=key,
                status=status,
                verdict=_verdict(verdict),
                score=score,
                is_forced=forced,
                reviewed_verdict=_verdict(reviewed),
                latency_ms=latency,
                run_cost_usd=paid,
                evaluation_cost_usd=judged,
            )
        )
    return found


def side_of(run: Run, found: Recorded) -> ComparisonSide:
    """Return the run by what is stored of it; its own frozen policy makes its cases' verdicts.

    A cost that no execution reports is free where the run's own page says so, else unknown; that takes two queries.
    Raises UnreadableSnapshotError for a run of another version.
    """
    policy = read_plan(run.snapshot).policy
    by_case: dict[str, list[ExecutionRecord]] = {}
    for row in found.rows:
        by_case.setdefault(row.case, []).append(row)
    means, latencies = means_of(found.rows), latencies_of(found.rows)
    verdicts = [verdict_of(row, policy) for row in found.rows]
    evaluation = _or_free(means.evaluation_cost_usd, run)
    return ComparisonSide(
        run=run,
        figures=RunSide(
            passed=sum(verdict is Verdict.PASS for verdict in verdicts),
            total=len(found.rows),
            mean_score=means.score,
            mean_latency_ms=means.latency_ms,
        ),
        scored=means.scored,
        timed=latencies.timed,
        errors=sum(
            row.is_ended and verdict is None
            for row, verdict in zip(found.rows, verdicts, strict=True)
        ),
        reviews=count_reviews(found.rows, policy),
        cost_usd=known_of_both(means.run_cost_usd, evaluation),
        run_cost_usd=means.run_cost_usd,
        evaluation_cost_usd=evaluation,
        p95_ms=latencies.latency_p95_ms,
        cases={
            key: _case(group, policy, found.marks.get(key, ())) for key, group in by_case.items()
        },
        titles=found.titles,
        keys=found.keys,
        facts=RunFacts(run.snapshot, run.repetitions, found.hashes),
    )


def _or_free(cost: Decimal | None, run: Run) -> Decimal | None:
    """Return the cost of evaluation; 0 where none was told because no judge was paid."""
    if cost is not None or run.is_active:
        return cost
    spent = run_costs(run).evaluation.usd
    return None if spent else spent


def side_of_case(results: Sequence[Result], policy: PolicySpec) -> CaseSide:
    """Return one case of a run by its results, as a comparison of the whole runs has it."""
    group = [
        ExecutionRecord(
            case="",
            status=row.status,
            verdict=_verdict(row.verdict),
            score=row.score,
            is_forced=row.is_forced,
            reviewed_verdict=_verdict(row.reviewed_verdict),
            latency_ms=row.latency_ms,
            run_cost_usd=row.run_cost_usd,
            evaluation_cost_usd=row.evaluation_cost_usd,
        )
        for row in results
    ]
    return _case(group, policy, [row.outcome_marks for row in results if row.outcome_marks])


def _verdict(word: str) -> Verdict | None:
    return Verdict(word) if word else None


def _with_people(group: Sequence[ExecutionRecord], policy: PolicySpec) -> dict[str, Verdict | None]:
    """Return a case's verdict without and with what people decided, nothing where they did not."""
    if not any(row.reviewed_verdict is not None and row.is_ended for row in group):
        return {}
    counting = {
        "machine": policy.replace(count_reviews=False),
        "reviewed": policy.replace(count_reviews=True),
    }
    return {name: case_verdict(group, rules) for name, rules in counting.items()}


def _case(group: Sequence[ExecutionRecord], policy: PolicySpec, marks: Sequence[str]) -> CaseSide:
    """Return a case over its repetitions (SCORING §8), without the words that ten thousand cases do not show."""
    verdict = case_decision(group, policy, has_words=False).verdict
    verdicts = [one for row in group if (one := verdict_of(row, policy)) is not None]
    scores = [row.score for row in group if row.score is not None and row.status == SCORED]
    paid = total_of(row.run_cost_usd for row in group)
    judged = total_of(row.evaluation_cost_usd for row in group)
    return CaseSide(
        verdict=verdict,
        mean_score=mean(scores),
        state=state_of(group, verdict),
        passed=verdicts.count(Verdict.PASS),
        scored=len(verdicts),
        executions=len(group),
        is_flaky=len(set(verdicts)) > 1,
        **_with_people(group, policy),
        latency_ms=mean([row.latency_ms for row in group if row.latency_ms is not None]),
        run_cost_usd=paid,
        evaluation_cost_usd=judged,
        cost_usd=total_of((paid, judged)),
        outcomes=len(marks[0]) if marks else 0,
        outcomes_met=sum(set(column) == {MET} for column in zip(*marks, strict=False)),
    )


CHUNK = 5000
# By the kind of an evaluator: what its parts are, where they stand, and which number of theirs counts.
PARTS = {
    METRICS_KIND: (METRIC, "details__metrics", "score"),
    HYBRID_KIND: (DIMENSION, "details__dimensions", "final"),
}

# What stands beside the tree has no name that anybody gave it.
NAMES = {OUTCOMES_PATH: "Expected outcomes"}


def measured_of(side: ComparisonSide) -> Mapping[MeasuredFigure, Measured]:
    """Return what the evaluators of a run gave each case, in tree order; four queries at most.

    An evaluator that could not score gives nothing, never 0; one that is negated gives what counts, more
    being better. One that only cases of their own have
    follows those of the tree, and is left out where fewer than ten cases have it.
    """
    root = read_plan(side.run.snapshot).root
    negated, of_cases = negated_paths(root), negated_paths_of_cases(side.run, root)
    found: dict[MeasuredFigure, Measured] = {}
    for kind in _kinds(side.run, root):
        for result, path, parts in _parts(side.run, kind):
            _take(found, side.keys.get(result, ""), (kind, path), parts)
    for result, path, score in _top_level(side.run):
        if key := side.keys.get(result):
            score = 1.0 - score if path in of_cases.get(key, negated) else score
            measured = found.setdefault(
                MeasuredFigure(EVALUATOR, path), Measured(NAMES.get(path, path))
            )
            measured.scores.setdefault(key, []).append(score)
    places = {path: place for place, (path, _) in enumerate(walk(root))}
    known = [
        figure
        for figure, measured in found.items()
        if figure.path in places or len(measured.scores) >= MIN_CASES
    ]
    known.sort(key=lambda one: (one.kind == EVALUATOR, places.get(one.path, len(places))))
    return {figure: found[figure] for figure in known}


def _kinds(run: Run, root: EvaluatorSpec) -> list[str]:
    """Return which kinds of judges with parts there are to ask for; a summary tells of those of cases too."""
    told = run.summary or {}
    kinds = {node.kind for _, node in walk(root)}
    return [kind for kind, (part, *_) in PARTS.items() if kind in kinds or told.get(f"{part}s")]


def _take(
    found: dict[MeasuredFigure, Measured],
    case: str,
    judge: tuple[str, str],
    parts: list[dict[str, Any]],
) -> None:
    """Add the parts that one judge gave of one execution; of a case that is not compared nothing."""
    kind, path = judge
    name, _, number = PARTS[kind]
    for part in parts or () if case else ():
        if part.get(number) is not None:
            figure = MeasuredFigure(name, path, part["key"])
            measured = found.setdefault(figure, Measured(part["name"]))
            measured.scores.setdefault(case, []).append(part[number])


def _parts(run: Run, kind: str) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    rows = EvaluatorScore.objects.filter(
        result__run=run, kind=kind, state=ScoreState.SCORED
    ).order_by()
    yield from rows.values_list("result_id", "path", PARTS[kind][1]).iterator(chunk_size=CHUNK)


def _top_level(run: Run) -> Iterator[tuple[int, str, float]]:
    """Yield what the evaluators right under the root gave, from one piece where an ended run has it."""
    packed = unpack_leaf_scores(bytes(run.leaf_scores)) if run.leaf_scores else None
    if packed is None:
        rows = EvaluatorScore.objects.filter(result__run=run, state=ScoreState.SCORED)
        rows = rows.exclude(path=ROOT_PATH).exclude(path__contains="/").order_by()
        columns = rows.values_list("result_id", "path", "score")
        for result, path, score in columns.iterator(chunk_size=CHUNK):
            if score is not None:
                yield result, path, score
        return
    places = [(path, at) for path, at in packed.columns.items() if path and "/" not in path]
    for result, scores in packed.scores.items():
        for path, place in places:
            said = scores[place][0] if isinstance(scores[place], list) else scores[place]
            if said is not None and said is not False:
                yield result, path, said


# Both runs' ids make one seed; the factor is a prime, so that no two pairs of runs share theirs.
SEED_STEP = 1_000_003


@dataclass(frozen=True)
class Compared:
    """The two runs compared; `in_both` is how many cases both have, `shared` how many of them have a verdict on both sides.

    The evidence is read and resampled when it is first asked for: filtering the cases takes none.
    """

    baseline: ComparisonSide
    candidate: ComparisonSide
    tolerances: Tolerances
    differences: tuple[Difference, ...]
    runs: RunComparison
    cases: tuple[CaseChange, ...]
    shared: int
    in_both: int
    is_of_shared_cases: bool = False

    @property
    def is_comparable(self) -> bool:
        """Tell whether verdicts that differ can only differ for the target."""
        return not any(one.spoils for one in self.differences)

    @cached_property
    def evidence(self) -> Significance:
        """Return what the shared cases say, seeded from both runs; eight queries at most."""
        shared = shared_changes(self.cases)
        sides = measured_of(self.baseline), measured_of(self.candidate)
        pairs = measured_pairs(*sides, [one.case for one in shared])
        seed = self.baseline.run.pk * SEED_STEP + self.candidate.run.pk
        return significance(shared, pairs, seed=seed)

    def title(self, case: str) -> str:
        """Return a case's title, the candidate's where it has the case."""
        return self.candidate.titles.get(case) or self.baseline.titles.get(case, "")


def compared(
    baseline: Run, candidate: Run, tolerances: Tolerances, *, only_shared: bool = False
) -> Compared:
    """Return the comparison; each run's own frozen policy makes its cases' verdicts. Two queries.

    With `only_shared` the figures of both are those of the cases whose keys both have. Raises
    UnreadableSnapshotError for a run of another version.
    """
    stored = recorded(baseline), recorded(candidate)
    in_both = {*stored[0].hashes} & {*stored[1].hashes}
    if only_shared:
        stored = stored[0].of(in_both), stored[1].of(in_both)
    before, after = side_of(baseline, stored[0]), side_of(candidate, stored[1])
    cases = compare_cases(before.cases, after.cases)
    return Compared(
        baseline=before,
        candidate=after,
        tolerances=tolerances,
        differences=differences(before.facts, after.facts),
        runs=compare_runs(before.figures, after.figures, tolerances),
        cases=cases,
        shared=len(shared_changes(cases)),
        in_both=len(in_both),
        is_of_shared_cases=only_shared,
    )


def override_of_side(side: CaseSide | None, *, is_counted: bool) -> Override | None:
    """Return what a compared case is without and with the decisions of people; None without a decision."""
    if side is None or side.reviewed is None:
        return None
    machine = "error" if side.machine is None else side.machine.value
    return Override(machine, side.reviewed.value, is_counted=is_counted)

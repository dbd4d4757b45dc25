"""Summarise a whole run: both gates and their forecasts, the distribution of its cases (SCORING §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from evaluators.scoring.intervals import bootstrap_interval, wilson_interval
from evaluators.scoring.numbers import is_at_least, mean, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.summary.cases import (
    case_verdict,
    compute_means,
    count_by_state,
    count_repetitions,
    count_reviews,
    counted_verdict,
    measure_latencies,
    summarise_case,
    summary_state,
)
from runs.summary.figures import ERROR, SCORED, CaseSummary, ExecutionRecord, GateResult, Summary


@dataclass(frozen=True, slots=True)
class Gates:
    """Both gates, and how many executions passed."""

    metrics: GateResult
    cases: GateResult
    passed: int


def evaluate_gates(
    rows: Sequence[ExecutionRecord],
    policy: PolicySpec,
    scores: tuple[float | None, int],
    *,
    is_completed: bool,
) -> Gates:
    """Return the gates over the executions; `scores` are their mean and how many have one.

    A run that is not completed is judged over what has ended, and its gates stay open.
    """
    average, scored = scores
    marks = [
        counted_verdict(row, policy) is Verdict.PASS for row in rows if is_completed or row.is_ended
    ]
    passed = sum(marks)
    rate = passed / len(marks) if marks else None
    limits = policy.metrics_pass_threshold, policy.cases_pass_threshold
    return Gates(
        metrics=_gate(average, limits[0], is_completed, (scored, len(rows))),
        cases=_gate(rate, limits[1], is_completed, (len(marks), len(rows))),
        passed=passed,
    )


def _gate(
    figure: float | None, threshold: float, is_completed: bool, counts: tuple[int, int]
) -> GateResult:
    """Return a gate's result: closed once the run is completed and has a figure."""
    is_closed = is_completed and figure is not None
    return GateResult(
        share=figure if is_closed else None,
        so_far=figure,
        threshold=threshold,
        passed=is_at_least(figure, threshold) if is_closed and figure is not None else None,
        counted=counts[0],
        total=counts[1],
    )


ON_COURSE, AT_RISK, OUT_OF_REACH = "on_course", "at_risk", "out_of_reach"
TENTHS = 1000


@dataclass(frozen=True, slots=True)
class Forecast:
    """Whether a gate can pass. `state` is on_course, at_risk or out_of_reach.

    `needed` is the mean that the rest must reach (0 to 1), or how many of the `remaining` must pass;
    None when nothing remains. `text` is the forecast as a sentence.
    """

    state: str
    so_far: float | None
    needed: float | None
    remaining: int
    text: str


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """How far a run is, in executions; `repetitions` of every case."""

    total: int
    ended: int
    passed: int
    score_sum: float
    score_count: int
    repetitions: int = 1

    @property
    def remaining(self) -> int:
        """Return how many executions are still to end."""
        return self.total - self.ended


def metrics_forecast(progress: SummaryProgress, policy: PolicySpec) -> Forecast:
    """Return the forecast of the metrics gate if every remaining execution gets a score."""
    limit, left = policy.metrics_pass_threshold, progress.remaining
    so_far = progress.score_sum / progress.score_count if progress.score_count else None
    reached = so_far is not None and is_at_least(so_far, limit)
    if left <= 0:
        return Forecast(_settled(reached), so_far, None, 0, "All results are in")
    needed = rounded((limit * (progress.score_count + left) - progress.score_sum) / left)
    units = _units(progress)
    if needed > 1:
        text = f"Can't be reached: the remaining {units} would have to average {_percent(needed)}"
        return Forecast(OUT_OF_REACH, so_far, needed, left, text)
    state = ON_COURSE if reached or so_far is None else AT_RISK
    if needed <= 0:
        verb = "score" if units.endswith("s") else "scores"
        return Forecast(state, so_far, 0.0, left, f"Passed whatever the remaining {units} {verb}")
    return Forecast(
        state, so_far, needed, left, f"The remaining {units} must average {_percent(needed)}"
    )


def cases_forecast(progress: SummaryProgress, policy: PolicySpec) -> Forecast:
    """Return the forecast of the cases gate; errored executions have not passed."""
    limit, left = policy.cases_pass_threshold, progress.remaining
    so_far = progress.passed / progress.ended if progress.ended else None
    reached = so_far is not None and is_at_least(so_far, limit)
    if left <= 0:
        return Forecast(_settled(reached), so_far, None, 0, "All results are in")
    needed = max(0, math.ceil(rounded(limit * progress.total)) - progress.passed)
    if needed > left:
        text = (
            f"Can't be reached: {needed} more must pass, {left} {'is' if left == 1 else 'are'} left"
        )
        return Forecast(OUT_OF_REACH, so_far, needed, left, text)
    state = ON_COURSE if reached or so_far is None else AT_RISK
    if needed == 0:
        return Forecast(ON_COURSE, so_far, 0, left, "Enough have passed already")
    return Forecast(state, so_far, needed, left, f"{needed} of the remaining {left} must pass")


def _settled(reached: bool) -> str:
    return ON_COURSE if reached else OUT_OF_REACH


def _units(progress: SummaryProgress) -> str:
    """Return what remains, as cases if all their repetitions remain, else as results."""
    whole, rest = divmod(progress.remaining, progress.repetitions)
    count, unit = (progress.remaining, "result") if rest else (whole, "case")
    return f"{count} {unit}s" if count != 1 else unit


def _percent(share: float) -> str:
    """Return a share in percent, rounded up to tenths, so that reaching it is enough."""
    return f"{math.ceil(rounded(rounded(share) * TENTHS)) / 10:.1f}%"


@dataclass(frozen=True, slots=True)
class BriefSummary:
    """A short summary; `cases` has state and mean score by key, `passed` counts executions."""

    passed: int
    distribution: Mapping[str, int]
    mean_score: float | None
    with_score: int
    metrics_gate: GateResult
    cases_gate: GateResult
    cases: Mapping[str, tuple[str, float | None]]


def brief_summary(
    executions: Iterable[ExecutionRecord], policy: PolicySpec, *, is_completed: bool
) -> BriefSummary:
    """Return verdicts, scores and gates as `summarise` does, in a fraction of its time."""
    rows = list(executions)
    by_case: dict[str, list[ExecutionRecord]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    cases = {case: _standing(group, policy) for case, group in by_case.items()}
    scores = [row.score for row in rows if row.score is not None and row.status == SCORED]
    average = mean(scores)
    gates = evaluate_gates(rows, policy, (average, len(scores)), is_completed=is_completed)
    return BriefSummary(
        passed=gates.passed,
        distribution=count_by_state(state for state, _ in cases.values()),
        mean_score=average,
        with_score=len(scores),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        cases=cases,
    )


def _standing(group: list[ExecutionRecord], policy: PolicySpec) -> tuple[str, float | None]:
    verdict: Verdict | None = case_verdict(group, policy)
    scores = [row.score for row in group if row.score is not None and row.status == SCORED]
    return summary_state(group, verdict), mean(scores)


def summarise(
    executions: Iterable[ExecutionRecord], policy: PolicySpec, *, is_completed: bool, seed: int
) -> Summary:
    """Return the run in numbers; both gates stay open until it is completed.

    A run that is not completed is judged over what has ended. `seed` fixes the bootstrap.
    """
    rows = list(executions)
    by_case: dict[str, list[ExecutionRecord]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    cases = tuple(summarise_case(case, group, policy) for case, group in by_case.items())
    # A run that is not completed is judged over what has ended.
    marks = [
        [
            counted_verdict(row, policy) is Verdict.PASS
            for row in group
            if is_completed or row.is_ended
        ]
        for group in by_case.values()
    ]
    means = compute_means(rows)
    gates = evaluate_gates(rows, policy, (means.score, means.scored), is_completed=is_completed)
    return Summary(
        executions=len(rows),
        ended=sum(row.is_ended for row in rows),
        passed=gates.passed,
        errors=sum(row.status == ERROR and counted_verdict(row, policy) is None for row in rows),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        interval=pass_interval([(sum(group), len(group)) for group in marks], seed),
        distribution=count_by_state(case.state for case in cases),
        means=means,
        reviews=count_reviews(rows, policy),
        cases=cases,
        **asdict(count_repetitions(cases)),
        **asdict(measure_latencies(rows)),
        score_interval=_score_interval(cases, seed),
    )


def pass_interval(counts: Sequence[tuple[int, int]], seed: int) -> tuple[float, float] | None:
    """Return the 95% interval of a pass rate: Wilson when every case ran once, else over cases.

    `counts` has for each case how many of its executions passed, and how many there are.
    """
    if all(total <= 1 for _, total in counts):
        return wilson_interval(sum(p for p, _ in counts), sum(t for _, t in counts))
    return bootstrap_interval(counts, seed=seed)


def _score_interval(cases: Sequence[CaseSummary], seed: int) -> tuple[float, float] | None:
    """Return the 95% interval of the mean score over executions; the bootstrap draws whole cases."""
    sums = [
        (case.means.score * case.means.scored, case.means.scored)
        for case in cases
        if case.means.score is not None
    ]
    return bootstrap_interval(sums, seed=seed)

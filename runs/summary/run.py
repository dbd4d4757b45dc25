"""Summarise a whole run: both gates and their forecasts, the distribution of its cases (SCORING §8)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from operator import attrgetter
from typing import Any

from evaluators.scoring.intervals import bootstrap_interval, wilson_interval
from evaluators.scoring.numbers import is_at_least, mean, percent, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import Verdict
from runs.summary.cases import (
    ERROR,
    SCORED,
    CaseSummary,
    ExecutionRecord,
    Means,
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


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate: `share` against `threshold`, both 0 to 1; None until the run is completed.

    `so_far` is the figure over what has ended; `counted` of `total` executions went in.
    """

    share: float | None
    so_far: float | None
    threshold: float
    passed: bool | None
    counted: int
    total: int


@dataclass(frozen=True, slots=True)
class Gates:
    """Both gates, and how many executions passed."""

    metrics: GateResult
    cases: GateResult
    passed: int


def count_passes(
    rows: Sequence[ExecutionRecord], policy: PolicySpec, *, is_completed: bool
) -> tuple[int, int]:
    """Return how many executions passed, and of how many: of a run that is not completed, those that have ended."""
    marks = [
        counted_verdict(row, policy) is Verdict.PASS for row in rows if is_completed or row.is_ended
    ]
    return sum(marks), len(marks)


def evaluate_gates(
    policy: PolicySpec,
    scores: tuple[float | None, int],
    passes: tuple[int, int],
    *,
    total: int,
    is_completed: bool,
) -> Gates:
    """Return the gates over all executions; `scores` are their mean and how many have one, `passes` as counted.

    The gates of a run that is not completed stay open.
    """
    (average, scored), (passed, counted) = scores, passes
    rate = passed / counted if counted else None
    limits = policy.metrics_pass_threshold, policy.cases_pass_threshold
    return Gates(
        metrics=_gate(average, limits[0], is_completed, (scored, total)),
        cases=_gate(rate, limits[1], is_completed, (counted, total)),
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
        return Forecast(_final_state(reached), so_far, None, 0, "All results are in")
    needed = rounded((limit * (progress.score_count + left) - progress.score_sum) / left)
    units = _units(progress)
    if needed > 1:
        text = f"Can't be reached: the remaining {units} would have to average {_needed_percent(needed)}"
        return Forecast(OUT_OF_REACH, so_far, needed, left, text)
    state = ON_COURSE if reached or so_far is None else AT_RISK
    if needed <= 0:
        verb = "score" if units.endswith("s") else "scores"
        return Forecast(state, so_far, 0.0, left, f"Passed whatever the remaining {units} {verb}")
    return Forecast(
        state, so_far, needed, left, f"The remaining {units} must average {_needed_percent(needed)}"
    )


def cases_forecast(progress: SummaryProgress, policy: PolicySpec) -> Forecast:
    """Return the forecast of the cases gate; errored executions have not passed."""
    limit, left = policy.cases_pass_threshold, progress.remaining
    so_far = progress.passed / progress.ended if progress.ended else None
    reached = so_far is not None and is_at_least(so_far, limit)
    if left <= 0:
        return Forecast(_final_state(reached), so_far, None, 0, "All results are in")
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


def _final_state(reached: bool) -> str:
    return ON_COURSE if reached else OUT_OF_REACH


def _units(progress: SummaryProgress) -> str:
    """Return what remains, as cases if all their repetitions remain, else as results."""
    whole, rest = divmod(progress.remaining, progress.repetitions)
    count, unit = (progress.remaining, "result") if rest else (whole, "case")
    return f"{count} {unit}s" if count != 1 else unit


def _needed_percent(share: float) -> str:
    """Return a share in percent, rounded up to tenths, so that reaching it is enough."""
    return f"{math.ceil(rounded(rounded(share) * TENTHS)) / 10:.1f}%"


@dataclass(frozen=True, slots=True)
class BriefSummary:
    """A short summary; `cases` has state and mean score of each group, `passed` counts executions."""

    passed: int
    distribution: Mapping[str, int]
    mean_score: float | None
    with_score: int
    metrics_gate: GateResult
    cases_gate: GateResult
    cases: Sequence[tuple[str, float | None]]


def brief_summary(
    groups: Sequence[tuple[Sequence[ExecutionRecord], int]],
    policy: PolicySpec,
    *,
    is_completed: bool,
) -> BriefSummary:
    """Return verdicts, scores and gates as `summarise` does, in a fraction of its time.

    A group has the executions of a case, and the number of cases with such executions.
    """
    known: dict[Facts, tuple[str, float | None]] = {}
    cases = [_standing(group, policy, known) for group, _ in groups]
    scores = [
        row.score
        for group, count in groups
        for row in group
        if row.score is not None and row.status == SCORED
        for _ in range(count)
    ]
    average = mean(scores)
    passed = counted = 0
    for group, count in groups:
        passes = count_passes(group, policy, is_completed=is_completed)
        passed += passes[0] * count
        counted += passes[1] * count
    gates = evaluate_gates(
        policy,
        (average, len(scores)),
        (passed, counted),
        total=sum(len(group) * count for group, count in groups),
        is_completed=is_completed,
    )
    states: Counter[str] = Counter()
    for (state, _), (_, count) in zip(cases, groups, strict=True):
        states[state] += count
    return BriefSummary(
        passed=passed,
        distribution=count_by_state(states),
        mean_score=average,
        with_score=len(scores),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        cases=cases,
    )


def _by_case(rows: Iterable[ExecutionRecord]) -> dict[str, list[ExecutionRecord]]:
    by_case: dict[str, list[ExecutionRecord]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    return by_case


# What decides where a case stands.
Facts = tuple[tuple[Any, ...], ...]
read_facts = attrgetter("status", "verdict", "score", "is_forced", "reviewed_verdict")


def _standing(
    group: Sequence[ExecutionRecord],
    policy: PolicySpec,
    known: dict[Facts, tuple[str, float | None]],
) -> tuple[str, float | None]:
    """Return state and mean score of a case; `known` keeps them by its facts, of which thousands of cases have few."""
    facts = tuple(map(read_facts, group))
    if (standing := known.get(facts)) is None:
        verdict: Verdict | None = case_verdict(group, policy)
        scores = [row.score for row in group if row.score is not None and row.status == SCORED]
        standing = known[facts] = summary_state(group, verdict), mean(scores)
    return standing


MONEY = ("run_cost_usd", "evaluation_cost_usd")
INTERVALS = ("interval", "score_interval")


@dataclass(frozen=True, slots=True)
class Summary:
    """One run in numbers. `interval` is the 95% interval of the pass rate, 0 to 1.

    `score_interval` is that of the mean score. `distribution` counts cases by state; `reviews` is
    how many reviewed verdicts count. `settled` to `spread_cases` are RepetitionFigures, `timed` to
    `latency_p95_ms` are Latencies.
    """

    executions: int
    ended: int
    passed: int
    errors: int
    metrics_gate: GateResult
    cases_gate: GateResult
    interval: tuple[float, float] | None
    distribution: Mapping[str, int]
    means: Means
    flaky: int
    all_passed: int
    any_passed: int
    reviews: int
    settled: int = 0
    comparable: int = 0
    spread: float | None = None
    spread_cases: int = 0
    timed: int = 0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    score_interval: tuple[float, float] | None = None

    @property
    def case_count(self) -> int:
        """Return how many cases the distribution counts."""
        return sum(self.distribution.values())

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values, the gates also under their usual names in percent."""
        written = asdict(self)
        written["means"] = _means_as_json(self.means)
        for name in INTERVALS:
            written[name] = None if written[name] is None else list(written[name])
        metrics, cases = self.metrics_gate, self.cases_gate
        return written | {
            "distribution": {"total": self.case_count, **self.distribution},
            "shares": shares(self.distribution),
            "weighted_metrics_score_pct": _percent(metrics.share),
            "metrics_pass_threshold": percent(metrics.threshold),
            "metrics_passed": metrics.passed,
            "cases_pass_rate_pct": _percent(cases.share),
            "cases_pass_threshold": percent(cases.threshold),
            "cases_passed": cases.passed,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Summary:
        """Return the summary that as_json wrote."""
        names = [figure.name for figure in fields(cls)]
        # Older summaries lack figures that were added later.
        known = {name: values[name] for name in names if name in values}
        distribution = {k: v for k, v in values["distribution"].items() if k != "total"}
        changed = {
            "metrics_gate": GateResult(**values["metrics_gate"]),
            "cases_gate": GateResult(**values["cases_gate"]),
            **{name: tuple(ends) for name in INTERVALS if (ends := values.get(name)) is not None},
            "distribution": distribution,
            "means": _means_from_json(values["means"]),
        }
        return cls(**{**known, **changed})


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Return every count as a share of the total, 0 to 1; 0 without any."""
    total = sum(counts.values())
    return {name: count / total if total else 0.0 for name, count in counts.items()}


def _percent(share: float | None) -> float | None:
    return None if share is None else percent(share)


def _means_as_json(means: Means) -> dict[str, Any]:
    written = asdict(means)
    for name in MONEY:
        written[name] = None if written[name] is None else str(written[name])
    return written


def _means_from_json(values: Mapping[str, Any]) -> Means:
    money = {name: None if values[name] is None else Decimal(values[name]) for name in MONEY}
    return Means(**{**values, **money})


def summarise(
    executions: Iterable[ExecutionRecord], policy: PolicySpec, *, is_completed: bool, seed: int
) -> Summary:
    """Return the run in numbers; both gates stay open until it is completed.

    A run that is not completed is judged over what has ended. `seed` fixes the bootstrap.
    """
    rows = list(executions)
    known: dict[Facts, CaseSummary] = {}
    cases = [_summarise_verdicts(group, policy, known) for group in _by_case(rows).values()]
    # A run that is not completed is judged over what has ended.
    marks = [(case.passed, case.executions if is_completed else case.ended) for case in cases]
    means = compute_means(rows)
    gates = evaluate_gates(
        policy,
        (means.score, means.scored),
        count_passes(rows, policy, is_completed=is_completed),
        total=len(rows),
        is_completed=is_completed,
    )
    return Summary(
        executions=len(rows),
        ended=sum(row.is_ended for row in rows),
        passed=gates.passed,
        errors=sum(row.status == ERROR and counted_verdict(row, policy) is None for row in rows),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        interval=pass_interval(marks, seed),
        distribution=count_by_state(case.state for case in cases),
        means=means,
        reviews=count_reviews(rows, policy),
        **asdict(count_repetitions(cases)),
        **asdict(measure_latencies(rows)),
        score_interval=_score_interval(cases, seed),
    )


def _summarise_verdicts(
    group: list[ExecutionRecord], policy: PolicySpec, known: dict[Facts, CaseSummary]
) -> CaseSummary:
    """Return the verdicts and scores of a case; `known` keeps one summary for all cases with the same facts.

    So its key, costs and times are not those of this case.
    """
    facts = tuple(map(read_facts, group))
    if (summary := known.get(facts)) is None:
        summary = known[facts] = summarise_case("", group, policy, has_words=False)
    return summary


def pass_interval(counts: Sequence[tuple[float, int]], seed: int) -> tuple[float, float] | None:
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

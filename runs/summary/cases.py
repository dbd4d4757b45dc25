"""Fold the repetitions of a case into one verdict and one set of means (SCORING §8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from evaluators.scoring.numbers import mean
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary.figures import ERROR, SCORED, CaseSummary, Execution, Means, total_of
from runs.summary.verdicts import case_decision, verdict_of

OPEN = ("pending", "running")
WAITING, NOT_RUN = "waiting", "not_run"


def summarise_case(case: str, group: Sequence[Execution], policy: Policy) -> CaseSummary:
    """Return one case over its repetitions (SCORING §8)."""
    verdicts = [verdict for row in group if (verdict := verdict_of(row, policy)) is not None]
    passed = sum(verdict is Verdict.PASS for verdict in verdicts)
    decision = case_decision(group, policy)
    scores = [row.score for row in group if row.score is not None and row.status == SCORED]
    return CaseSummary(
        case=case,
        state=state_of(group, decision.verdict),
        verdict=decision.verdict,
        executions=len(group),
        scored=len(verdicts),
        passed=passed,
        is_flaky=len(set(verdicts)) > 1,
        all_passed=passed == len(group) > 0,
        any_passed=passed > 0,
        means=means_of(group),
        decided_by=decision.text,
        rule=decision.rule,
        ended=sum(row.is_ended for row in group),
        lowest=min(scores, default=None),
        highest=max(scores, default=None),
    )


def distribution_of(states: Iterable[str]) -> dict[str, int]:
    """Return how many cases there are of each state; the four of an ended run are always there."""
    counts = dict.fromkeys((*(verdict.value for verdict in Verdict), ERROR), 0)
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts


def means_of(rows: Sequence[Execution]) -> Means:
    """Return means and sums; costs and tokens are summed over all that ran, failed ones included."""
    scores = [row.score for row in rows if row.score is not None and row.status == SCORED]
    return Means(
        score=mean(scores),
        scored=len(scores),
        latency_ms=mean([row.latency_ms for row in rows if row.latency_ms is not None]),
        metrics=mean_by_name([row.metrics for row in rows]),
        dimensions=mean_by_name([row.dimensions for row in rows]),
        input_tokens=_sum(row.input_tokens for row in rows),
        output_tokens=_sum(row.output_tokens for row in rows),
        evaluation_input_tokens=_sum(row.evaluation_input_tokens for row in rows),
        evaluation_output_tokens=_sum(row.evaluation_output_tokens for row in rows),
        run_cost_usd=total_of(row.run_cost_usd for row in rows),
        evaluation_cost_usd=total_of(row.evaluation_cost_usd for row in rows),
    )


def mean_by_name(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every name over the rows that have it, in order of first sight."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, []).append(value)
    return {
        name: average for name, values in found.items() if (average := mean(values)) is not None
    }


def state_of(group: Sequence[Execution], verdict: Verdict | None) -> str:
    """Return how a case with this verdict stands: the verdict, waiting, error or not_run."""
    if verdict is not None:
        return verdict.value
    if any(row.status in OPEN for row in group):
        return WAITING
    return ERROR if any(row.status == ERROR for row in group) else NOT_RUN


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None

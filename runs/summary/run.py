"""Summarise a whole run: both gates, the distribution of its cases, the purses (SCORING §8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from evaluators.scoring.intervals import bootstrap_interval, wilson_interval
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary.cases import distribution_of, means_of, summarise_case
from runs.summary.figures import ERROR, CaseSummary, Execution, Summary
from runs.summary.gates import gates_of
from runs.summary.repetitions import latencies_of, repetitions_of
from runs.summary.verdicts import count_reviews, verdict_of


def summarise(
    executions: Iterable[Execution], policy: Policy, *, is_completed: bool, seed: int
) -> Summary:
    """Return the run in numbers; both gates stay open until it is completed.

    A run that is not completed is judged over what has ended. `seed` fixes the bootstrap.
    """
    rows = list(executions)
    by_case: dict[str, list[Execution]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    cases = tuple(summarise_case(case, group, policy) for case, group in by_case.items())
    # A run that is not completed is judged over what has ended.
    marks = [
        [verdict_of(row, policy) is Verdict.PASS for row in group if is_completed or row.is_ended]
        for group in by_case.values()
    ]
    means = means_of(rows)
    gates = gates_of(rows, policy, (means.score, means.scored), is_completed=is_completed)
    return Summary(
        executions=len(rows),
        ended=sum(row.is_ended for row in rows),
        passed=gates.passed,
        errors=sum(row.status == ERROR and verdict_of(row, policy) is None for row in rows),
        metrics_gate=gates.metrics,
        cases_gate=gates.cases,
        interval=_interval(marks, seed),
        distribution=distribution_of(case.state for case in cases),
        means=means,
        reviews=count_reviews(rows, policy),
        cases=cases,
        **asdict(repetitions_of(cases)),
        **asdict(latencies_of(rows)),
        score_interval=_score_interval(cases, seed),
    )


def _interval(groups: Sequence[Sequence[bool]], seed: int) -> tuple[float, float] | None:
    """Return the 95% interval of the pass rate: Wilson when every case ran once, else over cases."""
    counts = [(sum(group), len(group)) for group in groups]
    if all(total <= 1 for _, total in counts):
        return wilson_interval(sum(p for p, _ in counts), sum(t for _, t in counts))
    return bootstrap_interval(counts, seed=seed)


def _score_interval(cases: Sequence[CaseSummary], seed: int) -> tuple[float, float] | None:
    """Return the 95% interval of the mean score over executions, whole cases being drawn."""
    sums = [
        (one.means.score * one.means.scored, one.means.scored)
        for one in cases
        if one.means.score is not None
    ]
    return bootstrap_interval(sums, seed=seed)

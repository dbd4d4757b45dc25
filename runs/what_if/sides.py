"""One side of a what-if in figures, by the rules that summarise every run (SCORING §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import Policy
from runs.summary import Execution, brief
from runs.what_if.figures import Agreement, Band, Bin, Histogram, Side

BINS = 20
SCORED, ERROR = "scored", "error"


def side_of(
    rows: Sequence[Execution], policy: Policy, *, is_completed: bool, open_: int
) -> tuple[Side, Mapping[str, tuple[str, float | None]]]:
    """Return the figures of one side, and by case its state and mean score."""
    found = brief(rows, policy, is_completed=is_completed and not open_)
    reviewed = [row for row in rows if row.reviewed_verdict is not None and row.verdict is not None]
    agreed = sum(row.verdict is row.reviewed_verdict for row in reviewed)
    side = Side(
        executions=len(rows),
        scored=sum(row.status == SCORED for row in rows),
        passed=found.passed,
        errors=sum(row.status == ERROR for row in rows),
        open=open_,
        distribution=found.distribution,
        mean_score=found.mean_score,
        with_score=found.with_score,
        metrics_gate=found.metrics_gate,
        cases_gate=found.cases_gate,
        agreement=Agreement(agreed, len(reviewed)),
    )
    return side, found.cases


def histogram_of(
    before: Sequence[Execution], after: Sequence[Execution], policies: tuple[Policy, Policy]
) -> Histogram:
    """Return the scores of both sides in bins of 0.05."""
    counts = [_counted(rows) for rows in (before, after)]
    bins = (
        Bin(rounded(at / BINS), rounded((at + 1) / BINS), counts[0][at], counts[1][at])
        for at in range(BINS)
    )
    return Histogram(tuple(bins), bands_of(policies[0]), bands_of(policies[1]))


def bands_of(policy: Policy) -> tuple[Band, ...]:
    """Return the limits that scores are held to: two bands, or the fallback of the outcomes gate."""
    if policy.case_gate == "score":
        return (
            Band("borderline", policy.borderline_threshold),
            Band("pass", policy.pass_threshold),
        )
    return (Band("fallback", policy.fallback_threshold),)


def _counted(rows: Iterable[Execution]) -> list[int]:
    counts = [0] * BINS
    for row in rows:
        if row.score is not None:
            # To nine decimals like every comparison, so that a score on a band lies above it.
            counts[min(math.floor(rounded(row.score * BINS)), BINS - 1)] += 1
    return counts

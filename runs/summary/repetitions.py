"""What repetitions tell of a run: all k, any of k, verdicts that differ, spread and latency (SCORING §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import mean, rounded
from runs.summary.figures import CaseSummary, Execution


@dataclass(frozen=True, slots=True)
class RepetitionFigures:
    """Cases of a run over their repetitions.

    `all_passed` and `any_passed` are of the `settled`, all of whose repetitions were carried out;
    `flaky` is of the `comparable`, which have two verdicts or more. `spread` is the mean of highest −
    lowest score (0 to 1) over the `spread_cases` that have two scores or more, None without any.
    """

    settled: int = 0
    all_passed: int = 0
    any_passed: int = 0
    comparable: int = 0
    flaky: int = 0
    spread: float | None = None
    spread_cases: int = 0


@dataclass(frozen=True, slots=True)
class Latencies:
    """The median and the 95th percentile of the `timed` executions, nearest ranks, in milliseconds."""

    timed: int = 0
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None


def repetitions_of(cases: Iterable[CaseSummary]) -> RepetitionFigures:
    """Return what the repetitions of a run's cases tell."""
    found = list(cases)
    settled = [case for case in found if case.is_settled]
    spreads = [case.spread for case in found if case.spread is not None]
    average = mean(spreads)
    return RepetitionFigures(
        settled=len(settled),
        all_passed=sum(case.all_passed for case in settled),
        any_passed=sum(case.any_passed for case in settled),
        comparable=sum(case.scored > 1 for case in found),
        flaky=sum(case.is_flaky for case in found),
        spread=None if average is None else rounded(average),
        spread_cases=len(spreads),
    )


def latencies_of(rows: Iterable[Execution]) -> Latencies:
    """Return the middle and the slow end of the latencies that were measured."""
    known = sorted(row.latency_ms for row in rows if row.latency_ms is not None)
    return Latencies(len(known), nearest_rank(known, 0.5), nearest_rank(known, 0.95))


def nearest_rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the least value that a share of all, 0 to 1, does not exceed; None of nothing."""
    return ordered[rank_of(share, len(ordered))] if ordered else None


def rank_of(share: float, count: int) -> int:
    """Return the place, from 0, of the nearest rank of a share among so many values in order."""
    return max(0, math.ceil(rounded(share * count)) - 1)

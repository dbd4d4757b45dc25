"""How far the mean scores of runs can be trusted: kept in their summaries, made here for older ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from django.db.models import Count, Sum

from evaluators.scoring.intervals import bootstrap_interval
from runs.models import Result, ResultStatus, Run

KEPT_AS = "score_interval"
# What a page may read at once of runs whose summaries were written before.
MOST_READ = 50_000

Interval = tuple[float, float]


def score_intervals(runs: Sequence[Run]) -> Mapping[int, Interval | None]:
    """Return the 95% interval of each run's mean score by primary key, None where there is none.

    Those of older runs are made of their results as long as these are few; one query, none for runs
    that keep theirs.
    """
    found: dict[int, Interval | None] = {run.pk: _kept(run) for run in runs}
    if older := _older(runs):
        groups = _sums(older)
        found |= {pk: bootstrap_interval(groups[pk], seed=pk) for pk in older}
    return found


def _kept(run: Run) -> Interval | None:
    ends = (run.summary or {}).get(KEPT_AS)
    return (ends[0], ends[1]) if ends else None


def _older(runs: Sequence[Run]) -> Sequence[int]:
    """Return the runs whose summaries lack the interval, the newest first, as many as can be read."""
    read, found = 0, []
    for run in sorted(runs, key=lambda run: -run.pk):
        if run.summary and KEPT_AS not in run.summary:
            read += run.execution_count
            if read > MOST_READ:
                break
            found.append(run.pk)
    return found


def _sums(numbers: Sequence[int]) -> Mapping[int, list[tuple[float, int]]]:
    """Return for each case of each run the sum of its scores and how many there are."""
    scored = Result.objects.filter(run__in=numbers, status=ResultStatus.SCORED, score__isnull=False)
    rows = scored.order_by().values("run_id", "case_id")
    groups: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for run, total, count in rows.annotate(total=Sum("score"), count=Count("id")).values_list(
        "run_id", "total", "count"
    ):
        groups[run].append((total, count))
    return groups

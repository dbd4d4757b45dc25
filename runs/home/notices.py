"""Notices on every page: runs that the member started, when they end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models import F, Q

from runs.engine.plan import MEASURES_JUDGE
from runs.models.runs import ACTIVE_RUN_STATUSES, Run
from runs.results.runs import RunVerdict, run_verdict

# The end of a shorter run is seen where it was started.
LONG_RUN = timedelta(seconds=20)
# No address holds more.
MAX_WATCHED = 20


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended, and its verdict."""

    run: Run
    verdict: RunVerdict


def watched_runs(member: User, known: Collection[int] = ()) -> Sequence[int]:
    """Return the ids of the member's runs whose figures are to come: the active ones, and of `known` the others too."""
    lacking = Run.objects.filter(created_by=member, summary__isnull=True)
    runs = lacking.filter(Q(status__in=ACTIVE_RUN_STATUSES) | Q(pk__in=known)).order_by("-pk")
    return list(runs.values_list("pk", flat=True)[:MAX_WATCHED])


def ended_runs(member: User, known: Collection[int]) -> Sequence[EndedRun]:
    """Return those of the known runs that the member started, that have a verdict and took long."""
    ended = Run.objects.filter(pk__in=known, created_by=member, summary__isnull=False).filter(
        finished_at__gte=F("started_at") + LONG_RUN
    )
    # A measurement of the judge has no verdict on the target.
    ended = ended.exclude(snapshot__has_key=MEASURES_JUDGE)
    rows = ended.select_related("suite").defer("snapshot", "leaf_scores").order_by("finished_at")
    return [EndedRun(run, verdict) for run in rows if (verdict := run_verdict(run, ()))]

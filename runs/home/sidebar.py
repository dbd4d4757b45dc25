"""The sidebar of every page: recent suites, what waits for the member, and notices of their runs that end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Func, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse

from runs.engine.plan import MEASURES_JUDGE
from runs.models.comments import Mention
from runs.models.reviews import ReviewItem, retried_results
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite
from runs.results.runs import RunVerdict, run_verdict

MAX_RECENT_SUITES = 5
# Every page reads these columns, so they are only those that the mark of a suite needs.
READ = ("number", "status", "summary", "suite__slug", "suite__title")


@dataclass(frozen=True, slots=True)
class RecentSuite:
    """A suite that ran recently: its title, its address, and the mark of its last run."""

    title: str
    url: str
    verdict: str


# Every page asks this, so it is put together once.
_RECENT_RUNS = (
    Run.objects.filter(
        pk=Subquery(
            Run.objects.filter(suite=OuterRef("suite")).order_by("-number").values("pk")[:1]
        ),
        suite__archived_at=None,
    )
    .order_by("-pk")
    .select_related("suite")
    .only(*READ)[:MAX_RECENT_SUITES]
)


def recent_suites() -> list[RecentSuite]:
    """Return up to five suites, the one that ran last first; one query."""
    return [_recent_suite(run.suite, run) for run in _RECENT_RUNS.all()]


def _recent_suite(suite: Suite, run: Run) -> RecentSuite:
    place = {"slug": suite.slug}
    is_live = run.is_active
    url = (
        reverse("runs:run", kwargs=place | {"number": run.number})
        if is_live
        else reverse("runs:suite", kwargs=place)
    )
    return RecentSuite(suite.title, url, _verdict(run))


def _verdict(run: Run) -> str:
    """Return the mark of a run by its status, or by its gates once its figures are computed."""
    named = {
        RunStatus.QUEUED: "waiting",
        RunStatus.RUNNING: "running",
        RunStatus.STOPPED: "cancelled",
        RunStatus.BUDGET_REACHED: "cancelled",
        RunStatus.FAILED: "error",
    }
    if run.status in named:
        return named[RunStatus(run.status)]
    if not run.summary:
        return "running"
    gates = {run.summary[gate]["passed"] for gate in ("metrics_gate", "cases_gate")}
    return "fail" if False in gates else "pass" if gates == {True} else "borderline"


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


def _count(rows: QuerySet[Any]) -> Subquery:
    numbers = rows.order_by().annotate(count=Func("pk", function="COUNT")).values("count")
    return Subquery(numbers, output_field=IntegerField())


_WAITING = ReviewItem.objects.waiting()
# Every page has these numbers, so one query counts them, which is put together once. All open items are counted in
# their index, and those of a retry, of which there are few, taken off: to look at each takes five times as long.
_NUMBERS = User.objects.values(
    review_waiting=_count(_WAITING) - _count(_WAITING.filter(result__in=retried_results())),
    mentions_unread=_count(Mention.objects.filter(member=OuterRef("pk"), read_at=None)),
    own_active=_count(
        Run.objects.filter(
            created_by=OuterRef("pk"), summary__isnull=True, status__in=ACTIVE_RUN_STATUSES
        )
    ),
)
# A choice kept in the browser (static/js/preferences.js).
NOTICES_COOKIE = "run-notices"


def sidebar_context(request: HttpRequest) -> dict[str, object]:
    """Return recent suites, the numbers of results that wait for review and of unread mentions, and watched runs.

    Only for members who may see runs.
    """
    user = getattr(request, "user", None)
    # A fragment has no sidebar.
    is_fragment = request.headers.get("HX-Request") == "true"
    if user is None or is_fragment or not user.has_perm("runs.view_run"):
        return {"recent_suites": []}
    numbers = _NUMBERS.get(pk=user.pk)
    watches = numbers["own_active"] and request.COOKIES.get(NOTICES_COOKIE) != "off"
    watched = watched_runs(user) if watches else []
    return {"recent_suites": recent_suites(), "watched_runs": watched, **numbers}

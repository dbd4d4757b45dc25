"""The home page's cells, the sidebar of every page, and search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Count, F, Min, OuterRef, Q, Subquery, Sum
from django.http import HttpRequest
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from runs.costs import UNPRICED_CALLS
from runs.home.suite_rows import has_failed_gate
from runs.models.results import CallPurpose, ModelCall
from runs.models.reviews import QueueQuery
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Case, Suite, Target
from runs.results.run_figures import cases_gate, metrics_gate
from runs.results.run_list import RunRow, listed, run_row


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The cells above the table. Money comes from the ledger and says what has no price.

    `waiting` results wait for a reviewer, the first since `oldest`.
    """

    runs: int
    done: int
    executions: int
    left_ms: float | None
    failing: int
    judged: int
    errored: int
    errored_suites: int
    month: datetime
    run_usd: Decimal
    evaluation_usd: Decimal
    unpriced: int
    waiting: int
    oldest: datetime | None

    @property
    def share(self) -> float:
        """Return how much of the active runs is done, 0 to 1."""
        return self.done / self.executions if self.executions else 0.0

    @property
    def spent_usd(self) -> Decimal:
        """Return the target cost and the judge cost together."""
        return self.run_usd + self.evaluation_usd


def dashboard(latest: Sequence[RunRow], *, now: datetime) -> Dashboard:
    """Return the cells, from the latest completed run of each suite.

    `now` is in the time zone whose month is meant.
    """
    active = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).values_list(
        "done_count", "execution_count", "started_at", "worked_before_ms"
    )
    errors = [run.counts["error"] for run in latest if run.counts["error"]]
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = ModelCall.objects.filter(created_at__gte=month).aggregate(
        run=Sum("cost_usd", filter=Q(purpose=CallPurpose.TARGET)),
        evaluation=Sum("cost_usd", filter=Q(purpose=CallPurpose.EVALUATION)),
        unpriced=Count("pk", filter=UNPRICED_CALLS),
    )
    queue = QueueQuery().items().waiting().aggregate(waiting=Count("pk"), oldest=Min("created_at"))
    return Dashboard(
        runs=len(active),
        done=sum(row[0] for row in active),
        executions=sum(row[1] for row in active),
        left_ms=max(
            (left for row in active if (left := _left(*row, now)) is not None), default=None
        ),
        failing=sum(has_failed_gate(run) for run in latest),
        judged=len(latest),
        errored=sum(errors),
        errored_suites=len(errors),
        month=month,
        run_usd=spent["run"] or Decimal(0),
        evaluation_usd=spent["evaluation"] or Decimal(0),
        unpriced=spent["unpriced"],
        **queue,
    )


def _left(
    done: int, total: int, started_at: datetime | None, worked_before_ms: int, now: datetime
) -> float | None:
    """Return how long a run has left at its speed so far, in ms; None before its first result."""
    if started_at is None or not done:
        return None
    worked_ms = worked_before_ms + max((now - started_at).total_seconds() * 1000, 0.0)
    return worked_ms / done * (total - done)


MAX_RECENT_SUITES = 5
# Every page asks: it reads what the dot before a suite is made of and no more.
READ = (
    *("number", "status", "summary", "repetitions", "execution_count", "done_count"),
    *("pass_count", "score_sum", "score_count", "suite__slug", "suite__title"),
)


@dataclass(frozen=True, slots=True)
class RecentSuite:
    """A suite with where its last run leads and how that stands."""

    title: str
    url: str
    verdict: str


def recent_suites() -> list[RecentSuite]:
    """Return up to five suites, the one that ran last first; one query."""
    last = Run.objects.filter(suite=OuterRef("suite")).order_by("-number").values("pk")[:1]
    runs = Run.objects.filter(pk=Subquery(last), suite__archived_at=None).order_by("-pk")
    told = runs.select_related("suite").only(*READ).annotate(policy_json=F("snapshot__policy"))
    return [_recent_suite(run.suite, run) for run in told[:MAX_RECENT_SUITES]]


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
    named = {
        RunStatus.QUEUED: "waiting",
        RunStatus.RUNNING: "running",
        RunStatus.STOPPED: "cancelled",
        RunStatus.BUDGET_REACHED: "cancelled",
        RunStatus.FAILED: "error",
    }
    if run.status in named:
        return named[RunStatus(run.status)]
    policy = PolicySpec.model_validate(run.policy_json)  # type: ignore[attr-defined]  # `listed` annotates it
    gates = {metrics_gate(run, policy).state, cases_gate(run, policy).state}
    return "fail" if "failed" in gates else "pass" if gates == {"passed"} else "borderline"


MAX_EACH = 20
MAX_QUERY_LENGTH = 200
RUN_NUMBER = re.compile(r"#?(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: where it is, what it is called and what it belongs to."""

    url: str
    code: str
    title: str
    belongs_to: str


@dataclass(frozen=True, slots=True)
class Found:
    """What matches, by sort; `only_url` is where an exact name leads at once."""

    query: str
    suites: tuple[Hit, ...]
    cases: tuple[Hit, ...]
    runs: tuple[RunRow, ...]
    targets: tuple[Hit, ...]
    only_url: str

    @property
    def total(self) -> int:
        """Return how many hits are shown."""
        return len(self.suites) + len(self.cases) + len(self.runs) + len(self.targets)

    @property
    def nothing(self) -> str:
        """Say that nothing was found."""
        return f"Nothing matches “{self.query}”"


def search(text: str) -> Found:
    """Return what matches in title, key, slug, tag or number; at most 20 of each sort."""
    query = text.strip()[:MAX_QUERY_LENGTH]
    if not query:
        return Found("", (), (), (), (), "")
    suites, cases, runs = _suites(query), _cases(query), _runs(query)
    targets = _targets(query)
    return Found(query, suites, cases, runs, targets, _only(query, cases, runs))


def _suites(query: str) -> tuple[Hit, ...]:
    named = Q(title__icontains=query) | Q(slug__icontains=query) | Q(description__icontains=query)
    found = Suite.objects.filter(named, archived_at=None)[:MAX_EACH]
    return tuple(
        Hit(reverse("runs:suite", kwargs={"slug": suite.slug}), suite.slug, suite.title, "")
        for suite in found
    )


def _cases(query: str) -> tuple[Hit, ...]:
    named = Q(key__icontains=query) | Q(title__icontains=query)
    cases = Case.objects.filter(named, is_current=True, suite__archived_at=None)
    found = cases.select_related("suite").only("key", "title", "suite__slug", "suite__title")
    return tuple(
        Hit(
            reverse("runs:case", kwargs={"slug": case.suite.slug, "key": case.key}),
            case.key,
            case.title,
            case.suite.title,
        )
        for case in found.order_by("suite__title", "position")[:MAX_EACH]
    )


def _runs(query: str) -> tuple[RunRow, ...]:
    number = RUN_NUMBER.fullmatch(query)
    named = Q(note__icontains=query) | Q(target_name__icontains=query)
    wanted = Q(number=int(number[1])) if number else named
    runs = listed(Run.objects.filter(wanted))
    return tuple(run_row(run) for run in runs[:MAX_EACH])


def _targets(query: str) -> tuple[Hit, ...]:
    found = Target.objects.filter(name__icontains=query, archived_at=None)[:MAX_EACH]
    return tuple(
        Hit(reverse("runs:target", kwargs={"pk": target.pk}), "", target.name, target.kind)
        for target in found
    )


def _only(query: str, cases: tuple[Hit, ...], runs: tuple[RunRow, ...]) -> str:
    """Return where a case's key or a run's number leads, when only one thing bears it."""
    keyed = [hit for hit in cases if hit.code.casefold() == query.casefold()]
    if len(keyed) == 1:
        return keyed[0].url
    return runs[0].url if query.startswith("#") and len(runs) == 1 else ""


def sidebar_context(request: HttpRequest) -> dict[str, object]:
    """Return the suites that ran last and how many results wait for review, for those who may see runs."""
    user = getattr(request, "user", None)
    may_see = user is not None and user.has_perm("runs.view_run")
    # A fragment has no sidebar, so it is spared the query.
    is_fragment = request.headers.get("HX-Request") == "true"
    if not may_see or is_fragment:
        return {"recent_suites": []}
    return {
        "recent_suites": recent_suites(),
        "review_waiting": QueueQuery().items().waiting().count(),
    }

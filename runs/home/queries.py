"""What the home page reads, and what exists of an address that leads nowhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import (
    Count,
    F,
    Max,
    Min,
    Q,
    QuerySet,
    Sum,
    Window,
)
from django.db.models.functions import RowNumber
from django.urls import reverse

from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.tree import walk
from runs import lists
from runs.charts.figures import Trend
from runs.charts.trends import LEAST_TREND
from runs.costs import UNPRICED_CALLS
from runs.lists import Chip, Control, HeadCell, ListQuery, cut_page
from runs.models.results import JUDGE_PURPOSES, CallPurpose, ModelCall
from runs.models.reviews import QueueQuery
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.suites import Suite, Target
from runs.results.runs import RunRow, run_row, with_list_columns

TREND = 12


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One suite of the table; `latest` is its newest completed run, `newer` a run started after it.

    `trend` is that of the target of `latest`; None without enough runs. `waiting` counts the results
    that wait for a reviewer.
    """

    slug: str
    title: str
    tags: Sequence[str]
    version: int
    cases: int
    evaluators: int
    latest: RunRow | None
    trend: Trend | None
    newer: RunRow | None
    waiting: int

    @property
    def is_gate_failed(self) -> bool:
        """Tell whether the latest completed run failed a gate."""
        return self.latest is not None and has_failed_gate(self.latest)

    @property
    def errors(self) -> int:
        """Return how many results of the latest completed run have errors."""
        return self.latest.counts["error"] if self.latest else 0

    @property
    def is_running(self) -> bool:
        """Tell whether its newest run is queued or running."""
        return self.newer is not None and self.newer.is_active

    @property
    def urgency(self) -> int:
        """Return the place among suites: failed gates, errors, waiting reviews, running, the rest, without a run."""
        if self.latest is None:
            return 3 if self.is_running else 5
        reasons = (self.is_gate_failed, bool(self.errors), bool(self.waiting), self.is_running)
        return reasons.index(True) if any(reasons) else 4

    @property
    def progress(self) -> float:
        """Return how much of the newest run is done, 0 to 1."""
        return (
            self.newer.done / self.newer.executions if self.newer and self.newer.executions else 0.0
        )

    @property
    def trend_state(self) -> str:
        """Return the mark at the end of the trend."""
        passed = self.latest is not None and self.latest.metrics.state == "passed"
        return "pass" if passed else "fail"


def suite_rows() -> Sequence[SuiteRow]:
    """Return every suite that is not archived.

    Runs that score stored outputs again show nothing new about a target, so they count only while they run.
    """
    current = Count("cases", filter=Q(cases__is_current=True))
    suites = Suite.objects.filter(archived_at=None).annotate(case_count=current)
    latest = _newest(Run.objects.filter(status=RunStatus.COMPLETED, source_run=None))
    newest = _newest(Run.objects.filter(Q(source_run=None) | Q(status__in=ACTIVE_RUN_STATUSES)))
    to_review = QueueQuery().items().waiting().order_by().values_list("run__suite")
    trends, waiting = _trends(Run.objects.all()), dict(to_review.annotate(total=Count("pk")))
    return [
        SuiteRow(
            slug=suite.slug,
            title=suite.title,
            tags=suite.tags,
            version=suite.version,
            cases=suite.case_count,
            evaluators=sum(not node.is_composite for _, node in walk(suite.spec.evaluators)),
            latest=run_row(run) if (run := latest.get(suite.pk)) else None,
            trend=trends.get(suite.pk),
            newer=run_row(last) if (last := newest.get(suite.pk)) and last != run else None,
            waiting=waiting.get(suite.pk, 0),
        )
        for suite in suites.order_by("title", "pk")
    ]


def latest_rows() -> Sequence[RunRow]:
    """Return the newest completed run of every suite that is not archived."""
    completed = Run.objects.filter(
        status=RunStatus.COMPLETED, suite__archived_at=None, source_run=None
    )
    return [run_row(run) for run in _newest(completed).values()]


def has_failed_gate(run: RunRow) -> bool:
    """Tell whether a run failed one of its gates."""
    return "failed" in (run.metrics.state, run.cases.state)


def _newest(runs: QuerySet[Run]) -> Mapping[int, Run]:
    """Return the newest of the runs by suite."""
    place = Window(RowNumber(), partition_by="suite_id", order_by=F("number").desc())
    # The columns of lists are asked for outside: filtering by a place takes Django long for each column.
    newest = runs.annotate(place=place).filter(place=1).values("pk")
    return {run.suite_id: run for run in with_list_columns(Run.objects.filter(pk__in=newest))}


def _trends(runs: QuerySet[Run]) -> Mapping[int, Trend]:
    """Return by suite the trend of the target of its newest completed run."""
    place = Window(
        RowNumber(), partition_by=("suite_id", "target_name"), order_by=F("number").desc()
    )
    completed = runs.filter(status=RunStatus.COMPLETED, source_run=None)
    ranked = completed.annotate(place=place).filter(place__lte=TREND).order_by("number")
    scores: dict[tuple[int, str], list[float]] = defaultdict(list)
    newest: dict[int, str] = {}
    columns = ("suite_id", "target_name", "score_sum", "score_count")
    for suite, target, total, count in ranked.values_list(*columns):
        newest[suite] = target
        if count:
            scores[suite, target].append(total / count)
    return {
        suite: Trend(target, scores[suite, target])
        for suite, target in newest.items()
        if len(scores[suite, target]) >= LEAST_TREND
    }


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """What a site without a run has of what a run needs."""

    has_model: bool
    has_suite: bool
    has_target: bool
    start_url: str

    @property
    def done(self) -> int:
        """Return how many of the four steps are done; the last one is the run."""
        return sum((self.has_model, self.has_suite, self.has_target))


def first_steps(rows: Sequence[SuiteRow]) -> FirstSteps | None:
    """Return what is left to do before the first run, None once there is a run."""
    if any(row.newer or row.latest for row in rows) or Run.objects.exists():
        return None
    return FirstSteps(
        has_model=LanguageModel.objects.exists(),
        has_suite=bool(rows),
        has_target=Target.objects.filter(archived_at=None).exists(),
        start_url=reverse("runs:run-new", args=[rows[0].slug])
        if len(rows) == 1
        else reverse("runs:run-start-any"),
    )


SORTS = ("attention", "name", "run", "cost")
SHOWN = {
    "": "All",
    "failed": "Gate failed",
    "errored": "Errors",
    "review": "To review",
    "running": "Running",
}


@dataclass(frozen=True, slots=True)
class SuiteTableQuery(ListQuery):
    """Which suites the home page lists; a page follows the suite with the slug `after`."""

    search: str = lists.search()
    show: str = lists.choice(SHOWN)
    sort: str = lists.option(SORTS, SORTS[0])
    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """One page of the suites that match, and all suites."""

    query: SuiteTableQuery
    rows: Sequence[SuiteRow]
    chips: Sequence[Chip]
    matching: int
    shown: int
    next_address: str
    every: Sequence[SuiteRow]
    changed_at: datetime | None

    @property
    def total(self) -> int:
        """Return the number of suites."""
        return len(self.every)

    @property
    def cases(self) -> int:
        """Return the number of cases of all suites."""
        return sum(row.cases for row in self.every)

    @property
    def first(self) -> int:
        """Return the position of the first row among those that match, from 1."""
        return self.shown - len(self.rows) + 1

    @property
    def is_live(self) -> bool:
        """Tell whether any suite has an active run."""
        return any(row.is_running for row in self.every)

    @property
    def controls(self) -> Sequence[Control]:
        """Return the search field of the table."""
        return (self.query.search_box("search", "Filter suites"),)

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the hidden fields of the form."""
        return self.query.hidden("q")

    @property
    def heads(self) -> Mapping[str, HeadCell]:
        """Return the heads of the columns that sort."""
        columns = {"name": "Suite", "run": "Latest run", "cost": "Cost"}
        directions = {"name": "ascending", "run": "descending", "cost": "descending"}
        return {
            sort: HeadCell(
                sort,
                label,
                self.query.address(sort=sort),
                directions[sort] if self.query.sort == sort else "",
                is_number=sort == "cost",
            )
            for sort, label in columns.items()
        }

    @property
    def nothing(self) -> str:
        """Say that nothing matches."""
        kind = {
            "failed": "suite with a failed gate",
            "errored": "suite with errors",
            "review": "suite with results to review",
            "running": "running suite",
        }
        noun = kind.get(self.query.show, "suite")
        search = self.query.search
        return f"No {noun} matches “{search}”" if search else f"No {noun}"


def suite_table(query: SuiteTableQuery) -> SuiteTable:
    """Return one page of the suites, in a fixed number of queries."""
    every = suite_rows()
    named = [row for row in every if _matches(row, query.search)]
    chosen = sorted((row for row in named if _is_shown(row, query.show)), key=_order(query.sort))
    slugs = [row.slug for row in chosen]
    start = slugs.index(query.after) + 1 if query.after in slugs else 0
    page = cut_page(chosen[start:], lambda row: row.slug)
    return SuiteTable(
        query=query,
        rows=page.rows,
        chips=[
            query.chip(label, sum(_is_shown(row, show) for row in named), show=show)
            for show, label in SHOWN.items()
        ],
        matching=len(chosen),
        shown=start + len(page.rows),
        next_address=page.next_address(query),
        every=every,
        changed_at=Suite.objects.aggregate(at=Max("updated_at"))["at"],
    )


def _matches(row: SuiteRow, search: str) -> bool:
    wanted = search.casefold()
    return any(wanted in text.casefold() for text in (row.title, row.slug, *row.tags))


def _is_shown(row: SuiteRow, show: str) -> bool:
    wanted = {
        "failed": row.is_gate_failed,
        "errored": row.errors > 0,
        "review": row.waiting > 0,
        "running": row.is_running,
    }
    return wanted.get(show, True)


def _order(sort: str) -> Any:
    """Return the sort key of an order; suites without a completed run come last."""
    orders = {
        "attention": lambda row: (row.urgency, row.title.casefold(), row.slug),
        "name": lambda row: (row.title.casefold(), row.slug),
        "run": lambda row: -(row.latest.created_at.timestamp() if row.latest else 0.0),
        "cost": lambda row: -_known_cost(row),
    }
    return orders[sort]


def _known_cost(row: SuiteRow) -> Decimal:
    """Return the cost of the latest run, −1 where it is not known."""
    total = row.latest.costs.total_usd if row.latest else None
    return Decimal(-1) if total is None else total


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The cells above the table; `unpriced` counts calls that lack a price.

    What was spent is that of the stored runs; `has_deleted` tells that others were deleted this month.

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
    has_deleted: bool
    waiting: int
    oldest: datetime | None

    @property
    def share(self) -> float:
        """Return how much of the active runs is done, 0 to 1."""
        return self.done / self.executions if self.executions else 0.0

    @property
    def spent_usd(self) -> Decimal:
        """Return the sum of run cost and evaluation cost."""
        return self.run_usd + self.evaluation_usd


def dashboard(latest: Sequence[RunRow], *, now: datetime) -> Dashboard:
    """Return the cells for the latest completed runs of the suites.

    The month of the costs is that of `now` in its time zone.
    """
    active = Run.objects.filter(status__in=ACTIVE_RUN_STATUSES).values_list(
        "done_count", "execution_count", "started_at", "worked_before_ms"
    )
    errors = [run.counts["error"] for run in latest if run.counts["error"]]
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spent = ModelCall.objects.filter(created_at__gte=month).aggregate(
        run=Sum("cost_usd", filter=Q(purpose=CallPurpose.TARGET)),
        evaluation=Sum("cost_usd", filter=Q(purpose__in=JUDGE_PURPOSES)),
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
        has_deleted=AuditEntry.objects.filter(
            action="delete", object_type__in=("run", "campaign", "suite"), at__gte=month
        ).exists(),
        **queue,
    )


def _left(
    done: int, total: int, started_at: datetime | None, worked_before_ms: int, now: datetime
) -> float | None:
    """Estimate the time that a run has left from its speed so far, in ms; None before its first result."""
    if started_at is None or not done:
        return None
    worked_ms = worked_before_ms + max((now - started_at).total_seconds() * 1000, 0.0)
    return worked_ms / done * (total - done)


@dataclass(frozen=True, slots=True)
class Missing:
    """What an address names that does not exist, and what does: up to two links, the nearest first."""

    text: str
    links: Sequence[tuple[str, str]]


OF_RUN = "suites/<slug:slug>/runs/<int:number>/"


def find_missing(route: str, named: Mapping[str, Any]) -> Missing | None:
    """Return which suite, run or case of an address does not exist; None when it names none or all exist."""
    if "slug" not in named or not route.startswith("suites/"):
        return None
    suite = Suite.objects.filter(slug=named["slug"]).first()
    if suite is None:
        return Missing(f"No suite has the short name “{named['slug']}”.", ())
    to_suite = (suite.title, reverse("runs:suite", args=[suite.slug]))
    if route.startswith(OF_RUN):
        if suite.runs.filter(number=named["number"]).exists():
            return _missing_case(named, f"Run #{named['number']}", to_suite)
        text = f"Run #{named['number']} of {suite.title} does not exist"
        newest = suite.runs.aggregate(number=Max("number"))["number"]
        if newest is None:
            return Missing(f"{text}. The suite has no runs.", (to_suite,))
        to_run = (f"Open run #{newest}", reverse("runs:run", args=[suite.slug, newest]))
        return Missing(f"{text}. The newest is #{newest}.", (to_run, to_suite))
    return _missing_case(named, suite.title, to_suite)


def _missing_case(
    named: Mapping[str, Any], where: str, to_suite: tuple[str, str]
) -> Missing | None:
    if "key" not in named:
        return None
    if "number" in named:
        link = (
            f"Open run #{named['number']}",
            reverse("runs:run", args=[named["slug"], named["number"]]),
        )
        return Missing(f"{where} has no such result of case “{named['key']}”.", (link, to_suite))
    link = (f"Cases of {where}", reverse("runs:suite-cases", args=[named["slug"]]))
    return Missing(f"{where} has no case “{named['key']}”.", (link,))

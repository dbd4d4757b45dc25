"""Every suite in one row: its latest completed run, what came after it, and how its scores went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from evaluators.scoring.tree import walk
from runs import lists
from runs.lists import Chip, Control, HeadCell, ListQuery, cut_page
from runs.models.reviews import QueueQuery
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.results.run_list import RunRow, listed, run_row

TREND = 12


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One suite of the table; `latest` is its newest completed run, `newer` one that came after it.

    `trend` holds the metrics scores of up to twelve completed runs, oldest first, 0 to 1. `waiting` counts what
    of all its runs waits for a reviewer.
    """

    slug: str
    title: str
    tags: Sequence[str]
    version: int
    cases: int
    evaluators: int
    latest: RunRow | None
    verdicts: Mapping[str, int]
    trend: Sequence[float]
    newer: RunRow | None
    waiting: int

    @property
    def is_gate_failed(self) -> bool:
        """Tell whether the latest completed run failed a gate."""
        return self.latest is not None and has_failed_gate(self.latest)

    @property
    def is_running(self) -> bool:
        """Tell whether its newest run is queued or at work."""
        return self.newer is not None and self.newer.is_active

    @property
    def progress(self) -> float:
        """Return how much of the newest run is done, 0 to 1."""
        return (
            self.newer.done / self.newer.executions if self.newer and self.newer.executions else 0.0
        )

    @property
    def change(self) -> float | None:
        """Return how the metrics score moved since the run before, as a difference of shares."""
        return self.trend[-1] - self.trend[-2] if len(self.trend) > 1 else None

    @property
    def trend_state(self) -> str:
        """Return the mark at the end of the trend."""
        passed = self.latest is not None and self.latest.metrics.state == "passed"
        return "pass" if passed else "fail"


def suite_rows() -> Sequence[SuiteRow]:
    """Return every suite that is not archived, by title.

    Runs that only scored stored answers again are no newer word on the target: they stand in the list
    of runs alone.
    """
    current = Count("cases", filter=Q(cases__is_current=True))
    suites = Suite.objects.filter(archived_at=None).annotate(case_count=current)
    latest = _newest(Run.objects.filter(status=RunStatus.COMPLETED, source_run=None))
    newest = _newest(Run.objects.filter(source_run=None))
    to_review = QueueQuery().items().waiting().order_by().values_list("result__run__suite")
    trends, waiting = _trends(), dict(to_review.annotate(total=Count("pk")))
    return [
        SuiteRow(
            slug=suite.slug,
            title=suite.title,
            tags=suite.tags,
            version=suite.version,
            cases=suite.case_count,
            evaluators=sum(not node.is_composite for _, node in walk(suite.spec.evaluators)),
            latest=run_row(run) if (run := latest.get(suite.pk)) else None,
            verdicts=case_verdicts(run) if run else {},
            trend=trends.get(suite.pk, ()),
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


def case_verdicts(run: Run) -> Mapping[str, int]:
    """Return how many cases of a completed run have each verdict, errored ones apart."""
    counted: Mapping[str, int] = (run.summary or {}).get("distribution") or {
        "pass": run.pass_count,
        "borderline": run.borderline_count,
        "fail": run.fail_count,
        "error": run.error_count,
    }
    return {name: counted.get(name, 0) for name in ("pass", "borderline", "fail", "error")}


def _newest(runs: QuerySet[Run]) -> Mapping[int, Run]:
    """Return by suite its newest of the runs."""
    place = Window(RowNumber(), partition_by="suite_id", order_by=F("number").desc())
    ranked = runs.annotate(place=place).filter(place=1)
    return {run.suite_id: run for run in listed(ranked)}


def _trends() -> Mapping[int, Sequence[float]]:
    """Return by suite the metrics scores of its last completed runs, oldest first."""
    place = Window(RowNumber(), partition_by="suite_id", order_by=F("number").desc())
    runs = Run.objects.filter(status=RunStatus.COMPLETED, score_count__gt=0, source_run=None)
    ranked = runs.annotate(place=place).filter(place__lte=TREND).order_by("number")
    found: dict[int, list[float]] = defaultdict(list)
    for suite, total, count in ranked.values_list("suite_id", "score_sum", "score_count"):
        found[suite].append(total / count)
    return found


SORTS = ("name", "run", "cost")
SHOWN = {"": "All", "failed": "Gate failed", "running": "Running"}


@dataclass(frozen=True, slots=True)
class SuiteTableQuery(ListQuery):
    """Which suites the home page lists; `after` is the slug of the suite before the page."""

    search: str = lists.search()
    show: str = lists.choice(SHOWN)
    sort: str = lists.option(SORTS, SORTS[0])
    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """The suites that match, one page of them, and every suite there is."""

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
        """Return how many suites there are."""
        return len(self.every)

    @property
    def cases(self) -> int:
        """Return how many cases they have together."""
        return sum(row.cases for row in self.every)

    @property
    def first(self) -> int:
        """Return the place of the first row among those that match, from 1."""
        return self.shown - len(self.rows) + 1

    @property
    def is_live(self) -> bool:
        """Tell whether any suite has a run at work."""
        return any(row.is_running for row in self.every)

    @property
    def controls(self) -> Sequence[Control]:
        """Return the field that narrows the table."""
        return (self.query.search_box("search", "Filter suites"),)

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return what the form sends again."""
        return self.query.hidden("q")

    @property
    def heads(self) -> Mapping[str, HeadCell]:
        """Return the heads of the columns that sort."""
        columns = {"name": "Suite", "run": "Run", "cost": "Cost"}
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
        """Say what was looked for in vain."""
        kind = {"failed": "suite with a failed gate", "running": "running suite"}
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
    return {"failed": row.is_gate_failed, "running": row.is_running}.get(show, True)


def _order(sort: str) -> Any:
    """Return the key of an order; a suite that never ran to its end comes last."""
    orders = {
        "name": lambda row: (row.title.casefold(), row.slug),
        "run": lambda row: -(row.latest.created_at.timestamp() if row.latest else 0.0),
        "cost": lambda row: -_known_cost(row),
    }
    return orders[sort]


def _known_cost(row: SuiteRow) -> Decimal:
    """Return the latest run's cost; one that is not known comes after all others."""
    total = row.latest.costs.total_usd if row.latest else None
    return Decimal(-1) if total is None else total

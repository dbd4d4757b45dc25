"""Two to six runs of a suite side by side: a column for each run, a row for each case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import Case as Choose
from django.db.models import Count, F, FloatField, Max, Min, Q, QuerySet, Sum, Value, When, Window
from django.db.models.functions import Cast, Coalesce, Round
from django.http import Http404
from pydantic import Field

from evaluators.scoring.types import SCORE_DIGITS, DomainError
from runs import lists
from runs.compare.changes import SEVERITY
from runs.compare.rules import CASE_TOLERANCE, rounded_change
from runs.costs import CostPair
from runs.documents import Document, Dollars
from runs.exports.specs import ExportSpec, file_kind
from runs.filters.language import MAX_LENGTH, FilterError
from runs.filters.queries import Hit, hits_by_key, lists_without, matching_keys
from runs.formats.tables import csv_parts
from runs.lists import Chip, HeadCell, Key, Keyset, ListQuery, Page, Sort, head_cell, read_run_name
from runs.models.database import among
from runs.models.results import Result
from runs.models.run_cases import VERDICTS, RunCase
from runs.models.runs import RecentValues, Run, RunStatus
from runs.results.files import run_fingerprint
from runs.results.result_state import result_address
from runs.results.runs import (
    NOT_EVALUATED,
    RunRow,
    conclude,
    run_row,
    run_word,
    score_intervals,
    with_list_columns,
)

MIN_RUNS, MAX_RUNS = 2, 6
# PostgreSQL rounds decimals slowly, so more than CASE_TOLERANCE is asked for without rounding to SCORE_DIGITS.
FAR_APART = CASE_TOLERANCE + 0.5 * 10**-SCORE_DIGITS
BY_CASE, BY_DIFFERENCE = "case", "difference"
# The columns of the runs are named by their places.
PLACES = tuple(str(place) for place in range(1, MAX_RUNS + 1))
SORTS = (BY_CASE, BY_DIFFERENCE, *PLACES)
PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class ManyQuery(ListQuery):
    """Which runs stand side by side, one of them the baseline, and which cases are listed.

    `runs` are names joined by commas. `sort` is the case, the difference, or the place of a run, from 1. `view` is
    the number of a saved view, which says where the rest came from.
    """

    runs: str = lists.setting(max_length=lists.MAX_RUN_NAMES_LENGTH)
    baseline: str = lists.setting()
    differences: bool = lists.flag()
    text: str = lists.search(max_length=MAX_LENGTH + 1)
    sort: Sort = lists.sort(SORTS, BY_DIFFERENCE, is_descending=True)
    view: str = lists.setting()
    after: str = lists.after()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the runs, each once."""
        return tuple(dict.fromkeys(filter(None, self.runs.split(","))))

    def with_runs(self, names: Sequence[str], **changes: Any) -> str:
        """Return the query part of the address with other runs."""
        return self.address(runs=",".join(names), **changes)


class ManyRunsError(DomainError):
    """These runs cannot stand side by side."""

    code = "many_runs"


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A run with its figures; `verdict` is the one whose mark is shown, with its `word`.

    Rates and scores are 0 to 1, intervals 95%; a figure that is not known is None.
    """

    run: Run
    name: str
    url: str
    created_at: datetime
    is_baseline: bool
    verdict: str
    word: str
    pass_rate: float | None
    pass_interval: tuple[float, float] | None
    mean_score: float | None
    score_interval: tuple[float, float] | None
    costs: CostPair
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class ManyCell:
    """A case in one run; `change` is against the baseline, and `tone` says if its verdict got better or worse."""

    url: str
    state: str
    score: float | None
    passed: int
    executions: int
    is_flaky: bool
    change: float | None
    tone: str


@dataclass(frozen=True, slots=True)
class ManyRow:
    """A case with a cell for each run, None where the run does not have it; `spread` is 0 to 1."""

    key: str
    title: str
    cells: Sequence[ManyCell | None]
    spread: float | None
    differs: bool
    hit: Hit | None = None


@dataclass(frozen=True, slots=True)
class ManyRuns:
    """The columns, one page of the cases, and the heads that sort them."""

    query: ManyQuery
    columns: Sequence[RunColumn]
    rows: Sequence[ManyRow]
    total: int
    differing: int
    after: str
    problem: FilterError | None = None
    without: Sequence[Chip] = ()

    @property
    def next_address(self) -> str:
        """Return the query part of the address of the next page, "" on the last."""
        return self.query.address(after=self.after) if self.after else ""

    @property
    def suite(self) -> Any:
        """Return the suite of all the runs."""
        return self.columns[0].run.suite

    @property
    def baseline(self) -> RunColumn:
        """Return the run that the others are compared with."""
        return next(column for column in self.columns if column.is_baseline)

    @property
    def other(self) -> RunColumn:
        """Return the first run that is not the baseline."""
        return next(column for column in self.columns if not column.is_baseline)

    @property
    def has_repetitions(self) -> bool:
        """Tell whether any run executed its cases more than once."""
        return any(column.run.repetitions > 1 for column in self.columns)

    @property
    def chips(self) -> Sequence[Chip]:
        """Return the switch between all cases and those that differ."""
        chip = self.query.chip
        return [
            chip("All", self.total, value="all", differences=False),
            chip("Only differences", self.differing, value="differences", differences=True),
        ]

    @property
    def hidden(self) -> Sequence[tuple[str, str]]:
        """Return the fields that go with the filter."""
        return self.query.hidden("q")

    @property
    def all_url(self) -> str:
        """Return the query part of the address without filters."""
        return self.query.unfiltered.address()

    @property
    def heads(self) -> Sequence[HeadCell]:
        """Return the heads of the table of cases: the case, each run, the difference."""
        return [
            head_cell(self.query, BY_CASE, "Case"),
            *(
                head_cell(self.query, place, f"#{column.run.number}")
                for place, column in zip(PLACES, self.columns, strict=False)
            ),
            head_cell(self.query, BY_DIFFERENCE, "Spread", is_number=True, best_first=True),
        ]


def read_runs(query: ManyQuery) -> Sequence[Run]:
    """Return the runs as lists show them, in the order of the query; one query.

    Raises Http404 for a run that does not exist, and ManyRunsError.
    """
    names = query.names
    if not MIN_RUNS <= len(names) <= MAX_RUNS:
        raise ManyRunsError(f"Choose {MIN_RUNS} to {MAX_RUNS} runs of one suite.")
    places = [read_run_name(name) for name in names]
    if None in places:
        raise Http404("an unknown run")
    slugs = {place[0] for place in places if place}
    if len(slugs) > 1:
        raise ManyRunsError("Choose runs of one suite: runs of two suites are compared in pairs.")
    numbers = [place[1] for place in places if place]
    runs = with_list_columns(Run.objects.filter(suite__slug__in=slugs, number__in=numbers))
    by_number = {run.number: run for run in runs}
    if missing := [number for number in numbers if number not in by_number]:
        raise Http404(f"there is no run {missing[0]}")
    return [by_number[number] for number in numbers]


def baseline_name(query: ManyQuery) -> str:
    """Return the run that the others are compared with: the first where the address names none of them."""
    return query.baseline if query.baseline in query.names else query.names[0]


def many_runs(query: ManyQuery, size: int = PAGE_SIZE) -> ManyRuns:
    """Return the runs side by side, with one page of their cases.

    Six queries at most, and for a filter those of each run but the baseline. Raises as `read_runs`.
    """
    runs = read_runs(query)
    columns = _columns(runs, baseline_name(query))
    try:
        cases = _cases(runs, query)
    except FilterError as error:
        return ManyRuns(query, columns, (), 0, 0, "", error)
    page, (total, differing) = _page(runs, query, cases, size)
    return ManyRuns(
        query=query,
        columns=columns,
        rows=_rows(columns, page.rows),
        total=total,
        differing=differing,
        after=page.after,
        without=()
        if page.rows or not query.is_narrowed
        else lists_without(
            query,
            lambda wider: _listed(_cases(runs, wider), wider).count(),
            [("only differences", {"differences": False})] if query.differences else (),
        ),
    )


# Each page and each order of the same cases tells how many there are.
COUNTED: RecentValues[tuple[int, int]] = RecentValues(20)


def _page(
    runs: Sequence[Run], query: ManyQuery, cases: QuerySet[Any, Any], size: int
) -> tuple[Page[Any], tuple[int, int]]:
    """Return a page of the cases, with how many cases the runs have and how many of these differ.

    One query: the first page of all cases counts them too. Another page takes a second, none for what was just counted.
    """
    order = case_order(query.sort)
    versions = frozenset((run.pk, run.results_version) for run in runs)
    # A filter may ask about what is no result, such as a review.
    is_kept = not query.text and not any(run.is_active for run in runs)
    is_first = not query.after and not query.differences
    if is_first and not (is_kept and versions in COUNTED.values):
        # Of each case: how many there are, and how many differ if it does, or do not.
        everywhere, alike = Window(Count("*")), Window(Count("*"), partition_by=F("differs"))
        cases = cases.annotate(total=everywhere, alike=alike)
        page = order.page(cases, query.after, size)
        count = partial(_first_counts, page.rows)
    else:
        page = order.page(_listed(cases, query), query.after, size)
        count = partial(_counts, cases)
    return page, COUNTED.get(versions, count) if is_kept else count()


def _first_counts(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    if not rows:
        return 0, 0
    first = rows[0]
    return first["total"], first["alike"] if first["differs"] else first["total"] - first["alike"]


def _counts(cases: QuerySet[Any, Any]) -> tuple[int, int]:
    counts = cases.aggregate(total=Count("*"), differing=Sum("differs"))
    return counts["total"], counts["differing"] or 0


def _listed(cases: QuerySet[Any, Any], query: ManyQuery) -> QuerySet[Any, Any]:
    return cases.filter(differs=1) if query.differences else cases


def with_hits(page: ManyRuns) -> ManyRuns:
    """Return a page whose rows tell what its filter found, rather in other runs than the baseline; four queries."""
    if not page.query.text or not page.rows:
        return page
    columns = sorted(page.columns, key=lambda column: not column.is_baseline)
    keys = [row.key for row in page.rows]
    hits = hits_by_key(page.query.text, [column.run for column in columns], keys)
    return replace(page, rows=[replace(row, hit=hits.get(row.key)) for row in page.rows])


def _columns(runs: Sequence[Run], baseline: str) -> Sequence[RunColumn]:
    intervals = score_intervals(runs)
    columns = []
    for run in runs:
        row, summary = run_row(run), run.summary or {}
        verdict, word = run_standing(run, row)
        ends = summary.get("interval")
        columns.append(
            RunColumn(
                run=run,
                name=run_word(run),
                url=row.url,
                created_at=run.created_at,
                is_baseline=run_word(run) == baseline,
                verdict=verdict,
                word=word,
                pass_rate=row.cases.share,
                pass_interval=(ends[0], ends[1]) if ends else None,
                mean_score=row.metrics.share,
                score_interval=intervals[run.pk],
                costs=row.costs,
                latency_ms=(summary.get("means") or {}).get("latency_ms"),
            )
        )
    return columns


def run_standing(run: Run, row: RunRow) -> tuple[str, str]:
    """Return the mark and the word for how a run ended by its gates."""
    gates = [row.metrics.state, row.cases.state]
    if run.is_active:
        return "running", RunStatus(run.status).label
    if run.status != RunStatus.COMPLETED:
        return "cancelled", RunStatus(run.status).label
    if run.summary and conclude(run).code == NOT_EVALUATED:
        return "error", "Not evaluated"
    if "failed" in gates:
        return "fail", "Gate failed" if gates.count("failed") == 1 else "Gates failed"
    return ("waiting", "Not evaluated") if "open" in gates else ("pass", "Gates passed")


def _cases(runs: Sequence[Run], query: ManyQuery) -> QuerySet[Any, Any]:
    """Return the cases of the runs by key with `place`, `spread`, `differs` (1 or 0) and `sort_value`.

    A case differs where its verdicts do, where a run does not have it, and where its scores lie further
    apart than those of an unchanged case (SCORING §9). Raises FilterError.
    """
    rows = RunCase.objects.filter(run__in=[run.pk for run in runs]).order_by()
    if query.text:
        rows = rows.filter(case__key__in=among(_matching_keys(runs, query), "text"))
    apart: Any = Cast(Max("score") - Min("score"), FloatField())
    parted = ~Q(first_state=F("last_state")) | Q(present__lt=len(runs))
    cases: QuerySet[Any, Any] = (
        rows.values("case__key")
        .annotate(
            place=Min("position"),
            present=Count("pk"),
            first_state=Min("state"),
            last_state=Max("state"),
            spread=Round(apart, SCORE_DIGITS),
        )
        .alias(apart=apart)
        .annotate(
            differs=Choose(When(parted | Q(apart__gt=FAR_APART), then=Value(1)), default=Value(0)),
            sort_value=_sort_value(runs, query.sort, parted),
        )
    )
    return cases


def _sort_value(runs: Sequence[Run], sort: Sort, parted: Q) -> Any:
    """Return what a column sorts by: verdicts that differ stand beyond all scores that do."""
    if sort.name in PLACES[: len(runs)]:
        own = Min("score", filter=Q(run=runs[PLACES.index(sort.name)].pk))
        return Coalesce(Round(Cast(own, FloatField()), SCORE_DIGITS), Value(-1.0))
    known = Coalesce(F("spread"), Value(0.0))
    return Choose(When(parted, then=known + Value(1.0)), default=known, output_field=FloatField())


def case_order(sort: Sort) -> Keyset:
    """Return the order of the cases that a column sorts by."""
    down = sort.is_descending
    place = Key("place", int, down), Key("case__key", str, down)
    return (
        Keyset(*place) if sort.name == BY_CASE else Keyset(Key("sort_value", float, down), *place)
    )


def _matching_keys(runs: Sequence[Run], query: ManyQuery) -> Set[str]:
    """Return the cases that match in any run but the baseline, against which changes are; raises FilterError."""
    baseline = next(run for run in runs if run_word(run) == baseline_name(query))
    return matching_keys([run for run in runs if run != baseline], baseline, query.text)


def _rows(columns: Sequence[RunColumn], cases: Sequence[Mapping[str, Any]]) -> Sequence[ManyRow]:
    """Return the rows of some cases; two queries."""
    keys = [case["case__key"] for case in cases]
    runs = [column.run for column in columns]
    stored: dict[str, dict[int, Any]] = {key: {} for key in keys}
    titles: dict[str, str] = {}
    rows = RunCase.objects.live(*runs).filter(run__in=runs, case__key__in=keys).order_by("run_id")
    fields = "run_id", "case_id", "live_state", "score", "passed", "executions", "is_flaky"
    for key, title, run, *facts in rows.values_list("case__key", "case__title", *fields):
        stored[key][run], titles[key] = facts, title
    failures = _failures(columns, keys)
    return [
        ManyRow(
            key=case["case__key"],
            title=titles[case["case__key"]],
            cells=_cells(columns, case["case__key"], stored[case["case__key"]], failures),
            spread=case["spread"],
            differs=bool(case["differs"]),
        )
        for case in cases
    ]


def _failures(columns: Sequence[RunColumn], keys: Sequence[str]) -> Mapping[tuple[int, int], int]:
    """Return by run and case the first repetition that did not pass, to which its cell links."""
    runs = [column.run for column in columns if column.run.repetitions > 1]
    rows = Result.objects.filter(run__in=runs, case__key__in=keys).exclude(verdict="pass")
    groups = rows.order_by().values("run_id", "case_id").annotate(first=Min("repetition"))
    return {(row["run_id"], row["case_id"]): row["first"] for row in groups}


def _cells(
    columns: Sequence[RunColumn],
    key: str,
    stored: Mapping[int, Sequence[Any]],
    failures: Mapping[tuple[int, int], int],
) -> Sequence[ManyCell | None]:
    base = next(stored.get(column.run.pk) for column in columns if column.is_baseline)
    cells: list[ManyCell | None] = []
    for column in columns:
        run = column.run
        if run.pk not in stored:
            cells.append(None)
            continue
        case, state, score, passed, executions, is_flaky = stored[run.pk]
        steps = None if column.is_baseline or base is None else _steps(base[1], state)
        cells.append(
            ManyCell(
                url=result_address(
                    run.suite.slug, run.number, key, failures.get((run.pk, case), 1)
                ),
                state=state,
                score=score,
                passed=passed,
                executions=executions,
                is_flaky=is_flaky,
                change=None if steps is None or base is None else rounded_change(base[2], score),
                tone="" if not steps else "bad" if steps > 0 else "good",
            )
        )
    return cells


def _steps(before: str, after: str) -> int | None:
    """Return how many verdicts worse a case is than before, below 0 for better; None for another run's case."""
    if before not in VERDICTS or after not in VERDICTS:
        return 0
    return SEVERITY[VERDICTS[after]] - SEVERITY[VERDICTS[before]]


class ManyRunDoc(Document):
    """One of the runs by its figures."""

    name: str
    """Its suite and number, as support-agent:12."""
    url: str
    """The path of its page."""
    target: str
    """The name of its target."""
    is_baseline: bool
    """Whether the others are compared with it."""
    status: RunStatus
    """Its status."""
    verdict: str = Field(validation_alias="word")
    """What its gates say, in words."""
    pass_rate: float | None
    """Passed of all results, 0 to 1; null before the first."""
    pass_interval: tuple[float, float] | None
    """Its 95% interval; null without one."""
    mean_score: float | None
    """The mean score, 0 to 1; null where there is none."""
    score_interval: tuple[float, float] | None
    """Its 95% interval; null without one."""
    total_cost_usd: Dollars | None
    """What is known of target cost and judge cost, US dollars; null where nothing is known."""
    costs_are_partial: bool
    """Whether more was spent than is known."""
    mean_latency_ms: float | None = Field(validation_alias="latency_ms")
    """The mean latency, milliseconds; null until the run ends."""


class ManyCellDoc(Document):
    """A case in one run."""

    url: str
    """The path of its result; with repetitions, of the first that did not pass."""
    state: str
    """Its verdict, or why it has none."""
    mean_score: float | None = Field(validation_alias="score")
    """The mean score of its repetitions, 0 to 1; null where there is none."""
    passed: int
    """How many repetitions passed."""
    executions: int
    """How many there are."""
    flaky: bool = Field(validation_alias="is_flaky")
    """Whether their verdicts differ."""
    change: float | None
    """The score minus that of the baseline; null for the baseline and without both."""


class ManyCaseDoc(Document):
    """A case with a cell for each run."""

    case: str = Field(validation_alias="key")
    """Its key."""
    title: str
    """Its title."""
    differs: bool
    """Whether verdicts differ, a run lacks it, or scores are more than 0.05 apart."""
    spread: float | None
    """The highest score minus the lowest; null without a score."""
    cells: list[ManyCellDoc | None]
    """In the order of the runs; null where the run does not have the case."""


class ManyRunsDoc(Document):
    """Runs of a suite side by side, with one page of their cases."""

    runs: list[ManyRunDoc]
    """The runs, in the requested order."""
    cases_total: int = Field(validation_alias="total")
    """How many cases match the filter."""
    cases_differing: int = Field(validation_alias="differing")
    """How many of them differ."""
    next: str | None
    """The address of the next page; null on the last."""
    cases: list[ManyCaseDoc] = Field(validation_alias="rows")
    """The cases of this page."""

    @classmethod
    def make(cls, page: ManyRuns, following: str | None) -> ManyRunsDoc:
        """Describe a page; `following` is the address of the next one."""
        runs = [
            {
                **{name: getattr(column, name) for name in RunColumn.__dataclass_fields__},
                "target": column.run.target_name,
                "status": column.run.status,
                "total_cost_usd": column.costs.total_usd,
                "costs_are_partial": column.costs.is_partial,
            }
            for column in page.columns
        ]
        return cls.model_validate(
            {
                "runs": runs,
                "total": page.total,
                "differing": page.differing,
                "next": following,
                "rows": page.rows,
            }
        )


# What a case takes in the table.
CASE_BYTES = 300


@file_kind("side-by-side")
def many_file(*, query: Mapping[str, str]) -> ExportSpec:
    """Describe the table of all cases that match an address; raises as `read_runs`, and FilterError."""
    wanted = ManyQuery.read(query)
    runs = read_runs(wanted)
    if wanted.text:
        _matching_keys(runs, wanted)
    return ExportSpec(
        name=f"{runs[0].suite.slug}-{'-'.join(str(run.number) for run in runs)}.csv",
        rows=max(run.case_count for run in runs),
        row_bytes=CASE_BYTES,
        write=lambda: _table(runs, wanted),
        fingerprint=[part for run in runs for part in run_fingerprint(run)],
        suites=(runs[0].suite_id,),
    )


def _table(runs: Sequence[Run], query: ManyQuery) -> Iterator[str]:
    """Return a line for each case: for each run its verdict and score, with all digits."""
    cases = _cases(runs, query)
    if query.differences:
        cases = cases.filter(differs=1)
    cells: dict[str, dict[int, Sequence[Any]]] = defaultdict(dict)
    stored = RunCase.objects.live(*runs).filter(run__in=runs).order_by()
    columns = "case__key", "case__title", "run_id", "live_state", "score"
    titles: dict[str, str] = {}
    for key, title, run, *cell in stored.values_list(*columns).iterator(chunk_size=5000):
        cells[key][run], titles[key] = cell, title
    nothing = "", None
    lines = (
        (
            case["case__key"],
            titles.get(case["case__key"], ""),
            "yes" if case["differs"] else "no",
            case["spread"],
            *(value for run in runs for value in cells[case["case__key"]].get(run.pk, nothing)),
        )
        for case in case_order(query.sort).order(cases)
    )
    names = [f"#{run.number} {name}" for run in runs for name in ("verdict", "mean_score")]
    return csv_parts(("case", "title", "differs", "spread", *names), lines, digits=None)

"""Which cases a comparison lists: the query of its page, filters, matrix of verdicts, columns and the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from evaluators.scoring.types import Verdict
from evaluators.templatetags.figures import thousands
from runs import lists
from runs.compare.comparison import Comparison
from runs.compare.measures import AXIS_OF_POINTS, IntervalBar, axis_end, interval_bar
from runs.compare.rules import (
    CaseChange,
    CaseSide,
    CaseSideFigures,
    Standing,
    by_harm,
    most_changed_repetition,
    repetition_standing,
    rounded_change,
)
from runs.compare.sides import case_override
from runs.filters.fields import find_field
from runs.filters.language import MAX_LENGTH, FilterError
from runs.filters.matching import ResultRows
from runs.filters.queries import DENSITIES, FAMILIES, Hit, hits_by_key, lists_without
from runs.lists import Chip, Control, NumberedPage, Sort, head_cell, numbered_page
from runs.models.results import Result
from runs.models.run_cases import RunCase
from runs.requests import PairQuery
from runs.results.case_rows import COLUMNS as RUN_COLUMNS
from runs.results.case_rows import Column, find_column, unknown_columns, with_marks
from runs.results.display import DISPLAYED
from runs.results.result_page import Neighbour, ResultsList
from runs.results.result_state import Override

CHANGED, EVERY, FLIPPED = "changed", "all", "flipped"
SHOW_REGRESSED, SHOW_IMPROVED, SHOW_UNCHANGED, SHOW_ERRORED = (
    "regressed",
    "improved",
    "unchanged",
    "errored",
)
ADDED, REMOVED = "added", "removed"
SHOWS = (
    CHANGED,
    SHOW_REGRESSED,
    SHOW_IMPROVED,
    SHOW_UNCHANGED,
    SHOW_ERRORED,
    ADDED,
    REMOVED,
    FLIPPED,
    EVERY,
)

BY_HARM, BY_CASE, BY_DIFFERENCE = "change", "case", "difference"
BY_COST, BY_LATENCY = "cost", "latency"
# What only a comparison has, or calls otherwise; the rest is named as in the table of a run.
OWN_COLUMNS = (
    Column(BY_HARM, "Change", "change"),
    Column("score", "Mean score", "score"),
    Column(BY_DIFFERENCE, "Difference", "difference", "Change of the mean score"),
    Column("outcomes", "Outcomes met", "outcomes", "Expected outcomes that were met"),
)
USUAL_COLUMNS = (
    BY_HARM,
    BY_CASE,
    "verdict",
    "score",
    BY_DIFFERENCE,
    "outcomes",
    BY_COST,
    BY_LATENCY,
)
OTHER_COLUMNS = (
    "spread",
    "metrics",
    "target_cost",
    "judge_cost",
    "tokens",
    "tag",
    "tool",
    "error",
    "review",
)
KNOWN_COLUMNS = {**RUN_COLUMNS, **{column.name: column for column in OWN_COLUMNS}}
COLUMNS: Mapping[str, Column] = {
    name: KNOWN_COLUMNS[name] for name in (*USUAL_COLUMNS, *OTHER_COLUMNS)
}
# Each of these sorts by its change, as the columns of evaluators, metrics and dimensions do.
SORTS = (
    *(BY_HARM, BY_CASE, BY_DIFFERENCE, "outcomes", "spread", "metrics", BY_COST, BY_LATENCY),
    *("target_cost", "judge_cost", "tokens"),
)
# What a comparison has of each case anyway, by the names of the columns.
MEAN_SCORES = ("score", BY_DIFFERENCE)
OF_FIGURES: Mapping[str, str] = {
    BY_COST: "cost_usd",
    BY_LATENCY: "latency_ms",
    "target_cost": "run_cost_usd",
    "judge_cost": "evaluation_cost_usd",
}
# Drawn from the row of a case, though some sort by values of their own.
DRAWN = (BY_HARM, BY_CASE, "verdict", "outcomes")
# These grow by a share of what they were; scores differ by points.
GROWING = ("duration", "money", "count")
FEW_CASES = 1000


@dataclass(frozen=True, slots=True)
class ComparisonQuery(PairQuery):
    """Which two runs to compare, and which of their cases to list.

    `cell` names a cell of the matrix, as in `pass-fail`. `view` is the number of a saved view, which says where
    the rest came from.
    """

    show: str = lists.option(SHOWS, CHANGED)
    cell: str = lists.text(max_length=40)
    text: str = lists.search(max_length=MAX_LENGTH + 1)
    sort: Sort = lists.sort(SORTS, BY_HARM, is_descending=True, families=FAMILIES)
    columns: tuple[str, ...] = lists.names()
    density: str = lists.option(DENSITIES, DENSITIES[0])
    view: str = lists.setting()
    page: int = lists.page_number()


KINDS = {
    "regression": (SHOW_REGRESSED, "Regressed", "i-drop", "bad"),
    "improvement": (SHOW_IMPROVED, "Improved", "i-rise", "good"),
    "unchanged": (SHOW_UNCHANGED, "Unchanged", "i-same", "same"),
    "error": (SHOW_ERRORED, "Errored", "v-error", "error"),
    "added": (ADDED, "Added", "i-plus", "same"),
    "removed": (REMOVED, "Removed", "i-minus", "same"),
}
VERDICTS = (Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL)
SEVERITY = {verdict: place for place, verdict in enumerate(VERDICTS)}
# The names of the cells of the matrix.
CELLS: Mapping[tuple[Verdict | None, Verdict | None], str] = {
    (before, after): f"{before}-{after}" for before in VERDICTS for after in VERDICTS
}


@dataclass(frozen=True, slots=True)
class TransitionCell:
    """A cell of the matrix: its number of cases, the tone of the change, and its filter."""

    count: int
    tone: str
    is_same: bool
    url: str
    is_on: bool
    label: str


def is_shown(change: CaseChange, query: ComparisonQuery) -> bool:
    """Tell whether the filters show a case, apart from the search."""
    if query.cell and _cell(change) != query.cell:
        return False
    kind = KINDS[change.status][0]
    if query.show == CHANGED:
        return kind != SHOW_UNCHANGED
    return query.show == EVERY or kind == query.show or (query.show == FLIPPED and _is_flip(change))


def chips(comparison: Comparison, query: ComparisonQuery) -> list[Chip]:
    """Return the filters: changed cases first, then by harm, all cases last."""
    counts = Counter(KINDS[change.status][0] for change in comparison.cases)
    total = len(comparison.cases)

    def chip(label: str, show: str, count: int, icon: str = "", tone: str = "") -> Chip:
        is_on = query.show == show and not query.cell
        url = query.address(show=show, cell="")
        return Chip(label, url, is_on, count, show, icon, tone)

    return [
        chip("Changed", CHANGED, total - counts[SHOW_UNCHANGED]),
        *(
            chip(label, show, counts[show], icon, "" if tone == "same" else tone)
            for show, label, icon, tone in KINDS.values()
        ),
        chip("Verdict flips", FLIPPED, sum(map(_is_flip, comparison.cases))),
        chip("All", EVERY, total),
    ]


@dataclass(frozen=True, slots=True)
class TransitionRow:
    """The cases of one verdict in the baseline, by their verdict in the candidate."""

    verdict: str
    cells: Sequence[TransitionCell]


def matrix(comparison: Comparison, query: ComparisonQuery) -> Sequence[TransitionRow]:
    """Return a row for each verdict of the baseline, with a cell for each verdict of the candidate."""
    counts = Counter(_cell(change) for change in comparison.cases)
    return [
        TransitionRow(
            before.value, [_matrix_cell(before, after, counts, query) for after in VERDICTS]
        )
        for before in VERDICTS
    ]


def _matrix_cell(
    before: Verdict, after: Verdict, counts: Mapping[str, int], query: ComparisonQuery
) -> TransitionCell:
    name, steps = CELLS[before, after], SEVERITY[after] - SEVERITY[before]
    is_on, count = query.cell == name, counts.get(name, 0)
    return TransitionCell(
        count=count,
        tone="" if not count or not steps else "bad" if steps > 0 else "good",
        is_same=not steps,
        url=query.address(cell="" if is_on else name, show=CHANGED if is_on else EVERY),
        is_on=is_on,
        label=f"{before.value} before, {after.value} now",
    )


def _cell(change: CaseChange) -> str:
    before, after = change.baseline, change.candidate
    return "" if before is None or after is None else CELLS.get((before.verdict, after.verdict), "")


def _is_flip(change: CaseChange) -> bool:
    before, after = change.baseline, change.candidate
    if before is None or after is None or before.verdict is None or after.verdict is None:
        return False
    return before.verdict is not after.verdict


ON_A_PAGE = 100
STATES = {"not_run": "cancelled"}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One case: its change, both sides, and what its columns show."""

    change: CaseChange
    title: str
    label: str
    icon: str
    tone: str
    states: tuple[str, str]
    reviewed: tuple[Override | None, Override | None]
    met: str
    error: str
    bar: IntervalBar | None
    hit: Hit | None = None
    cells: Sequence[tuple[Column, Sides | None]] = ()

    @property
    def is_bare(self) -> bool:
        """Tell whether only one run has the case."""
        return self.change.baseline is None or self.change.candidate is None


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """A page of the cases with the filters; `axis` is the end of the bars, a share of the scale.

    `unknown` are columns and an order that the address names and the runs do not have.
    """

    query: ComparisonQuery
    rows: Sequence[ChangeRow]
    columns: Sequence[Column]
    unknown: Sequence[str]
    chips: Sequence[Chip]
    pages: NumberedPage[CaseChange]
    axis: float
    hidden: tuple[tuple[str, str], ...]
    controls: tuple[Control, ...]
    problem: FilterError | None = None
    without: Sequence[Chip] = ()

    @property
    def kept(self) -> Sequence[tuple[str, str]]:
        """Return the fields that go with the choices for the table."""
        return self.query.hidden(*DISPLAYED)


def change_table(comparison: Comparison, query: ComparisonQuery) -> ChangeTable:
    """Return the page of cases that a query names; one database query with the usual columns and no filter."""
    runs = comparison.baseline.run, comparison.candidate.run
    unknown = unknown_columns((*query.columns, query.sort.name), *runs, columns=COLUMNS)
    if query.sort.name in unknown:
        query = query.changed(sort=ComparisonQuery().sort, page=query.page)
    problem, changes = None, None
    try:
        changes = listed_changes(comparison, query)
    except FilterError as error:
        problem = error
    pages = numbered_page(changes or (), query, ON_A_PAGE)
    # Every page has the same axis, so bars can be compared across pages.
    axis = axis_end((change.score_change or 0.0 for change in comparison.cases), AXIS_OF_POINTS)
    errors = _errors(comparison, pages.rows)
    keys = [change.case for change in pages.rows]
    hits = hits_by_key(query.text, runs, keys) if query.text and keys else {}
    columns = table_columns(comparison, query, unknown)
    sides = column_sides(
        comparison, pages.rows, [column for column in columns if column.name not in DRAWN]
    )
    return ChangeTable(
        query=query,
        rows=[
            replace(
                _change_row(comparison, change, errors.get(change.case, ""), axis),
                hit=hits.get(change.case),
                cells=[(column, sides.get(column.name, {}).get(change.case)) for column in columns],
            )
            for change in pages.rows
        ],
        columns=columns,
        unknown=unknown,
        chips=chips(comparison, query),
        pages=pages,
        axis=axis,
        hidden=query.hidden("q"),
        controls=(query.search_box("text", "Filter cases", id="changes-text"),),
        problem=problem,
        without=()
        if pages.total or problem
        else lists_without(
            query,
            lambda wider: len(_matching(comparison, wider)),
            [(_shown_words(query), {"show": EVERY, "cell": ""})]
            if query.cell or query.show != EVERY
            else (),
        ),
    )


@dataclass(frozen=True, slots=True)
class Sides:
    """What a column shows of a case in both runs, None for no value, with the change of a number."""

    before: Any
    after: Any
    change: Any = None


def column_sides(
    comparison: Comparison, changes: Sequence[CaseChange], columns: Sequence[Column]
) -> Mapping[str, Mapping[str, Sides]]:
    """Return by column and case what some columns show; a query or two for each that a comparison does not have."""
    runs = comparison.baseline.run, comparison.candidate.run
    found = {
        column.name: {
            change.case: _sides(
                column,
                change.baseline and change.baseline.mean_score,
                change.candidate and change.candidate.mean_score,
            )
            for change in changes
        }
        for column in columns
        if column.name in MEAN_SCORES
    }
    if wanted := [column for column in columns if column.name in OF_FIGURES]:
        figures = {change.case: comparison.case_figures(change) for change in changes}
        for column in wanted:
            read = attrgetter(OF_FIGURES[column.name])
            found[column.name] = {
                case: _sides(column, *(side and read(side) for side in sides))
                for case, sides in figures.items()
            }
    others = [
        (column, field)
        for column in columns
        if column.name not in found and (field := find_field(column.name))
    ]
    if not others or not changes:
        return found
    stored = RunCase.objects.filter(run__in=runs).order_by()
    only = None
    if len(changes) <= FEW_CASES:
        stored = stored.filter(case__key__in=[change.case for change in changes])
        only = list(stored.values_list("case_id", flat=True))
    rows = ResultRows(runs, only=only)
    places = {(run, key): pk for pk, run, key in stored.values_list("pk", "run_id", "case__key")}
    for column, field in others:
        values = rows.values(field) if field.is_number else rows.names(field)
        found[column.name] = {
            change.case: _sides(
                column, *(values.get(places.get((run.pk, change.case), 0)) for run in runs)
            )
            for change in changes
        }
    return found


def _sides(column: Column, before: Any, after: Any) -> Sides:
    if not column.is_number or before is None or after is None:
        return Sides(before, after)
    if column.shape not in GROWING:
        return Sides(before, after, rounded_change(before, after))
    return Sides(before, after, after / before - 1 if before else None)


def table_columns(
    comparison: Comparison, query: ComparisonQuery, unknown: Sequence[str]
) -> Sequence[Column]:
    """Return the columns that are chosen, otherwise the usual ones; always the case and the order."""
    names = [name for name in query.columns or USUAL_COLUMNS if name not in unknown]
    if BY_CASE not in names:
        names.insert(0, BY_CASE)
    if query.sort.name not in (*names, BY_HARM):
        names.insert(names.index(BY_CASE) + 1, query.sort.name)
    labels = {"outcomes": "Met every time"} if comparison.has_repetitions else {}
    columns = [
        replace(column, label=labels.get(name, column.label))
        for name in names
        if (column := find_column(name, COLUMNS))
    ]
    marked = with_marks(columns, comparison.candidate.run)
    return [_with_head(query, column) for column in marked]


def _with_head(query: ComparisonQuery, column: Column) -> Column:
    if column.name not in SORTS and not column.name.startswith(FAMILIES):
        return column
    head = head_cell(
        query,
        column.name,
        column.label,
        is_number=column.is_number and column.name != BY_DIFFERENCE,
        best_first=column.name == BY_HARM or column.shape in GROWING,
        title=column.title,
    )
    return replace(column, head=head)


def _shown_words(query: ComparisonQuery) -> str:
    """Return what a comparison lists, apart from a filter: "regressed", or "pass before, fail now"."""
    before, _, after = query.cell.partition("-")
    return f"{before} before, {after} now" if after else query.show


def listed_changes(comparison: Comparison, query: ComparisonQuery) -> Sequence[CaseChange]:
    """Return the cases that match a query, on all pages, in its order; raises FilterError."""
    return _in_order(comparison, _matching(comparison, query), query.sort)


def _matching(comparison: Comparison, query: ComparisonQuery) -> Sequence[CaseChange]:
    shown = [change for change in comparison.cases if is_shown(change, query)]
    if not query.text:
        return shown
    found = comparison.matching_keys(query.text)
    return [change for change in shown if change.case in found]


def listed_around(
    comparison: Comparison,
    query: ComparisonQuery,
    key: str,
    url: Callable[[CaseChange, int], str],
    *,
    is_blind: bool = False,
) -> ResultsList | None:
    """Return what stands beside a case in the list of a comparison, with the next regressions as failures.

    `url` is where a case leads to, in the repetition that changed most; for a blind reader, who must not learn
    which that is, in the first. One query where a run has several repetitions. None for a case that the list does
    not have, or an unreadable filter.
    """
    try:
        cases = listed_changes(comparison, query)
    except FilterError:
        return None
    place = next((n for n, change in enumerate(cases) if change.case == key), None)
    if place is None:
        return None

    def first(changes: Sequence[CaseChange], *, worse: bool) -> CaseChange | None:
        shown = (row for row in changes if not worse or KINDS[row.status][0] == SHOW_REGRESSED)
        return next(shown, None)

    before, after = cases[:place][::-1], cases[place + 1 :]
    beside = [first(side, worse=worse) for side in (before, after) for worse in (False, True)]
    shown = {} if is_blind else _most_changed(comparison, [row.case for row in beside if row])

    def neighbour(changes: Sequence[CaseChange], *, worse: bool = False) -> Neighbour | None:
        found = first(changes, worse=worse)
        if found is None:
            return None
        return Neighbour(found.case, url(found, shown.get(found.case, 1)), shown.get(found.case))

    words = (
        "" if query.show == EVERY else query.show,
        "matching" if query.cell or query.text else "",
    )
    return ResultsList(
        query="",
        label=" ".join(
            [f"{thousands(place + 1)} of {thousands(len(cases))}", *filter(None, words)]
        ),
        previous=neighbour(before),
        following=neighbour(after),
        previous_failure=neighbour(before, worse=True),
        next_failure=neighbour(after, worse=True),
    )


def _most_changed(comparison: Comparison, keys: Sequence[str]) -> Mapping[str, int]:
    """Return by case the repetition that changed most; nothing where each case ran once."""
    runs = [side.run for side in (comparison.baseline, comparison.candidate)]
    if not keys or max(run.repetitions for run in runs) == 1:
        return {}
    results = Result.objects.filter(run__in=runs, case__key__in=keys).order_by()
    found: dict[str, dict[int, list[Standing | None]]] = {key: {} for key in keys}
    columns = ("case__key", "repetition", "run_id", "status", "verdict", "score")
    for key, repetition, run, *state in results.values_list(*columns):
        sides = found[key].setdefault(repetition, [None, None])
        sides[run == runs[1].pk] = repetition_standing(*state)
    return {
        key: most_changed_repetition({number: (old, new) for number, (old, new) in rows.items()})
        for key, rows in found.items()
        if rows
    }


def _in_order(
    comparison: Comparison, cases: Sequence[CaseChange], sort: Sort
) -> Sequence[CaseChange]:
    """Return the cases in an order: by what changed, those without it last, and equal ones by harm."""
    if sort.name == BY_CASE:
        return sorted(cases, key=lambda change: change.case, reverse=sort.is_descending)
    harmful = by_harm(cases)
    column = find_column(sort.name, COLUMNS)
    if sort.name == BY_HARM or column is None:
        return harmful if sort.is_descending else harmful[::-1]
    sides = column_sides(comparison, cases, [column])[column.name]
    figures = {case: side.change for case, side in sides.items() if side.change is not None}
    known = [change for change in harmful if change.case in figures]
    known.sort(key=lambda change: figures[change.case], reverse=sort.is_descending)
    return [*known, *(change for change in harmful if change.case not in figures)]


def _errors(comparison: Comparison, shown: Sequence[CaseChange]) -> Mapping[str, str]:
    runs = comparison.baseline.run.pk, comparison.candidate.run.pk
    unscored = [change.case for change in shown if change.score_change is None]
    results = Result.objects.filter(run__in=runs, case__key__in=unscored).exclude(error="")
    rows = results.order_by("repetition").values_list("run_id", "case__key", "error")
    # The error of the candidate comes last and wins.
    return {key: error for _, key, error in sorted(rows, key=lambda row: row[0] == runs[1])}


def _change_row(comparison: Comparison, change: CaseChange, error: str, axis: float) -> ChangeRow:
    _, label, icon, tone = KINDS[change.status]
    before, after = change.baseline, change.candidate
    return ChangeRow(
        change=change,
        title=comparison.title(change.case),
        label=label,
        icon=icon,
        tone=tone,
        states=(_state(before), _state(after)),
        reviewed=(
            case_override(before, is_counted=comparison.baseline.reviews > 0),
            case_override(after, is_counted=comparison.candidate.reviews > 0),
        ),
        met=_met(*comparison.case_figures(change)),
        error=error,
        bar=None if change.score_change is None else interval_bar(change.score_change, axis),
    )


def _state(side: CaseSide | None) -> str:
    return STATES.get(side.state, side.state) if side else ""


def _met(before: CaseSideFigures | None, after: CaseSideFigures | None) -> str:
    """Return how many outcomes were met in every repetition, before and now: `4/4 → 3/4`."""
    sides = [
        f"{side.outcomes_met}/{side.outcomes}" if side and side.outcomes else ""
        for side in (before, after)
    ]
    return " → ".join(side or "–" for side in sides) if any(sides) else ""


@dataclass(frozen=True, slots=True)
class Changes:
    """The matrix and the table of cases."""

    comparison: Comparison
    query: ComparisonQuery
    matrix: Sequence[TransitionRow]
    table: ChangeTable

    @property
    def flips(self) -> int:
        """Return how many cases changed their verdict."""
        return sum(cell.count for row in self.matrix for cell in row.cells if not cell.is_same)

    @property
    def shared(self) -> int:
        """Return how many cases have a verdict on both sides."""
        return self.comparison.shared

    @property
    def out_of_grid(self) -> int:
        """Return how many cases of both runs lack a verdict on a side."""
        return self.comparison.in_both - self.comparison.shared


def build_changes(comparison: Comparison, query: ComparisonQuery) -> Changes:
    """Return the matrix and the table of a query; the queries of the table."""
    return Changes(comparison, query, matrix(comparison, query), change_table(comparison, query))

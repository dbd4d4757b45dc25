"""The table of a run's results: its columns, and a row for each case or group, filtered, sorted and paged."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from zlib import crc32

from django.db.models import F
from django.urls import reverse

from evaluators.scoring.decision import VerdictCause
from evaluators.scoring.numbers import mean, sum_known
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import pass_marks
from evaluators.scoring.types import Verdict
from runs.engine.plan import read_plan
from runs.filters.fields import Field, Source, ValueKind, find_field
from runs.filters.language import (
    FilterError,
)
from runs.filters.matching import ResultRows
from runs.filters.queries import (
    FAMILIES,
    IN_ORDER,
    SORTS,
    CaseRow,
    Hit,
    ResultsQuery,
    behind,
    condition_chips,
    first_hits,
    in_state,
    is_read,
    lists_without,
    matching_cases,
    ordered_cases,
    run_tags,
    run_vocabulary,
)
from runs.lists import Chip, Control, HeadCell, Key, Keyset, Page, cut_page, head_cell
from runs.models.results import OPEN_RESULT_STATUSES, ResultOutput
from runs.models.run_cases import (
    LiveCases,
    count_states_and_flaky,
    execution_from,
    sorted_cases,
)
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.groups import Grouping, group_address, group_list, grouping_field
from runs.results.result_state import (
    MAX_MARKS,
    Override,
    RepetitionMark,
    case_override,
    result_url,
    row_mark,
    row_reviewed_verdict,
    with_reviewers,
)
from runs.summary.cases import BY_FORCE, STATES, CaseSummary, summarise_case
from runs.summary.groups import GroupFigures, GroupValue

COSTS = ("run_cost_usd", "evaluation_cost_usd")
OPEN_STATES = ("running", "waiting")
# A regular comparison of score and threshold, which the columns of score and verdict tell.
BY_BANDS = re.compile(r"(so far )?(mean )?[\d.]+ [≥<] [\d.]+")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `shape` says how its cells are drawn, `head` is None where it cannot sort.

    `pass_mark` is that of an evaluator's column.
    """

    name: str
    label: str
    shape: str
    title: str = ""
    head: HeadCell | None = None
    pass_mark: float | None = None

    @property
    def is_number(self) -> bool:
        """Tell whether its cells are numbers."""
        return self.shape in NUMBERS


NUMBERS = (
    *("score", "difference", "spread", "share", "points", "percent", "duration", "money", "count"),
)
COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column("verdict", "Verdict", "verdict"),
        Column("case", "Case", "case"),
        Column("score", "Score", "score"),
        Column("spread", "Spread", "spread", "Highest − lowest score of the repetitions"),
        Column("metrics", "Metrics", "percent", "Weighted score of the 0–5 metrics"),
        Column("outcomes", "Outcomes", "outcomes", "Expected outcomes that were met"),
        Column("why", "Why", "why", "What decided the verdict"),
        Column("repetitions", "Repetitions", "repetitions"),
        Column("tag", "Tags", "tags"),
        Column("latency", "Latency", "duration", "Time of the target"),
        Column("cost", "Cost", "money", "Target cost + judge cost"),
        Column("target_cost", "Target cost", "money"),
        Column("judge_cost", "Judge cost", "money"),
        Column("tokens", "Tokens", "count", "Input and output tokens of the target"),
        Column("tool", "Tools", "names", "Tools that were called"),
        Column("error", "Error stage", "names", "Stage in which a repetition had an error"),
        Column("review", "Review", "names"),
        Column("attempts", "Attempts", "count"),
    )
}
USUAL = (
    *("verdict", "case", "score", "spread", "metrics", "outcomes", "why", "repetitions", "tag"),
    *("latency", "cost"),
)
OF_REPETITIONS = ("spread", "repetitions")


def find_column(name: str, columns: Mapping[str, Column] = COLUMNS) -> Column | None:
    """Return the column of a name: one of some, or that of an evaluator, metric, dimension or metadata key."""
    if name in columns:
        return columns[name]
    field = find_field(name)
    return None if field is None or field.source == Source.CASE else own_column(name, field)


def own_column(name: str, field: Field) -> Column:
    """Return the column of an evaluator, metric, dimension or metadata key."""
    shape = {ValueKind.SHARE: "share", ValueKind.POINTS: "points"}.get(field.kind, "names")
    return Column(
        name, field.key.rpartition("/")[2], shape, f"{str(field.source).capitalize()} {field.key}"
    )


# Columns whose values are in the results.
OF_RESULTS = ("tokens", "tool", "error", "review")
# Figures of a row by the names of their columns.
OF_ROW: Mapping[str, str] = {
    "metrics": "metrics",
    "latency": "latency_ms",
    "cost": "cost_usd",
    "target_cost": "target_usd",
    "judge_cost": "judge_usd",
}


def column_values(
    run: Run, rows: Sequence[ResultRow], names: Sequence[str]
) -> Mapping[str, Mapping[int, Any]]:
    """Return the values of columns that are no part of a row, by name and case; a query or two for each source."""
    asked = [name for name in names if name not in COLUMNS or name in OF_RESULTS]
    fields = {name: field for name in asked if (field := find_field(name))}
    if not fields:
        return {}
    read = ResultRows([run], only=[row.id for row in rows])
    cases = dict(read.rows.values_list("pk", "case_id"))
    values = {
        name: read.values(field) if field.is_number else read.names(field)
        for name, field in fields.items()
    }
    return {
        name: {cases[pk]: value for pk, value in found.items()} for name, found in values.items()
    }


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One case with its repetitions; missing figures are None.

    `passed` of `scored` repetitions passed; with two or more scores these lie from `lowest` to `highest`.
    `repetitions` is empty where there are too many for a mark each; `states` counts all by state. `note` says
    why the case did not pass or what else decided it, "" where that is its score. `retries` counts its
    retries, `selectable` its results that have ended. `override` is the verdict of reviewers.
    """

    id: int
    key: str
    title: str
    tags: tuple[str, ...]
    state: str
    url: str
    score: float | None
    metrics: float | None
    outcomes: tuple[float, ...]
    repetitions: tuple[RepetitionMark, ...]
    states: Mapping[str, int]
    scored: int
    passed: int
    is_flaky: bool
    spread: float | None
    lowest: float | None
    highest: float | None
    note: str
    latency_ms: float | None
    cost_usd: Decimal | None
    target_usd: Decimal | None
    judge_usd: Decimal | None
    retries: int
    selectable: int
    override: Override | None
    hit: Hit | None = None
    cells: tuple[tuple[Column, Any], ...] = ()


def case_rows(run: Run, groups: Sequence[Mapping[str, Any]]) -> tuple[ResultRow, ...]:
    """Return the rows of the groups, in their order; three queries, and a fourth where reviewers decided."""
    ids = [group["case_id"] for group in groups]
    cases = Case.objects.only("key", "title", "tags").in_bulk(ids)
    columns = (
        *("id", "case_id", "repetition", "status", "verdict", "outcome_marks"),
        *("decided_by", "error", "is_forced", "score", "metrics_score", "latency_ms"),
        *("run_cost_usd", "evaluation_cost_usd", "generation", "reviewed_verdict"),
    )
    policy = run.policy
    results: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in run.results.filter(case_id__in=ids).order_by("repetition").values(*columns):
        results[row["case_id"]].append(row)
    shown = {
        group["case_id"]: _shown(results[group["case_id"]], group["live_state"], policy)
        for group in groups
    }
    outputs = ResultOutput.objects.filter(pk__in=[row["id"] for row in shown.values()])
    causes = dict(outputs.values_list("pk", F("decision__cause")))
    overrides = with_reviewers(
        {case: case_override(rows, policy) for case, rows in results.items()},
        {case: [row["id"] for row in rows] for case, rows in results.items()},
    )
    return tuple(
        replace(
            _row(
                run,
                policy,
                group,
                cases[group["case_id"]],
                results[group["case_id"]],
                shown=shown[group["case_id"]],
                cause=causes.get(shown[group["case_id"]]["id"]),
            ),
            override=overrides[group["case_id"]],
        )
        for group in groups
    )


def _shown(
    results: Sequence[Mapping[str, Any]], state: str, policy: PolicySpec
) -> Mapping[str, Any]:
    """Return the repetition that a row links to: one that decided the case or is in its state."""
    return next((row for row in results if row["is_forced"]), None) or next(
        (row for row in results if row_mark(row, policy) == state), results[0]
    )


def _row(
    run: Run,
    policy: PolicySpec,
    group: Mapping[str, Any],
    case: Case,
    results: Sequence[Mapping[str, Any]],
    *,
    shown: Mapping[str, Any],
    cause: Sequence[Any] | None,
) -> ResultRow:
    marks = [row_mark(row, policy) for row in results]
    summary = summarise_case(case.key, [execution_from(row) for row in results], policy)
    return ResultRow(
        id=case.pk,
        key=case.key,
        title=case.title,
        tags=tuple(case.tags),
        state=group["live_state"],
        url=result_url(run, case.key, shown["repetition"]),
        score=summary.means.score,
        metrics=_mean(row["metrics_score"] for row in results),
        outcomes=_outcome_shares([row["outcome_marks"] for row in results if row["outcome_marks"]]),
        repetitions=tuple(
            RepetitionMark(
                row["repetition"],
                result_url(run, case.key, row["repetition"]),
                mark,
                row["score"],
                row_reviewed_verdict(row),
            )
            for row, mark in zip(results, marks, strict=True)
            if len(results) <= MAX_MARKS
        ),
        states=Counter(marks),
        scored=summary.scored,
        passed=summary.passed,
        is_flaky=summary.is_flaky,
        spread=summary.spread,
        lowest=summary.lowest,
        highest=summary.highest,
        note=_note(results, group["live_state"], shown, summary, cause),
        latency_ms=_mean(row["latency_ms"] for row in results),
        cost_usd=sum_known(row[cost] for row in results for cost in COSTS),
        target_usd=sum_known(row["run_cost_usd"] for row in results),
        judge_usd=sum_known(row["evaluation_cost_usd"] for row in results),
        retries=max(row["generation"] for row in results) - 1,
        selectable=sum(row["status"] not in OPEN_RESULT_STATUSES for row in results),
        override=None,
    )


def _note(
    results: Sequence[Mapping[str, Any]],
    state: str,
    shown: Mapping[str, Any],
    summary: CaseSummary,
    cause: Sequence[Any] | None,
) -> str:
    """Say why the case did not pass, else what decided it: for several repetitions how their verdicts combine."""
    if cause and shown["verdict"] != Verdict.PASS:
        return VerdictCause.from_json(cause).reason
    note = _rule(results, state, shown, summary)
    return "" if BY_BANDS.fullmatch(note) else note


def _rule(
    results: Sequence[Mapping[str, Any]],
    state: str,
    shown: Mapping[str, Any],
    summary: CaseSummary,
) -> str:
    if len(results) == 1 or state == "error":
        return str(shown["error"] or shown["decided_by"])
    if summary.rule == BY_FORCE:
        forced = sum(row["is_forced"] for row in results)
        return f"{shown['decided_by']}, in {forced} of {summary.scored}"
    if state in OPEN_STATES:
        return f"so far {summary.decided_by}" if summary.scored else ""
    return summary.decided_by


def _mean(values: Iterable[float | None]) -> float | None:
    return mean([value for value in values if value is not None])


def _outcome_shares(marks: Sequence[str]) -> tuple[float, ...]:
    """Return for each outcome the share of repetitions that met it."""
    if not marks:
        return ()
    return tuple(column.count("1") / len(marks) for column in zip(*marks, strict=False))


MAX_GROUPS = 100
RATE_HELP = "Results that passed, of all results; an error has not passed. With the 95% interval"
SCORE_HELP = "Mean of the results that have a score, of all results"
COST_HELP = "Target cost + judge cost"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group, with the address that lists its cases, "" where no filter can be so long."""

    label: str
    url: str
    figures: GroupFigures
    cells: Sequence[tuple[Column, GroupValue]]


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The first of the groups; `left_out` more are not listed. `heads` are those of its own figures."""

    grouping: Grouping
    rows: Sequence[GroupRow]
    heads: Mapping[str, HeadCell]
    columns: Sequence[Column]
    left_out: int


def group_table(run: Run, query: ResultsQuery, grouping: Grouping) -> GroupTable:
    """Return the groups as a page shows them."""
    found = (find_column(name) for name in grouping.columns)
    columns = [
        replace(column, head=head_cell(query, column.name, column.label, is_number=True))
        for column in with_marks([column for column in found if column], run)
    ]
    return GroupTable(
        grouping=grouping,
        rows=[
            GroupRow(
                grouping.group_label(group.name),
                group_address(query, grouping.field, group.name),
                group,
                [(column, group.values[column.name]) for column in columns],
            )
            for group in grouping.groups[:MAX_GROUPS]
        ],
        heads={
            "cases": head_cell(query, "case", "Cases", is_number=True, best_first=True),
            "rate": head_cell(query, "attention", "Passed", is_number=True, title=RATE_HELP),
            "score": head_cell(query, "score", "Mean score", is_number=True, title=SCORE_HELP),
            "latency": head_cell(query, "latency", "Mean latency", is_number=True, best_first=True),
            "cost": head_cell(
                query, "cost", "Cost", is_number=True, best_first=True, title=COST_HELP
            ),
        },
        columns=columns,
        left_out=max(0, len(grouping.groups) - MAX_GROUPS),
    )


FLAKY = "flaky"
UNSORTED = ResultsQuery().sort


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the results that are listed."""

    label: str
    url: str
    help: str


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """One page of the table with its filters.

    `selectable` is how many results of all its pages have ended; `mark` differs between filters. `run_counts` are
    all cases of the run by state, None where only those of a filter were counted.
    """

    query: ResultsQuery
    rows: tuple[ResultRow, ...]
    chips: tuple[Chip, ...]
    columns: tuple[Column, ...]
    controls: tuple[Control, ...]
    total: int
    matching: int
    page_url: str
    url: str
    next_address: str
    selectable: int
    mark: str
    flaky: Chip | None
    hidden: tuple[tuple[str, str], ...]
    groups: GroupTable | None = None
    conditions: tuple[Chip, ...] = ()
    problem: FilterError | None = None
    unknown: tuple[str, ...] = ()
    without: tuple[Chip, ...] = ()
    run_counts: Mapping[str, int] | None = None

    @property
    def files(self) -> tuple[ListedFile, ...]:
        """Return the files of the listed results; of a list of all only this table, as the page offers the rest."""
        if not (self.rows or self.groups):
            return ()
        shown = ListedFile(
            "This table",
            self.query.changed(view="").at(f"{self.page_url}table.csv"),
            "All groups with these figures in this order, as CSV"
            if self.groups
            else "These cases with these columns in this order, as CSV",
        )
        if not self.query.is_narrowed:
            return (shown,)
        table, lines = f"{self.page_url}results.csv", f"{self.page_url}results.jsonl"
        only_filters = self.query.only_filters
        return (
            shown,
            ListedFile("CSV", only_filters.at(table), "The listed results, a row each"),
            ListedFile(
                "CSV with texts",
                f"{only_filters.at(table)}&texts=1",
                "The same with the input of each case and the output",
            ),
            ListedFile(
                "JSON Lines", only_filters.at(lines), "The listed results with their scores"
            ),
        )

    @property
    def tags_shown(self) -> str:
        """Return the slice of the tags that a row has room for."""
        return ":1" if self.flaky else ":2"

    @property
    def nothing(self) -> str:
        """Say that nothing matches the filter."""
        word = {"": "", "error": "errored", "fail": "failed", "pass": "passed"}
        state = word.get(self.query.state, self.query.state)
        state = f"{state} flaky" if self.query.flaky else state
        tag = f" with tag {self.query.tag}" if self.query.tag else ""
        text = f" “{self.query.text}”" if self.query.text else " that"
        return " ".join(f"No {state} case{tag} matches{text}".replace(" that", "").split())

    @property
    def clear_url(self) -> str:
        """Return the address without filters."""
        return self.page_url + self.query.unfiltered.address()


def results_table(run: Run, query: ResultsQuery) -> ResultsTable:
    """Return one page of the results that match, 50 cases at a time, in a fixed number of queries."""
    problem: FilterError | None = None
    conditions: tuple[Chip, ...] = ()
    try:
        cases = matching_cases(run, query)
        conditions = condition_chips(query) if query.text else ()
    except FilterError as error:
        problem, cases = error, run.cases.live(run).none()
    unknown = unknown_names(run, query)
    if query.sort.name in unknown:
        query = query.changed(sort=UNSORTED)
    counts = _counts(cases, query)
    grouping = group_list(run, query, in_state(cases, query), unknown) if query.group else None
    page: Page[CaseRow] = Page((), "") if grouping else _page(run, cases, query)
    rows = case_rows(run, page.rows)
    if query.text and not problem:
        hits = first_hits(query.text, run.cases.filter(case__in=[row.id for row in rows]))
        rows = tuple(replace(row, hit=hits.get((run.pk, row.id))) for row in rows)
    by_state = {state: counts[state] for state in STATES}
    any_count = sum(by_state.values())
    matching = counts[query.state] if query.state else any_count
    columns = table_columns(run, query, rows, unknown)
    place = {"slug": run.suite.slug, "number": run.number}
    return ResultsTable(
        query=query,
        rows=with_cells(run, rows, columns),
        chips=_chips(query, counts),
        columns=columns,
        controls=_controls(run, query),
        total=run.case_count,
        matching=matching,
        page_url=reverse("runs:run", kwargs=place),
        url=reverse("runs:run-results", kwargs=place),
        next_address=page.next_address(query),
        selectable=_selectable(run, cases, query, counts) if grouping is None else 0,
        mark=f"{crc32(query.only_filters.address().encode()):x}",
        flaky=Chip(
            "Flaky",
            query.address(flaky=not query.flaky),
            query.flaky,
            counts[FLAKY],
            icon="i-flaky",
        )
        if run.repetitions > 1
        else None,
        hidden=query.hidden("q", "tag"),
        groups=group_table(run, query, grouping) if grouping and grouping.groups else None,
        conditions=conditions,
        problem=problem,
        unknown=unknown,
        without=()
        if rows or grouping or problem or not query.is_narrowed
        else lists_without(
            query,
            lambda wider: in_state(matching_cases(run, wider), wider).count(),
            query.beside_text,
        ),
        # The chips count what each state would leave, so the state chosen among them leaves none out.
        run_counts=None if query.text or query.tag or query.flaky else by_state,
    )


def unknown_names(run: Run, query: ResultsQuery) -> tuple[str, ...]:
    """Return what an address names and the run does not have: columns, the order, and what cases are grouped by."""
    order = [] if query.sort.name in SORTS else [query.sort.name]
    unknown = unknown_columns((*query.columns, *order), run)
    if query.group and grouping_field(query.group) is None:
        return *unknown, query.group
    return unknown


def unknown_columns(
    names: Sequence[str], *runs: Run, columns: Mapping[str, Column] = COLUMNS
) -> tuple[str, ...]:
    """Return which names are no columns of some runs: neither among `columns` nor their own."""
    asked = tuple(dict.fromkeys(names))
    unknown = [name for name in asked if find_column(name, columns) is None]
    if own := [name for name in asked if name.startswith(FAMILIES)]:
        fields = run_vocabulary(*runs).own_fields
        unknown += [name for name in own if name not in unknown and find_field(name) not in fields]
    return tuple(unknown)


def table_columns(
    run: Run, query: ResultsQuery, rows: Sequence[ResultRow], unknown: Sequence[str]
) -> tuple[Column, ...]:
    """Return the columns that are chosen, otherwise the usual ones that have values; always the case and the order."""
    names = [name for name in query.columns if name not in unknown]
    if not query.columns and rows:
        empty = {
            "metrics": all(row.metrics is None for row in rows),
            "outcomes": not any(row.outcomes for row in rows),
            "why": not any(row.note for row in rows),
        }
        names = [name for name in usual_columns(run) if not empty.get(name)]
    elif not query.columns:
        names = list(usual_columns(run))
    if "case" not in names:
        names.insert(0, "case")
    if query.sort.name not in (*names, UNSORTED.name) and find_column(query.sort.name):
        after = names.index("score") if "score" in names else names.index("case")
        names.insert(after + 1, query.sort.name)
    found = (find_column(name) for name in names)
    columns = with_marks([column for column in found if column], run)
    return tuple(_with_head(run, query, column) for column in columns)


def with_marks(columns: Sequence[Column], run: Run) -> Sequence[Column]:
    """Return the columns, those of evaluators with their pass marks in a run."""
    marks = pass_marks(read_plan(run.snapshot).root)
    by_name = {f"{Source.EVALUATOR}.{path}": mark for path, mark in marks.items()}
    return [replace(column, pass_mark=by_name.get(column.name)) for column in columns]


def usual_columns(run: Run) -> tuple[str, ...]:
    """Return the columns that are shown unless others are chosen."""
    return tuple(name for name in USUAL if run.repetitions > 1 or name not in OF_REPETITIONS)


def _with_head(run: Run, query: ResultsQuery, column: Column) -> Column:
    label = "Mean score" if column.name == "score" and run.repetitions > 1 else column.label
    if column.name not in SORTS and not column.name.startswith(FAMILIES):
        return replace(column, label=label)
    head = head_cell(query, column.name, label, is_number=column.is_number, title=column.title)
    return replace(column, label=label, head=head)


def with_cells(
    run: Run, rows: Sequence[ResultRow], columns: Sequence[Column]
) -> tuple[ResultRow, ...]:
    """Return the rows with their cells; a query or two for each source of columns that are no part of a row."""
    values = column_values(run, rows, [column.name for column in columns])
    return tuple(
        replace(row, cells=tuple((column, _value(row, column, values)) for column in columns))
        for row in rows
    )


def _value(row: ResultRow, column: Column, values: Mapping[str, Mapping[int, Any]]) -> Any:
    """Return what a column shows of a case; None where it has no value."""
    if column.name == "attempts":
        return row.retries + 1
    if column.name in OF_ROW:
        return getattr(row, OF_ROW[column.name])
    return values.get(column.name, {}).get(row.id)


def _counts(cases: LiveCases, query: ResultsQuery) -> Mapping[str, int]:
    """Return how many cases each chip leaves under the other filters."""
    totals = count_states_and_flaky(cases)
    counts = {state: totals[state, True] for state in STATES}
    flaky = counts[query.state] if query.state else sum(counts.values())
    if not query.flaky:
        counts = {state: count + totals[state, False] for state, count in counts.items()}
    return {**counts, FLAKY: flaky}


def _selectable(run: Run, cases: LiveCases, query: ResultsQuery, counts: Mapping[str, int]) -> int:
    """Return how many results of the filter have ended; with one repetition, from the counts of states."""
    if run.repetitions > 1 or query.flaky:
        listed = in_state(cases, query).values("case_id")
        ended = run.results.filter(case__in=listed)
        return ended.exclude(status__in=OPEN_RESULT_STATUSES).count()
    states = [query.state] if query.state else STATES
    return sum(counts[state] for state in states if state not in OPEN_STATES)


def _page(run: Run, cases: LiveCases, query: ResultsQuery) -> Page[CaseRow]:
    if is_read(query.sort):
        rows = ordered_cases(run, in_state(cases, query), query.sort)
        return cut_page(behind(rows, query.after, query.sort), IN_ORDER.place)
    order = Keyset(
        Key("sort_value", float, is_descending=query.sort.is_descending),
        Key("position", int),
        Key("case_id", int),
    )
    sorted_ = in_state(sorted_cases(cases, query.sort.name), query)
    page: Page[CaseRow] = order.page(
        sorted_.values("case_id", "position", "live_state", "sort_value"), query.after
    )
    return page


def _chips(query: ResultsQuery, counts: Mapping[str, int]) -> tuple[Chip, ...]:
    labels = {"error": "Errored"}
    shown = [state for state in STATES if counts[state] or state == query.state]
    return query.chip("All", sum(counts[state] for state in STATES), state=""), *(
        query.chip(labels.get(state, state.capitalize()), counts[state], value=state, state=state)
        for state in shown
    )


def _controls(run: Run, query: ResultsQuery) -> tuple[Control, ...]:
    tags = run_tags(run)
    search = query.search_box("text", "Filter cases", id="results-text")
    if not tags:
        return (search,)
    return search, query.select(
        "tag", "Tag", zip(tags, tags, strict=True), "All tags", "results-tag"
    )

"""The table of a run's results: a row for each case with its repetitions, filtered, sorted and paged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from zlib import crc32

from django.urls import reverse

from evaluators.scoring.numbers import mean, sum_known
from evaluators.scoring.policy import PolicySpec
from runs.filters.language import All, FilterError, read_filter
from runs.filters.queries import ResultsQuery, in_state, matching_cases
from runs.lists import Chip, Control, HeadCell, Key, Keyset, Page, head_cell
from runs.models.run_cases import (
    LiveCases,
    count_states_and_flaky,
    execution_from,
    sorted_cases,
)
from runs.models.runs import Run
from runs.models.suites import Case
from runs.results.result_state import (
    Override,
    RepetitionMark,
    case_override,
    result_url,
    row_mark,
    row_reviewed_verdict,
    with_reviewers,
)
from runs.running.retrying import is_retryable, retryable_results
from runs.summary.cases import BY_FORCE, STATES, summarise_case
from runs.summary.figures import CaseSummary

COSTS = ("run_cost_usd", "evaluation_cost_usd")
OPEN_STATES = ("running", "waiting")
# A row shows this many marks; the page of a result has all.
MAX_MARKS = 12


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One case with its repetitions; missing figures are None.

    `passed` of `scored` repetitions passed; with two or more scores these lie from `lowest` to `highest`.
    `unshown` repetitions have no mark in the row. `retries` counts its retries, `retryable` its results
    that can be retried. `override` is the verdict of reviewers.
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
    unshown: int
    scored: int
    passed: int
    is_flaky: bool
    spread: float | None
    lowest: float | None
    highest: float | None
    note: str
    latency_ms: float | None
    cost_usd: Decimal | None
    retries: int
    retryable: int
    override: Override | None


def case_rows(run: Run, groups: Sequence[Mapping[str, Any]]) -> tuple[ResultRow, ...]:
    """Return the rows of the groups, in their order; two queries, and a third where reviewers decided."""
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
    overrides = with_reviewers(
        {case: case_override(rows, policy) for case, rows in results.items()},
        {case: [row["id"] for row in rows] for case, rows in results.items()},
    )
    return tuple(
        replace(
            _row(run, policy, group, cases[group["case_id"]], results[group["case_id"]]),
            override=overrides[group["case_id"]],
        )
        for group in groups
    )


def _row(
    run: Run,
    policy: PolicySpec,
    group: Mapping[str, Any],
    case: Case,
    results: Sequence[Mapping[str, Any]],
) -> ResultRow:
    marks = [row_mark(row, policy) for row in results]
    shown = next((row for row in results if row["is_forced"]), None) or next(
        (row for row, mark in zip(results, marks, strict=True) if mark == group["live_state"]),
        results[0],
    )
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
            for row, mark in zip(results[:MAX_MARKS], marks, strict=False)
        ),
        unshown=max(0, len(results) - MAX_MARKS),
        scored=summary.scored,
        passed=summary.passed,
        is_flaky=summary.is_flaky,
        spread=summary.spread,
        lowest=summary.lowest,
        highest=summary.highest,
        note=_note(results, group["live_state"], shown, summary),
        latency_ms=_mean(row["latency_ms"] for row in results),
        cost_usd=sum_known(row[cost] for row in results for cost in COSTS),
        retries=max(row["generation"] for row in results) - 1,
        retryable=sum(is_retryable(run, row["status"]) for row in results),
        override=None,
    )


def _note(
    results: Sequence[Mapping[str, Any]],
    state: str,
    shown: Mapping[str, Any],
    summary: CaseSummary,
) -> str:
    """Say what decided the case; for several repetitions, the rule that combined their verdicts."""
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


FIGURES = (("latency", "Latency", True), ("cost", "Cost", True))
FLAKY, EVERY = "flaky", "every"
UNSORTED = ResultsQuery().sort
STATUS_OF = {"running": "running", "waiting": "pending", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """One page of the table with its filters.

    `retryable` is how many results of all its pages can be retried; `mark` differs between filters.
    """

    query: ResultsQuery
    rows: tuple[ResultRow, ...]
    chips: tuple[Chip, ...]
    columns: tuple[HeadCell, ...]
    figures: tuple[HeadCell, ...]
    controls: tuple[Control, ...]
    total: int
    matching: int
    others: int
    page_url: str
    url: str
    next_address: str
    has_metrics: bool
    has_outcomes: bool
    retryable: int
    mark: str
    flaky: Chip | None
    hidden: tuple[tuple[str, str], ...]
    conditions: tuple[Chip, ...] = ()
    problem: FilterError | None = None

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
    def elsewhere(self) -> str:
        """Say how many cases with other verdicts match the search."""
        noun = "case matches" if self.others == 1 else "cases match"
        return f"{self.others} {noun} with other verdicts." if self.others else ""

    @property
    def any_url(self) -> str:
        """Return the address of the cases with other verdicts, "" for none."""
        return self.page_url + self.query.address(state="", flaky=False) if self.others else ""

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
        conditions = _conditions(query) if query.text else ()
    except FilterError as error:
        problem, cases = error, run.cases.live(run).none()
    counts = _counts(cases, query)
    page = _page(cases, query)
    rows = case_rows(run, page.rows)
    any_count = sum(counts[state] for state in STATES)
    matching = counts[query.state] if query.state else any_count
    has_outcomes = any(row.outcomes for row in rows)
    has_metrics = any(row.metrics is not None for row in rows)
    place = {"slug": run.suite.slug, "number": run.number}
    return ResultsTable(
        query=query,
        rows=rows,
        chips=_chips(query, counts),
        columns=_columns(
            query,
            has_spread=run.repetitions > 1,
            has_metrics=has_metrics,
            has_outcomes=has_outcomes,
        ),
        figures=tuple(_head(query, *figure) for figure in FIGURES),
        controls=_controls(run, query),
        total=run.case_count,
        matching=matching,
        others=counts[EVERY] - matching,
        page_url=reverse("runs:run", kwargs=place),
        url=reverse("runs:run-results", kwargs=place),
        next_address=page.next_address(query),
        has_metrics=has_metrics,
        has_outcomes=has_outcomes,
        retryable=_retryable(run, cases, query, counts),
        mark=f"{crc32(query.address(sort=UNSORTED).encode()):x}",
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
        conditions=conditions,
        problem=problem,
    )


def _counts(cases: LiveCases, query: ResultsQuery) -> Mapping[str, int]:
    """Return how many cases each chip leaves under the other filters, and how many match the search."""
    totals = count_states_and_flaky(cases)
    counts = {state: totals[state, True] for state in STATES}
    flaky = counts[query.state] if query.state else sum(counts.values())
    if not query.flaky:
        counts = {state: count + totals[state, False] for state, count in counts.items()}
    return {**counts, FLAKY: flaky, EVERY: totals.total()}


def _conditions(query: ResultsQuery) -> tuple[Chip, ...]:
    """Return the conditions of the filter, each with the address without it; raises FilterError."""
    conditions = read_filter(query.text).conditions
    # One alone is what the field shows.
    if len(conditions) == 1:
        return ()
    return tuple(
        Chip(
            str(condition),
            query.address(text=str(All((*conditions[:place], *conditions[place + 1 :])))),
            is_on=True,
        )
        for place, condition in enumerate(conditions)
    )


def _retryable(run: Run, cases: LiveCases, query: ResultsQuery, counts: Mapping[str, int]) -> int:
    """Return how many results of the filter can be retried; with one repetition, from the counts of states."""
    if run.repetitions > 1 or query.flaky:
        listed = in_state(cases, query).values("case_id")
        return retryable_results(run).filter(case__in=listed).count()
    states = [query.state] if query.state else STATES
    return sum(counts[state] for state in states if is_retryable(run, STATUS_OF.get(state, "")))


def _page(cases: LiveCases, query: ResultsQuery) -> Page[Mapping[str, Any]]:
    order = Keyset(
        Key("sort_value", float, is_descending=query.sort.is_descending),
        Key("position", int),
        Key("case_id", int),
    )
    rows = in_state(sorted_cases(cases, query.sort.name), query)
    page: Page[Mapping[str, Any]] = order.page(
        rows.values("case_id", "position", "live_state", "sort_value"), query.after
    )
    return page


def _chips(query: ResultsQuery, counts: Mapping[str, int]) -> tuple[Chip, ...]:
    labels = {"error": "Errored"}
    shown = [state for state in STATES if counts[state] or state == query.state]
    return query.chip("All", sum(counts[state] for state in STATES), state=""), *(
        query.chip(labels.get(state, state.capitalize()), counts[state], value=state, state=state)
        for state in shown
    )


def _columns(
    query: ResultsQuery, *, has_spread: bool, has_metrics: bool, has_outcomes: bool
) -> tuple[HeadCell, ...]:
    named = [
        ("verdict", "Verdict", False),
        ("case", "Case", False),
        ("score", "Mean score" if has_spread else "Score", True),
        *([("spread", "Spread", True)] if has_spread else ()),
        *([("metrics", "Metrics", True)] if has_metrics else ()),
        *([("outcomes", "Outcomes", False)] if has_outcomes else ()),
    ]
    return tuple(_head(query, *column) for column in named)


def _head(query: ResultsQuery, name: str, label: str, is_number: bool) -> HeadCell:
    return head_cell(query, name, label, is_number=is_number)


def _controls(run: Run, query: ResultsQuery) -> tuple[Control, ...]:
    # Few lists of tags differ, so this reads little.
    lists = Case.objects.filter(results__run=run).order_by().values_list("tags", flat=True)
    tags = sorted({tag for tags in lists.distinct() for tag in tags})
    search = query.search_box("text", "Filter cases", id="results-text")
    if not tags:
        return (search,)
    return search, query.select(
        "tag", "Tag", zip(tags, tags, strict=True), "All tags", "results-tag"
    )

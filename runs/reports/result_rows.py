"""The results of a run as one table: a row a case, filtered, sorted and paged by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from django.db.models import F, Q
from django.urls import reverse

from runs.models import Case, Run
from runs.reports.case_groups import STATES, Groups, count_where, sorted_groups
from runs.reports.case_rows import CaseRow, case_rows
from runs.reports.matching import is_retryable, matching_groups, matching_results, narrowed
from runs.reports.results_query import ResultsQuery

PAGE_SIZE = 50
FIGURES = (("latency", "Latency", True), ("cost", "Cost", True))
FLAKY, EVERY = "flaky", "every"
STATUS_OF = {"running": "running", "waiting": "pending", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class Chip:
    """One state to filter by, with its count."""

    label: str
    count: int
    address: str
    is_on: bool
    verdict: str


@dataclass(frozen=True, slots=True)
class Column:
    """A head cell: where it sorts to, and how the table is sorted now."""

    name: str
    label: str
    is_number: bool
    address: str
    direction: str


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """One page of the table with everything around it.

    `retryable` is how many results of the filter can be tried again, on all its pages; `mark`
    is another one for every filter.
    """

    query: ResultsQuery
    rows: tuple[CaseRow, ...]
    chips: tuple[Chip, ...]
    columns: tuple[Column, ...]
    figures: tuple[Column, ...]
    tags: tuple[str, ...]
    total: int
    matching: int
    others: int
    page_url: str
    url: str
    here: str
    next_address: str
    has_metrics: bool
    has_outcomes: bool
    retryable: int
    mark: str
    flaky: Chip | None

    @property
    def nothing(self) -> str:
        """Say that nothing matches, in the words of the filter."""
        word = {"": "", "error": "errored", "fail": "failed", "pass": "passed"}
        state = word.get(self.query.state, self.query.state)
        state = f"{state} flaky" if self.query.flaky else state
        tag = f" with tag {self.query.tag}" if self.query.tag else ""
        text = f" “{self.query.text}”" if self.query.text else " that"
        return " ".join(f"No {state} case{tag} matches{text}".replace(" that", "").split())

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """Return the filter as the fields of a form."""
        return tuple(replace(self.query, after=None).as_parameters().items())

    @property
    def elsewhere(self) -> str:
        """Say what the same words find with other verdicts."""
        noun = "case matches" if self.others == 1 else "cases match"
        return f"{self.others} {noun} with other verdicts." if self.others else ""

    @property
    def any_url(self) -> str:
        """Return where the other verdicts are, "" when there are none."""
        return self.page_url + self.query.address(state="", flaky=False) if self.others else ""

    @property
    def clear_url(self) -> str:
        """Return the address without any filter."""
        return self.page_url + self.query.address(state="", flaky=False, tag="", text="")


def results_table(run: Run, query: ResultsQuery) -> ResultsTable:
    """Return one page of the results that match, 50 cases at a time, in a fixed number of queries."""
    groups = matching_groups(run, query)
    counts = _counts(groups, query)
    page = _page(run, groups, query)
    shown, more = page[:PAGE_SIZE], len(page) > PAGE_SIZE
    rows = case_rows(run, shown)
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
        figures=tuple(_column(query, *named) for named in FIGURES),
        tags=_tags(run),
        total=run.case_count,
        matching=matching,
        others=counts[EVERY] - matching,
        page_url=reverse("runs:run", kwargs=place),
        url=reverse("runs:run-results", kwargs=place),
        here=query.address(after=query.after),
        next_address=query.address(after=_place(shown[-1])) if more else "",
        has_metrics=has_metrics,
        has_outcomes=has_outcomes,
        retryable=_retryable(run, query, counts),
        mark=f"{crc32(query.address(sort='').encode()):x}",
        flaky=_flaky_chip(query, counts) if run.repetitions > 1 else None,
    )


def _counts(groups: Groups, query: ResultsQuery) -> Mapping[str, int]:
    """Return how many cases each chip leaves beside the other choices, and how many there are without any."""
    flaky = Q(is_flaky=True)
    by_state = {state: Q(state=state) for state in STATES}
    if query.flaky:
        by_state = {state: found & flaky for state, found in by_state.items()}
    of_state = flaky & Q(state=query.state) if query.state else flaky
    return count_where(groups, {**by_state, FLAKY: of_state, EVERY: Q(state__in=STATES)})


def _retryable(run: Run, query: ResultsQuery, counts: Mapping[str, int]) -> int:
    """Return how many results of the filter can be tried again; with one repetition the states tell."""
    if run.repetitions > 1 or query.flaky:
        return matching_results(run, query).count()
    states = [query.state] if query.state else STATES
    return sum(counts[state] for state in states if is_retryable(run, STATUS_OF.get(state, "")))


def _page(run: Run, groups: Groups, query: ResultsQuery) -> Sequence[Mapping[str, Any]]:
    rows = narrowed(sorted_groups(groups, run, query.sort), query)
    if query.after:
        value, place, case = query.after
        beyond = Q(**{f"sort_value__{'lt' if query.is_descending else 'gt'}": value})
        later = Q(place__gt=place) | Q(place=place, case_id__gt=case)
        rows = rows.filter(beyond | Q(sort_value=value) & later)
    order = F("sort_value").desc() if query.is_descending else F("sort_value").asc()
    columns = ("case_id", "place", "state", "sort_value")
    return list(rows.order_by(order, "place", "case_id").values(*columns)[: PAGE_SIZE + 1])


def _chips(query: ResultsQuery, counts: Mapping[str, int]) -> tuple[Chip, ...]:
    words = {"error": "Errored"}
    total = sum(counts[state] for state in STATES)
    every = Chip("All", total, query.address(state=""), not query.state, "")
    shown = [state for state in STATES if counts[state] or state == query.state]
    return every, *(
        Chip(
            words.get(state, state.capitalize()),
            counts[state],
            query.address(state=state),
            query.state == state,
            state,
        )
        for state in shown
    )


def _flaky_chip(query: ResultsQuery, counts: Mapping[str, int]) -> Chip:
    address = query.address(flaky=not query.flaky)
    return Chip("Flaky", counts[FLAKY], address, query.flaky, "")


def _columns(
    query: ResultsQuery, *, has_spread: bool, has_metrics: bool, has_outcomes: bool
) -> tuple[Column, ...]:
    named = [
        ("verdict", "Verdict", False),
        ("case", "Case", False),
        ("score", "Mean score" if has_spread else "Score", True),
        *([("spread", "Spread", True)] if has_spread else ()),
        *([("metrics", "Metrics", True)] if has_metrics else ()),
        *([("outcomes", "Outcomes", False)] if has_outcomes else ()),
    ]
    return tuple(_column(query, *column) for column in named)


def _column(query: ResultsQuery, name: str, label: str, is_number: bool) -> Column:
    is_now = query.sort == name
    address = query.address(sort=name, is_descending=is_now and not query.is_descending)
    direction = ("descending" if query.is_descending else "ascending") if is_now else ""
    return Column(name, label, is_number, address, direction)


def _tags(run: Run) -> tuple[str, ...]:
    """Return the tags of the run's cases; few lists differ, so the database sends little."""
    lists = Case.objects.filter(results__run=run).order_by().values_list("tags", flat=True)
    return tuple(sorted({tag for tags in lists.distinct() for tag in tags}))


def _place(group: Mapping[str, Any]) -> tuple[float, int, int]:
    return float(group["sort_value"]), group["place"], group["case_id"]

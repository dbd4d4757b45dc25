"""The rows that the API reads: suites, cases, runs and results, filtered by the parameters of a call."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404

from runs import lists
from runs.cases.queries import VERDICTS, CasesQuery
from runs.filters.fields import find_field
from runs.filters.language import MAX_LENGTH
from runs.filters.queries import (
    FAMILIES,
    IN_ORDER,
    SORTS,
    CaseRow,
    ResultsQuery,
    matching_cases,
    ordered_cases,
    rank,
    run_vocabulary,
)
from runs.lists import (
    Key,
    Keyset,
    ListQuery,
    Page,
    Sort,
    cut_page,
    with_tag,
)
from runs.models.results import Result, ResultStatus, VerdictChoice
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.suites.queries import with_counts


@dataclass(frozen=True, slots=True)
class SuitesQuery(ListQuery):
    """Which suites the API lists."""

    tag: str = lists.text(help="Only suites with this tag.")
    archived: bool = lists.flag(help="The archived suites instead of the others.")

    def suites(self) -> QuerySet[Suite]:
        """Return the suites that match, with their counts; one query."""
        suites = Suite.objects.filter(archived_at__isnull=not self.archived)
        return with_counts(with_tag(suites, self.tag) if self.tag else suites)


@dataclass(frozen=True, slots=True)
class SuiteCasesQuery(ListQuery):
    """Which cases of a suite the API lists."""

    filter: str = lists.search(
        name="filter",
        help="Only cases that match this filter, such as tag = billing and verdict = fail.",
        max_length=MAX_LENGTH,
    )
    tag: str = lists.text(help="Only cases with this tag.")
    verdict: str = lists.choice(
        VERDICTS, help="Only cases with this verdict in the latest completed run."
    )

    def cases(self, suite: Suite) -> QuerySet[Case]:
        """Return the cases that match; raises FilterError."""
        return CasesQuery(text=self.filter, tag=self.tag, verdict=self.verdict).cases(suite)


def case_revision(suite: Suite, key: str, revision: int | None = None) -> Case:
    """Return a revision of a case: the given one, or else the current or last; raises Http404."""
    revisions = suite.cases.filter(key=key)
    if revision is not None:
        revisions = revisions.filter(revision=revision)
    case = revisions.order_by("-is_current", "-revision").first()
    if case is None:
        raise Http404
    return case


BY_EXECUTION = Keyset(Key("position", int), Key("repetition", int), Key("pk", int))
SORTED = Keyset(*IN_ORDER.keys, Key("repetition", int), Key("pk", int))


class UnknownSortError(ValueError):
    """An order by the scores of an evaluator, metric or dimension that a run does not have."""


@dataclass(frozen=True, slots=True)
class ExecutionsQuery(ListQuery):
    """Which executions of a run the API lists."""

    verdict: str = lists.choice(VerdictChoice.values, help="Only results with this verdict.")
    status: str = lists.choice(ResultStatus.values, help="Only results with this status.")
    tag: str = lists.text(help="Only results of cases with this tag.")
    case: str = lists.text(help="Only results of the case with this key.")
    filter: str = lists.search(
        name="filter",
        help="Only results of cases that match this filter, such as tone < 0.5 and tag = billing.",
        max_length=MAX_LENGTH,
    )
    sort: Sort = lists.sort(
        SORTS,
        "case",
        families=FAMILIES,
        help="The figure of their cases by which results are sorted, such as evaluator.safety/tone, "
        "metric.accuracy, latency or cost; - for descending. Cases without it come last.",
    )

    def sorted_page(self, run: Run, place: str, size: int) -> Page[Result]:
        """Return a page of results by the figures of their cases, then by repetition.

        Raises FilterError, UnreadablePlaceError, and UnknownSortError for what no evaluator of the run scores.
        """
        if self.sort.name.startswith(FAMILIES):
            fields = run_vocabulary(run).own_fields
            if find_field(self.sort.name) not in fields:
                raise UnknownSortError(self.sort.name)
        listed = ResultsQuery(text=self.filter, tag=self.tag)
        cases = {
            row["case_id"]: row
            for row in ordered_cases(run, matching_cases(run, listed), self.sort)
        }
        results = self.results(run)
        rows = [
            {**cases[case], "repetition": repetition, "pk": pk}
            for pk, case, repetition in results.order_by().values_list(
                "pk", "case_id", "repetition"
            )
            if case in cases
        ]

        def order(row: CaseRow) -> tuple[Any, ...]:
            return *rank(row, self.sort), row["repetition"], row["pk"]

        rows.sort(key=order)
        if place:
            names = [key.column for key in SORTED.keys]
            last = dict(zip(names, SORTED.read(place), strict=True))
            rows = rows[bisect_right(rows, order(last), key=order) :]
        page = cut_page(rows, SORTED.place, size)
        found = results.in_bulk([row["pk"] for row in page.rows])
        return Page([found[row["pk"]] for row in page.rows if row["pk"] in found], page.after)

    def results(self, run: Run) -> QuerySet[Result]:
        """Return the matching results of a run with the columns that lists show; raises FilterError."""
        columns = {"verdict": "verdict", "status": "status", "case": "case__key"}
        filters = {columns[name]: getattr(self, name) for name in self.filters if name in columns}
        results = run.results.filter(**filters).select_related("case")
        if self.tag:
            cases = with_tag(Case.objects.filter(suite=run.suite_id), self.tag)
            results = results.filter(case__in=cases)
        if self.filter:
            matching = matching_cases(run, ResultsQuery(text=self.filter))
            results = results.filter(case__in=matching.values("case_id"))
        of_case = ("case__key", "case__revision", "case__title", "case__tags")
        return results.only(*(column.attname for column in Result._meta.concrete_fields), *of_case)


def get_result(pk: int) -> Result:
    """Return a result with its case, run and suite; raises Http404."""
    results = Result.objects.select_related("case", "run__suite").defer("run__leaf_scores")
    return get_object_or_404(results, pk=pk, run__is_deleted=False)

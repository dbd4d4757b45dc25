"""Search: what has a matching name, and the results of all runs that match a filter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import F, Q
from django.urls import reverse

from evaluators.scoring.tree import EvaluatorSpec
from runs import lists
from runs.filters.fields import Checked, Vocabulary, read_checked
from runs.filters.language import MAX_LENGTH, FilterError
from runs.filters.matching import ANY_ERROR, ResultRows, condition
from runs.filters.queries import Hit, ResultsQuery, condition_chips, first_hits, tree_paths
from runs.lists import (
    MAX_TEXT_LENGTH,
    PAGE_SIZE,
    Chip,
    Control,
    Key,
    Keyset,
    ListQuery,
    Page,
    UnreadablePlaceError,
    cut_page,
)
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.models.search import exact_lookups
from runs.models.suites import Case, Suite, Target
from runs.results.result_state import result_address
from runs.results.runs import RunRow, run_row, with_list_columns

# Without metrics and dimensions: only the judges' details have them.
HINT = (
    "Search knows the fields of every case and the evaluators of suites. Filter by metrics and "
    "dimensions in a run."
)
ORDER = Keyset(Key("run_id", int, is_descending=True), Key("position", int), Key("pk", int))


@dataclass(frozen=True, slots=True)
class SearchQuery(ListQuery):
    """What is searched for: words or a filter, in all suites or one."""

    text: str = lists.search(max_length=MAX_LENGTH + 1)
    suite: str = lists.text()
    after: str = lists.after()


@dataclass(frozen=True, slots=True)
class FoundResult:
    """A case of a run that matches, with the text that has the words."""

    url: str
    key: str
    title: str
    state: str
    score: float | None
    scale: int
    run_url: str
    number: int
    target: str
    suite: str
    created_at: datetime
    hit: Hit | None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What has a matching name, on the first page, and one page of the results that match."""

    query: SearchQuery
    named: NamedHits
    rows: Sequence[FoundResult]
    next_address: str
    suites: Sequence[tuple[str, str]]
    conditions: Sequence[Chip] = ()
    problem: FilterError | None = None

    @property
    def controls(self) -> Sequence[Control]:
        """Return the field to search with, and the choice of a suite."""
        return (
            self.query.search_box("text", "Words, a case's key, #12 or a filter"),
            self.query.select("suite", "Suite", self.suites, "All suites"),
        )

    @property
    def nothing(self) -> str:
        """Say that nothing matches."""
        return f"Nothing matches “{self.query.text}”"


def search_page(query: SearchQuery) -> SearchPage:
    """Return what matches: names without a suite chosen, and 50 results, the newest runs first."""
    suites = Suite.objects.filter(archived_at=None).order_by("title", "pk")
    titles = list(suites.values_list("slug", "title"))
    is_first = not (query.suite or query.after)
    named = named_hits(query.text) if is_first else NamedHits()
    empty = SearchPage(query, named, (), "", titles)
    if not query.text or named.only_url:
        return empty
    suite = suites.filter(slug=query.suite).first() if query.suite else None
    try:
        checked = read_checked(query.text, search_vocabulary(suite))
    except FilterError as error:
        return replace(empty, problem=error)
    with exact_lookups():
        page = _results(checked, query, suite)
    ids = [row["pk"] for row in page.rows]
    hits = first_hits(query.text, RunCase.objects.filter(pk__in=ids)) if ids else {}
    return replace(
        empty,
        rows=[_row(row, hits.get((row["run_id"], row["case_id"])), query) for row in page.rows],
        next_address=page.next_address(query),
        conditions=condition_chips(query),
    )


COLUMNS = (
    *("pk", "run_id", "case_id", "position", "live_state", "score", "scale"),
    *("case__key", "case__title", "run__number", "run__target_name", "run__created_at"),
    *("run__suite__slug", "run__suite__title"),
)
# The newest runs with so many cases are searched first, then four times as many, and so on: a common word fills a page
# at once, and a rare one costs no more than a look at the index.
FIRST_CASES, GROWTH = 20_000, 4
# More runs than these are not named in a look at the index.
MAX_NAMED_RUNS = 50


def _results(checked: Checked, query: SearchQuery, suite: Suite | None) -> Page[Mapping[str, Any]]:
    """Return the page of results after the place of the query."""
    runs = Run.objects.filter(suite__archived_at=None).order_by("-pk")
    if suite:
        runs = runs.filter(suite=suite)
    after = query.after
    try:
        if after:
            runs = runs.filter(pk__lte=ORDER.read(after)[0])
    except UnreadablePlaceError:
        after = ""
    found: list[Mapping[str, Any]] = []
    for some in _batches(list(runs.only("pk", "suite", "status", "case_count"))):
        is_named = len(some) <= MAX_NAMED_RUNS
        rows = (
            ResultRows(some, counts_hits=True)
            if is_named
            else ResultRows(suite=suite, counts_hits=True)
        )
        active = [run for run in some if run.is_active]
        cases = RunCase.objects.live(*active).filter(condition(checked, rows))
        if is_named:
            cases = cases.filter(run__in=some)
        else:
            within = Q(run__gte=some[-1].pk, run__lte=some[0].pk, run__is_deleted=False)
            cases = cases.filter(
                within,
                run__suite__in=[suite.pk] if suite else Suite.objects.filter(archived_at=None),
            )
        cases = cases.annotate(scale=F("run__snapshot__policy__scale")).values(*COLUMNS)
        found += ORDER.behind(cases, after)[: PAGE_SIZE + 1 - len(found)]
        if len(found) > PAGE_SIZE:
            break
    return cut_page(found, ORDER.place)


def _batches(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    """Yield the runs in batches of about so many cases that each is several times the one before."""
    some: list[Run] = []
    cases, wanted = 0, FIRST_CASES
    for run in runs:
        some.append(run)
        cases += run.case_count
        if cases >= wanted:
            yield some
            some, cases, wanted = [], 0, wanted * GROWTH
    if some:
        yield some


def _row(row: Mapping[str, Any], hit: Hit | None, query: SearchQuery) -> FoundResult:
    slug, number = row["run__suite__slug"], row["run__number"]
    # The result marks the words, and J and K go through what the filter lists in its run.
    listed = ResultsQuery(text=query.text).list_query
    repetition = hit.repetition if hit else 1
    return FoundResult(
        url=result_address(slug, number, row["case__key"], repetition) + listed,
        key=row["case__key"],
        title=row["case__title"],
        state=row["live_state"],
        score=row["score"],
        scale=int(row["scale"] or 1),
        run_url=reverse("runs:run", args=[slug, number]),
        number=number,
        target=row["run__target_name"],
        suite=row["run__suite__title"],
        created_at=row["run__created_at"],
        hit=hit,
    )


def search_vocabulary(suite: Suite | None) -> Vocabulary:
    """Return what a search can ask about: the fields of every case, and the evaluators of one suite or all."""
    suites = [suite] if suite else Suite.objects.filter(archived_at=None)
    own = Case.objects.filter(suite__in=suites, is_current=True, evaluators__isnull=False)
    trees = [one.spec.evaluators for one in suites]
    trees += map(EvaluatorSpec.model_validate, own.values_list("evaluators", flat=True))
    return Vocabulary(evaluators=tree_paths(trees), hint=HINT)


def search_suggestions(slug: str) -> Vocabulary:
    """Return what a search can ask about, with the tags of current cases to suggest."""
    suite = Suite.objects.filter(slug=slug, archived_at=None).first() if slug else None
    cases = Case.objects.filter(is_current=True, suite__archived_at=None)
    rows = (cases.filter(suite=suite) if suite else cases).order_by()
    tags = {tag for tags in rows.values_list("tags", flat=True).distinct() for tag in tags}
    suggested = {"tag": sorted(tags), "error": (ANY_ERROR,)}
    return replace(search_vocabulary(suite), suggested=suggested)


MAX_EACH = 20
RUN_NUMBER = re.compile(r"#?(\d{1,9})")


@dataclass(frozen=True, slots=True)
class NamedHit:
    """Something with a name that matches a search."""

    url: str
    code: str
    title: str
    belongs_to: str


@dataclass(frozen=True, slots=True)
class NamedHits:
    """What has a name that matches a search, by kind; `only_url` is the address of the only exact match."""

    suites: tuple[NamedHit, ...] = ()
    cases: tuple[NamedHit, ...] = ()
    runs: tuple[RunRow, ...] = ()
    targets: tuple[NamedHit, ...] = ()
    only_url: str = ""

    @property
    def total(self) -> int:
        """Return the number of hits."""
        return len(self.suites) + len(self.cases) + len(self.runs) + len(self.targets)


def named_hits(text: str) -> NamedHits:
    """Search titles, keys, slugs, names, notes and numbers; at most 20 hits of each kind."""
    if not text or len(text) > MAX_TEXT_LENGTH:
        return NamedHits()
    suites, cases, runs = _suites(text), _cases(text), _runs(text)
    return NamedHits(suites, cases, runs, _targets(text), _only(text, cases, runs))


def _suites(query: str) -> tuple[NamedHit, ...]:
    named = Q(title__icontains=query) | Q(slug__icontains=query) | Q(description__icontains=query)
    suites = Suite.objects.filter(named, archived_at=None)[:MAX_EACH]
    return tuple(
        NamedHit(reverse("runs:suite", kwargs={"slug": suite.slug}), suite.slug, suite.title, "")
        for suite in suites
    )


def _cases(query: str) -> tuple[NamedHit, ...]:
    named = Q(key__icontains=query) | Q(title__icontains=query)
    cases = Case.objects.filter(named, is_current=True, suite__archived_at=None)
    light = cases.select_related("suite").only("key", "title", "suite__slug", "suite__title")
    return tuple(
        NamedHit(
            reverse("runs:case", kwargs={"slug": case.suite.slug, "key": case.key}),
            case.key,
            case.title,
            case.suite.title,
        )
        for case in light.order_by("suite__title", "position")[:MAX_EACH]
    )


def _runs(query: str) -> tuple[RunRow, ...]:
    number = RUN_NUMBER.fullmatch(query)
    named = Q(note__icontains=query) | Q(target_name__icontains=query)
    wanted = Q(number=int(number[1])) if number else named
    runs = with_list_columns(Run.objects.filter(wanted))
    return tuple(run_row(run) for run in runs[:MAX_EACH])


def _targets(query: str) -> tuple[NamedHit, ...]:
    targets = Target.objects.filter(name__icontains=query, archived_at=None)[:MAX_EACH]
    return tuple(
        NamedHit(reverse("runs:target", kwargs={"pk": target.pk}), "", target.name, target.kind)
        for target in targets
    )


def _only(query: str, cases: Sequence[NamedHit], runs: Sequence[RunRow]) -> str:
    """Return the address of the only case with this key or the only run with this number, else ""."""
    keyed = [hit for hit in cases if hit.code.casefold() == query.casefold()]
    if len(keyed) == 1:
        return keyed[0].url
    return runs[0].url if query.startswith("#") and len(runs) == 1 else ""

"""Search: what has a matching name, and the results of all runs that match a filter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from django.db.models import F, Max, Q, QuerySet
from django.urls import reverse

from evaluators.scoring.tree import EvaluatorSpec
from evaluators.templatetags import figures
from runs import lists
from runs.filters.fields import Checked, Source, Vocabulary, read_checked
from runs.filters.language import MAX_LENGTH, FilterError
from runs.filters.matching import ANY_ERROR, ResultRows, condition
from runs.filters.queries import (
    Hit,
    ResultsQuery,
    condition_chips,
    first_hits,
    lists_without,
    pairwise_paths,
    part_keys,
    tree_paths,
)
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
from runs.models.runs import ACTIVE_RUN_STATUSES, Run, RunStatus
from runs.models.search import exact_lookups
from runs.models.suites import Case, Suite, Target
from runs.results.result_state import result_address
from runs.results.runs import RunRow, run_row, with_list_columns

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


class Progress(NamedTuple):
    """How many runs, the newest first, are searched so far, of all."""

    searched: int
    total: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    """What has a matching name, on the first page, and one page of the results that match.

    With `progress` the page ended before it was full, and the next one searches the older runs.
    """

    query: SearchQuery
    named: NamedHits
    rows: Sequence[FoundResult]
    next_address: str
    suites: Sequence[tuple[str, str]]
    progress: Progress | None = None
    conditions: Sequence[Chip] = ()
    problem: FilterError | None = None
    without: Sequence[Chip] = ()

    @property
    def controls(self) -> Sequence[Control]:
        """Return the field to search with, and the choice of a suite."""
        return (
            self.query.search_box("text", "Words, a case's key, #12 or a filter"),
            self.query.select("suite", "Suite", self.suites, "All suites"),
        )

    @property
    def nothing_yet(self) -> str:
        """Say that nothing matches in the newest runs."""
        searched = self.progress.searched if self.progress else 0
        runs = "run" if searched == 1 else figures.counted(searched, "run")
        return f"Nothing matches in the newest {runs}"

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
        page, progress = _results(checked, query, suite)
    return replace(
        empty,
        rows=_rows([row["pk"] for row in page.rows], query) if page.rows else (),
        next_address=page.next_address(query),
        progress=progress,
        conditions=condition_chips(query),
        without=()
        if page.rows or progress or named.total or query.after
        else lists_without(
            query, _count_some, [("this suite", {"suite": ""})] if query.suite else ()
        ),
    )


def _count_some(query: SearchQuery) -> int | None:
    """Return how many results match, None for more than are found in time on a page; 0 where none is."""
    suite = Suite.objects.filter(slug=query.suite, archived_at=None).first()
    if not query.text:
        return None
    with exact_lookups():
        page, progress = _results(read_checked(query.text, search_vocabulary(suite)), query, suite)
    return None if page.rows and (page.after or progress) else len(page.rows)


COLUMNS = (
    *("pk", "run_id", "case_id", "position", "live_state", "score", "scale"),
    *("case__key", "case__title", "run__number", "run__target_name", "run__created_at"),
    *("run__suite__slug", "run__suite__title"),
)
# The newest runs with so many cases are searched first, then four times as many, and so on: a common word fills a page
# at once. A page ends unfilled where the next batch would probably take it beyond so many seconds.
FIRST_CASES, GROWTH, MAX_S = 20_000, 4, 0.2


def _results(
    checked: Checked, query: SearchQuery, suite: Suite | None
) -> tuple[Page[Mapping[str, Any]], Progress | None]:
    """Return the page of results after the place of the query, and its progress where it ended unfilled."""
    of_suites = {"suite": suite} if suite else {"suite__archived_at": None}
    columns = ("pk", "suite", "status", "case_count")
    every = list(Run.objects.filter(**of_suites).order_by("-pk").only(*columns))
    after = query.after
    try:
        first = ORDER.read(after)[0] if after else None
    except UnreadablePlaceError:
        first, after = None, ""
    runs = [run for run in every if first is None or run.pk <= first]
    found: list[Mapping[str, Any]] = []
    began, left = monotonic(), len(runs)
    for some in _batches(runs):
        cases = _matching(checked, some).values(*(key.column for key in ORDER.keys))
        found += ORDER.behind(cases, after)[: PAGE_SIZE + 1 - len(found)]
        left -= len(some)
        if len(found) > PAGE_SIZE:
            break
        if left and (monotonic() - began) * GROWTH > MAX_S:
            place = ORDER.write((runs[-left].pk, 0, 0))
            return Page(found, place), Progress(len(every) - left, len(every))
    return cut_page(found, ORDER.place), None


def _matching(checked: Checked, runs: Sequence[Run]) -> QuerySet[RunCase]:
    """Return the cases of runs that match, looking only at those with a rare word if there is one."""
    few = ResultRows(runs).few_cases(checked)
    rows = ResultRows(runs, only=few)
    return rows.rows.none() if few == [] else rows.rows.filter(condition(checked, rows))


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


def _rows(ids: Sequence[int], query: SearchQuery) -> Sequence[FoundResult]:
    """Return the rows of these cases of runs, in their order."""
    cases = RunCase.objects.filter(pk__in=ids).order_by()
    hits = first_hits(query.text, cases)
    active = Run.objects.filter(pk__in=cases.values("run"), status__in=ACTIVE_RUN_STATUSES)
    live = cases.live(*active.only("status")).annotate(scale=F("run__snapshot__policy__scale"))
    rows = {row["pk"]: row for row in live.values(*COLUMNS)}
    return [
        _row(row, hits.get((row["run_id"], row["case_id"])), query)
        for row in (rows[pk] for pk in ids if pk in rows)
    ]


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
    """Return what a search can ask about: the fields of every case, and what evaluates one suite or all.

    Metrics and dimensions are those of the latest completed runs.
    """
    suites = [suite] if suite else Suite.objects.filter(archived_at=None)
    completed = Run.objects.filter(suite__in=suites, status=RunStatus.COMPLETED).order_by()
    latest = completed.values("suite").annotate(latest=Max("pk")).values("latest")
    runs = list(Run.objects.filter(pk__in=latest).only("summary"))
    own = Case.objects.filter(suite__in=suites, is_current=True, evaluators__isnull=False)
    trees = [row.spec.evaluators for row in suites]
    trees += map(EvaluatorSpec.model_validate, own.values_list("evaluators", flat=True))
    return Vocabulary(
        evaluators=tree_paths(trees),
        metrics=part_keys(runs, Source.METRIC),
        dimensions=part_keys(runs, Source.DIMENSION),
        pairwise=pairwise_paths(trees),
    )


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

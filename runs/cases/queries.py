"""The table of a suite's cases, and cases on their way out as files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast

from evaluators.templatetags import figures
from runs import lists
from runs.cases.conflict_forms import field_text
from runs.formats.packing import Packed, packed
from runs.formats.suite_files import case_values
from runs.formats.tables import csv_parts
from runs.lists import PAGE_SIZE, Control, Key, Keyset, ListQuery, with_tag
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, Suite
from runs.specs.suites import CaseSpec
from runs.suites.services import suite_with_cases

SUITE_ORDER = Keyset(Key("position", int), Key("pk", int))
SORTS: Mapping[str, Keyset] = {
    "": SUITE_ORDER,
    "key": Keyset(Key("key", str), Key("pk", int)),
    "title": Keyset(Key("title", str), Key("position", int), Key("pk", int)),
    "edited": Keyset(
        Key("created_at", datetime, is_descending=True), Key("pk", int, is_descending=True)
    ),
}
ORDERS = (
    ("", "Suite's order"),
    ("key", "By key"),
    ("title", "By title"),
    ("edited", "Last edited first"),
)


@dataclass(frozen=True, slots=True)
class CasesQuery(ListQuery):
    """Which of a suite's current cases a page or the API lists."""

    search: str = lists.search(help="Cases whose key, title or input holds this.")
    tag: str = lists.text(help="Cases with this tag alone.")
    sort: str = lists.option(SORTS, "")
    after: str = lists.after()

    def cases(self, suite: Suite) -> QuerySet[Case]:
        """Return the cases that match."""
        cases = suite.cases.filter(is_current=True)
        if self.search:
            texts = cases.alias(input_text=Cast("input", TextField()))
            cases = texts.filter(
                Q(key__icontains=self.search)
                | Q(title__icontains=self.search)
                | Q(input_text__icontains=self.search)
            )
        return with_tag(cases, self.tag) if self.tag else cases


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One line of the table; `verdict` is of the latest completed run, "" when it did not run there."""

    key: str
    title: str
    question: str
    outcomes: int
    has_expected_output: bool
    tags: Sequence[str]
    has_own_evaluators: bool
    verdict: str


@dataclass(frozen=True, slots=True)
class CaseTable:
    """One page of the table; `next_address` leads to the next one, "" at the end."""

    query: CasesQuery
    rows: Sequence[CaseRow]
    total: int
    matching: int
    shown: int
    next_address: str
    latest_run: int | None

    @property
    def first(self) -> int:
        """Return the place of the first row among those that match, from 1."""
        return self.shown - len(self.rows) + 1

    @property
    def elsewhere(self) -> str:
        """Say how many cases there are without the filter."""
        return f"The suite has {figures.counted(self.total, 'case')}."

    @property
    def nothing(self) -> str:
        """Say what was looked for in vain."""
        tagged = f" tagged “{self.query.tag}”" if self.query.tag else ""
        searched = f" matches “{self.query.search}”" if self.query.search else ""
        return f"No case{tagged}{searched}"


def case_tags(suite: Suite) -> Sequence[tuple[str, int]]:
    """Return the tags of the current cases with how many carry each, by name."""
    tags = suite.cases.filter(is_current=True).order_by().annotate(listed=Cast("tags", TextField()))
    counts: Counter[str] = Counter()
    for listed, count in tags.values("listed").annotate(n=Count("pk")).values_list("listed", "n"):
        counts.update(dict.fromkeys(json.loads(listed), count))
    return sorted(counts.items())


def case_controls(suite: Suite, query: CasesQuery) -> list[Control]:
    """Return the fields that narrow and sort the table; one query."""
    tags = [(tag, f"{tag} ({count})") for tag, count in case_tags(suite)]
    return [
        query.search_box("search", "Filter cases"),
        *([query.select("tag", "Tag", tags, "All tags")] if tags else ()),
        query.select("sort", "Order", ORDERS),
    ]


def case_table(suite: Suite, query: CasesQuery) -> CaseTable:
    """Return one page of the suite's current cases."""
    matching, keyset = query.cases(suite), SORTS[query.sort]
    page = keyset.page(matching.defer("recorded_output"), query.after, PAGE_SIZE)
    count = matching.count()
    left = keyset.behind(matching, page.after).count() if page.after else 0
    run = latest_completed(suite)
    states = _states(run, [case.key for case in page.rows])
    return CaseTable(
        query=query,
        rows=[_row(case, states.get(case.key, "")) for case in page.rows],
        total=suite.cases.filter(is_current=True).count() if query.is_narrowed else count,
        matching=count,
        shown=count - left,
        next_address=page.next_address(query),
        latest_run=run.number if run else None,
    )


def matching_keys(suite: Suite, query: CasesQuery) -> Sequence[str]:
    """Return the keys of all current cases that match, in the suite's order; one query."""
    return list(SUITE_ORDER.order(query.cases(suite)).values_list("key", flat=True))


def latest_completed(suite: Suite) -> Run | None:
    """Return the newest completed run, light: without its summary and scores."""
    runs = suite.runs.filter(status=RunStatus.COMPLETED).order_by("-number")
    return runs.defer("summary", "leaf_scores").first()


def _states(run: Run | None, keys: Sequence[str]) -> Mapping[str, str]:
    """Return by key what the run says of each case (SCORING §8)."""
    if run is None or not keys:
        return {}
    cases = run.cases.live().filter(case__key__in=keys).order_by()
    return dict(cases.values_list("case__key", "live_state"))


def _row(case: Case, state: str) -> CaseRow:
    return CaseRow(
        key=case.key,
        title=case.title,
        question=last_question(case.input),
        outcomes=len(case.expected_outcomes),
        has_expected_output=bool(case.expected_output),
        tags=case.tags,
        has_own_evaluators=case.evaluators is not None,
        verdict=state,
    )


def last_question(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the last thing the user said, as text."""
    said = [message.get("content", "") for message in messages if message.get("role") == "user"]
    return said[-1] if said and isinstance(said[-1], str) else ""


FORMATS = ("yaml", "jsonl", "csv")
COLUMNS = ("key", "title", "tags", "input", "expected_output", "expected_outcomes", "criteria")


def case_file(suite: Suite, keys: Sequence[str], form: str) -> Packed:
    """Return a file of these cases: `yaml` is the suite with no other cases, with its files as a zip.

    `jsonl` holds all that a suite file says of each case, one a line; `csv` what is plain text of it.
    Raises UnknownVersionError for a suite without a version.
    """
    content = suite_with_cases(suite, only=set(keys))
    name = f"{suite.slug}-v{suite.version}-{len(keys)}-cases"
    if form == "jsonl":
        return Packed(f"{name}.jsonl", "application/jsonl", _lines(content.cases))
    if form == "csv":
        return Packed(f"{name}.csv", "text/csv; charset=utf-8", _table(content.cases))
    return packed(content, name)


def _lines(cases: Sequence[CaseSpec]) -> Iterator[bytes]:
    for case in cases:
        yield f"{json.dumps(case_values(case), ensure_ascii=False, allow_nan=False)}\n".encode()


def _table(cases: Sequence[CaseSpec]) -> Iterator[bytes]:
    lines = ([case.key, *(field_text(name, case) for name in COLUMNS[1:])] for case in cases)
    for part in csv_parts(COLUMNS, lines):
        yield part.encode()

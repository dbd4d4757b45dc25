"""The table of a suite's cases, and cases on their way out as files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, StrIndex

from evaluators.templatetags import figures
from runs.case_groups import case_groups
from runs.cases.conflict_forms import field_text
from runs.formats.packing import Packed, packed
from runs.formats.suite_files import case_values
from runs.formats.tables import csv_parts
from runs.models.runs import Run, RunStatus
from runs.models.suites import Case, Suite
from runs.specs.content import CaseSpec
from runs.suites.stored import stored_content

PAGE = 50
# What the table can be sorted by besides the suite's own order.
SORTS: Mapping[str, tuple[str, ...]] = {
    "key": ("key", "id"),
    "title": ("title", "position", "id"),
    "edited": ("-created_at", "-id"),
}
ORDERS = (
    ("", "Suite's order"),
    ("key", "By key"),
    ("title", "By title"),
    ("edited", "Last edited first"),
)


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """Which cases are asked for, in which order; it lives in the address of the page.

    `after` is the position and id of the case before, sorted otherwise how many go before.
    """

    search: str = ""
    tag: str = ""
    sort: str = ""
    after: tuple[int, int] | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> CaseFilter:
        """Read the parameters of an address; what makes no sense is left out."""
        position, _, pk = parameters.get("after", "").partition(".")
        return cls(
            search=parameters.get("q", "").strip(),
            tag=parameters.get("tag", ""),
            sort=sort if (sort := parameters.get("sort", "")) in SORTS else "",
            after=(int(position), int(pk)) if position.isdecimal() and pk.isdecimal() else None,
        )

    def address(self, after: tuple[int, int] | None = None) -> str:
        """Return the query part of the address of another stretch, the first when none is said."""
        named = {"q": self.search, "tag": self.tag, "sort": self.sort}
        named["after"] = f"{after[0]}.{after[1]}" if after else ""
        return "?" + urlencode({name: value for name, value in named.items() if value})

    @property
    def is_narrow(self) -> bool:
        """Tell whether anything is left out on purpose."""
        return bool(self.search or self.tag)


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
    """One stretch of the table; `next_address` leads to the next one, "" at the end."""

    asked: CaseFilter
    rows: Sequence[CaseRow]
    total: int
    matching: int
    shown: int
    next_address: str
    latest_run: int | None

    @property
    def here(self) -> str:
        """Return the query part of this very address."""
        return self.asked.address(self.asked.after)

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
        tagged = f" tagged “{self.asked.tag}”" if self.asked.tag else ""
        searched = f" matches “{self.asked.search}”" if self.asked.search else ""
        return f"No case{tagged}{searched}"


def case_tags(suite: Suite) -> Sequence[tuple[str, int]]:
    """Return the tags of the current cases with how many carry each, by name."""
    lists = (
        suite.cases.filter(is_current=True).order_by().annotate(listed=Cast("tags", TextField()))
    )
    counts: Counter[str] = Counter()
    for listed, count in lists.values("listed").annotate(n=Count("pk")).values_list("listed", "n"):
        counts.update(dict.fromkeys(json.loads(listed), count))
    return sorted(counts.items())


def case_table(suite: Suite, asked: CaseFilter) -> CaseTable:
    """Return one stretch of the suite's current cases, in the suite's order."""
    current = suite.cases.filter(is_current=True)
    matching = _matching(current, asked)
    skipped = asked.after[0] if asked.sort and asked.after else 0
    ordered = (
        matching.order_by(*SORTS[asked.sort])[skipped:]
        if asked.sort
        else beyond(matching, asked.after)
    )
    found = list(ordered.defer("recorded_output")[: PAGE + 1])
    rows, more = found[:PAGE], found[PAGE:]
    count = matching.count()
    before = skipped if asked.sort else count - beyond(matching, asked.after).count()
    run = latest_completed(suite)
    states = _states(run, [case.key for case in rows])
    return CaseTable(
        asked=asked,
        rows=[_row(case, states.get(case.key, "")) for case in rows],
        total=current.count() if asked.is_narrow else count,
        matching=count,
        shown=before + len(rows),
        next_address=asked.address(_last(asked, rows, skipped)) if more else "",
        latest_run=run.number if run else None,
    )


def _last(asked: CaseFilter, rows: Sequence[Case], skipped: int) -> tuple[int, int]:
    return (skipped + len(rows), 0) if asked.sort else (rows[-1].position, rows[-1].pk)


def matching_keys(suite: Suite, asked: CaseFilter) -> Sequence[str]:
    """Return the keys of all current cases that match, in the suite's order; one query."""
    found = _matching(suite.cases.filter(is_current=True), asked)
    return list(found.order_by("position", "id").values_list("key", flat=True))


def beyond(cases: QuerySet[Case], after: tuple[int, int] | None) -> QuerySet[Case]:
    """Return the cases that follow a place in the suite's order."""
    ordered = cases.order_by("position", "id")
    if after is None:
        return ordered
    position, pk = after
    return ordered.filter(Q(position__gt=position) | Q(position=position, pk__gt=pk))


def latest_completed(suite: Suite) -> Run | None:
    """Return the newest completed run, light: without its summary and scores."""
    runs = suite.runs.filter(status=RunStatus.COMPLETED).order_by("-number")
    return runs.defer("summary", "leaf_scores").first()


def _matching(cases: QuerySet[Case], asked: CaseFilter) -> QuerySet[Case]:
    if asked.search:
        texts = cases.annotate(input_text=Cast("input", TextField()))
        cases = texts.filter(
            Q(key__icontains=asked.search)
            | Q(title__icontains=asked.search)
            | Q(input_text__icontains=asked.search)
        )
    if asked.tag:
        listed = cases.annotate(listed=Cast("tags", TextField()))
        cases = listed.alias(
            # One database keeps the letters of other alphabets as they are, the other escapes them.
            plain=StrIndex("listed", Value(json.dumps(asked.tag, ensure_ascii=False))),
            escaped=StrIndex("listed", Value(json.dumps(asked.tag))),
        ).filter(Q(plain__gt=0) | Q(escaped__gt=0))
    return cases


def _states(run: Run | None, keys: Sequence[str]) -> Mapping[str, str]:
    """Return by key what the run says of each case (SCORING §8)."""
    if run is None or not keys:
        return {}
    groups: Any = case_groups(run).filter(case__key__in=keys)
    return dict(groups.values_list("case__key", "state"))


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
    content = stored_content(suite, only=set(keys))
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

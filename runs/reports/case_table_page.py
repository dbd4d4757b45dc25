"""The preview of a table of cases: its columns, the first cases as understood, the rejected rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from evaluators.models import LanguageModel
from runs.formats import CaseContent
from runs.formats.csv_cases import Part, ReadCases, Rejected, Table, rejected_csv
from runs.models import CaseUpload
from runs.profiles import profile_named
from runs.services.case_tables import TableReading, UploadedTable

FIRST_CASES = 10
ROWS_A_PAGE = 50
LONGEST_SHOWN = 400
LONGEST_SAMPLE = 120


@dataclass(frozen=True, slots=True)
class ShownCase:
    """A case as it was understood, its texts short enough to look over."""

    line: int
    key: str
    title: str
    turns: tuple[tuple[str, str], ...]
    expected_output: str
    outcomes: tuple[str, ...]
    criteria: str
    tags: tuple[str, ...]
    metadata: str
    recorded: str
    is_there: bool


@dataclass(frozen=True, slots=True)
class TablePreview:
    """What a mapping makes of a table: counts, the first cases, a page of the rejected rows."""

    cases: int
    updates: int
    rejected: int
    passed_over: int
    blank: int
    unused: tuple[tuple[str, int], ...]
    first: tuple[ShownCase, ...]
    page_rows: tuple[Rejected, ...]
    page: int
    pages: int
    makes_keys: bool


def preview(table: UploadedTable, reading: TableReading, page: str = "") -> TablePreview:
    """Return the preview; `page` is of the rejected rows, from 1."""
    found = table.cases(reading)
    pages = max(1, -(-len(found.rejected) // ROWS_A_PAGE))
    number = min(max(int(page), 1), pages) if page.isdecimal() and len(page) < 7 else 1
    start = (number - 1) * ROWS_A_PAGE
    return TablePreview(
        cases=len(found.cases),
        updates=sum(case.key in table.keys for case in found.cases),
        rejected=len(found.rejected),
        passed_over=found.passed_over,
        blank=table.table.blank,
        unused=tuple(found.unused.items()),
        first=_first(found, table.keys),
        page_rows=found.rejected[start : start + ROWS_A_PAGE],
        page=number,
        pages=pages,
        makes_keys=Part.KEY not in reading.mapping.parts,
    )


def begun_with(upload: CaseUpload) -> str:
    """Return which profile and judge the suite gets that an upload begins, "" where it begins none."""
    begins = upload.begins
    if not begins:
        return ""
    profile = profile_named(begins["profile"]).label if begins["profile"] else ""
    judge = LanguageModel.objects.filter(slug=begins["judge"]).first() if begins["judge"] else None
    start = f"It starts from the profile {profile}" if profile else "It starts without evaluators"
    return f"{start}, {f'judged by {judge.name}' if judge else 'without a judge'}."


def samples(table: Table) -> list[str]:
    """Return of each column the first cell that says something."""
    return [_sample(table, place) for place in range(len(table.columns))]


def rejected_file(upload: CaseUpload) -> Iterable[str]:
    """Yield the rejected rows of an upload, by how it was last said to be read, as a CSV."""
    table = UploadedTable(upload)
    return rejected_csv(table.table, table.cases(table.reading).rejected)


def stored_page(upload: CaseUpload) -> dict[str, Any]:
    """Return what the page of a stored upload shows."""
    has_runs = upload.suite is not None and upload.suite.runs.exists()
    return {"upload": upload, "table": None, "has_runs": has_runs}


def _first(found: ReadCases, keys: frozenset[str]) -> tuple[ShownCase, ...]:
    first = zip(found.cases[:FIRST_CASES], found.lines[:FIRST_CASES], strict=True)
    return tuple(
        ShownCase(
            line=line,
            key=case.key,
            title=case.title,
            turns=tuple((str(turn["role"]), _short(turn["content"])) for turn in case.input),
            expected_output=_short(case.expected_output),
            outcomes=tuple(_short(outcome) for outcome in case.expected_outcomes),
            criteria=_short(case.criteria),
            tags=case.tags,
            metadata=_short(", ".join(f"{name}: {_short(v)}" for name, v in case.metadata.items())),
            recorded=_recorded(case),
            is_there=case.key in keys,
        )
        for case, line in first
    )


def _recorded(case: CaseContent) -> str:
    if case.recorded_output is None:
        return ""
    return _short(case.recorded_output.get("output") or case.recorded_output)


def _sample(table: Table, place: int) -> str:
    cells = (row.cells[place] for row in table.rows if not row.unread)
    first = next((cell for cell in cells if cell not in ("", None) and str(cell).strip()), "")
    return _short(first, LONGEST_SAMPLE)


def _short(value: Any, most: int = LONGEST_SHOWN) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= most else f"{text[:most]}…"

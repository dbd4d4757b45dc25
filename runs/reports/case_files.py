"""Cases of a suite on their way out: as a suite file, as lines, or as a table of their plain texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from runs.exports import stored_content
from runs.formats import CaseContent
from runs.formats._writing import case_values
from runs.formats.packing import Packed, packed
from runs.models import Suite
from runs.reports.case_texts import field_text
from runs.reports.csv_text import csv_parts

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


def _lines(cases: Sequence[CaseContent]) -> Iterator[bytes]:
    for case in cases:
        yield f"{json.dumps(case_values(case), ensure_ascii=False, allow_nan=False)}\n".encode()


def _table(cases: Sequence[CaseContent]) -> Iterator[bytes]:
    lines = ([case.key, *(field_text(name, case) for name in COLUMNS[1:])] for case in cases)
    for part in csv_parts(COLUMNS, lines):
        yield part.encode()

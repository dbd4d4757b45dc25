"""Cases of a table: CSV of a spreadsheet, JSON Lines or a JSON list of any columns, by a mapping.

A row that cannot be a case is rejected with its line, its column and the reason; the others are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from runs.formats._case_mapping import LABELS, CaseMapping, Part, Split, part_named, suggest
from runs.formats._content import CaseContent
from runs.formats._row_cases import (
    RefusedRowError,
    Rejected,
    RowReader,
    beginning_of,
    check_key,
)
from runs.formats._table_rows import Row, Table, read_table
from runs.formats._table_writing import rejected_csv, write_cases

__all__ = [
    "LABELS",
    "CaseMapping",
    "Part",
    "ReadCases",
    "Rejected",
    "Row",
    "Split",
    "Table",
    "beginning_of",
    "part_named",
    "read_cases",
    "read_table",
    "rejected_csv",
    "suggest",
    "write_cases",
]


@dataclass(frozen=True, slots=True)
class ReadCases:
    """The cases of a table with the line of each, and the rows rejected, in the order of the file.

    `passed_over` counts rows whose key was to be left out. `unused` counts by column the promptfoo
    assertions that are kept in the metadata, because no outcome says the same.
    """

    cases: tuple[CaseContent, ...]
    lines: tuple[int, ...]
    rejected: tuple[Rejected, ...]
    passed_over: int = 0
    unused: Mapping[str, int] = field(default_factory=dict)


def read_cases(
    table: Table,
    mapping: CaseMapping,
    *,
    taken: Collection[str] = (),
    skipped: Collection[str] = (),
    titles: Mapping[str, str] | None = None,
) -> ReadCases:
    """Return the cases of a table; keys that are `taken` are rejected, `skipped` ones passed over.

    `titles` has by key what somebody called a case: so it stays called where no column holds titles.

    Without a column of keys each case is named after its input, so that the same question is the
    same case whenever the table is read again. Raises ValueError for a mapping with problems.
    """
    if problems := mapping.problems():
        raise ValueError("; ".join(problems))
    reader = RowReader(table.columns, mapping)
    known = {} if reader.column(Part.TITLE) else titles or {}
    cases, rejected = [], []
    lines: dict[str, int] = {}
    passed_over = 0
    for row in table.rows:
        try:
            case = reader.case(row)
            if case.key in skipped:
                passed_over += 1
                continue
            check_key(case.key, lines, taken, reader)
        except RefusedRowError as refusal:
            rejected.append(Rejected(row.line, refusal.column, refusal.reason, row.cells))
            continue
        lines[case.key] = row.line
        cases.append(replace(case, title=known[case.key]) if case.key in known else case)
    return ReadCases(
        tuple(cases), tuple(lines.values()), tuple(rejected), passed_over, reader.unused
    )

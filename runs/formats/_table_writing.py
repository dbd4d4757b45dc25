"""Tables of cases as spreadsheets open them: cases, and rows that were rejected."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runs.formats._case_cells import expected_of, outcomes_of, recorded_of, tags_of, turns_of
from runs.formats._case_mapping import Split
from runs.formats._content import CaseContent
from runs.formats._row_cases import Rejected
from runs.formats._table_cells import REASON_COLUMNS, harmless
from runs.formats._table_rows import Table

COLUMNS = (
    *("key", "title", "input", "expected_output", "expected_outcomes"),
    *("criteria", "tags", "metadata", "output"),
)


def rejected_csv(table: Table, rejected: Iterable[Rejected]) -> Iterable[str]:
    """Yield a CSV of the rejected rows with line and reason, to be mended and uploaded again.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    yield "\ufeff"
    writer.writerow([*map(harmless, table.columns), *REASON_COLUMNS])
    for one in rejected:
        cells = (*one.cells, *("",) * (len(table.columns) - len(one.cells)))
        reason = f"{one.column}: {one.reason}" if one.column else one.reason
        writer.writerow([*(harmless(_spelled(cell)) for cell in cells), harmless(reason), one.line])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def write_cases(cases: Sequence[CaseContent]) -> str:
    """Return cases as a CSV that reads back as they are; evaluators of their own are left out."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    writer.writerows(_cells(case) for case in cases)
    return buffer.getvalue()


def _spelled(cell: Any) -> str:
    if cell is None:
        return ""
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)


def _cells(case: CaseContent) -> list[str]:
    turns = [dict(turn) for turn in case.input]
    return [
        case.key,
        case.title,
        _either(
            _lone(turns), _written(turns), lambda cell: [dict(t) for t in turns_of(cell)], turns
        ),
        _either(
            case.expected_output,
            _written([{"role": "assistant", "content": case.expected_output}]),
            expected_of,
            case.expected_output,
        ),
        _either(
            "\n".join(case.expected_outcomes),
            _written(case.expected_outcomes),
            _by_lines_alone,
            case.expected_outcomes,
        ),
        case.criteria,
        _either(", ".join(case.tags), _written(case.tags), tags_of, case.tags),
        _written(case.metadata) if case.metadata else "",
        _recorded(case.recorded_output),
    ]


def _either(plain: str, spelled: str, read: Callable[[Any], Any], meant: Any) -> str:
    """Return a plain cell where it reads as what is meant, else its JSON."""
    return plain if not plain or read(plain) == meant else spelled


def _lone(turns: Sequence[Mapping[str, Any]]) -> str:
    is_question = len(turns) == 1 and turns[0].keys() == {"role", "content"}
    text = str(turns[0]["content"]) if is_question and turns[0]["role"] == "user" else ""
    # What is no single question reads as another one, and is spelled out.
    return text if text.strip() else "?"


def _recorded(recorded: Mapping[str, Any] | None) -> str:
    if recorded is None:
        return ""
    text = recorded.get("output") if recorded.keys() == {"output"} else None
    if isinstance(text, str) and text.strip() and recorded_of(text) == recorded:
        return text
    return _written(recorded)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _by_lines_alone(cell: str) -> tuple[str, ...]:
    """Return outcomes where nothing else could be taken for what parts them, else none."""
    return () if ";" in cell or "|" in cell else outcomes_of(cell, Split.LINES)

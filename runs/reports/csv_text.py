"""Tables as CSV files: exact figures, and nothing that a spreadsheet would carry out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
DIGITS = 9
AT_ONCE = 200


def csv_text(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV; numbers are exact to 9 decimals, what is missing is empty, never zero."""
    return "".join(csv_parts(columns, lines))


def csv_parts(
    columns: Sequence[str], lines: Iterable[Sequence[Any]], *, digits: int | None = DIGITS
) -> Iterator[str]:
    """Yield the same table in parts as its lines come; without `digits` floats keep every one."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([_cell(name, digits) for name in columns])
    for count, line in enumerate(lines, 1):
        writer.writerow([_cell(value, digits) for value in line])
        if count % AT_ONCE == 0:
            yield file.getvalue()
            file.seek(0)
            file.truncate()
    yield file.getvalue()


def _cell(value: Any, digits: int | None) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value if digits is None else round(value, digits):f}"
    if isinstance(value, float):
        return repr(value if digits is None else round(value, digits))
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text

"""Tables as CSV files: exact figures, and nothing that a spreadsheet would carry out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
DIGITS = 9


def csv_text(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV; numbers are exact to 9 decimals, what is missing is empty, never zero."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in line] for line in lines)
    return file.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{round(value, DIGITS):f}"
    if isinstance(value, float):
        return repr(round(value, DIGITS))
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text

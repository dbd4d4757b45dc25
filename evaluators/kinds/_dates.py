"""Days read from texts in formats people write: `DD.MM.YYYY`, `MMMM D, YYYY`, `%d/%m/%y`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from functools import lru_cache

LONGEST_DATE = 64
TOKENS = {
    **{"YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m"},
    **{"DD": "%d", "D": "%d", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I"},
    **{"mm": "%M", "ss": "%S", "SSS": "%f", "A": "%p", "Z": "%z"},
}
TOKEN = re.compile("|".join(sorted(TOKENS, key=len, reverse=True)))
# Formats in which day and month cannot be taken for each other, beside those of ISO 8601.
CLEAR = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%B %d, %Y", "%b %d, %Y")
ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?", re.ASCII)
SAMPLE = datetime(2001, 2, 3, 4, 5, 6)  # noqa: DTZ001 - only its day is looked at


@lru_cache(maxsize=256)
def directives(pattern: str) -> str:
    """Return a format in the directives of strptime; raises ValueError for one that names no day."""
    text = pattern if "%" in pattern else TOKEN.sub(lambda token: TOKENS[token.group()], pattern)
    try:
        read_back = datetime.strptime(SAMPLE.strftime(text), text)  # noqa: DTZ007 - as above
    except (ValueError, re.error):
        read_back = None
    if len(pattern) > LONGEST_DATE or read_back is None or read_back.date() != SAMPLE.date():
        raise ValueError(f"{pattern!r} is no format of a date such as YYYY-MM-DD or DD.MM.YYYY")
    return text


def day_of(text: str, formats: Sequence[str] = ()) -> date | None:
    """Return the day a text names in the first of the formats that fits, None when none does.

    Without formats those of ISO 8601 and such with the month in words are read. Of a point in time the
    day counts as it is written.
    """
    text = text.strip()
    if len(text) > LONGEST_DATE:
        return None
    if not formats and ISO.fullmatch(text):
        return _iso_day(text)
    for pattern in formats or CLEAR:
        try:
            return datetime.strptime(text, directives(pattern) if formats else pattern).date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
    return None


def _iso_day(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None

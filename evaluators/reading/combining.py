"""Marks that stand above or below a character, such as accents: a text from outside may have any number of them."""

from __future__ import annotations

import re
import unicodedata

# Normalising a text sorts the marks of each character, in a time that grows with the square of their number.
# No language needs more of them (the stream-safe text format of Unicode, UAX #15).
MAX_MARKS = 30
# Two halfwidth letters of Japanese become marks.
_HALFWIDTH_MARKS = "\uff9e\uff9f"
_MAYBE_MARKS = re.compile(rf"(?:[^\x00-\u02ff\w]|[{_HALFWIDTH_MARKS}]){{{MAX_MARKS + 1},}}")


def cut_marks(text: str) -> str:
    """Return a text with at most MAX_MARKS marks after each character, so that it can be normalised."""
    return text if text.isascii() else _MAYBE_MARKS.sub(_cut_run, text)


def _cut_run(run: re.Match[str]) -> str:
    kept, marks = [], 0
    for char in run[0]:
        is_mark = unicodedata.category(char).startswith("M") or char in _HALFWIDTH_MARKS
        marks = marks + 1 if is_mark else 0
        if marks <= MAX_MARKS:
            kept.append(char)
    return "".join(kept)

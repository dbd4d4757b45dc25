"""Cells that a spreadsheet would take for formulas, written as texts and read back as they were."""

from __future__ import annotations

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
# The last columns of a file of rejected rows, by which it is known when it comes back.
REASON_COLUMNS = ("rejected because", "rejected on line")


def harmless(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe where it begins so."""
    return f"'{text}" if text.lstrip("'").startswith(FORMULAS) else text


def as_meant(text: str) -> str:
    """Return what `harmless` was given."""
    return text[1:] if text.startswith("'") and harmless(text) != text else text

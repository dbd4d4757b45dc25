"""What a key that is not known was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

CLOSE = 0.8


def near(name: str, known: Iterable[str]) -> str:
    """Return the known name that one is nearly spelt like, "" for none."""
    return next(iter(get_close_matches(name, list(known), 1, CLOSE)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that asks whether a known name was meant, "" where none is near."""
    found = near(name, known)
    return f"; did you mean {found}?" if found else ""

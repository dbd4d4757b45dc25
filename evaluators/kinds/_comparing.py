"""Comparing an answer with the expected output letter by letter, and showing where they part."""

from __future__ import annotations

from typing import Any

LONGEST_KEPT = 2_000
LEAD = 200


def compared(expected: str, text: str) -> dict[str, bool]:
    """Return by comparison whether the answer matches."""
    return {
        "exact": text == expected,
        "exact_trimmed": text.strip() == expected.strip(),
        "contains": expected in text,
        "contains_trimmed": expected.strip() in text,
    }


def excerpts(expected: str, text: str) -> dict[str, Any]:
    """Return both texts from shortly before they part, for the page to show the difference."""
    pairs = enumerate(zip(expected, text, strict=False))
    parted = next((n for n, (one, other) in pairs if one != other), min(len(expected), len(text)))
    start = max(0, parted - LEAD) if max(len(expected), len(text)) > LONGEST_KEPT else 0
    return {
        "expected": expected[start : start + LONGEST_KEPT],
        "output": text[start : start + LONGEST_KEPT],
        "starts_at": start,
        "is_cut": max(len(expected), len(text)) > start + LONGEST_KEPT,
    }

"""Marks above and below a character are limited where a text is normalised."""

from __future__ import annotations

import pytest

from evaluators.reading.combining import MAX_MARKS, cut_marks

ABOVE, BELOW = "\u0301", "\u0323"


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "café, cafe\u0301" * 1_000,
        "หนังสือ" * 1_000,
        "क्षत्रिय" * 1_000,
        "ｶﾞｷﾞｸﾞ" * 1_000,
        "……——“”" * 1_000,
        "👩‍👩‍👧‍👦" * 1_000,
        f"a{ABOVE * MAX_MARKS}b{BELOW * MAX_MARKS}",
    ],
)
def test_what_languages_write_stays(text: str) -> None:
    assert cut_marks(text) == text


@pytest.mark.parametrize(
    "marks", [ABOVE + BELOW, "\u0f73", "\U0001e8d0", "\uff9e", f"{ABOVE}\uff9f"]
)
def test_so_many_marks_stay_after_each_character(marks: str) -> None:
    many = marks * 100_000
    kept = many[:MAX_MARKS]
    assert cut_marks(f"a{many}b {many}…{many}") == f"a{kept}b {kept}…{kept}"

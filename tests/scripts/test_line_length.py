"""Templates and style sheets stay readable without wrapping, and without what a merge left in them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LENGTH = 120

PATHS = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static" / "css").glob("*.css")]
CONFLICT_MARKS = ("<" * 7, "=" * 7, ">" * 7)


def test_no_line_of_a_template_or_style_sheet_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in PATHS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LENGTH
    ]
    assert too_long == []


def test_no_conflict_of_a_merge_is_left_in_a_template_or_style_sheet() -> None:
    # The formatter joins such a mark with the lines after it, and then it is text of the page.
    texts = {path.relative_to(ROOT): path.read_text() for path in PATHS}
    assert [
        path for path, text in texts.items() if any(mark in text for mark in CONFLICT_MARKS)
    ] == []

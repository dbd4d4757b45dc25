"""Templates and style sheets stay readable without wrapping."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_LENGTH = 120


def test_no_line_of_a_template_or_style_sheet_is_too_long() -> None:
    paths = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static" / "css").glob("*.css")]
    too_long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LENGTH
    ]
    assert too_long == []

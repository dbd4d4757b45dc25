"""A comparison as the comment of a pull request: the headline, the figures, what got worse, and a link."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# Names of cases come from files of anybody: they must neither format the comment nor call people or issues.
FORMATS = re.compile(r"([\\`*_\[\]<>|~])")
CALLS = re.compile(r"([@#])")
Row = Sequence[str]


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line; @ and # refer to nobody and nothing."""
    return CALLS.sub("\\1\u200b", FORMATS.sub(r"\\\1", " ".join(text.split())))


def markdown_table(head: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table; the first column is text, the others are figures."""
    yield _line(head)
    yield _line([":--", *("--:" for _ in head[1:])], raw=True)
    yield from map(_line, rows)


def comparison_comment(
    *,
    passed: bool,
    sentence: str,
    figures: Sequence[Row],
    worse: Sequence[Row],
    left: int,
    url: str,
) -> str:
    """Return the comment; `left` is how many cases that got worse are not among the rows `worse`."""
    lines = [f"### {'✅' if passed else '❌'} {escaped(sentence)}", ""]
    lines += [*markdown_table(("", "Baseline", "Candidate", "Change"), figures), ""]
    if worse:
        lines += [*markdown_table(("Got worse", "Baseline", "Candidate", "Change"), worse), ""]
    if left:
        lines += [f"and {left} more", ""]
    return "\n".join([*lines, f"[Open the comparison]({url})", ""])


def _line(cells: Row, *, raw: bool = False) -> str:
    return f"| {' | '.join(cell if raw else escaped(cell) for cell in cells)} |"

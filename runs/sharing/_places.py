"""Where in a document a text stands, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# What these rows are made of; a row is named by its number.
ROWS = {
    "answers": "answer",
    "cases": "case",
    "differences": "difference",
    "evaluators": "evaluator",
    "facts": "fact",
    "measures": "figure",
    "metrics": "metric",
    "outcomes": "outcome",
    "question": "message",
    "remarks": "remark",
    "rules": "rule",
    "sides": "run",
    "steps": "step",
    "suites": "suite",
    "warnings": "warning",
}
# Names that say nothing to a reader.
SILENT = ("content", "text", "value")


def texts_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every text of a document behind the words for its place: `case C-012, answer 2, output`."""
    yield from _texts(document, ())


def _texts(value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield ", ".join(place), value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _named(str(name), one, place)


def _named(name: str, value: Any, place: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, list | tuple):
        word = ROWS.get(name, name.replace("_", " "))
        for number, one in enumerate(value, 1):
            yield from _texts(one, (*place, f"{word} {_called(one) or number}"))
        return
    yield from _texts(value, place if name in SILENT else (*place, name.replace("_", " ")))


def _called(row: Any) -> str:
    key = row.get("key") if isinstance(row, Mapping) else ""
    return str(key or "")

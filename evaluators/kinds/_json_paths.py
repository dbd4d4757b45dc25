"""Paths into JSON values: `lines[0].price`, `lines[*].price`, `["key.with.dots"]`, `$` for the whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WHOLE = "$"
EVERY = "*"
LONGEST_PATH = 300
PART = re.compile(
    r"""\.?(?P<name>[^.\[\]"'\s][^.\[\]"']*)|\[(?P<place>\d{1,9}|\*)\]|\[(?P<quoted>"[^"]+"|'[^']+')\]"""
)

Part = str | int


# Stands where an entry of a list lacks what the path asks of every entry.
LACKING = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path by its parts: names of keys, places in lists, and EVERY for all of a list."""

    parts: tuple[tuple[str, Part], ...]


def parsed_path(path: str) -> JsonPath:
    """Return a path by its parts; raises ValueError for a text that is none."""
    text = path.strip()
    rest = text.removeprefix(WHOLE)
    if not text or len(text) > LONGEST_PATH:
        raise ValueError(f"a path has 1 to {LONGEST_PATH} characters")
    parts: list[tuple[str, Part]] = []
    at = 0
    while at < len(rest):
        match = PART.match(rest, at)
        if match is None or (match.group().startswith(".") and at == 0 and rest == text):
            raise ValueError(f"{path!r} is no path such as total, lines[0].price or lines[*].price")
        parts.append(_part(match))
        at = match.end()
    return JsonPath(tuple(parts))


def values_at(value: Any, path: JsonPath, most: int) -> dict[str, Any]:
    """Return the values a path leads to, by the path of each; empty when there are none.

    An entry of a list that lacks what is asked of every entry has LACKING at its path. Of more than
    `most` values one more is returned, so that a caller sees that there are too many.
    """
    found: dict[str, Any] = {}
    for name, part in _reached(value, path.parts, "", is_every=False):
        found[name or WHOLE] = part
        if len(found) > most:
            break
    return found


def _part(match: re.Match[str]) -> tuple[str, Part]:
    if match["name"] is not None:
        return "key", match["name"].strip()
    if match["quoted"] is not None:
        return "key", match["quoted"][1:-1]
    return (EVERY, EVERY) if match["place"] == EVERY else ("place", int(match["place"]))


def _reached(
    value: Any, parts: tuple[tuple[str, Part], ...], name: str, *, is_every: bool
) -> Iterator[tuple[str, Any]]:
    if not parts:
        yield name, value
        return
    kind, part = parts[0]
    steps = list(_steps(value, kind, part))
    if not steps and is_every and kind != EVERY:
        yield _named(name, part), LACKING
    for own, inner in steps:
        below = is_every or kind == EVERY
        yield from _reached(inner, parts[1:], _named(name, own), is_every=below)


def _named(name: str, part: Part) -> str:
    # lines.0 and lines[0] are one place.
    return f"{name}[{part}]" if isinstance(part, int) else f"{name}.{part}" if name else part


def _steps(value: Any, kind: str, part: Part) -> Iterator[tuple[Part, Any]]:
    if isinstance(value, dict) and kind == "key":
        if part in value:
            yield part, value[part]
    elif isinstance(value, list) and kind == EVERY:
        yield from enumerate(value)
    elif isinstance(value, list) and str(part).isdecimal() and int(part) < len(value):
        yield int(part), value[int(part)]

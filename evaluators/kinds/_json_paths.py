"""Paths into JSON: `choices[0].message.content`, `steps[*].tool`, `["odd.name"].total`, `$.total`.

Settings use this short form. This module translates it to JSONPath (RFC 9535), and the library resolves each
step. Steps are resolved one by one, so that errors can name the step that fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonpath import JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.segments import JSONPathSegment
from jsonpath.selectors import IndexSelector, NameSelector

ROOT = "$"
STEP = re.compile(
    r"""\[\s*(?P<every>\*)\s*\]"""
    r"""|\[\s*(?P<index>-?\d{1,9})\s*\]"""
    r"""|\[\s*(?P<quoted>"(?:[^"\\]|\\.)*"|'[^']*')\s*\]"""
    r"""|(?P<name>[^.\[\]]+)"""
)
INDEX = re.compile(r"-?\d{1,9}")
MAX_NAMES_LENGTH = 120
# Represents a list entry without the value that the path selects in every entry.
MISSING_ENTRY = object()

Steps = tuple[JSONPathSegment, ...]
_JSONPATH = JSONPathEnvironment(strict=True)


class PathError(ValueError):
    """A path cannot be read or selects nothing; the message names the place and its value."""


@lru_cache(maxsize=1024)
def parse_path(text: str) -> Steps:
    """Return the steps of a path; raises PathError naming the wrong character."""
    query = ROOT
    at = start = 1 if re.match(r"\$(?:[.\[]|\Z)", text) else 0
    while at < len(text) or not text:
        if at and text[at] == ".":
            at += 1
        elif at > start and text[at] != "[":
            raise PathError(f"expected a dot or [ at character {at + 1}")
        step = STEP.match(text, at)
        if step is None:
            raise PathError(f"expected a name, a number or [*] at character {at + 1}")
        query += _selector(step)
        at = step.end()
    try:
        return tuple(_JSONPATH.compile(query).segments)  # type: ignore[union-attr]  # never a union
    except JSONPathError as error:
        raise PathError(str(error)) from error


def _selector(step: re.Match[str]) -> str:
    """Return a step in the syntax of RFC 9535."""
    quoted, name = step["quoted"], step["index"] or (step["name"] or "").strip()
    if step["every"] or name == "*":
        return "[*]"
    if quoted:
        try:
            name = quoted[1:-1] if quoted.startswith("'") else str(json.loads(quoted))
        except ValueError:
            raise PathError(f"{quoted} is not a quoted name") from None
    elif INDEX.fullmatch(name):
        # A number may also be the name of a field: {"0": …}.
        return f'["{name}", {int(name)}]'
    return f"[{json.dumps(name)}]"


def counts_from_end(steps: Steps) -> bool:
    """Tell whether a path counts from the end of a list, as `lines[-1]` does."""
    return any(isinstance(name := _name(step), int) and name < 0 for step in steps)


class PathIndex:
    """Finds which of many paths leads to a place, just as fast however many there are."""

    def __init__(self, paths: Iterable[Steps]) -> None:
        """Group the paths by the steps at which they take any key or index."""
        # By those steps, the names of all others with the number of their first path.
        self._by_shape: dict[tuple[bool, ...], dict[tuple[str, ...], int]] = {}
        for number, steps in enumerate(paths):
            names = [_name(step) for step in steps]
            shape = tuple(name is None for name in names)
            known = tuple(str(name) for name in names if name is not None)
            self._by_shape.setdefault(shape, {}).setdefault(known, number)

    def find(self, place: Sequence[str | int]) -> int | None:
        """Return the number of the first path to exactly this place, given by its keys and indexes."""
        numbers = [
            group[known]
            for shape, group in self._by_shape.items()
            if len(shape) == len(place)
            and (
                known := tuple(
                    str(part) for part, is_any in zip(place, shape, strict=True) if not is_any
                )
            )
            in group
        ]
        return min(numbers, default=None)


def follow(path: str, value: Any, root: str = "the reply") -> Any:
    """Return the value at the path, a list for `[*]`; raises PathError if there is none.

    Errors call the whole value `root`.
    """
    return _follow(parse_path(path), _match(value), root)


def is_missing(path: str, value: Any) -> bool:
    """Tell whether the path has no value or null."""
    try:
        return follow(path, value) is None
    except PathError:
        return True


def find_values(value: Any, steps: Steps, limit: int) -> dict[str, Any]:
    """Return every value that a path selects by its place, such as `lines[0].price`; {} for none.

    A list entry without the value is MISSING_ENTRY. Beyond the limit one more value is returned, so that the
    caller notices that there are too many.
    """
    values: dict[str, Any] = {}
    for place, part in _reach(steps, _match(value), in_list=False):
        values[place] = part
        if len(values) > limit:
            break
    return values


def _match(value: Any) -> JSONPathMatch:
    return JSONPathMatch(filter_context={}, obj=value, parent=None, path=ROOT, parts=(), root=value)


def _follow(steps: Steps, match: JSONPathMatch, root: str) -> Any:
    if not steps:
        return match.obj
    values = [_follow(steps[1:], child, root) for child in _children(steps[0], match, root)]
    return values if _name(steps[0]) is None else values[0]


def _reach(steps: Steps, match: JSONPathMatch, *, in_list: bool) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield format_place(match.parts) or ROOT, match.obj
        return
    name = _name(steps[0])
    try:
        children = _children(steps[0], match, ROOT)
    except PathError:
        if in_list and name is not None:
            yield format_place((*match.parts, name)), MISSING_ENTRY
        return
    for child in children:
        yield from _reach(steps[1:], child, in_list=in_list or name is None)


def _children(step: JSONPathSegment, match: JSONPathMatch, root: str) -> list[JSONPathMatch]:
    """Return what a step selects; raises PathError describing the value if it selects nothing."""
    value, name = match.obj, _name(step)
    is_list = isinstance(value, list)
    if name is None and is_list:
        return list(step.resolve([match]))
    if name is not None and (children := list(step.resolve([match]))):
        return children
    if name is None:
        problem = "not a list"
    elif isinstance(value, dict):
        problem = f"without {name!r}"
    elif isinstance(name, str):
        problem = f"where an object with {name!r} is expected"
    else:
        problem = f"without a part {name}" if is_list else "where a list is expected"
    raise PathError(f"{format_place(match.parts) or root} is {describe(value)}, {problem}")


def _name(step: JSONPathSegment) -> str | int | None:
    """Return the key or index that a step selects, None for all entries of a list."""
    selector = step.selectors[-1]
    if isinstance(selector, IndexSelector):
        return selector.index
    return selector.name if isinstance(selector, NameSelector) else None


def format_place(parts: Sequence[str | int]) -> str:
    """Return a place as users write its path: `lines[0].price`."""
    place = ""
    for part in parts:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    return place


def describe(value: Any) -> str:
    """Describe a JSON value in a few words."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        # Each name takes two characters or more, so what follows would be cut anyway.
        names = ", ".join(str(name) for name in islice(value, MAX_NAMES_LENGTH))
        cut = f"{names[:MAX_NAMES_LENGTH]}…" if len(names) > MAX_NAMES_LENGTH else names
        return f"an object with {cut}" if names else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    text = str(value)
    return f"the text “{text[:60]}…”" if len(text) > 60 else f"the text “{text}”"

"""Paths into a JSON reply: `choices.0.message.content`, `steps[*].tool`, `["odd.name"].text`.

A path is a row of steps. A name goes into an object, a number into a list (`-1` is its last), `[*]` into
every part of a list: what follows it is looked for in each, and a list of what was found comes out.
Names with dots or brackets in them stand in `["…"]`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

EVERY = "*"
STEP = re.compile(
    r"""\[\s*(?P<every>\*)\s*\]|\[\s*(?P<index>-?\d{1,9})\s*\]|\[\s*(?P<quoted>"(?:[^"\\]|\\.)*")\s*\]"""
    r"""|(?P<name>[^.\[\]]+)"""
)
INDEX = re.compile(r"-?\d{1,9}")
LONGEST_NAMES = 120

Step = str | int


class PathError(ValueError):
    """A path cannot be read, or leads nowhere in a reply; says at which step, and what stood there."""


@dataclass(frozen=True, slots=True)
class Every:
    """The step into every part of a list."""


def parse_path(text: str) -> tuple[Step | Every, ...]:
    """Return the steps of a path; raises PathError naming the character that is wrong."""
    steps: list[Step | Every] = []
    at = 0
    while at < len(text) or not steps:
        if steps and text[at] == ".":
            at += 1
        elif steps and text[at] != "[":
            raise PathError(f"expected a dot or [ at character {at + 1}")
        found = STEP.match(text, at)
        if found is None:
            raise PathError(f"expected a name, a number or [*] at character {at + 1}")
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step | Every:
    if found["every"]:
        return Every()
    if found["index"]:
        return int(found["index"])
    if found["quoted"]:
        try:
            return str(json.loads(found["quoted"]))
        except ValueError:
            raise PathError(f"{found['quoted']} is not a quoted name") from None
    name = found["name"].strip()
    if name == EVERY:
        return Every()
    return int(name) if INDEX.fullmatch(name) else name


def follow(path: str, value: Any) -> Any:
    """Return what stands at the path; raises PathError when it leads nowhere."""
    return _follow(parse_path(path), value, "")


def leads_nowhere(path: str, value: Any) -> bool:
    """Tell whether nothing stands at the path, or null."""
    try:
        return follow(path, value) is None
    except PathError:
        return True


def _follow(steps: tuple[Step | Every, ...], value: Any, place: str) -> Any:
    for number, step in enumerate(steps):
        if isinstance(step, Every):
            if not isinstance(value, list):
                raise PathError(_said(place, value, "not a list"))
            rest = steps[number + 1 :]
            return [_follow(rest, part, f"{place}[{at}]") for at, part in enumerate(value)]
        value = _into(value, step, place)
        place = f"{place}.{step}" if place else str(step)
    return value


def _into(value: Any, step: Step, place: str) -> Any:
    if isinstance(value, dict):
        # A number may be the name of a field, too: {"0": …}.
        if str(step) in value:
            return value[str(step)]
        raise PathError(_said(place, value, f"without {step!r}"))
    if not isinstance(step, int):
        raise PathError(_said(place, value, f"where an object with {step!r} is expected"))
    if not isinstance(value, list):
        raise PathError(_said(place, value, "where a list is expected"))
    if not -len(value) <= step < len(value):
        raise PathError(_said(place, value, f"without a part {step}"))
    return value[step]


def _said(place: str, value: Any, problem: str) -> str:
    return f"{place or 'the reply'} is {describe(value)}, {problem}"


def describe(value: Any) -> str:
    """Return in a few words what a value is."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        names = ", ".join(str(name) for name in value)
        cut = f"{names[:LONGEST_NAMES]}…" if len(names) > LONGEST_NAMES else names
        return f"an object with {cut}" if names else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:40]}"
    text = str(value)
    return f"the text “{text[:60]}…”" if len(text) > 60 else f"the text “{text}”"

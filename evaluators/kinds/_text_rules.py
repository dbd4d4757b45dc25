"""The rules of text checks: each returns what it found, in words that hold with `negate` too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from evaluators.kinds._patterns import compiled, found
from evaluators.kinds._schemas import UnresolvableReferenceError, problems_of
from evaluators.scoring.types import Finding

if TYPE_CHECKING:
    from evaluators.kinds.text_check import Config

Findings = tuple[Finding, ...]
Rule = Callable[["Config", str], Awaitable[Findings]]

AROUND = 40
LONGEST = 160


class UncheckableError(Exception):
    """The settings of the check do not work out for this answer."""


def shown(text: str) -> str:
    """Return a text in quotes, its middle left out when it is long."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return f"“{text}”"


def passage(text: str, start: int, end: int) -> str:
    """Return a part of a text with a little of what stands around it."""
    before, after = max(0, start - AROUND), min(len(text), end + AROUND)
    part = text[before:after].strip()
    return f"{'…' if before else ''}{part}{'…' if after < len(text) else ''}"


def parsed_json(text: str) -> Any:
    """Return the one JSON value a text is; raises ValueError saying why it is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _place(config: Config, wanted: str, text: str) -> tuple[int, int] | None:
    """Return where a text stands in another, None when it does not."""
    if config.ignore_case:
        # Folding may change the length ("ß" becomes "ss"), so places are looked up in the text itself.
        match = compiled(_escaped(wanted), ignore_case=True).search(text)
        if match is not None:
            return int(match.start()), int(match.end())
        return (0, len(text)) if wanted.casefold() in text.casefold() else None
    start = text.find(wanted)
    return None if start < 0 else (start, start + len(wanted))


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char.isascii() and not char.isalnum() else char for char in text)


def _presence(config: Config, wanted: str, text: str) -> Finding:
    place = _place(config, wanted, text)
    if place is None:
        return Finding(f"Does not contain {shown(wanted)}", False)
    return Finding(f"Contains {shown(wanted)}", True, passage(text, *place))


async def _contains(config: Config, text: str) -> Findings:
    return (_presence(config, config.value or "", text),)


async def _contains_all(config: Config, text: str) -> Findings:
    return tuple(_presence(config, wanted, text) for wanted in config.values)


async def _contains_any(config: Config, text: str) -> Findings:
    found_ones = [_presence(config, wanted, text) for wanted in config.values]
    present = tuple(finding for finding in found_ones if finding.passed)
    if present:
        return present
    listed = ", ".join(shown(wanted) for wanted in config.values)
    return (Finding(f"Contains none of {listed}", False),)


def _same(config: Config, first: str, second: str) -> bool:
    return first.casefold() == second.casefold() if config.ignore_case else first == second


async def _equals(config: Config, text: str) -> Findings:
    wanted = config.value or ""
    if _same(config, text, wanted):
        return (Finding(f"Is {shown(wanted)}", True),)
    if _same(config, text.strip(), wanted.strip()):
        return (Finding(f"Differs from {shown(wanted)} only by white space around it", False),)
    return (Finding(f"Is not {shown(wanted)}", False, shown(text)),)


async def _starts_with(config: Config, text: str) -> Findings:
    wanted = config.value or ""
    start = text[: len(wanted)]
    if _same(config, start, wanted):
        return (Finding(f"Starts with {shown(wanted)}", True),)
    return (Finding(f"Does not start with {shown(wanted)}", False, passage(text, 0, len(start))),)


async def _ends_with(config: Config, text: str) -> Findings:
    wanted = config.value or ""
    end = text[max(0, len(text) - len(wanted)) :]
    if _same(config, end, wanted):
        return (Finding(f"Ends with {shown(wanted)}", True),)
    rest = len(text) - len(end)
    return (Finding(f"Does not end with {shown(wanted)}", False, passage(text, rest, len(text))),)


async def _regex(config: Config, text: str) -> Findings:
    pattern = compiled(config.value or "", ignore_case=config.ignore_case)
    match = await found(pattern, text)
    if match is None:
        return (Finding(f"Has no match of {shown(pattern.pattern)}", False),)
    return (Finding(f"Matches {shown(pattern.pattern)}", True, shown(match)),)


async def _is_json(config: Config, text: str) -> Findings:
    try:
        value = parsed_json(text)
    except ValueError as error:
        return (Finding("Is not JSON", False, str(error)),)
    return (Finding(f"Is JSON: {_kind_of_value(value)}", True),)


async def _json_schema(config: Config, text: str) -> Findings:
    try:
        value = parsed_json(text)
    except ValueError as error:
        return (Finding("Is not JSON", False, str(error)),)
    schema: Mapping[str, Any] = config.json_schema or {}
    try:
        problems = await asyncio.to_thread(problems_of, value, schema)
    except UnresolvableReferenceError as error:
        raise UncheckableError(str(error)) from error
    if not problems:
        return (Finding("Satisfies the JSON schema", True),)
    return tuple(Finding("Does not satisfy the JSON schema", False, said) for said in problems)


async def _max_length(config: Config, text: str) -> Findings:
    limit, length = config.max_length or 0, len(text)
    if length <= limit:
        return (Finding(f"{length} characters, at most {limit}", True),)
    return (Finding(f"{length} characters, over the limit of {limit}", False),)


def _kind_of_value(value: Any) -> str:
    match value:
        case dict():
            return f"an object with {len(value)} keys"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "a single value"


RULES: Mapping[str, Rule] = {
    "equals": _equals,
    "contains": _contains,
    "contains_any": _contains_any,
    "contains_all": _contains_all,
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "regex": _regex,
    "is_json": _is_json,
    "json_schema": _json_schema,
    "max_length": _max_length,
}

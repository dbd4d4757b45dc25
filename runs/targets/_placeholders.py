"""Placeholders such as {{input}} in the address and the JSON body of a request, filled from a case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from evaluators.kinds._base import CaseFacts
from runs.targets._paths import PathError, follow, parse_path

PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
METADATA = "metadata."
NAMES = ("input", "conversation", "messages", "case_id")
KNOWN = "{{input}}, {{conversation}}, {{messages}}, {{case_id}} and {{metadata.…}}"
EXPECTED = ("expected", "criteria", "outcome", "rubric")


class PlaceholderError(ValueError):
    """A placeholder is not known, stands where it cannot, or has nothing to be filled with."""


def placeholder_problem(template: Any, place: str = "") -> str:
    """Return what is wrong with the placeholders of a template, naming where; "" when nothing is."""
    if isinstance(template, str):
        problem = _text_problem(template)
        return f"{place}: {problem}" if problem and place else problem
    if isinstance(template, dict):
        if named := next((name for name in template if PLACEHOLDER.search(str(name))), None):
            return f"{place}.{named}: a placeholder stands in a value, not in a name".lstrip(".")
        parts = [(f"{place}.{name}".lstrip("."), part) for name, part in template.items()]
    elif isinstance(template, list):
        parts = [(f"{place}[{number}]", part) for number, part in enumerate(template)]
    else:
        parts = []
    return next((said for at, part in parts if (said := placeholder_problem(part, at))), "")


def _text_problem(text: str) -> str:
    for found in PLACEHOLDER.finditer(text):
        name = found[1]
        if problem := _name_problem(name):
            return problem
        if name == "messages" and found[0] != text.strip():
            return '{{messages}} is a list and must be the whole text: "{{messages}}"'
    rest = PLACEHOLDER.sub("", text)
    if "{{" in rest:
        return "{{ is not closed: a placeholder is written {{input}}"
    return ""


def _name_problem(name: str) -> str:
    if name in NAMES:
        return ""
    if name.startswith(METADATA):
        try:
            parse_path(name.removeprefix(METADATA))
        except PathError as error:
            return f"{{{{{name}}}}} is no path: {error}"
        return ""
    if name.lower().startswith(EXPECTED):
        return f"{{{{{name}}}}}: what is expected of a case is never given to the agent"
    return f"there is no placeholder {{{{{name}}}}}; there are {KNOWN}"


def filled(template: Any, case: CaseFacts) -> Any:
    """Return the template with every placeholder replaced; raises PlaceholderError.

    A placeholder that is the whole text gives its value as it is: a list, a number.
    """
    if isinstance(template, str):
        return _filled_text(template, case)
    if isinstance(template, dict):
        return {name: filled(part, case) for name, part in template.items()}
    if isinstance(template, list):
        return [filled(part, case) for part in template]
    return template


def filled_url(template: str, case: CaseFacts) -> str:
    """Return the address with every placeholder replaced, percent-encoded; raises PlaceholderError."""
    return PLACEHOLDER.sub(lambda found: quote(_as_text(_value(found[1], case)), safe=""), template)


def _filled_text(text: str, case: CaseFacts) -> Any:
    whole = PLACEHOLDER.fullmatch(text.strip())
    if whole is not None:
        return _value(whole[1], case)
    return PLACEHOLDER.sub(lambda found: _as_text(_value(found[1], case)), text)


def _value(name: str, case: CaseFacts) -> Any:
    if name.startswith(METADATA):
        return _metadata(name.removeprefix(METADATA), case)
    values: Mapping[str, Any] = {
        "input": _last_of_user(case),
        "conversation": "\n\n".join(f"{turn.role}: {turn.content}" for turn in case.input),
        "messages": [{"role": turn.role, "content": turn.content} for turn in case.input],
        "case_id": case.key,
    }
    if name not in values:
        raise PlaceholderError(_name_problem(name))
    return values[name]


def _last_of_user(case: CaseFacts) -> str:
    """Return the last text of the user; without any, the last of whoever spoke."""
    of_user = [turn.content for turn in case.input if turn.role == "user"]
    return (of_user or [turn.content for turn in case.input] or [""])[-1]


def _metadata(path: str, case: CaseFacts) -> Any:
    try:
        return follow(path, dict(case.metadata))
    except PathError as error:
        said = str(error).replace("the reply", "its metadata")
        raise PlaceholderError(
            f"case {case.key} has nothing for {{{{metadata.{path}}}}}: {said}"
        ) from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: ""}[value]
    return str(value)

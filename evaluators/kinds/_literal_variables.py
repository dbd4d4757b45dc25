"""Variables of prompts that stand where no prompt is: a text check looks for them by the letter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VARIABLE = re.compile(r"\{\{\s*[A-Za-z_][\w.-]*\s*(?:\|[^{}]*)?\}\}")
# How type expected_output compares where a check was to do it; by contains where not said.
MATCHES = {"equals": "exact", "regex": "regex"}
LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class LiteralVariable:
    """A setting with a variable that nothing fills in, and a sentence without its subject about it."""

    setting: str
    text: str


def literal_variable(kind: str, config: Mapping[str, Any]) -> LiteralVariable | None:
    """Return the first variable that a text check, or one of a hybrid judge, takes by the letter."""
    for setting, operator, text in _looked_for(kind, config):
        if found := VARIABLE.search(text):
            said = (
                f"looks for “{found[0][:LONGEST_SHOWN]}” by the letter, as no text check fills in variables; "
                "to look for the expected output of each case, use "
                f"type expected_output with match: {MATCHES.get(operator, 'contains')}"
            )
            return LiteralVariable(setting, said)
    return None


def _looked_for(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield setting, operator and text; what is not yet filled in as it should be is passed over."""
    if kind == "text_check":
        for name, text in _texts(config):
            yield name, str(config.get("operator")), text
    checks = config.get("checks") if kind == "hybrid_judge" else None
    for check in checks if isinstance(checks, list | tuple) else ():
        if isinstance(check, Mapping):
            for _, text in _texts(check):
                yield "checks", str(check.get("type")), text


def _texts(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    values = settings.get("values")
    several = values if isinstance(values, list | tuple) else ()
    for name, text in (("value", settings.get("value")), *(("values", one) for one in several)):
        if isinstance(text, str):
            yield name, text

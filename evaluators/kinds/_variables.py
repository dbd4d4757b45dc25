"""Variables in texts that people write: `{{input}}`, `{{metadata.customer.id}}`.

The prompts of judges, the requests of HTTP targets and the values of their headers share this syntax; each
says which variables it knows and what they stand for. Nothing in a value is read as a variable again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from evaluators.kinds._json_paths import PathError, follow, parse_path

VARIABLE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
METADATA = "metadata"
METADATA_NAME = re.compile(METADATA + r"(?:[.\[]|\Z)")


class VariableError(ValueError):
    """A variable is not known, stands where it cannot, or has no value in a case."""


def variables_in(text: str) -> tuple[str, ...]:
    """Return the names between double braces, in order."""
    return tuple(VARIABLE.findall(text))


def variables_problem(text: str, known: Collection[str]) -> str:
    """Return what is wrong with the variables of a text that may use the known ones and the metadata; "" for nothing."""
    names = dict.fromkeys(variables_in(text))
    unknown = [name for name in names if name not in known and not METADATA_NAME.match(name)]
    if unknown:
        listed = ", ".join((*known, METADATA, f"{METADATA}.<key>"))
        return f"{', '.join(map(in_braces, unknown))} is not a variable; there are {listed}"
    for name in names:
        try:
            parse_path(name)
        except PathError as error:
            return f"{in_braces(name)} is no path: {error}"
    if "{{" in VARIABLE.sub("", text):
        return "{{ is not closed: write a variable as {{input}}"
    return ""


def in_braces(name: str) -> str:
    """Return a variable as people write it."""
    return f"{{{{{name}}}}}"


def metadata_value(name: str, metadata: Mapping[str, Any]) -> Any:
    """Return what `metadata` or `metadata.<path>` stands for; raises PathError when it leads nowhere."""
    return follow(name, {METADATA: dict(metadata)})


def value_text(value: Any) -> str:
    """Return a value as it stands in a text: null as nothing, anything but a text as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)

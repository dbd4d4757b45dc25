"""Refusals of settings, in words that name the evaluator, the setting and what would be right."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from evaluators.kinds._base import Kind
from evaluators.scoring.types import DomainError

MAX_VALUE_LENGTH = 80
OUR_WORDS = "Value error, "


class UnknownKindError(DomainError):
    """An evaluator names a kind that no module provides."""

    code = "unknown_kind"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One setting that was refused: its path in the settings and what is wrong with it."""

    path: tuple[str | int, ...]
    reason: str

    @property
    def setting(self) -> str:
        """Return the path as people write it: rubrics[0].weight."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


class InvalidConfigError(DomainError):
    """The settings of an evaluator are refused; `refusals` holds each of them."""

    code = "invalid_config"

    def __init__(self, evaluator: str, refusals: tuple[Refusal, ...]) -> None:
        """Join the refusals into one sentence each."""
        self.evaluator = evaluator
        self.refusals = refusals
        said = "; ".join(
            f"{refusal.setting}: {refusal.reason}" if refusal.setting else refusal.reason
            for refusal in refusals
        )
        super().__init__(f"Evaluator {evaluator}: {said}" if evaluator else said)


def config_error(error: ValidationError, kind: Kind, evaluator: str) -> InvalidConfigError:
    """Return what pydantic refused in our words."""
    found = [one for one in error.errors(include_url=False) if not _follows(one, error)]
    return InvalidConfigError(
        evaluator or kind.label, tuple(Refusal(_path(one), _reason(one, kind)) for one in found)
    )


def _follows(one: Any, error: ValidationError) -> bool:
    """Tell whether a list is short only because something in it was refused for itself."""
    depth = len(one["loc"])
    return one["type"] == "too_short" and any(
        other["loc"][:depth] == one["loc"] and len(other["loc"]) > depth for other in error.errors()
    )


def _path(one: Any) -> tuple[str | int, ...]:
    return tuple(part for part in one["loc"] if isinstance(part, int) or part.isidentifier())


def _reason(one: Any, kind: Kind) -> str:
    match one["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden" if len(one["loc"]) == 1:
            known = ", ".join(sorted(kind.config.model_fields)) or "none"
            return f"is not a setting of {kind.name}; there are {known}"
        case "extra_forbidden":
            return "is not known here"
        case "too_short":
            return "holds nothing; it needs at least one"
        case "string_type":
            return f"{_shown(one['input'])} is not text; put it in quotes"
        case "literal_error" | "enum":
            return f"{_shown(one['input'])} is not one of {one['ctx']['expected']}"
        case "value_error" | "assertion_error":
            return str(one["msg"]).removeprefix(OUR_WORDS)
        case _:
            said = str(one["msg"])
            return f"{_shown(one['input'])} is refused: {said[:1].lower()}{said[1:]}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
BETWEEN = re.compile(r"[-\s]+")


# Files repeat the same few names in each of their cases.
@lru_cache(maxsize=4_096)
def normal_spelling(spelling: str) -> str:
    """Return a name in snake_case."""
    return BETWEEN.sub("_", WORD_BEGINS.sub("_", spelling.strip())).lower()

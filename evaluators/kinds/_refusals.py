"""Refusals of settings, with messages that name the evaluator, the setting and a valid value."""

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
    """One refused setting: its path and what is wrong with it."""

    path: tuple[str | int, ...]
    reason: str

    @property
    def setting(self) -> str:
        """Return the path as users write it: rubrics[0].weight."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


class InvalidConfigError(DomainError):
    """The settings of an evaluator are refused; `refusals` holds every reason."""

    code = "invalid_config"

    def __init__(self, evaluator: str, refusals: tuple[Refusal, ...]) -> None:
        """Join the refusals into one message."""
        self.evaluator = evaluator
        self.refusals = refusals
        message = "; ".join(
            f"{refusal.setting}: {refusal.reason}" if refusal.setting else refusal.reason
            for refusal in refusals
        )
        super().__init__(f"Evaluator {evaluator}: {message}" if evaluator else message)


def config_error(error: ValidationError, kind: Kind, evaluator: str) -> InvalidConfigError:
    """Return the refusals of pydantic in our words."""
    errors = [
        refused for refused in error.errors(include_url=False) if not _follows(refused, error)
    ]
    return InvalidConfigError(
        evaluator or kind.label,
        tuple(Refusal(_path(refused), _reason(refused, kind)) for refused in errors),
    )


def _follows(refused: Any, error: ValidationError) -> bool:
    """Tell whether a list is too short only because one of its entries was refused."""
    depth = len(refused["loc"])
    return refused["type"] == "too_short" and any(
        other["loc"][:depth] == refused["loc"] and len(other["loc"]) > depth
        for other in error.errors()
    )


def _path(refused: Any) -> tuple[str | int, ...]:
    return tuple(part for part in refused["loc"] if isinstance(part, int) or part.isidentifier())


def _reason(refused: Any, kind: Kind) -> str:
    match refused["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden" if len(refused["loc"]) == 1:
            known = ", ".join(sorted(kind.config.model_fields)) or "none"
            return f"is not a setting of {kind.name}; there are {known}"
        case "extra_forbidden":
            return "is not known here"
        case "too_short":
            return "is empty; it needs at least one entry"
        case "string_type":
            return f"{_shown(refused['input'])} is not text; put it in quotes"
        case "literal_error" | "enum":
            return f"{_shown(refused['input'])} is not one of {refused['ctx']['expected']}"
        case "value_error" | "assertion_error":
            return str(refused["msg"]).removeprefix(OUR_WORDS)
        case _:
            message = str(refused["msg"])
            return f"{_shown(refused['input'])} is refused: {message[:1].lower()}{message[1:]}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
SEPARATORS = re.compile(r"[-\s]+")


# Files and replies may have keys of megabytes, which the cache would keep for good.
MAX_REMEMBERED_LENGTH = 200


def normal_spelling(spelling: str) -> str:
    """Return a name in snake_case."""
    spell = _spell if len(spelling) <= MAX_REMEMBERED_LENGTH else _spell.__wrapped__
    return spell(spelling)


# Files repeat the same few names in each of their cases.
@lru_cache(maxsize=4_096)
def _spell(name: str) -> str:
    return SEPARATORS.sub("_", WORD_START.sub("_", name.strip())).lower()

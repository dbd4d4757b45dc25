"""The keys of one result of a file, in any of their spellings, read one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from evaluators.kinds import normal_spelling
from evaluators.scoring.types import Usage
from runs.formats._problems import Problem
from runs.targets._outputs import LARGEST_COUNT, LARGEST_USD


@dataclass(slots=True)
class Place:
    """A line of a file, to which problems are noted."""

    file: str
    line: int
    problems: list[Problem]
    case: str = ""

    def refuse(self, message: str) -> None:
        """Note what keeps the line from being used."""
        self.problems.append(Problem(message, self.file, self.line, self.case))


@dataclass(slots=True)
class ResultFields:
    """The values of one object by key; each reader takes several names and answers for the first there.

    A value of a wrong kind is noted as a problem where it decides something (scores, costs), else
    read as missing: other tools keep much in these files that nobody here needs.
    """

    values: Mapping[str, Any]
    place: Place
    _known: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        """Look through the keys once."""
        self._known = {normal_spelling(key): value for key, value in self.values.items()}

    def value(self, *names: str) -> Any:
        """Return the first value that is there, None where none is."""
        found = (self._known[name] for name in names if self._known.get(name) is not None)
        return next(found, None)

    def text(self, *names: str) -> str:
        """Return a text, "" for anything else."""
        value = self.value(*names)
        return value if isinstance(value, str) else ""

    def key(self, names: Sequence[str], longest: int) -> str:
        """Return the id of a case, numbers too."""
        value = self.value(*names)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return ""
        if len(str(value)) > longest:
            self.place.refuse(f"the id is longer than {longest} characters")
        return str(value)[:longest]

    def texts(self, *names: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        value = self.value(*names)
        return (
            tuple(part for part in value if isinstance(part, str))
            if isinstance(value, list)
            else ()
        )

    def objects(self, names: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return the objects of a list."""
        value = self.value(*names)
        return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []

    def inner(self, *names: str) -> ResultFields:
        """Return the fields of an object, of an empty one where there is none."""
        value = self.value(*names)
        return ResultFields(value if isinstance(value, dict) else {}, self.place)

    def flag(self, *names: str) -> bool:
        """Return whether a value is true."""
        return self.value(*names) is True

    def error(self) -> str:
        """Return what went wrong, "" where nothing did."""
        value = self.value("error", "execution_error")
        if isinstance(value, dict):
            return ResultFields(value, self.place).text("message", "reason", "error") or str(value)
        return value if isinstance(value, str) else ""

    def score(self, name: str, owner: str) -> float | None:
        """Return a score of 0 to 1, None where there is none; note anything else."""
        value = self.value(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1:
            self.place.refuse(f"{owner}: the score {value!r} is not a number from 0 to 1")
            return None
        return float(value)

    def number(self, *names: str) -> float | None:
        """Return a finite number of 0 or more, None for anything else."""
        value = self.value(*names)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and math.isfinite(value) and value >= 0 else None

    def count(self, *names: str) -> int | None:
        """Return a whole number of 0 or more that columns can hold, None for anything else."""
        value = self.number(*names)
        return None if value is None or value > LARGEST_COUNT else round(value)

    def dollars(self, *names: str) -> Decimal | None:
        """Return an amount, None where there is none; note one that cannot be."""
        value = self.value(*names)
        if value is None or isinstance(value, bool | list | dict):
            return None
        try:
            usd = Decimal(str(value))
        except InvalidOperation:
            usd = Decimal("NaN")
        if not usd.is_finite() or not 0 <= usd <= LARGEST_USD:
            said = f"{names[0]}: {value!r} is not an amount of 0 to {LARGEST_USD} dollars"
            self.place.refuse(said)
            return None
        return usd

    def usage(self) -> Usage:
        """Return tokens, time and cost, each None where it is not told."""
        tokens = self.inner("usage", "token_usage")
        return Usage(
            input_tokens=tokens.count("input_tokens", "input", "prompt_tokens"),
            output_tokens=tokens.count("output_tokens", "output", "completion_tokens"),
            cost_usd=self.dollars("cost_usd"),
            latency_ms=self.count("latency_ms", "duration_ms"),
        )

    def turns(self, names: Sequence[str]) -> tuple[Mapping[str, str], ...]:
        """Return a text as one question, messages as they are; only texts of them are kept."""
        value = self.value(*names)
        if isinstance(value, str):
            return ({"role": "user", "content": value},) if value else ()
        found = []
        for part in self.objects(names):
            turn = ResultFields(part, self.place)
            role, content = turn.text("role"), turn.value("content", "value")
            if isinstance(content, list):
                blocks = (ResultFields(block, self.place) for block in turn.objects(("content",)))
                content = "\n".join(block.text("text", "value") for block in blocks)
            if role and isinstance(content, str):
                found.append({"role": role, "content": content})
        return tuple(found)

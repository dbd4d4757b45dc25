"""A score that another tool gave a result: pushed by a program, or written in a file of results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from evaluators.scoring.numbers import rounded

# Each is a column of the run's tables.
MAX_NAMES = 100
MAX_SOURCE_LENGTH, MAX_SCORE_NAME_LENGTH, MAX_LABEL_LENGTH = 80, 120, 200
MAX_REASON_LENGTH = 10_000
COLUMNS = ("score", "value", "low", "high", "label", "reason")


@dataclass(frozen=True, slots=True)
class GivenScore:
    """What another tool says of one result: a value on the scale from `low` to `high`, a label, or both."""

    case: str
    source: str
    name: str
    repetition: int = 1
    value: float | None = None
    low: float = 0.0
    high: float = 1.0
    label: str = ""
    reason: str = ""

    @property
    def full_name(self) -> str:
        """Return source and name, as filters and columns name it."""
        return f"{self.source}/{self.name}"

    @property
    def values(self) -> tuple[float | str | None, ...]:
        """Return the values of its columns."""
        return tuple(getattr(self, column) for column in COLUMNS)

    @property
    def row(self) -> dict[str, Any]:
        """Return the stored columns by name."""
        columns = dict(zip(COLUMNS, self.values, strict=True))
        return {"source": self.source, "name": self.name, **columns}

    @property
    def score(self) -> float | None:
        """Return the value on 0 to 1."""
        if self.value is None:
            return None
        return rounded((self.value - self.low) / (self.high - self.low))

    def problem(self) -> str:
        """Return why it cannot be stored, "" if it can."""
        if "/" in self.source:
            return f"Its source {self.source!r} has a slash. Leave it out: the score is named source/name."
        for part, text, length in (
            ("source", self.source, MAX_SOURCE_LENGTH),
            ("name", self.name, MAX_SCORE_NAME_LENGTH),
            ("label", self.label, MAX_LABEL_LENGTH),
            ("reason", self.reason, MAX_REASON_LENGTH),
        ):
            if len(text) > length:
                return f"Its {part} has {len(text):,} characters; {length:,} is the limit."
        if not (self.source.strip() and self.name.strip()):
            return "It needs a source and a name."
        if self.value is None:
            return "" if self.label else "It has neither value nor label. Add one of them."
        if not self.low < self.high:
            return f"Its range is {self.low:g} to {self.high:g}; the first number must be lower."
        if not math.isfinite(self.high - self.low):
            return f"Its range is {self.low:g} to {self.high:g}, which is too wide."
        if not self.low <= self.value <= self.high:
            return (
                f"Its value is {self.value:g}, outside {self.low:g} to {self.high:g}. Give its range, such as "
                '"range": [1, 5].'
            )
        return ""

"""The dimensions that checks and a judge score side by side, and where the final score of each comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._metrics import LONGEST_KEY, MOST_WEIGHT, key_of
from evaluators.scoring.hybrid import DIMENSIONS, DimensionPolicy

MOST_DIMENSIONS = 30
MEANINGS = {
    "task": "What was asked for is done, and done right.",
    "process": "The steps and tool calls were the right ones, in a sensible order.",
    "autonomy": "The agent got there by itself and asked only for what it could not find out.",
    "closeness": "The answer fits the person, the situation and what was said before.",
    "efficiency": "No step, call or sentence could have been left out.",
    "spark": "Something thoughtful that nobody had to ask for, and nothing forced.",
}


class DimensionSetting(BaseModel):
    """One dimension: one of the six by its key, or one of the suite's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    key: str = Field(min_length=1, max_length=LONGEST_KEY, description="Short name, unique here.")
    policy: Literal["judge_only", "deterministic_only", "weighted"] = Field(
        "judge_only",
        description="Where its final score comes from: judge_only, deterministic_only, weighted.",
    )
    judge_weight: float = Field(
        0.5, ge=0, le=1, description="The judge's part of it when it is weighted, 0 to 1."
    )
    weight: float = Field(
        1.0, ge=0, le=MOST_WEIGHT, description="Weight where the dimensions make the score."
    )
    description: str = Field("", max_length=2000, description="What the judge looks at.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Fill in what the six dimensions mean; a dimension may be written as its key."""
        given = {"key": values} if isinstance(values, str) else values
        if not isinstance(given, Mapping) or not isinstance(given.get("key"), str):
            return given
        key = key_of(given["key"])
        said = {name: value for name, value in given.items() if value not in (None, "")}
        return {"description": MEANINGS.get(key, ""), **said, "key": key}

    def __str__(self) -> str:
        """Return the key, as lists of settings show it."""
        return self.key

    @property
    def name(self) -> str:
        """Return how the dimension is called on pages."""
        return self.key.replace("_", " ").capitalize()


def default_dimensions() -> tuple[DimensionSetting, ...]:
    """Return the six dimensions, each by the judge alone (SCORING §6)."""
    return tuple(DimensionSetting.model_validate(key) for key in DIMENSIONS)


def policies_of(dimensions: Sequence[DimensionSetting]) -> dict[str, DimensionPolicy]:
    """Return where each dimension's final score comes from."""
    return {one.key: DimensionPolicy(one.policy, one.judge_weight) for one in dimensions}


def dimensions_problem(dimensions: Sequence[DimensionSetting], *, are_weighed: bool) -> str:
    """Return why these dimensions cannot be scored, or ""."""
    keys = [one.key for one in dimensions]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        return f"dimensions: {twice[0]!r} stands twice"
    if are_weighed and not any(one.weight > 0 for one in dimensions):
        return "dimensions: the weights add up to 0, so there is nothing to score"
    return ""

"""The criteria of a rubric and the several ways files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evaluators.kinds._spelling import normal_spelling
from evaluators.scoring.types import SCORE_DIGITS

TOP_GRADE = 10
TEXT_SPELLINGS = ("outcome", "description", "criteria", "text")


class Criterion(BaseModel):
    """One thing a good answer does."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    id: str = Field(min_length=1, max_length=100, description="Short name, unique in the rubric.")
    expected_outcome: str = Field(min_length=1, description="What must be true of the answer.")
    weight: float = Field(1.0, ge=0, description="Weight among the criteria.")
    required: bool = Field(False, description="The result fails when it is missed.")
    min_score: float | None = Field(
        None, ge=0, le=1, description="The result fails when it scores below this, 0 to 1."
    )

    def is_failed_by(self, share: float) -> bool:
        """Tell whether a score of 0 to 1 fails the whole result (SCORING §4.2)."""
        rounded = round(share, SCORE_DIGITS)
        below = self.min_score is not None and rounded < round(self.min_score, SCORE_DIGITS)
        return below or (self.required and rounded == 0)


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of a criterion."""
    found = dict(mapping)
    if "criteria" in found:
        found.setdefault("rubrics", found.pop("criteria"))
    if isinstance(found.get("rubrics"), list):
        found["rubrics"] = [_criterion(n, item) for n, item in enumerate(found["rubrics"], 1)]
    return found


def _criterion(number: int, item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    found = {"id": f"c{number}", **{normal_spelling(str(key)): item[key] for key in item}}
    for spelling in TEXT_SPELLINGS:
        if spelling in found and "expected_outcome" not in found:
            found["expected_outcome"] = found.pop(spelling)
    minimum = found.pop("required_min_score", None)
    if minimum is not None and "min_score" not in found:
        is_number = isinstance(minimum, int | float) and not isinstance(minimum, bool)
        found["min_score"] = minimum / TOP_GRADE if is_number else minimum
    required = found.get("required")
    if isinstance(required, int | float) and not isinstance(required, bool):
        found["min_score"] = found.pop("required")
    return found

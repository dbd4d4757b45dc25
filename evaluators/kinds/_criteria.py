"""The criteria of a rubric and the several ways files write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evaluators.kinds._spelling import normal_spelling
from evaluators.scoring.types import SCORE_DIGITS

TOP_GRADE = 10
LIST_SPELLINGS = ("criteria", "value")
RANGES = ("score_ranges", "score_range")
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
    """Return the settings a suite file means by its several spellings of a criterion.

    Criteria that say what grades mean are graded. Raises ValueError for grades that cannot be read.
    """
    found = dict(mapping)
    for spelling in LIST_SPELLINGS:
        if spelling in found:
            found.setdefault("rubrics", found.pop(spelling))
    if isinstance(found.get("rubrics"), list):
        items = found["rubrics"]
        found["rubrics"] = [_criterion(n, item) for n, item in enumerate(items, 1)]
        if any(isinstance(item, Mapping) and _ranges(item) for item in items):
            found.setdefault("mode", "graded")
    return found


def _criterion(number: int, item: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    found = {"id": f"c{number}", **{normal_spelling(str(key)): item[key] for key in item}}
    for spelling in TEXT_SPELLINGS:
        if spelling in found and "expected_outcome" not in found:
            found["expected_outcome"] = found.pop(spelling)
    if isinstance(found["id"], int) and not isinstance(found["id"], bool):
        found["id"] = str(found["id"])
    minimum = found.pop("required_min_score", None)
    if minimum is not None and "min_score" not in found:
        is_number = isinstance(minimum, int | float) and not isinstance(minimum, bool)
        found["min_score"] = minimum / TOP_GRADE if is_number else minimum
    required = found.get("required")
    if isinstance(required, int | float) and not isinstance(required, bool):
        found["min_score"] = found.pop("required")
    return _with_meaning(found)


def _with_meaning(found: dict[str, Any]) -> dict[str, Any]:
    """Return a criterion whose text says what its operator and its grades mean."""
    text, ranges = found.get("expected_outcome"), _ranges(found)
    operator = found.pop("operator", None)
    for name in RANGES:
        found.pop(name, None)
    if operator == "contradiction" and isinstance(text, str):
        text = f"Nothing in the answer contradicts this, which it need not mention: {text}"
    elif operator not in (None, "correctness", "contradiction"):
        raise ValueError(f"operator: {operator!r} is not one of correctness, contradiction")
    if ranges:
        grades = "\n".join(f"{grade}: {meaning}" for grade, meaning in ranges)
        text = f"{text if isinstance(text, str) else found['id']}\n{grades}"
    return found if text is None else {**found, "expected_outcome": text}


def _ranges(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return grades and what they mean, "" for a criterion that tells of none."""
    spelt = {normal_spelling(str(key)): value for key, value in item.items()}
    given = next((spelt[name] for name in RANGES if spelt.get(name) is not None), None)
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [(_grade(grade), _meaning(text)) for grade, text in given.items()]
    if isinstance(given, list) and all(isinstance(one, Mapping) for one in given):
        named = [{normal_spelling(str(key)): one[key] for key in one} for one in given]
        return [(_span(one.get("score_range")), _meaning(one.get("outcome"))) for one in named]
    raise ValueError("score_ranges: is neither grades with their meaning nor a list of such")


def _span(span: Any) -> str:
    if not isinstance(span, list) or len(span) != 2:
        raise ValueError("score_ranges: score_range takes two grades, such as [3, 5]")
    low, high = (_grade(grade) for grade in span)
    return low if low == high else f"{low} to {high}"


def _grade(grade: Any) -> str:
    text = str(grade).strip()
    if not text.isdecimal() or int(text) > TOP_GRADE:
        raise ValueError(f"score_ranges: {text[:40]!r} is not a grade from 0 to {TOP_GRADE}")
    return str(int(text))


def _meaning(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError("score_ranges: a grade does not say in words what it means")
    return text.strip()

"""Fields of a JSON answer: the rule of each and what it finds."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._dates import day_of, directives
from evaluators.kinds._json_paths import parsed_path
from evaluators.kinds._json_values import is_json, number_of, same, shown_value, spelt_value
from evaluators.kinds._patterns import compiled, found
from evaluators.scoring.types import SCORE_DIGITS

Match = Literal["exact", "numeric_tolerance", "date", "contains", "regex"]
LONGEST_NUMBER = 100
# What makes two rules compare alike; the rest says what a comparison counts for.
COUNTING = {"weight", "required", "min_score", "optional"}
HOW = {
    **{"exact": "", "numeric_tolerance": "within {tolerance} of", "date": "the day"},
    **{"contains": "contains", "regex": "matches"},
}
RELATIONS = {
    "exact": ("is", "is not"),
    "numeric_tolerance": ("is within {tolerance} of", "is not within {tolerance} of"),
    "date": ("is the day of", "is not the day of"),
    "contains": ("contains", "does not contain"),
    "regex": ("matches", "does not match"),
}


class UncomparableError(Exception):
    """The expected value is not of the form its rule compares."""


class FieldRule(BaseModel):
    """One field, how it is compared and what it counts for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: str = Field(description="Where it stands: total, lines[0].price, lines[*].price.")
    match: Match = Field("exact", description="How the two values are compared.")
    expected: Any = Field(None, description="What is expected; left out: as the case says.")
    tolerance: float = Field(0.0, ge=0, description="How far off a number may be.")
    relative: bool = Field(False, description="Tolerance as a share of the expected number.")
    formats: tuple[str, ...] = Field((), description="Formats of the date.")
    weight: float = Field(1.0, ge=0, description="Weight among the fields.")
    required: bool = Field(False, description="The result fails when the field scores 0.")
    min_score: float | None = Field(None, ge=0, le=1, description="… when it scores below this.")
    optional: bool = Field(False, description="An answer may leave it out; then it counts nothing.")

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        parsed_path(self.path)
        if not is_json(self.expected):
            raise ValueError("expected is no JSON value; put dates and the like in quotes")
        if self.match != "numeric_tolerance" and (self.tolerance or self.relative):
            raise ValueError(f"{self.match} takes no tolerance; numeric_tolerance does")
        if self.match != "date" and self.formats:
            raise ValueError(f"{self.match} takes no formats; date does")
        if self.optional and (self.required or self.min_score is not None):
            raise ValueError("optional and required exclude each other")
        for pattern in self.formats:
            directives(pattern)
        if self.expected is not None:
            try:
                check_expected(self, self.expected)
            except UncomparableError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def comparison(self) -> dict[str, Any]:
        """Return the settings that make two rules compare alike."""
        return self.model_dump(mode="json", exclude=COUNTING, exclude_defaults=True)

    def is_failed_by(self, share: float) -> bool:
        """Tell whether a score of 0 to 1 fails the whole result (SCORING §4.2)."""
        rounded = round(share, SCORE_DIGITS)
        below = self.min_score is not None and rounded < round(self.min_score, SCORE_DIGITS)
        return below or (self.required and rounded == 0)

    @property
    def how(self) -> str:
        """Return the words before an expected value in a table; "" where it has to be this one."""
        return HOW[self.match].format(tolerance=self._tolerance)

    def relation(self, *, passed: bool) -> str:
        """Return the words between a value and the one expected."""
        return RELATIONS[self.match][0 if passed else 1].format(tolerance=self._tolerance)

    @property
    def _tolerance(self) -> str:
        return f"{self.tolerance * 100:.10g}%" if self.relative else f"{self.tolerance:.10g}"


def check_expected(rule: FieldRule, expected: Any) -> None:
    """Raise UncomparableError for an expected value that its rule cannot be held to."""
    shown = shown_value(expected)
    if rule.match == "numeric_tolerance" and _number(expected) is None:
        raise UncomparableError(f"{rule.path}: the expected value {shown} is no number")
    if rule.match == "date" and _day(rule, expected) is None:
        said = f"no date in {', '.join(rule.formats)}" if rule.formats else "no date"
        raise UncomparableError(f"{rule.path}: the expected value {shown} is {said}")
    if rule.match in ("contains", "regex") and isinstance(expected, dict | list):
        raise UncomparableError(f"{rule.path}: the expected value {shown} is no text")
    if rule.match == "regex":
        try:
            compiled(spelt_value(expected))
        except ValueError as error:
            raise UncomparableError(f"{rule.path}: {error}") from error


async def agrees(rule: FieldRule, value: Any, expected: Any) -> bool:
    """Tell whether a value is as its rule expects; raises SlowPatternError past the time limit."""
    match rule.match:
        case "exact":
            return same(value, expected)
        case "numeric_tolerance":
            return _is_near(rule, value, expected)
        case "date":
            day = _day(rule, value, is_found=True)
            return day is not None and day == _day(rule, expected)
        case "contains":
            return _contains(value, expected)
        case "regex":
            return await found(compiled(spelt_value(expected)), spelt_value(value)) is not None


def _is_near(rule: FieldRule, value: Any, expected: Any) -> bool:
    number, wanted = _number(value), _number(expected)
    if number is None or wanted is None:
        return False
    limit = Decimal(repr(rule.tolerance))
    try:
        off = abs(number - wanted)
        return _is_within(off, limit * abs(wanted) if rule.relative else limit)
    except ArithmeticError:
        return False


def _is_within(off: Decimal, limit: Decimal) -> bool:
    try:
        return round(off, SCORE_DIGITS) <= round(limit, SCORE_DIGITS)
    except InvalidOperation:
        # Too large to have nine decimals.
        return off <= limit


def _number(value: Any) -> Decimal | None:
    """Return a number, also one that is written as a text and nothing else."""
    if not isinstance(value, str) or len(value) > LONGEST_NUMBER:
        return number_of(value)
    try:
        return number_of(Decimal(value.strip()))
    except ArithmeticError:
        return None


def _day(rule: FieldRule, value: Any, *, is_found: bool = False) -> Any:
    """Return the day of a value; one that is expected may always be written as in ISO 8601."""
    if not isinstance(value, str):
        return None
    day = day_of(value, rule.formats)
    return day_of(value) if day is None and not is_found else day


def _contains(value: Any, expected: Any) -> bool:
    if isinstance(value, list):
        return any(same(part, expected) for part in value)
    return not isinstance(value, dict) and spelt_value(expected) in spelt_value(value)

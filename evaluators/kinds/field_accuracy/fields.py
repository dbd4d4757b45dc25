"""Fields of a JSON answer: their rules, how files write them, and their comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._json import (
    exact_number,
    format_value,
    is_json,
    is_same,
    plain_value,
    shorten_text,
)
from evaluators.kinds._json_paths import (
    MISSING_ENTRY,
    PathError,
    Steps,
    counts_from_end,
    find_values,
    parse_path,
)
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds._text import compile_pattern, find_pattern
from evaluators.scoring.types import SCORE_DIGITS, Finding

MAX_DATE_LENGTH = 64
TOKENS = {
    **{"YYYY": "%Y", "YY": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%m"},
    **{"DD": "%d", "D": "%d", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I"},
    **{"mm": "%M", "ss": "%S", "SSS": "%f", "A": "%p", "Z": "%z"},
}
TOKEN = re.compile("|".join(sorted(TOKENS, key=len, reverse=True)))
# Formats besides ISO 8601 in which day and month cannot be confused.
CLEAR = ("%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%B %d, %Y", "%b %d, %Y")
ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?", re.ASCII)
SAMPLE = datetime(2001, 2, 3, 4, 5, 6)  # noqa: DTZ001 - only the day matters


@lru_cache(maxsize=256)
def strptime_format(pattern: str) -> str:
    """Return a format with the directives of strptime; raises ValueError for a format without a day."""
    # Reading by a format compiles it, which takes gigabytes for one of megabytes.
    if len(pattern) > MAX_DATE_LENGTH:
        raise ValueError(f"a date format has at most {MAX_DATE_LENGTH} characters")
    text = pattern if "%" in pattern else TOKEN.sub(lambda token: TOKENS[token.group()], pattern)
    try:
        read_back = datetime.strptime(SAMPLE.strftime(text), text)  # noqa: DTZ007 - as above
    except (ValueError, re.error):
        read_back = None
    if read_back is None or read_back.date() != SAMPLE.date():
        raise ValueError(f"{pattern!r} is not a date format such as YYYY-MM-DD or DD.MM.YYYY")
    return text


def parse_day(text: str, formats: Sequence[str] = ()) -> date | None:
    """Return the day of a text in the first format that matches, None if none does.

    Without formats, ISO 8601 and dates with the month in words are understood. Times and zones are ignored.
    """
    text = text.strip()
    if len(text) > MAX_DATE_LENGTH:
        return None
    if not formats and ISO.fullmatch(text):
        return _iso_day(text)
    for pattern in formats or CLEAR:
        try:
            return datetime.strptime(text, strptime_format(pattern) if formats else pattern).date()  # noqa: DTZ007 - a day has no zone
        except ValueError:
            continue
    return None


def _iso_day(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None


FieldMatch = Literal["exact", "numeric_tolerance", "date", "contains", "regex"]
MAX_NUMBER_LENGTH = 100
MAX_PATH_LENGTH = 300
# Settings that do not affect the comparison.
NOT_COMPARED = {"weight", "required", "min_score", "optional"}
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


def field_path(text: str) -> Steps:
    """Return the steps to a field; raises ValueError for a text that is not a path.

    A path must not count from the end of a list, as the answer and the expected lists may differ in length.
    """
    if not 1 <= len(text.strip()) <= MAX_PATH_LENGTH:
        raise ValueError(f"a path has 1 to {MAX_PATH_LENGTH} characters")
    shape = f"{text!r} is not a path such as total, lines[0].price or lines[*].price"
    try:
        steps = parse_path(text.strip())
    except PathError as error:
        raise ValueError(f"{shape}: {error}") from error
    if counts_from_end(steps):
        raise ValueError(f"{shape}: count from the start of a list")
    return steps


class UncomparableError(Exception):
    """The expected value cannot be compared by its rule."""


class FieldRule(BaseModel):
    """One field, its comparison and its weight."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    path: str = Field(description="The path, such as total, lines[0].price, lines[*].price.")
    match: FieldMatch = Field("exact", description="How the two values are compared.")
    expected: Any = Field(None, description="The expected value. Empty: that of the case.")
    tolerance: float = Field(0.0, ge=0, description="How much a number may differ.")
    relative: bool = Field(False, description="Tolerance as a share of the expected number.")
    formats: tuple[str, ...] = Field((), description="Formats of the date.")
    weight: float = Field(1.0, ge=0, description="Weight among the fields.")
    required: bool = Field(False, description="The result fails if the field scores 0.")
    min_score: float | None = Field(
        None, ge=0, le=1, description="The result fails if the field scores below this."
    )
    optional: bool = Field(False, description="An answer may omit it; then it does not count.")

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        field_path(self.path)
        if not is_json(self.expected):
            raise ValueError("expected is not a JSON value; put dates and the like in quotes")
        if self.match != "numeric_tolerance" and (self.tolerance or self.relative):
            raise ValueError(f"{self.match} takes no tolerance; numeric_tolerance does")
        if self.match != "date" and self.formats:
            raise ValueError(f"{self.match} takes no formats; date does")
        if self.optional and (self.required or self.min_score is not None):
            raise ValueError("optional and required exclude each other")
        for pattern in self.formats:
            strptime_format(pattern)
        if self.expected is not None:
            try:
                check_expected(self, self.expected)
            except UncomparableError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def comparison(self) -> dict[str, Any]:
        """Return the settings that decide the comparison."""
        return self.model_dump(mode="json", exclude=NOT_COMPARED, exclude_defaults=True)

    def is_failed_by(self, share: float) -> bool:
        """Tell whether a score of 0 to 1 fails the whole result (SCORING §4.2)."""
        rounded = round(share, SCORE_DIGITS)
        below = self.min_score is not None and rounded < round(self.min_score, SCORE_DIGITS)
        return below or (self.required and rounded == 0)

    @property
    def how(self) -> str:
        """Return the words before an expected value in a table, "" for an exact match."""
        return HOW[self.match].format(tolerance=self._tolerance)

    def relation(self, *, passed: bool) -> str:
        """Return the words between a value and the expected one."""
        return RELATIONS[self.match][0 if passed else 1].format(tolerance=self._tolerance)

    @property
    def _tolerance(self) -> str:
        return f"{self.tolerance * 100:.10g}%" if self.relative else f"{self.tolerance:.10g}"


def check_expected(rule: FieldRule, expected: Any) -> None:
    """Raise UncomparableError for an expected value that the rule cannot compare."""
    shown = format_value(expected)
    if rule.match == "numeric_tolerance" and _number(expected) is None:
        raise UncomparableError(f"{rule.path}: the expected value {shown} is not a number")
    if rule.match == "date" and _day(rule, expected) is None:
        formats = f" in {', '.join(rule.formats)}" if rule.formats else ""
        raise UncomparableError(f"{rule.path}: the expected value {shown} is not a date{formats}")
    if rule.match in ("contains", "regex") and isinstance(expected, dict | list):
        raise UncomparableError(f"{rule.path}: the expected value {shown} is not a text")
    if rule.match == "regex":
        try:
            compile_pattern(plain_value(expected))
        except ValueError as error:
            raise UncomparableError(f"{rule.path}: {error}") from error


async def matches(rule: FieldRule, value: Any, expected: Any) -> bool:
    """Tell whether a value matches; raises SlowPatternError past the time limit."""
    match rule.match:
        case "exact":
            return is_same(value, expected)
        case "numeric_tolerance":
            return _is_near(rule, value, expected)
        case "date":
            day = _day(rule, value, is_answer=True)
            return day is not None and day == _day(rule, expected)
        case "contains":
            return _contains(value, expected)
        case "regex":
            return (
                await find_pattern(compile_pattern(plain_value(expected)), plain_value(value))
                is not None
            )


def _is_near(rule: FieldRule, value: Any, expected: Any) -> bool:
    number, expected_number = _number(value), _number(expected)
    if number is None or expected_number is None:
        return False
    limit = Decimal(repr(rule.tolerance))
    try:
        difference = abs(number - expected_number)
        return _is_within(difference, limit * abs(expected_number) if rule.relative else limit)
    except ArithmeticError:
        return False


def _is_within(difference: Decimal, limit: Decimal) -> bool:
    try:
        return round(difference, SCORE_DIGITS) <= round(limit, SCORE_DIGITS)
    except InvalidOperation:
        # The numbers are too large for nine decimals.
        return difference <= limit


def _number(value: Any) -> Decimal | None:
    """Return a number, also from a text that is a number."""
    if not isinstance(value, str) or len(value) > MAX_NUMBER_LENGTH:
        return exact_number(value)
    try:
        return exact_number(Decimal(value.strip()))
    except ArithmeticError:
        return None


def _day(rule: FieldRule, value: Any, *, is_answer: bool = False) -> Any:
    """Return the day of a value; an expected one may always be in ISO 8601."""
    if not isinstance(value, str):
        return None
    day = parse_day(value, rule.formats)
    return parse_day(value) if day is None and not is_answer else day


def _contains(value: Any, expected: Any) -> bool:
    if isinstance(value, list):
        return any(is_same(part, expected) for part in value)
    return not isinstance(value, dict) and plain_value(expected) in plain_value(value)


AGGREGATIONS = {"weighted_average": "average"}
MATCHES = {"numeric": "numeric_tolerance", "equals": "exact"}
EXPECTED_NAMES = ("value", "pattern")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a suite file with its fields under our names."""
    settings = dict(mapping)
    aggregation = settings.get("aggregation")
    if isinstance(aggregation, str):
        settings["aggregation"] = AGGREGATIONS.get(aggregation, aggregation)
    if isinstance(settings.get("fields"), list):
        settings["fields"] = [_field(field) for field in settings["fields"]]
    return settings


def _field(field: Any) -> Any:
    """Return a field of a file under our names; `required: 0.7` is a minimum score."""
    if not isinstance(field, Mapping):
        return field
    settings = {normal_spelling(str(key)): value for key, value in field.items()}
    for spelling in EXPECTED_NAMES:
        if spelling in settings and "expected" not in settings:
            settings["expected"] = settings.pop(spelling)
    if isinstance(settings.get("match"), str):
        settings["match"] = MATCHES.get(settings["match"], settings["match"])
    required = settings.get("required")
    if isinstance(required, int | float) and not isinstance(required, bool):
        settings["min_score"] = settings.pop("required")
    return settings


MAX_VALUES = 1_000
ABSENT = object()
COMPARED, MISSING, UNEXPECTED = "compared", "missing", "unexpected"


async def compare_field(rule: FieldRule, answer: Any, case: Any) -> dict[str, Any]:
    """Compare a field of the answer with the expected values; `answer` and `case` are JSON, or ABSENT.

    Raises UncomparableError for an expected value that the rule cannot compare, and SlowPatternError.
    """
    path = field_path(rule.path)
    reached = {} if answer is ABSENT else find_values(answer, path, MAX_VALUES)
    values = _existing(reached)
    if rule.expected is not None:
        expected_values = dict.fromkeys(reached or (rule.path,), rule.expected)
    else:
        expected_values = {} if case is ABSENT else _existing(find_values(case, path, MAX_VALUES))
        for value in expected_values.values():
            check_expected(rule, value)
    if len(expected_values) > MAX_VALUES and rule.expected is None:
        raise UncomparableError(f"{rule.path}: more than {MAX_VALUES} values are expected")
    facts: dict[str, Any] = {
        "comparison": rule.comparison,
        "matched": 0,
        "values": len(expected_values),
    }
    if not expected_values:
        return {**facts, "state": UNEXPECTED}
    if not values:
        expected = _expected(rule, next(iter(expected_values.values())))
        return {**facts, "state": MISSING, "expected": expected}
    return {**facts, "state": COMPARED, **await _differences(rule, values, expected_values)}


def _existing(reached: Mapping[str, Any]) -> dict[str, Any]:
    return {place: value for place, value in reached.items() if value is not MISSING_ENTRY}


async def _differences(
    rule: FieldRule, values: Mapping[str, Any], expected_values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return how many values match, and the first that does not, else the first."""
    places = list(dict.fromkeys([*expected_values, *values]))
    if len(values) > MAX_VALUES:
        return {"values": len(places), **_pair(rule, places[0], values, expected_values)}
    matching = {
        place
        for place in places
        if place in values
        and place in expected_values
        and await matches(rule, values[place], expected_values[place])
    }
    shown_place = next((place for place in places if place not in matching), places[0])
    pair = _pair(rule, shown_place, values, expected_values)
    return {"values": len(places), "matched": len(matching), **pair}


def _pair(
    rule: FieldRule, place: str, values: Mapping[str, Any], expected_values: Mapping[str, Any]
) -> dict[str, Any]:
    pair = {"at": place}
    if place in expected_values:
        pair["expected"] = _expected(rule, expected_values[place])
    if place in values:
        pair["found"] = format_value(values[place])
    return pair


def _expected(rule: FieldRule, value: Any) -> str:
    """Return an expected value as JSON, a regular expression as it is written."""
    is_pattern = rule.match == "regex" and isinstance(value, str)
    return shorten_text(value) if is_pattern else format_value(value)


def field_row(rule: FieldRule, facts: Mapping[str, Any], *, is_json: bool) -> dict[str, Any]:
    """Return a field as the page lists it: its share of 0 to 1, a word for it, and whether it counts."""
    values, matched = int(facts["values"]), int(facts["matched"])
    share = round(matched / values, SCORE_DIGITS) if values else 0.0
    is_left_out = facts["state"] == UNEXPECTED or (
        rule.optional and facts["state"] == MISSING and is_json
    )
    return {
        **facts,
        "path": rule.path,
        "how": rule.how,
        "weight": rule.weight,
        "required": rule.required,
        "min_score": rule.min_score,
        "share": share,
        "counts": rule.weight > 0 and not is_left_out,
        "passed": None if is_left_out else share == 1,
        "failed_required": not is_left_out and rule.is_failed_by(share),
        "word": _word(facts, share),
    }


def _word(facts: Mapping[str, Any], share: float) -> str:
    if facts["state"] == UNEXPECTED:
        return "not expected here"
    if facts["state"] == MISSING:
        return "missing"
    if facts["values"] > 1:
        return f"{facts['matched']} of {facts['values']}"
    return "as expected" if share == 1 else "differs"


def field_finding(rule: FieldRule, row: Mapping[str, Any]) -> Finding:
    """Return a counted field as a hit or a miss."""
    passed = bool(row["passed"])
    if row["state"] == MISSING:
        return Finding(f"{rule.path} is missing; {row['expected']} is expected", passed)
    if row["values"] == 1:
        return Finding(_comparison_text(rule, row, rule.path, passed=passed), passed)
    text = f"{rule.path}: {row['matched']} of {row['values']} values as expected"
    return Finding(
        text, passed, "" if passed else _comparison_text(rule, row, row["at"], passed=False)
    )


def _comparison_text(rule: FieldRule, row: Mapping[str, Any], place: str, *, passed: bool) -> str:
    if "found" not in row:
        return f"{place} is missing"
    if "expected" not in row:
        return f"{place} is {row['found']} and not expected"
    if passed and rule.match == "exact":
        return f"{place} is {row['expected']}"
    return f"{place}: {row['found']} {rule.relation(passed=passed)} {row['expected']}"

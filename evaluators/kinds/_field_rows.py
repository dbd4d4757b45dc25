"""Fields of one answer compared, and what each comparison comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds._fields import FieldRule, UncomparableError, agrees, check_expected
from evaluators.kinds._json_paths import LACKING, parsed_path, values_at
from evaluators.kinds._json_values import shown_text, shown_value
from evaluators.scoring.types import SCORE_DIGITS, Finding

MOST_VALUES = 1_000
ABSENT = object()
COMPARED, MISSING, UNEXPECTED = "compared", "missing", "unexpected"


async def compared(rule: FieldRule, answer: Any, case: Any) -> dict[str, Any]:
    """Return what of a field is as expected; `answer` and `case` are JSON, or ABSENT.

    Raises UncomparableError for an expected value its rule cannot be held to, and SlowPatternError.
    """
    path = parsed_path(rule.path)
    reached = {} if answer is ABSENT else values_at(answer, path, MOST_VALUES)
    found = _there(reached)
    if rule.expected is not None:
        wanted = dict.fromkeys(reached or (rule.path,), rule.expected)
    else:
        wanted = {} if case is ABSENT else _there(values_at(case, path, MOST_VALUES))
        for value in wanted.values():
            check_expected(rule, value)
    if len(wanted) > MOST_VALUES and rule.expected is None:
        raise UncomparableError(f"{rule.path}: more than {MOST_VALUES} values are expected")
    facts: dict[str, Any] = {"comparison": rule.comparison, "matched": 0, "values": len(wanted)}
    if not wanted:
        return {**facts, "state": UNEXPECTED}
    if not found:
        expected = _expected(rule, next(iter(wanted.values())))
        return {**facts, "state": MISSING, "expected": expected}
    return {**facts, "state": COMPARED, **await _differences(rule, found, wanted)}


def _there(reached: Mapping[str, Any]) -> dict[str, Any]:
    return {place: value for place, value in reached.items() if value is not LACKING}


async def _differences(
    rule: FieldRule, found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """Return how many values agree, and the first that does not, else the first."""
    places = list(dict.fromkeys([*wanted, *found]))
    if len(found) > MOST_VALUES:
        return {"values": len(places), **_pair(rule, places[0], found, wanted)}
    agreeing = {
        place
        for place in places
        if place in found and place in wanted and await agrees(rule, found[place], wanted[place])
    }
    telling = next((place for place in places if place not in agreeing), places[0])
    shown = _pair(rule, telling, found, wanted)
    return {"values": len(places), "matched": len(agreeing), **shown}


def _pair(
    rule: FieldRule, place: str, found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    shown = {"at": place}
    if place in wanted:
        shown["expected"] = _expected(rule, wanted[place])
    if place in found:
        shown["found"] = shown_value(found[place])
    return shown


def _expected(rule: FieldRule, value: Any) -> str:
    """Return an expected value as JSON, an expression as people write it."""
    is_pattern = rule.match == "regex" and isinstance(value, str)
    return shown_text(value) if is_pattern else shown_value(value)


def row_of(rule: FieldRule, facts: Mapping[str, Any], *, is_json: bool) -> dict[str, Any]:
    """Return a field as the page lists it: share of 0 to 1, the word for it, and whether it counts."""
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


def finding_of(rule: FieldRule, row: Mapping[str, Any]) -> Finding:
    """Return a field that counted as a hit or a miss."""
    passed = bool(row["passed"])
    if row["state"] == MISSING:
        return Finding(f"{rule.path} is missing; {row['expected']} is expected", passed)
    if row["values"] == 1:
        return Finding(_said(rule, row, rule.path, passed=passed), passed)
    text = f"{rule.path}: {row['matched']} of {row['values']} values as expected"
    return Finding(text, passed, "" if passed else _said(rule, row, row["at"], passed=False))


def _said(rule: FieldRule, row: Mapping[str, Any], place: str, *, passed: bool) -> str:
    if "found" not in row:
        return f"{place} is missing"
    if "expected" not in row:
        return f"{place} is {row['found']} and not expected"
    if passed and rule.match == "exact":
        return f"{place} is {row['expected']}"
    return f"{place}: {row['found']} {rule.relation(passed=passed)} {row['expected']}"

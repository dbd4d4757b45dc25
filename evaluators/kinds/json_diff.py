"""Compare a whole JSON answer with the JSON that its case expects, field by field. No model is called.

Every value of the expected output is compared with the value at the same path in the answer: texts, numbers, true,
false, null, and empty lists and objects. The score is the weighted share of the values that are as expected. Where the
answer has more, each further value counts as a miss; with `extra: allowed` it does not count.

- `ignore` lists paths whose values, with all below them, do not count: `id`, `meta.created_at`, `lines[*].id`. `[*]` is
  any entry of a list, and any key of an object.
- `tolerance` is how much any number may differ, with `relative: true` as a share of the expected number.
- `fields` compares chosen paths in their own way, as in `field_accuracy`: `match`, `tolerance`, `relative`, `formats`
  and `weight`. The first path that fits counts; weight 0 leaves the values out.
- `list_order: ignored` pairs equal entries of two lists wherever they are, and the rest in their order.

The answer is JSON or contains it, as for `field_accuracy`: an answer that is not JSON scores 0, because the agent is at
fault. A case without an expected output, or with one that is not JSON, leaves the evaluator unscored, and so do more
than 20,000 values.

Good: an extraction or a tool's arguments, where every field matters and new ones should be noticed.

Bad: a document with a few fields that matter. List them in `field_accuracy`, which can also require them.

```yaml
name: same_order
type: json_diff
ignore: [id, 'lines[*].created_at']
tolerance: 0.01
list_order: ignored
fields:
  - {path: shipped, match: date, formats: [DD.MM.YYYY, YYYY-MM-DD], weight: 2}
```
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, KindConfig, kind
from evaluators.kinds._json import exact_number, find_long_json, format_value, shorten_text
from evaluators.kinds._json_paths import PathIndex, format_place
from evaluators.kinds._text import SlowPatternError
from evaluators.kinds.field_accuracy.fields import (
    MAX_PATH_LENGTH,
    FieldRule,
    UncomparableError,
    check_expected,
    field_path,
    matches,
    read,
)
from evaluators.reading.json import TooManyValuesError
from evaluators.scoring.numbers import weighted_mean
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

MAX_VALUES = 20_000
TOO_MANY = f"more than {MAX_VALUES:,} values would be compared"
MAX_PATHS, ROWS_AT_ONCE = 200, 500
# Pages list the differences first; what is as expected is only counted beyond this.
MAX_ROWS = 200
MAX_FINDINGS = 50
MAX_PROBLEM_LENGTH = 300
# Settings of a field that decide more than how its values are compared.
NOT_HERE = ("expected", "required", "min_score", "optional")
IGNORED = object()

Place = tuple[str | int, ...]


class JsonDiffConfig(KindConfig):
    """What counts as a difference."""

    ignore: tuple[str, ...] = Field(
        (),
        max_length=MAX_PATHS,
        description="Paths that do not count, one on each line, such as id or lines[*].created_at.",
    )
    tolerance: float = Field(0.0, ge=0, description="How much any number may differ.")
    relative: bool = Field(False, description="Tolerance as a share of the expected number.")
    list_order: Literal["counts", "ignored"] = Field(
        "counts", description="Whether entries of a list are compared in their order."
    )
    extra: Literal["missed", "allowed"] = Field(
        "missed", description="What a value counts as that only the answer has."
    )
    fields: tuple[FieldRule, ...] = Field(
        (),
        max_length=MAX_PATHS,
        description="Paths compared in their own way: each has path, and any of match, tolerance, relative, "
        "formats, weight.",
    )

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        for path in self.ignore:
            field_path(path)
        for rule in self.fields:
            defaults = FieldRule.model_fields
            changed = [name for name in NOT_HERE if getattr(rule, name) != defaults[name].default]
            if changed:
                raise ValueError(f"fields: {rule.path}: {changed[0]} belongs to field_accuracy")
        if self.relative and not self.tolerance:
            raise ValueError("relative says how tolerance is read; give a tolerance too")
        return self


@kind(
    label="JSON diff",
    icon="e-expected",
    config=JsonDiffConfig,
    read=read,
    needs=("an expected output that is JSON",),
    find_missing=lambda _, case: "" if case.expected_output.strip() else "expected output",
)
async def score(config: JsonDiffConfig, context: Context) -> Outcome:
    """Return the weighted share of the expected values that the answer has."""
    if not context.case.expected_output.strip():
        return Unscored("the case has no expected output", stage="config")
    try:
        expected = await find_long_json(context.case.expected_output)
    except ValueError as error:
        reason = f"the expected output of the case is not JSON: {error}"
        return Unscored(reason[:MAX_PROBLEM_LENGTH], stage="config")
    try:
        answer = await find_long_json(context.output.text)
        problem = ""
    except TooManyValuesError as error:
        return Unscored(f"the answer cannot be compared: {error}", stage="limits")
    except ValueError as error:
        answer, problem = IGNORED, str(error)[:MAX_PROBLEM_LENGTH]
    try:
        rows = await _compare(config, expected, answer)
    except UncomparableError as error:
        return Unscored(str(error), stage="config")
    except (SlowPatternError, TooManyValuesError) as error:
        return Unscored(str(error), stage="limits")
    weights = [row["weight"] for row in rows]
    share = weighted_mean([float(row["passed"]) for row in rows], weights)
    if share is None:
        return Unscored("every value of the expected output is ignored", stage="config")
    matched = sum(row["passed"] for row in rows)
    missed = [row for row in rows if not row["passed"]]
    share_text = f"{matched} of {len(rows)} values are as expected"
    details = {
        "matched": matched,
        "values": len(rows),
        "rows": [*missed, *(row for row in rows if row["passed"])][:MAX_ROWS],
    }
    return Score(
        0.0 if problem else share,
        findings=(
            *((Finding("The answer is not JSON", False, problem),) if problem else ()),
            *((Finding(share_text, True),) if matched else ()),
            *(Finding(_difference(row), False) for row in missed[:MAX_FINDINGS]),
        ),
        details={**details, **({"problem": problem} if problem else {})},
    )


async def _compare(config: JsonDiffConfig, expected: Any, answer: Any) -> list[dict[str, Any]]:
    """Return a row for every value that counts, in the order of the expected output.

    Raises TooManyValuesError, UncomparableError for an expected value that its rule cannot compare, and
    SlowPatternError.
    """
    rules = PathIndex(field_path(rule.path) for rule in config.fields)
    near = {
        "match": "numeric_tolerance",
        "tolerance": config.tolerance,
        "relative": config.relative,
    }
    by_type = {
        True: FieldRule.model_validate({"path": "$", **(near if config.tolerance else {})}),
        False: FieldRule(path="$"),
    }
    # In a thread, for an answer may have very many values.
    wanted, found = await asyncio.to_thread(_sides, config, expected, answer)
    added = (place for place in found if place not in wanted)
    places = [*wanted, *(added if config.extra == "missed" else ())]
    if len(places) > MAX_VALUES:
        raise TooManyValuesError(TOO_MANY)
    rows = []
    for n, place in enumerate(places):
        if n % ROWS_AT_ONCE == 0:
            # So that rows of one result do not keep all others waiting.
            await asyncio.sleep(0)
        usual = by_type[exact_number(wanted.get(place)) is not None]
        chosen = rules.find(place)
        rule = usual if chosen is None else config.fields[chosen]
        if rule.weight:
            rows.append(await _row(rule, place, wanted, found))
    return rows


def _sides(
    config: JsonDiffConfig, expected: Any, answer: Any
) -> tuple[dict[Place, Any], dict[Place, Any]]:
    """Return the values of both sides that count, by place."""
    if config.ignore:
        ignored = PathIndex(field_path(path) for path in config.ignore)
        expected, answer = (_without(side, ignored, ()) for side in (expected, answer))
    wanted, found = _values(expected), _values(answer)
    if config.list_order == "ignored":
        found = _values(_in_order_of(expected, answer))
    return _without_filled(wanted, found), _without_filled(found, wanted)


async def _row(
    rule: FieldRule, place: Place, wanted: Mapping[Place, Any], found: Mapping[Place, Any]
) -> dict[str, Any]:
    sides = {"expected": wanted, "found": found}
    shown = {name: format_value(side[place]) for name, side in sides.items() if place in side}
    if place in wanted:
        try:
            check_expected(rule, wanted[place])
        except UncomparableError as error:
            raise UncomparableError(f"{_shown_place(place)}, compared as {error}") from error
    passed = len(shown) == len(sides) and await matches(rule, found[place], wanted[place])
    facts = {"path": _shown_place(place), "how": rule.how, "weight": rule.weight}
    return {**facts, "passed": passed, "word": _word(shown, passed), **shown}


def _shown_place(place: Place) -> str:
    """Return a place as a path, cut where it is long: keys of an answer may be, and each value below repeats them."""
    parts = [part if isinstance(part, int) else shorten_text(part) for part in place]
    return shorten_text(format_place(parts), MAX_PATH_LENGTH) or "$"


def _word(shown: Mapping[str, str], passed: bool) -> str:
    if "found" not in shown:
        return "missing"
    if "expected" not in shown:
        return "not expected"
    return "as expected" if passed else "differs"


def _without(value: Any, ignored: PathIndex, place: Place) -> Any:
    """Return a JSON value without its ignored parts; entries of lists keep their numbers."""
    if ignored.find(place) is not None:
        return IGNORED
    if isinstance(value, dict):
        kept = {name: _without(part, ignored, (*place, name)) for name, part in value.items()}
        return {name: part for name, part in kept.items() if part is not IGNORED}
    if isinstance(value, list):
        return [_without(part, ignored, (*place, n)) for n, part in enumerate(value)]
    return value


def _in_order_of(expected: Any, answer: Any) -> Any:
    """Return the answer with the entries of its lists where their equals are expected, the rest in their order."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return {name: _in_order_of(expected.get(name), part) for name, part in answer.items()}
    if not isinstance(expected, list) or not isinstance(answer, list):
        return answer
    positions: dict[str, deque[int]] = {}
    for n, part in enumerate(answer):
        positions.setdefault(_text(part), deque()).append(n)
    equals = [positions.get(_text(part)) for part in expected]
    taken = [each.popleft() if each else None for each in equals]
    rest = iter(sorted(n for left in positions.values() for n in left))
    order = [next(rest, None) if n is None else n for n in taken]
    paired = [
        _in_order_of(part, answer[n]) if n is not None else IGNORED
        for part, n in zip(expected, order, strict=True)
    ]
    return [*paired, *(answer[n] for n in rest)]


def _text(value: Any) -> str:
    """Return a text that equal JSON values share: 1.0 is written like 1, and 2.5 unlike "2.5"."""
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    if value is IGNORED:
        return None
    number = float(value)
    return int(number) if number.is_integer() else number


def _values(value: Any) -> dict[Place, Any]:
    """Return the texts, numbers, constants and empty lists and objects of a JSON value by their places.

    Raises TooManyValuesError.
    """
    values: dict[Place, Any] = {}
    waiting: list[tuple[Place, Any]] = [((), value)]
    while waiting:
        if len(values) > MAX_VALUES:
            raise TooManyValuesError(TOO_MANY)
        place, part = waiting.pop()
        if isinstance(part, dict) and part:
            waiting += [((*place, name), each) for name, each in reversed(part.items())]
        elif isinstance(part, list) and part:
            waiting += [((*place, n), part[n]) for n in reversed(range(len(part)))]
        elif part is not IGNORED:
            values[place] = part
    return values


def _without_filled(values: Mapping[Place, Any], others: Mapping[Place, Any]) -> dict[Place, Any]:
    """Leave out an empty list or object that the other side has filled: its entries count there."""
    empty = {place for place, value in values.items() if isinstance(value, dict | list)}
    lengths = {len(place) for place in empty}
    filled = {place[:length] for place in others for length in lengths if length < len(place)}
    return {
        place: value for place, value in values.items() if place not in empty or place not in filled
    }


def _difference(row: Mapping[str, Any]) -> str:
    if "found" not in row:
        return f"{row['path']} is missing; {row['expected']} is expected"
    if "expected" not in row:
        return f"{row['path']} is {row['found']} and not expected"
    expected = f"{row['how']} {row['expected']}".strip()
    return f"{row['path']} is {row['found']}, not {expected}"

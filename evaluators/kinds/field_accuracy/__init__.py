r"""Compare the fields of a JSON answer with their expected values.

The answer is JSON or contains it: the last block between lines of three backticks, or an object within its
prose. Each field scores 1 if it has the expected value, otherwise 0; the score is their weighted average. The
expected value is at the same path in the expected output of the case, or in `expected` of the field.

| match | the field matches when it |
|---|---|
| `exact` | equals the expected value; 1 equals 1.0, and the order of keys does not matter |
| `numeric_tolerance` | is a number that differs by at most `tolerance`; with `relative: true` that is a share of the expected number |
| `date` | is the same day. `formats` such as `DD.MM.YYYY` say how dates are written; without them, ISO 8601 and dates with the month in words are understood |
| `contains` | contains the expected text, or is a list that contains the expected value |
| `regex` | matches the expected regular expression anywhere (time limit 2 s) |

Paths lead through keys and lists: `invoice.total`, `lines[0].price`, `["a.b"]`. `lines[*].price` is the price
of every line: the field then scores the share of values that match, and each extra or missing line counts as
a value that does not match.

- `required: true` fails the whole result if the field scores 0, `min_score` if it scores below that number.
- `optional: true` lets an answer omit the field, which then does not count.
- `aggregation: all_or_nothing` scores 1 if every field matches, otherwise 0.

If a case expects no value for a field, the field is left out with a warning. An answer that is not JSON, or
has the same key twice, misses every field and scores 0: the agent is at fault. If the expected output cannot
be compared, the suite is at fault and the evaluator is unscored.

Good: values an agent extracts from a document, with a tolerance where people would round.

Bad: a field that holds prose, such as a summary. Let a judge read it.

```yaml
name: invoice
type: field_accuracy
fields:
  - {path: number, required: true}
  - {path: date, match: date, formats: [DD.MM.YYYY, YYYY-MM-DD]}
  - {path: total, match: numeric_tolerance, tolerance: 0.01, weight: 2}
  - {path: 'lines[*].sku', match: regex, expected: '^[A-Z]{2}-\d+$'}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import CaseFacts, Context, KindConfig, PartsMissingError, kind
from evaluators.kinds._json import find_long_json, is_same
from evaluators.kinds._text import SlowPatternError
from evaluators.kinds.field_accuracy.fields import (
    ABSENT,
    UNEXPECTED,
    FieldRule,
    UncomparableError,
    compare_field,
    field_finding,
    field_row,
    read,
)
from evaluators.scoring.numbers import weighted_mean
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

MAX_FIELDS = 200
MAX_PROBLEM_LENGTH = 300


class FieldAccuracyConfig(KindConfig):
    """The fields and their aggregation."""

    fields: tuple[FieldRule, ...] = Field(
        min_length=1,
        max_length=MAX_FIELDS,
        description="A list of fields: each is a path, or path with match, expected, tolerance, relative, "
        "formats, weight, required, min_score, optional.",
    )
    aggregation: Literal["average", "all_or_nothing"] = Field(
        "average", description="How the scores of the fields are combined."
    )

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, values: Any) -> Any:
        """Accept a field that is only its path."""
        if not isinstance(values, Mapping) or not isinstance(values.get("fields"), list | tuple):
            return values
        fields = [
            {"path": field} if isinstance(field, str) else field for field in values["fields"]
        ]
        return {**values, "fields": fields}

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        for number, field in enumerate(self.fields):
            if any(is_same(field.comparison, other.comparison) for other in self.fields[:number]):
                raise ValueError(f"fields: {field.path!r} is compared twice in the same way")
        if all(field.optional or field.weight == 0 for field in self.fields):
            raise ValueError(
                "fields: all are optional or have weight 0, so an answer without them has no score"
            )
        return self


def rescore(config: FieldAccuracyConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored comparisons with these weights.

    Raises PartsMissingError for a field that was compared in another way, and if no field counts.
    """
    problem = str(details.get("problem", ""))
    rows = [
        (rule, field_row(rule, _stored(rule, details), is_json=not problem))
        for rule in config.fields
    ]
    counted = [row for _, row in rows if row["counts"]]
    if not counted:
        raise PartsMissingError("None of these fields was compared in this result.")
    weights = [row["weight"] for row in counted]
    average = weighted_mean([row["share"] for row in counted], weights) or 0.0
    if config.aggregation == "all_or_nothing":
        average = float(all(row["passed"] for row in counted))
    problem_findings = (Finding("The answer is not JSON", False, problem),) if problem else ()
    return Score(
        average,
        findings=(
            *problem_findings,
            *(field_finding(*pair) for pair in rows if pair[1]["passed"] is not None),
        ),
        details={**details, "fields": [row for _, row in rows]},
        failed_required=tuple(rule.path for rule, row in rows if row["failed_required"]),
        warnings=tuple(
            f"the case expects no value of {rule.path}, which was left out"
            for rule, row in rows
            if row["state"] == UNEXPECTED
        ),
    )


def find_missing(config: Mapping[str, Any], case: CaseFacts) -> str:
    """Return what a case lacks if neither it nor a field has an expected value."""
    has_expected = any(field.get("expected") is not None for field in config.get("fields") or ())
    return "" if has_expected or case.expected_output.strip() else "expected output"


@kind(
    label="Field accuracy",
    icon="e-expected",
    config=FieldAccuracyConfig,
    rescore=rescore,
    read=read,
    needs=("an expected output that is JSON",),
    find_missing=find_missing,
)
async def score(config: FieldAccuracyConfig, context: Context) -> Outcome:
    """Return the weighted share of fields in a JSON answer that have the expected value."""
    try:
        case = await _expected(config, context.case.expected_output)
        answer, problem = await _answer(context.output.text)
        facts = [await compare_field(rule, answer, case) for rule in config.fields]
    except UncomparableError as error:
        return Unscored(str(error), stage="config")
    except SlowPatternError as error:
        return Unscored(str(error), stage="limits")
    details = {"fields": facts, **({"problem": problem} if problem else {})}
    try:
        return rescore(config, details)
    except PartsMissingError:
        reason = "the case expects no value of any field, so there is nothing to compare"
        return Unscored(reason, stage="config")


async def _expected(config: FieldAccuracyConfig, text: str) -> Any:
    """Return the expected JSON of the case, ABSENT for none; raises UncomparableError if it is not JSON."""
    if not text.strip() or all(rule.expected is not None for rule in config.fields):
        return ABSENT
    try:
        return await find_long_json(text)
    except ValueError as error:
        raise UncomparableError(f"the expected output of the case is not JSON: {error}") from error


async def _answer(text: str) -> tuple[Any, str]:
    """Return the JSON of an answer, or ABSENT with the reason why it is not JSON."""
    try:
        return await find_long_json(text), ""
    except ValueError as error:
        return ABSENT, str(error)[:MAX_PROBLEM_LENGTH]


def _stored(rule: FieldRule, details: Mapping[str, Any]) -> Mapping[str, Any]:
    for facts in details.get("fields", ()):
        if is_same(facts["comparison"], rule.comparison):
            stored: Mapping[str, Any] = facts
            return stored
    raise PartsMissingError(f"The field {rule.path!r} was not compared in this way in this result.")

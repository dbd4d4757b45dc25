"""Fields as suite files write them: read in every spelling, written back the same, refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import read_config
from evaluators.kinds._refusals import InvalidConfigError
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from tests.evaluators.kinds.doubles import context_of, score_of
from tests.evaluators.kinds.fields import KIND


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "fields: is empty"),
        (["a", "a"], "'a' is compared twice"),
        ([{"match": "exact"}], "fields[0].path: is missing"),
        (["a..b"], "'a..b' is not a path"),
        ([".a"], "'.a' is not a path"),
        (["a[x]"], "'a[x]' is not a path"),
        (["a[-1]"], "'a[-1]' is not a path"),
        (["a["], "'a[' is not a path"),
        ([""], "a path has 1 to 300 characters"),
        ([{"path": "a", "match": "fuzzy"}], "fields[0].match: 'fuzzy' is not one of"),
        ([{"path": "a", "tolerance": 1}], "exact takes no tolerance"),
        ([{"path": "a", "match": "numeric_tolerance", "tolerance": -1}], "fields[0].tolerance"),
        ([{"path": "a", "formats": ["YYYY-MM-DD"]}], "exact takes no formats"),
        ([{"path": "a", "match": "date", "formats": ["DD.MM"]}], "not a date format"),
        ([{"path": "a", "match": "date", "formats": ["%Q"]}], "not a date format"),
        # One of 400 KB would be read for minutes.
        ([{"path": "a", "match": "date", "formats": ["%H" * 9_000]}], "at most 64 characters"),
        ([{"path": "a", "match": "date", "expected": "soon"}], "is not a date"),
        ([{"path": "a", "match": "regex", "expected": "("}], "not a regular expression"),
        ([{"path": "a", "match": "numeric_tolerance", "expected": "x"}], "is not a number"),
        ([{"path": "a", "expected": float("inf")}], "expected is not a JSON value"),
        ([{"path": "a", "weight": 0}], "all are optional or have weight 0"),
        ([{"path": "a", "optional": True}], "all are optional or have weight 0"),
        ([{"path": "a", "optional": True, "required": True}], "exclude each other"),
        ([{"path": "a", "min_score": 2}], "fields[0].min_score: 2 is refused"),
        ([{"path": "a", "wieght": 2}], "fields[0].wieght: is not known here"),
        (["a"] * 201, "fields"),
    ],
)
def test_fields_that_cannot_be_meant_are_refused_by_name(fields: list[Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Evaluator invoice: ") as refused:
        read_config(KIND, {"fields": fields}, evaluator="invoice")

    assert said in str(refused.value)


SPELT = [
    (
        "{type: field-accuracy, aggregation: weighted_average, fields: [{path: a, match: exact, weight: 2.0}]}",
        {"fields": [{"path": "a", "weight": 2.0}]},
    ),
    (
        "{type: field_accuracy, aggregation: all_or_nothing, fields: "
        "[{path: a, match: date, formats: [DD-MMM-YYYY, YYYY-MM-DD], required: true}]}",
        {
            "aggregation": "all_or_nothing",
            "fields": [
                {
                    "path": "a",
                    "match": "date",
                    "formats": ["DD-MMM-YYYY", "YYYY-MM-DD"],
                    "required": True,
                }
            ],
        },
    ),
    (
        "{type: fieldAccuracy, fields: [{path: a, match: numeric_tolerance, tolerance: 1.0, relative: true, required: 0.7}]}",
        {
            "fields": [
                {
                    "path": "a",
                    "match": "numeric_tolerance",
                    "tolerance": 1.0,
                    "relative": True,
                    "min_score": 0.7,
                }
            ]
        },
    ),
    (
        "{type: field-accuracy, fields: ['a[*].b', {path: c, match: regex, pattern: '^x$', minScore: 0.5}]}",
        {
            "fields": [
                {"path": "a[*].b"},
                {"path": "c", "match": "regex", "expected": "^x$", "min_score": 0.5},
            ]
        },
    ),
    (
        "{type: field-accuracy, fields: [{path: a, match: date, expected: 2025-01-15}]}",
        {"fields": [{"path": "a", "match": "date", "expected": "2025-01-15"}]},
    ),
]


@pytest.mark.parametrize(("written", "meant"), SPELT)
def test_fields_are_read_in_every_spelling_and_written_back_the_same(
    written: str, meant: dict[str, Any]
) -> None:
    content = suite_files.read_suite(suite(written))

    config = read_config(KIND, content.evaluators.children[0].config)
    assert config.model_dump(mode="json", exclude_defaults=True) == meant
    assert content.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(content)) == content


def test_what_a_file_expects_is_what_fields_are_held_to() -> None:
    content = suite_files.read_suite(suite("{type: field-accuracy, fields: [total, day]}"))

    answer = '{"total": 1889.00, "day": "2025-01-15"}'
    context = context_of(answer, expected_output=content.cases[0].expected_output)
    assert score_of(KIND, content.evaluators.children[0].config, context).score == 1


def test_a_bad_path_of_a_file_is_refused_with_its_line() -> None:
    with pytest.raises(UnreadableFileError, match=r"line 3.*'a\.\.b' is not a path"):
        suite_files.read_suite(suite("{type: field-accuracy, fields: [a..b]}"))


def suite(evaluator: str) -> bytes:
    case = "{id: a, input: hi, expected_output: {total: 1889, day: 2025-01-15}}"
    return f"name: s\nevaluators:\n  - {evaluator}\ntests:\n  - {case}\n".encode()

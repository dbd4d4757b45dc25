"""Field accuracy: every match both ways, paths through lists, and answers that are no or odd JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.kinds._base import PartsMissingError
from evaluators.kinds._json import find_json, is_same
from evaluators.kinds.field_accuracy import rescore
from evaluators.scoring.types import Score
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of
from tests.evaluators.kinds.fields import KIND, read

INVOICE = {
    "number": "INV-7",
    "date": "2025-01-15",
    "total": 1889.5,
    "paid": False,
    "note": None,
    "supplier": {"name": "Acme GmbH", "tags": ["eu", "new"]},
    "lines": [{"sku": "AB-1", "price": 10}, {"sku": "AB-2", "price": 20.5}],
    "a.b": {"c d": 1},
}


def scored(fields: list[Any], answer: Any, expected: Any = INVOICE, **settings: Any) -> Score:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    wanted = expected if isinstance(expected, str) else json.dumps(expected)
    return score_of(KIND, {"fields": fields, **settings}, context_of(text, expected_output=wanted))


@pytest.mark.parametrize(
    "path",
    [
        *("$", "number", "$.total", "paid", "note", "supplier", "supplier.name", "lines"),
        *("supplier.tags[1]", "supplier.tags.1", "lines[0].price", "lines[*].sku", "lines[*]"),
        *('["a.b"]', "$['a.b']['c d']", 'supplier["name"]'),
    ],
)
def test_an_answer_as_expected_matches_at_every_path(path: str) -> None:
    score = scored([path], INVOICE)

    assert score.score == 1
    assert all(finding.passed for finding in score.findings)


MATCHES: list[tuple[dict[str, Any], Any, bool]] = [
    ({"match": "exact", "expected": 5}, 5.0, True),
    ({"match": "exact", "expected": 0.3}, 0.3, True),
    ({"match": "exact", "expected": 1}, True, False),
    ({"match": "exact", "expected": 1}, "1", False),
    ({"match": "exact", "expected": "Acme"}, "acme", False),
    ({"match": "exact", "expected": {"a": [1, None]}}, {"a": [1, None]}, True),
    ({"match": "exact", "expected": [1, 2]}, [2, 1], False),
    ({"match": "exact", "expected": False}, None, False),
    ({"match": "numeric_tolerance", "expected": 0.3, "tolerance": 0.1}, 0.2, True),
    ({"match": "numeric_tolerance", "expected": 0.3, "tolerance": 0.1}, 0.4, True),
    ({"match": "numeric_tolerance", "expected": 0.3, "tolerance": 0.1}, 0.400001, False),
    ({"match": "numeric_tolerance", "expected": 100}, 100, True),
    ({"match": "numeric_tolerance", "expected": 100}, 100.1, False),
    (
        {"match": "numeric_tolerance", "expected": -200, "tolerance": 0.05, "relative": True},
        -210,
        True,
    ),
    (
        {"match": "numeric_tolerance", "expected": -200, "tolerance": 0.05, "relative": True},
        -211,
        False,
    ),
    ({"match": "numeric_tolerance", "expected": 0, "tolerance": 0.5, "relative": True}, 0.1, False),
    ({"match": "numeric_tolerance", "expected": 0, "tolerance": 0.5, "relative": True}, 0, True),
    ({"match": "numeric_tolerance", "expected": "1889.50", "tolerance": 1}, " 1889 ", True),
    ({"match": "numeric_tolerance", "expected": 1889, "tolerance": 1}, "1889 EUR", False),
    ({"match": "numeric_tolerance", "expected": 1, "tolerance": 1}, True, False),
    ({"match": "numeric_tolerance", "expected": 1, "tolerance": 1}, None, False),
    ({"match": "numeric_tolerance", "expected": 1, "tolerance": 1}, "NaN", False),
    ({"match": "date", "expected": "2025-01-15"}, "2025-01-15T23:59:59Z", True),
    ({"match": "date", "expected": "2025-01-15"}, "15-JAN-2025", True),
    ({"match": "date", "expected": "2025-01-15"}, "January 15, 2025", True),
    ({"match": "date", "expected": "2025-01-15"}, "15.01.2025", False),
    ({"match": "date", "expected": "2025-01-15", "formats": ["DD.MM.YYYY"]}, "15.1.2025", True),
    ({"match": "date", "expected": "2025-02-03", "formats": ["MM/DD/YY"]}, "02/03/25", True),
    ({"match": "date", "expected": "03/02/2025", "formats": ["%d/%m/%Y"]}, "03/02/2025", True),
    ({"match": "date", "expected": "2025-02-03", "formats": ["DD/MM/YYYY"]}, "02/03/2025", False),
    ({"match": "date", "expected": "2025-01-15", "formats": ["DD.MM.YYYY"]}, "2025-01-15", False),
    ({"match": "date", "expected": "2025-01-15"}, "2025-02-30", False),
    ({"match": "date", "expected": "2025-01-15"}, 20250115, False),
    ({"match": "date", "expected": "2025-01-15"}, "x" * 100_000, False),
    ({"match": "contains", "expected": "Acme"}, "the Acme GmbH", True),
    ({"match": "contains", "expected": "Acme"}, "acme", False),
    ({"match": "contains", "expected": "new"}, ["eu", "new"], True),
    ({"match": "contains", "expected": "ne"}, ["eu", "new"], False),
    ({"match": "contains", "expected": "a"}, {"a": 1}, False),
    ({"match": "contains", "expected": 88}, 1889, True),
    ({"match": "regex", "expected": r"^INV-\d+$"}, "INV-7", True),
    ({"match": "regex", "expected": r"^INV-\d+$"}, "inv-7", False),
    ({"match": "regex", "expected": r"^\d{4}$"}, 1889, True),
]


@pytest.mark.parametrize(("rule", "value", "matches"), MATCHES)
def test_a_field_matches_as_its_rule_says(rule: dict[str, Any], value: Any, matches: bool) -> None:
    score = scored([{"path": "x", **rule}], {"x": value}, "")

    assert score.score == float(matches)
    assert [finding.passed for finding in score.findings] == [matches]


def test_what_was_found_and_expected_is_said_of_every_field() -> None:
    fields = [
        "number",
        "paid",
        "supplier.name",
        {"path": "total", "match": "numeric_tolerance", "tolerance": 1},
        {
            "path": "lines[*].price",
            "match": "numeric_tolerance",
            "tolerance": 0.1,
            "relative": True,
        },
    ]
    answer = {
        "number": "INV-7",
        "paid": True,
        "total": 1900,
        "lines": [{"price": 10}, {"price": 30}],
    }

    score = scored(fields, answer)

    assert [(finding.text, finding.passed) for finding in score.findings] == [
        ('number is "INV-7"', True),
        ("paid: true is not false", False),
        ('supplier.name is missing; "Acme GmbH" is expected', False),
        ("total: 1900 is not within 1 of 1889.5", False),
        ("lines[*].price: 1 of 2 values as expected", False),
    ]
    assert score.findings[4].evidence == "lines[1].price: 30 is not within 10% of 20.5"


LISTS = [
    ([{"sku": "AB-1"}, {"sku": "AB-2"}], 1),
    ([{"sku": "AB-2"}, {"sku": "AB-1"}], 0),
    ([{"sku": "AB-1"}], 1 / 2),
    ([{"sku": "AB-1"}, {"sku": "AB-2"}, {"sku": "AB-3"}], 2 / 3),
    ([{"sku": "AB-1"}, {}], 1 / 2),
    ([], 0),
    ({"0": "AB-1"}, 0),
]


@pytest.mark.parametrize(("lines", "share"), LISTS)
def test_of_a_list_a_field_scores_the_share_of_its_values(lines: Any, share: float) -> None:
    assert scored(["lines[*].sku"], {"lines": lines}).score == pytest.approx(share)


def test_one_expected_value_holds_for_every_value_of_a_list() -> None:
    field = {"path": "lines[*].sku", "match": "regex", "expected": "^AB-[12]$"}

    assert scored([field], INVOICE, "").score == 1
    assert scored([field], {"lines": [{"sku": "AB-1"}, {"sku": "x"}]}, "").score == 1 / 2
    assert scored([field], {"lines": [{"sku": "AB-1"}, {}, {"sku": None}, 5]}, "").score == 1 / 4
    assert scored([field], {"lines": [{}, {}]}, "").score == 0
    assert scored([field], {"lines": []}, "").score == 0


def test_fields_are_averaged_by_weight_and_one_of_weight_0_is_only_shown() -> None:
    fields = [{"path": "number", "weight": 3}, "paid", {"path": "total", "weight": 0}]
    answer = {**INVOICE, "paid": True, "total": 0}

    score = scored(fields, answer)

    assert score.score == 3 / 4
    assert len(score.findings) == 3
    assert scored(fields, answer, aggregation="all_or_nothing").score == 0
    assert scored(fields, {**answer, "paid": False}, aggregation="all_or_nothing").score == 1


def test_a_required_field_that_scores_0_fails_the_result_and_min_score_below_it() -> None:
    fields = ["number", {"path": "paid", "required": True}]
    half = [
        {"path": "lines[*].sku", "min_score": 0.6},
        {"path": "lines[*].price", "required": True},
    ]
    answer = {**INVOICE, "paid": True, "lines": [{"sku": "AB-1", "price": 10}, {}]}

    assert scored(fields, answer).failed_required == ("paid",)
    assert scored(fields, INVOICE).failed_required == ()
    assert scored(half, answer).failed_required == ("lines[*].sku",)
    assert scored(fields, "Sorry, no.").failed_required == ("paid",)


def test_an_optional_field_counts_only_where_the_answer_has_it() -> None:
    fields = ["number", {"path": "paid", "optional": True}]

    assert scored(fields, {"number": "INV-7"}).score == 1
    assert scored(fields, {"number": "INV-7", "paid": True}).score == 1 / 2
    assert scored(fields, "no JSON").score == 0
    left_out = scored(fields, {"number": "INV-7"}).details["fields"][1]
    assert (left_out["passed"], left_out["word"]) == (None, "missing")


def test_what_a_case_expects_nothing_of_is_left_out_with_a_warning() -> None:
    score = scored(["number", "vat"], INVOICE)

    assert score.score == 1
    assert score.warnings == ("the case expects no value of vat, which was left out",)


@pytest.mark.parametrize(
    "text",
    [
        '{"number": "INV-7"}',
        'Here it is:\n```json\n{"number": "INV-7"}\n```\nAnything else?',
        '```\n{"number": "x"}\n```\nI mean\n```JSON\n{"number": "INV-7"}\n```',
        'The {result} is {"number": "INV-7"}, as asked.',
        '\ufeff {"number": "INV-7"}'.lstrip("\ufeff"),
    ],
)
def test_the_json_of_an_answer_is_found(text: str) -> None:
    assert scored(["number"], text).score == 1


NO_JSON = [
    ("", "Expecting value"),
    ("INV-7", "Expecting value"),
    ('{"number": "INV-7",}', ""),
    ('{"number": "INV-7", "vat": {"number": "INV-7"},}', ""),
    ('{"number": "INV-7", "total": NaN}', "NaN is not JSON"),
    ('{"number": "INV-7", "total": -Infinity}', "-Infinity is not JSON"),
    ('{"number": "x", "number": "INV-7"}', "the key 'number' is repeated"),
    ('```\n{"number": "x", "number": "INV-7"}\n```', "is repeated"),
    ("[" * 100_000, "nested too deeply"),
    ('{"a":' * 1_000_000, "more than 250,000 values"),
    ("1" * 10_000, ""),
    ("```json\n" * 50_000, ""),
    ("{" * 5_000_000, ""),
    ('"\ud800"x', ""),
]


@pytest.mark.parametrize(("text", "said"), NO_JSON, ids=range(len(NO_JSON)))
def test_an_answer_that_is_no_clear_json_misses_every_field_and_says_why(
    text: str, said: str
) -> None:
    score = scored(["number", "paid"], text)

    assert score.score == 0
    assert score.findings[0].text == "The answer is not JSON"
    assert said in score.findings[0].evidence
    assert [finding.passed for finding in score.findings] == [False] * 3


def test_odd_and_large_answers_are_compared_all_the_same() -> None:
    huge = json.dumps({"number": "INV-7", "lines": [{"sku": "x" * 90}] * 50_000})
    deep = '{"number": "INV-7", "note": ' + '{"a":' * 190 + "1" + "}" * 190 + "}"
    numbers = '{"total": 1e999999999, "paid": 1E-999999999, "number": 0.1}'

    score = scored(["number", "lines[*].sku"], huge)
    assert score.score == 1 / 2
    assert len(json.dumps(score.details)) < 5_000
    assert scored(["number", "note"], deep).score == 1 / 2
    near = {"path": "total", "match": "numeric_tolerance", "tolerance": 1}
    assert scored([near, "paid"], numbers).score == 0
    assert scored([near], numbers, {"total": "1e999999999"}).score == 1
    assert scored([near], numbers, {"total": "1e999999998"}).score == 0


def test_what_a_database_cannot_keep_is_shown_as_something_it_can() -> None:
    score = scored(["number"], r'{"number": "a\u0000b\ud800"}')

    details = json.dumps(score.details, ensure_ascii=False)
    assert "\x00" not in details
    assert details.encode()
    assert [finding.text.encode() for finding in score.findings]


def test_an_expected_output_that_cannot_be_compared_is_unscored() -> None:
    rows: list[tuple[Any, str, str]] = [
        ("total", "", "expects no value of any field"),
        ("total", "about 5", "the expected output of the case is not JSON"),
        ("vat", json.dumps(INVOICE), "expects no value of any field"),
        ({"path": "number", "match": "date"}, json.dumps(INVOICE), "is not a date"),
        ({"path": "number", "match": "numeric_tolerance"}, json.dumps(INVOICE), "is not a number"),
        ({"path": "lines", "match": "contains"}, json.dumps(INVOICE), "is not a text"),
        ({"path": "x", "match": "regex"}, '{"x": "("}', "not a regular expression"),
    ]
    for field, expected, said in rows:
        context = context_of(json.dumps(INVOICE), expected_output=expected)
        outcome = unscored_of(KIND, {"fields": [field]}, context)
        assert (outcome.stage, said in outcome.reason) == ("config", True), outcome.reason


def test_an_expression_without_end_is_unscored_not_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.kinds._text.LIMIT_S", 0.05)
    field = {"path": "x", "match": "regex", "expected": r"(.*?,){20}P"}

    outcome = unscored_of(KIND, {"fields": [field]}, context_of(json.dumps({"x": "1," * 40})))

    assert outcome.stage == "limits"


def test_stored_comparisons_can_be_weighed_anew_but_not_compared_anew() -> None:
    fields = ["number", {"path": "paid", "required": True}]
    details = json.loads(json.dumps(scored(fields, {**INVOICE, "paid": True}).details))

    heavier = rescore(read([{"path": "number", "weight": 3}, "paid"]), details)
    assert (heavier.score, heavier.failed_required) == (3 / 4, ())
    assert rescore(read(fields[:1]), details).score == 1
    with pytest.raises(PartsMissingError, match="'paid' was not compared in this way"):
        rescore(read([{"path": "paid", "match": "contains"}]), details)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_value_equals_itself_and_nothing_it_is_not_written_like(one: Any, other: Any) -> None:
    assert is_same(find_json(json.dumps(one)), one)
    if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True):
        assert is_same(one, other)
    if is_same(one, other):
        assert one == other


@given(st.dictionaries(st.sampled_from("abc"), JSON, min_size=1), st.sets(st.sampled_from("abc")))
def test_the_score_is_the_share_of_fields_left_as_they_were(
    expected: dict[str, Any], changed: set[str]
) -> None:
    answer = {
        key: ["changed", value] if key in changed else value for key, value in expected.items()
    }

    score = scored(sorted(expected), answer, expected)

    kept = len(expected.keys() - changed)
    assert score.score == pytest.approx(kept / len(expected))
    assert sum(finding.passed for finding in score.findings) == kept


@given(st.text())
def test_no_text_breaks_the_reading_of_answers(text: str) -> None:
    for wrapped in (text, f"```{text}\n{text}\n```", f"{{{text}"):
        assert 0 <= scored(["a"], wrapped, {"a": 1}).score <= 1

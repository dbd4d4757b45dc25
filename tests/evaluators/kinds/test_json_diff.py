"""JSON diff: worked cases, what is left out, and documents that cannot be compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluators.kinds import read_config
from evaluators.kinds._json_paths import PathIndex
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

ORDER = {
    "id": "A-1",
    "total": 12.5,
    "paid": True,
    "note": None,
    "tags": [],
    "lines": [{"sku": "x", "price": 2}, {"sku": "y", "price": 10.5}],
}
# Score is matched ÷ values, counted by hand: ORDER has 9 values.
CASES: list[tuple[dict[str, Any], Any, Any, int, int]] = [
    ({}, ORDER, {**ORDER, "total": 12.50}, 9, 9),
    ({}, ORDER, {}, 0, 9),
    ({}, ORDER, {**ORDER, "paid": 1, "note": 0}, 7, 9),
    ({}, ORDER, {**ORDER, "gift": {"wrap": True, "card": "hi"}}, 9, 11),
    ({"extra": "allowed"}, ORDER, {**ORDER, "gift": True}, 9, 9),
    ({}, ORDER, {**ORDER, "lines": {"0": "x"}}, 5, 10),
    ({}, ORDER, {**ORDER, "tags": ["new"]}, 8, 9),
    ({}, ORDER, {**ORDER, "lines": ORDER["lines"][:1]}, 7, 9),
    ({}, ORDER, {**ORDER, "lines": ORDER["lines"][::-1]}, 5, 9),
    ({"list_order": "ignored"}, ORDER, {**ORDER, "lines": ORDER["lines"][::-1]}, 9, 9),
    ({"ignore": ["id", "lines[*].sku"]}, ORDER, {**ORDER, "id": "?", "extra": 1}, 6, 7),
    ({"ignore": ["lines"]}, ORDER, {}, 0, 5),
    ({"tolerance": 0.5}, ORDER, {**ORDER, "total": 13, "note": 0}, 8, 9),
    ({"tolerance": 0.01, "relative": True}, ORDER, {**ORDER, "total": 12.7}, 8, 9),
    ({}, 3, 3.0, 1, 1),
    ({}, [1, 2, 2, 3], [2, 1, 2, 3], 2, 4),
    ({"list_order": "ignored"}, [1, 2, 2, 3], [2, 3, 2, 4, 4], 3, 5),
    ({"list_order": "ignored"}, [1, 2.5, "2.5", -1, -2], ["2.5", -2, -1, 2.50, 1.0], 5, 5),
    ({"list_order": "ignored"}, [1] * 9_000, [1] * 9_001, 9_000, 9_001),
    ({"extra": "allowed"}, {"z": 1}, {"a": [0] * 19_000, "z": 1}, 1, 1),
    (
        {"list_order": "ignored", "ignore": ["[*].id"]},
        [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}],
        [{"id": 8, "v": "b"}, {"id": 9, "v": "a"}],
        2,
        2,
    ),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ignore": ["a..b"]}, "is not a path such as"),
    ({"relative": True}, "give a tolerance too"),
    ({"tolerance": -1}, "tolerance: -1 is refused"),
    ({"fields": [{"path": "a", "required": True}]}, "required belongs to field_accuracy"),
    ({"fields": [{"path": "a", "formats": ["DD.MM.YYYY"]}]}, "takes no formats"),
    ({"extra": "missed it"}, "is not one of"),
]


@pytest.mark.parametrize(("config", "expected", "answer", "matched", "values"), CASES)
def test_the_score_is_the_share_of_values_as_expected(
    config: dict[str, Any], expected: Any, answer: Any, matched: int, values: int
) -> None:
    context = context_of(
        f"Here:\n```json\n{json.dumps(answer)}\n```", expected_output=json.dumps(expected)
    )

    score = score_of("json_diff", config, context)

    assert (score.details["matched"], score.details["values"]) == (matched, values)
    assert score.score == pytest.approx(matched / values)


def test_fields_are_compared_in_their_own_way_and_weigh_what_they_say() -> None:
    config = {
        "fields": [
            {"path": "day", "match": "date", "formats": ["DD.MM.YYYY"], "weight": 2},
            {"path": "lines[*].price", "match": "numeric_tolerance", "tolerance": 1},
            {"path": "noise", "weight": 0},
        ]
    }
    expected = {
        "day": "2026-03-04",
        "noise": 1,
        "name": "Ann",
        "lines": [{"price": 5}, {"price": 7}],
    }
    answer = {
        "day": "04.03.2026",
        "noise": 9,
        "name": "Bo",
        "lines": [{"price": 5.5}, {"price": 9}],
    }
    score = score_of(
        "json_diff", config, context_of(json.dumps(answer), expected_output=json.dumps(expected))
    )

    # day counts twice: (2 + 1) of 5.
    assert score.score == pytest.approx(3 / 5)
    assert [(one.text, one.passed) for one in score.findings] == [
        ("2 of 4 values are as expected", True),
        ('name is "Bo", not "Ann"', False),
        ("lines[1].price is 9, not within 1 of 7", False),
    ]
    assert [row["path"] for row in score.details["rows"]] == [
        *("name", "lines[1].price", "day", "lines[0].price")
    ]


@pytest.mark.parametrize("text", ["", "no", "{", '{"a": NaN}', '{"a": 1, "a": 1}', "[" * 200_000])
def test_an_answer_that_is_not_json_scores_0_with_the_reason(text: str) -> None:
    score = score_of("json_diff", {}, context_of(text, expected_output="[]"))

    assert score.score == 0
    assert score.findings[0].text == "The answer is not JSON"
    assert score.details["problem"]


def test_of_an_answer_of_too_many_values_only_so_many_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[tuple[str | int, ...]] = []
    find = PathIndex.find
    monkeypatch.setattr(
        PathIndex, "find", lambda index, place: places.append(place) or find(index, place)
    )
    many = json.dumps([{"a": 1}] * 100_000)
    unscored = unscored_of("json_diff", {}, context_of(many, expected_output=many))
    assert "more than 20,000 values" in unscored.reason
    assert len(places) <= 20_000


def test_what_cannot_be_compared_is_unscored_and_never_0() -> None:
    many = json.dumps(list(range(20_001)))
    date = {"fields": [{"path": "day", "match": "date"}]}
    for config, expected, answer, stage, said in (
        ({}, " ", "{}", "config", "the case has no expected output"),
        ({}, "{", "{}", "config", "the expected output of the case is not JSON"),
        ({}, many, "[]", "limits", "more than 20,000 values"),
        ({}, "[]", json.dumps([0] * 100_000), "limits", "more than 20,000 values"),
        ({}, "[]", json.dumps([0] * 250_001), "limits", "more than 250,000 values"),
        ({}, "[]", "[" * 5_000_000, "limits", "more than 250,000 values"),
        (
            {"extra": "allowed"},
            '{"z": 1}',
            json.dumps({"a": [0] * 30_000, "z": 1}),
            "limits",
            "more than 20,000 values",
        ),
        (
            {"fields": [{"path": "a", "weight": 0}]},
            '{"a": 1}',
            '{"a": 2}',
            "config",
            "every value of the expected output is ignored",
        ),
        (date, '{"day": "soon"}', "{}", "config", 'the expected value "soon" is not a date'),
    ):
        outcome = unscored_of("json_diff", config, context_of(answer, expected_output=expected))
        assert (outcome.stage, said in outcome.reason) == (stage, True), outcome


@pytest.mark.parametrize(("config", "said"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfigError, match="Evaluator same: ") as refused:
        read_config("json_diff", config, evaluator="same")

    assert said in str(refused.value)


def test_a_long_key_of_an_answer_is_cut_in_the_path_of_each_value_below_it() -> None:
    answer = {"k" * 100_000: {"n" * 100_000: list(range(300))}}
    score = score_of("json_diff", {}, context_of(json.dumps(answer), expected_output="{}"))

    assert score.score == 0
    paths = [row["path"] for row in score.details["rows"]]
    assert max(map(len, paths)) < 400
    assert paths[0].startswith("kkk")

"""The expected output: exact, contains and regex, each 100 or 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluators.kinds import kind_of, read_config
from evaluators.kinds._base import PartsMissingError
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of


def score(text: str, expected: str, **config: Any) -> Any:
    return score_of("expected_output", config, context_of(text, expected_output=expected))


@pytest.mark.parametrize(
    ("text", "expected", "config", "raw"),
    [
        ("2, 3, 5", "2, 3, 5", {}, 100),
        ("2, 3, 5 ", "2, 3, 5", {}, 0),
        ("2, 3, 5 ", "2, 3, 5\n", {"trim": True}, 100),
        ("Yes", "yes", {}, 0),
        ("The primes are 2, 3.", "2, 3", {"match": "contains"}, 100),
        ("The primes are 2, 3.", "2, 3\n", {"match": "contains"}, 0),
        ("The primes are 2, 3.", "2, 3\n", {"match": "contains", "trim": True}, 100),
        ("see ORD-12345.", r"ORD-\d{5}", {"match": "regex"}, 100),
        ("see ORD-1.", r"ORD-\d{5}", {"match": "regex"}, 0),
        ("", "x", {}, 0),
    ],
)
def test_an_answer_scores_100_or_0(
    text: str, expected: str, config: dict[str, Any], raw: float
) -> None:
    outcome = score(text, expected, **config)

    assert (outcome.raw_score, outcome.scale, outcome.score) == (raw, 100, raw / 100)
    assert outcome.findings[0].passed == (raw == 100)


def test_a_miss_by_outer_white_space_alone_says_so() -> None:
    assert "only by white space" in score("yes\n", "yes").findings[0].text
    assert "only by white space" not in score("no\n", "yes").findings[0].text


def test_a_miss_keeps_both_texts_from_before_where_they_part() -> None:
    details = score("same " * 1000 + "left", "same " * 1000 + "right").details

    assert details["expected"].endswith("right")
    assert details["output"].endswith("left")
    assert details["starts_at"] == 4800


def test_a_case_without_expected_output_is_unscored() -> None:
    outcome = unscored_of("expected_output", {}, context_of("x", expected_output=" "))

    assert outcome.stage == "config"


def test_an_expected_output_that_is_no_expression_is_unscored() -> None:
    context = context_of("x", expected_output="(")

    outcome = unscored_of("expected_output", {"match": "regex"}, context)

    assert (outcome.stage, "regular expression" in outcome.reason) == ("config", True)


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.kinds._patterns.LIMIT_S", 0.05)


@pytest.mark.usefixtures("short_limit")
def test_an_expression_without_end_is_unscored() -> None:
    context = context_of("1," * 40, expected_output=r"(.*?,){20}P")

    assert unscored_of("expected_output", {"match": "regex"}, context).stage == "limits"


def test_trim_can_be_tried_on_a_stored_score() -> None:
    kind = kind_of("expected_output")
    stored = json.loads(json.dumps(score("yes\n", "yes").details))
    assert kind.rescore is not None

    assert kind.rescore(read_config(kind.name, {"trim": True}), stored).score == 1
    assert kind.rescore(read_config(kind.name, {}), stored).score == 0
    with pytest.raises(PartsMissingError):
        kind.rescore(read_config(kind.name, {"match": "regex"}), stored)


def vectors() -> list[Any]:
    stored = json.loads((Path(__file__).parents[2] / "vectors/scoring.json").read_text())
    found = [v for v in stored["vectors"] if v["op"] == "expected_output_match"]
    return [pytest.param(vector, id=vector["id"]) for vector in found]


@pytest.mark.parametrize("vector", vectors())
def test_the_worked_cases_of_the_rules(vector: dict[str, Any]) -> None:
    given = vector["input"]
    config = {"match": given["match_mode"], "trim": bool(given.get("trim", False))}
    if given["match_mode"] == "semantic":
        pytest.fail("no kind answers semantic matches yet")

    assert (
        score(given["output"], given["expected"], **config).raw_score == vector["expected"]["score"]
    )

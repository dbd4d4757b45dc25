"""Text checks: every operator both ways, and settings that cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds import kind_for_spelling, read_config
from evaluators.kinds._refusals import InvalidConfigError
from tests.evaluators.kinds.doubles import context_of, score_of, unscored_of

HOLDS: list[tuple[dict[str, Any], str]] = [
    ({"operator": "equals", "value": "yes"}, "yes"),
    ({"operator": "equals", "value": ""}, ""),
    ({"operator": "equals", "value": "YES", "ignore_case": True}, "yes"),
    ({"operator": "equals", "value": " 4", "trim": True}, "4\n"),
    ({"operator": "starts_with", "value": "4 ", "trim": True}, "\n4."),
    ({"operator": "ends_with", "value": "4", "trim": True}, "is 4 \n"),
    ({"operator": "contains", "value": "14:00"}, "between 14:00 and 17:00"),
    ({"operator": "contains", "value": "STRASSE", "ignore_case": True}, "Lange Straße 4"),
    ({"operator": "contains_any", "values": ["x", "b"]}, "abc"),
    ({"operator": "contains_all", "values": ["a", "c"]}, "abc"),
    ({"operator": "starts_with", "value": "ab"}, "abc"),
    ({"operator": "starts_with", "value": "AB", "ignore_case": True}, "abc"),
    ({"operator": "ends_with", "value": "bc"}, "abc"),
    ({"operator": "ends_with", "value": "abc"}, "abc"),
    ({"operator": "regex", "value": r"ORD-\d{5}"}, "see ORD-12345."),
    (
        {"operator": "regex", "value": r"(?:(?:[a-z]{1,63}\.){1,127}){1,9}[a-z]{2}"},
        "see www.example.de",
    ),
    (
        {"operator": "regex", "value": r"[{(](?:[0-9a-f]{4}-){7}[0-9a-f]{4}(?V1)"},
        "{" + "0a1b-" * 7 + "0a1b",
    ),
    ({"operator": "regex", "value": "ord", "ignore_case": True}, "ORD"),
    ({"operator": "is_json"}, ' {"a": [1, null]} '),
    ({"operator": "is_json"}, "3"),
    ({"operator": "json_schema", "json_schema": {"required": ["a"]}}, '{"a": 1}'),
    ({"operator": "max_length", "max_length": 3}, "abc"),
    ({"operator": "max_length", "max_length": 0}, ""),
]
FAILS: list[tuple[dict[str, Any], str, str]] = [
    ({"operator": "equals", "value": "yes"}, "Yes", "Is not “yes”"),
    ({"operator": "equals", "value": "yes"}, " yes\n", "only by white space"),
    ({"operator": "contains", "value": "Refund"}, "refund", "Does not contain “Refund”"),
    ({"operator": "contains_any", "values": ["x", "y"]}, "abc", "Contains none of “x”, “y”"),
    ({"operator": "contains_all", "values": ["a", "z"]}, "abc", "Does not contain “z”"),
    ({"operator": "starts_with", "value": "b"}, "abc", "Does not start with “b”"),
    ({"operator": "ends_with", "value": "b"}, "", "Does not end with “b”"),
    ({"operator": "regex", "value": "^b"}, "abc", "Has no match"),
    ({"operator": "is_json"}, '{"a": 1} and more', "Is not JSON"),
    ({"operator": "is_json"}, "NaN", "Is not JSON"),
    ({"operator": "is_json"}, "[" * 100_000, "Is not JSON"),
    ({"operator": "is_json"}, "", "Is not JSON"),
    ({"operator": "json_schema", "json_schema": {"type": "object"}}, "[]", "Does not satisfy"),
    ({"operator": "json_schema", "json_schema": {"type": "object"}}, "no", "Is not JSON"),
    ({"operator": "max_length", "max_length": 3}, "abcd", "over the limit of 3"),
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "operator: is missing"),
    ({"operator": "sounds_like", "value": "x"}, "is not one of"),
    ({"operator": "contains"}, "contains needs value"),
    ({"operator": "contains", "value": ""}, "every answer satisfies"),
    ({"operator": "contains_any", "values": ["a", ""]}, "every answer satisfies"),
    ({"operator": "contains_all"}, "needs values"),
    ({"operator": "contains", "value": "x", "values": ["y"]}, "takes no values"),
    ({"operator": "contains", "value": 12}, "put it in quotes"),
    ({"operator": "regex", "value": "("}, "not a regular expression"),
    ({"operator": "regex", "value": "x" * 10_001}, "longer than"),
    (
        {"operator": "regex", "value": "(?:(?:a{100}){100}){3}"},
        "counted repeats have more than 20,000",
    ),
    ({"operator": "regex", "value": "(?:ab|cd){30000,}"}, "counted repeats have more than 20,000"),
    # The flag x leaves white space out of counts.
    (
        {"operator": "regex", "value": "(?x)(?:(?:a{1 00}){1 00}){ 3}"},
        "counted repeats have more than",
    ),
    (
        {"operator": "regex", "value": "(?(DEFINE)(?P<x>(?:(?:a{99}){99}){3}))"},
        "counted repeats have",
    ),
    ({"operator": "regex", "value": "(" * 3_000 + "a{2}" + ")" * 3_000}, "nested too deeply"),
    ({"operator": "regex", "value": "(" * 3_000 + ")" * 3_000}, "nested too deeply"),
    (
        {"operator": "json_schema", "json_schema": {"pattern": "(?:(?:a{100}){100}){3}"}},
        "counted repeats have more than",
    ),
    ({"operator": "max_length", "max_length": -1}, "greater than or equal to 0"),
    ({"operator": "max_length"}, "needs max_length"),
    ({"operator": "is_json", "value": "x"}, "takes no value"),
    ({"operator": "is_json", "ignore_case": True}, "takes no ignore_case"),
    ({"operator": "contains", "value": "x", "trim": True}, "takes no trim"),
    ({"operator": "ends_with", "value": " ", "trim": True}, "with an empty text"),
    ({"operator": "json_schema", "json_schema": {"type": "thing"}}, "is not a JSON schema"),
    (
        {"operator": "json_schema", "json_schema": {"$ref": "http://x.example/s"}},
        "nothing is fetched",
    ),
    ({"operator": "json_schema", "json_schema": {"pattern": "("}}, "not a regular expression"),
    (
        {"operator": "json_schema", "json_schema": {"patternProperties": {"a": {}}}},
        "not supported",
    ),
    ({"operator": "contains", "value": "x", "valeu": "y"}, "valeu: is not a setting"),
]


@pytest.mark.parametrize(("config", "text"), HOLDS)
def test_a_check_that_holds_scores_1_and_says_what_it_found(
    config: dict[str, Any], text: str
) -> None:
    score = score_of("text_check", config, context_of(text))

    assert score.score == 1
    assert score.findings
    assert all(finding.passed for finding in score.findings)


@pytest.mark.parametrize(("config", "text", "said"), FAILS)
def test_a_check_that_fails_scores_0_and_says_why(
    config: dict[str, Any], text: str, said: str
) -> None:
    score = score_of("text_check", config, context_of(text))

    assert score.score == 0
    assert said in " ".join(f.text for f in score.findings if not f.passed)


@pytest.mark.parametrize(("config", "said"), REFUSED)
def test_settings_that_cannot_be_meant_are_refused_by_name(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidConfigError, match=r"^Evaluator greeting: ") as refused:
        read_config("text_check", config, evaluator="greeting")

    assert said in str(refused.value)


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.kinds._text.LIMIT_S", 0.05)
    monkeypatch.setattr("evaluators.kinds._json.LIMIT_S", 0.05)


@pytest.mark.usefixtures("short_limit")
def test_an_expression_without_end_is_unscored_not_0() -> None:
    config = {"operator": "regex", "value": r"(.*?,){20}P"}

    outcome = unscored_of("text_check", config, context_of("1," * 40))

    assert outcome.stage == "limits"
    assert "took longer than" in outcome.reason


@pytest.mark.usefixtures("short_limit")
def test_a_schema_whose_references_multiply_is_unscored() -> None:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**twice, "d60": {}}}
    config = {"operator": "json_schema", "json_schema": schema}
    reason = unscored_of("text_check", config, context_of("1")).reason
    assert "the JSON schema took longer than 0.05 s" in reason


def test_a_schema_that_leads_to_itself_is_unscored() -> None:
    config = {"operator": "json_schema", "json_schema": {"$ref": "#"}}
    reason = unscored_of("text_check", config, context_of("1")).reason
    assert "refers to itself endlessly" in reason


def test_unique_items_are_told_apart_by_value() -> None:
    config = {"operator": "json_schema", "json_schema": {"uniqueItems": True}}
    for text, score in (
        ('[1, true, "1", {"a": 1}, {"a": 2}]', 1.0),
        ('[{"a": 1}, {"a": 1.0}]', 0.0),
    ):
        assert score_of("text_check", config, context_of(text)).score == score


@pytest.mark.usefixtures("short_limit")
def test_a_pattern_of_a_schema_without_end_is_unscored() -> None:
    schema = {"type": "string", "pattern": r"(.*?,){20}P"}
    config = {"operator": "json_schema", "json_schema": schema}

    outcome = unscored_of("text_check", config, context_of('"' + "1," * 40 + '"'))

    assert outcome.stage == "limits"


def test_a_reference_that_leads_nowhere_is_unscored() -> None:
    config = {"operator": "json_schema", "json_schema": {"$ref": "#/$defs/missing"}}

    assert unscored_of("text_check", config, context_of("{}")).stage == "config"


def test_contains_all_lists_what_is_there_and_what_is_not() -> None:
    config = {"operator": "contains_all", "values": ["today", "tomorrow"]}

    score = score_of("text_check", config, context_of("It comes today."))

    assert [(f.text, f.passed) for f in score.findings] == [
        ("Contains “today”", True),
        ("Does not contain “tomorrow”", False),
    ]


def test_a_passage_shows_what_stands_around_it() -> None:
    config = {"operator": "contains", "value": "needle"}

    score = score_of("text_check", config, context_of("x" * 100 + " needle " + "y" * 100))

    assert score.findings[0].evidence == f"…{'x' * 39} needle {'y' * 39}…"


@pytest.mark.parametrize(
    ("spelling", "preset"),
    [
        ("contains", {"operator": "contains"}),
        ("starts-with", {"operator": "starts_with"}),
        ("icontains-any", {"operator": "contains_any", "ignore_case": True}),
        ("isJson", {"operator": "is_json"}),
    ],
)
def test_the_operator_is_the_type_in_suite_files(spelling: str, preset: dict[str, Any]) -> None:
    kind, found = kind_for_spelling(spelling)

    assert (kind.name, dict(found)) == ("text_check", preset)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"operator": "max_length", "value": 5}, {"operator": "max_length", "max_length": 5}),
        ({"operator": "contains_any", "value": "a"}, {"operator": "contains_any", "values": ["a"]}),
        (
            {"operator": "contains_all", "value": ["a", "b"]},
            {"operator": "contains_all", "values": ["a", "b"]},
        ),
        (
            {"operator": "json_schema", "schema": {"type": "object"}},
            {"operator": "json_schema", "json_schema": {"type": "object"}},
        ),
        ({"operator": "contains", "value": "a"}, {"operator": "contains", "value": "a"}),
    ],
)
def test_files_may_write_every_operand_as_value(
    written: dict[str, Any], meant: dict[str, Any]
) -> None:
    kind, _ = kind_for_spelling("text_check")
    assert kind.read is not None

    assert kind.read(written) == meant

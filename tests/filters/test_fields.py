"""The fields that a filter may ask for, and their values."""

from __future__ import annotations

from typing import Any

import pytest

from runs.filters.fields import (
    BUILT_IN,
    ChangeTest,
    Field,
    Source,
    Test,
    Vocabulary,
    check,
    read_checked,
)
from runs.filters.language import All, Direction, FilterError, Operator, read_filter

SUITE = Vocabulary(
    evaluators=("safety", "safety/no_card_numbers", "style", "style/tone", "safety/tone", "Plain words"),
    metrics=("grounding_fidelity",),
    dimensions=("process",),
)  # fmt: skip
TWO_RUNS = Vocabulary(evaluators=("tone",), compares=True)


def only(text: str, vocabulary: Vocabulary = SUITE) -> Any:
    """Return the one condition of a filter, checked."""
    checked = check(read_filter(text), vocabulary)
    assert isinstance(checked, All)
    [condition] = checked.conditions
    return condition


@pytest.mark.parametrize(
    ("name", "source", "key"),
    [
        ("score", Source.CASE, "score"),
        ("Score", Source.CASE, "score"),
        ("target-cost", Source.CASE, "run_cost_usd"),
        ("safety", Source.EVALUATOR, "safety"),
        ("no_card_numbers", Source.EVALUATOR, "safety/no_card_numbers"),
        ("style/tone", Source.EVALUATOR, "style/tone"),
        ("plain_words", Source.EVALUATOR, "Plain words"),
        ("evaluator.no_card_numbers", Source.EVALUATOR, "safety/no_card_numbers"),
        ("grounding_fidelity", Source.METRIC, "grounding_fidelity"),
        ("metric.grounding_fidelity", Source.METRIC, "grounding_fidelity"),
        ("process", Source.DIMENSION, "process"),
        ("meta.channel", Source.METADATA, "channel"),
        ("meta.Channel.id", Source.METADATA, "Channel.id"),
    ],
)
def test_names_of_fields(name: str, source: Source, key: str) -> None:
    found = SUITE.find(name)
    assert isinstance(found, Field)
    assert (found.source, found.key) == (source, key)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tone", "2 evaluators are named “tone”. Write style/tone or safety/tone."),
        ("scoer", "Did you mean score?"),
        ("no_card_number", "Did you mean safety/no_card_numbers?"),
        ("grounding", "There is no field, evaluator, metric or dimension “grounding” here."),
        ("metric.tone", "There is no field"),
    ],
)
def test_names_that_are_none(name: str, problem: str) -> None:
    found = SUITE.find(name)
    assert isinstance(found, str)
    assert problem in found


@pytest.mark.parametrize(
    ("text", "operator", "values"),
    [
        ("score < 0.5", Operator.LESS, (0.5,)),
        ("score >= 50%", Operator.AT_LEAST, (0.5,)),
        ("score = none", Operator.EQUAL, (None,)),
        ("latency > 3s", Operator.MORE, (3000.0,)),
        ("latency > 300ms", Operator.MORE, (300.0,)),
        ("latency > 2min", Operator.MORE, (120_000.0,)),
        ("latency > 3", Operator.MORE, (3000.0,)),
        ("cost <= $0.01", Operator.AT_MOST, (0.01,)),
        ("tokens > 2k", Operator.MORE, (2000.0,)),
        ("grounding_fidelity < 3.5", Operator.LESS, (3.5,)),
        ("verdict = Fail, error", Operator.EQUAL, ("fail", "error")),
        ("tag != Billing", Operator.UNEQUAL, ("Billing",)),
        ("flaky:yes", Operator.EQUAL, ("yes",)),
        ("meta.channel = none", Operator.EQUAL, (None,)),
        ('tag = ""', Operator.EQUAL, ("",)),
    ],
)
def test_values(text: str, operator: Operator, values: tuple[Any, ...]) -> None:
    test = only(text)
    assert isinstance(test, Test)
    assert (test.operator, test.values) == (operator, values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("score < high", "“high” is not a value of score. Write it as 0.5 or 50%."),
        ("score < 1e999", "is not a value of score"),
        ("score < nan", "is not a value of score"),
        ("latency > 3h", "Write it as 3s, 300ms or 2min."),
        ("score < none", "“none” is not a number. Write score = none."),
        ("verdict = good", "verdict is one of pass, borderline, fail"),
        ("verdict < pass", "verdict is not a number. Write verdict = … or verdict != …."),
        ('output = ""', "no letter or digit that output could contain"),
        ("output = !!!", "no letter or digit that output could contain"),
        ('"…"', "“…” has no letter or digit to look for."),
        ("score fell", "needs two runs"),
    ],
)
def test_values_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(FilterError) as refusal:
        only(text)
    assert problem in refusal.value.message
    assert text[refusal.value.start : refusal.value.end] == text


@pytest.mark.parametrize("text", ["output = {}", "case = C-1 missed != {}", "word input = {}"])
def test_a_filter_searches_for_at_most_twenty_texts(text: str) -> None:
    words = [f"word{number}" for number in range(21)]
    with pytest.raises(FilterError, match="at most 20 texts"):
        read_checked(text.format(", ".join(words)), SUITE)


def test_names_are_no_texts_to_search_for() -> None:
    keys = ", ".join(f"C-{number}" for number in range(50))
    assert read_checked(f"case = {keys} output = a, b", SUITE)


def test_what_was_meant_is_not_guessed_from_a_long_name(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr("difflib.get_close_matches", lambda *facts, **_: compared.extend(facts[1]))
    vocabulary = Vocabulary(evaluators=("tone", "ab" * 100))
    assert "Did you mean" not in str(vocabulary.find("ab" * 99))
    assert compared == []
    vocabulary.find("tune")
    assert "tone" in compared
    assert "ab" * 100 not in compared


def test_an_unknown_name_is_marked_alone() -> None:
    with pytest.raises(FilterError) as refusal:
        check(read_filter("tag = a and scoer < 0.5"), SUITE)
    assert (refusal.value.start, refusal.value.end) == (12, 17)


@pytest.mark.parametrize(
    ("text", "direction", "by"),
    [
        ("tone fell", Direction.FELL, None),
        ("tone fell by 10%", Direction.FELL, 0.1),
        ("latency rose by 1s", Direction.ROSE, 1000.0),
        ("verdict changed", Direction.CHANGED, None),
    ],
)
def test_changes(text: str, direction: Direction, by: float | None) -> None:
    change = only(text, TWO_RUNS)
    assert isinstance(change, ChangeTest)
    assert (change.direction, change.by) == (direction, by)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tag changed", "tag is the same in both runs"),
        ("verdict fell by 1", "verdict is not a number"),
        ("tone fell by 0", "a number above 0"),
        ("tone fell by much", "is not a value of tone"),
    ],
)
def test_changes_that_are_none(text: str, problem: str) -> None:
    with pytest.raises(FilterError) as refusal:
        only(text, TWO_RUNS)
    assert problem in refusal.value.message


def test_every_field_can_be_named_and_says_what_it_is() -> None:
    for field in BUILT_IN:
        assert SUITE.find(field.name) == field
        assert field.help

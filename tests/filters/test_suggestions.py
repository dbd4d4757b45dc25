"""What is suggested while a filter is typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.filters.fields import Vocabulary
from runs.filters.suggestions import suggest

SUITE = Vocabulary(
    evaluators=("style/tone", "safety/tone", "safety/no_card_numbers"),
    pass_marks={"style/tone": 0.9},
    metrics=("grounding fidelity",),
    suggested={"tag": ("billing", "two words"), "tool": ("find_order",)},
)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("", ["style/tone", "safety/tone", "no_card_numbers", '"grounding fidelity"']),
        ("ver", ["verdict"]),
        ("(ver", ["verdict"]),
        ("-ver", ["verdict"]),
        ("not ver", ["verdict"]),
        ("card", ["no_card_numbers"]),
        ("score < 0.5 and ta", ["tag", "target_cost"]),
        ("verdict ", ["=", "!="]),
        ("style/tone < ", ["0.5", "mark", "none"]),
        ("safety/tone < ", ["0.5", "none"]),
        ("score ", ["=", "!=", "<", "<=", ">", ">="]),
        ("score <", ["0.5", "none"]),
        ("verdict = ", ["pass", "borderline", "fail"]),
        ("verdict = fail, er", ["error"]),
        ("verdict:f", ["fail"]),
        ("tag = ", ["billing", '"two words"']),
        ('tag = "tw', ['"two words"']),
        ("tool = find", ["find_order"]),
        ("refund ", ["and", "or", "not"]),
        ("nothing_like = ", []),
    ],
)
def test_what_is_offered_first(text: str, offered: list[str]) -> None:
    found = [suggestion.text for suggestion in suggest(text, len(text), SUITE)]
    assert found[: len(offered)] == offered
    if not offered:
        assert not found


def test_changes_are_offered_between_two_runs() -> None:
    found = suggest("tone ", 5, Vocabulary(evaluators=("tone",), compares=True))
    assert {"fell", "rose", "changed"} <= {suggestion.text for suggestion in found}


def test_a_suggestion_replaces_what_was_typed() -> None:
    text = "score < 0.5 and verd"
    [suggestion] = suggest(text, len(text), SUITE)
    assert text[: suggestion.start] + suggestion.text == "score < 0.5 and verdict"


@given(st.text(alphabet=' abtag"()-<>=!:,.', max_size=30))
def test_any_text_has_suggestions_or_none(text: str) -> None:
    for suggestion in suggest(text, len(text), SUITE):
        assert 0 <= suggestion.start <= len(text)

"""Replies are read in one way only or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.model_calls.judge import UnreadableReplyError, closed_schema, read_reply
from evaluators.reading.json import storable

SCHEMA = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "criteria": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "string"}},
                "required": ["id"],
            },
        },
    },
    "required": ["reasoning", "score"],
}
GOOD = '{"reasoning": "ok", "score": 0.5}'
READABLE = st.fixed_dictionaries(
    {"reasoning": st.text(), "score": st.floats(0, 1, allow_nan=False)},
    optional={"criteria": st.lists(st.fixed_dictionaries({"id": st.text()}), max_size=3)},
)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"\n```json\n{GOOD}\n```\n",
    ],
    ids=["plain", "blanks", "fence", "bare-fence", "fence-in-blanks"],
)
def test_one_object_alone_is_read(text: str) -> None:
    assert read_reply(text, SCHEMA) == {"reasoning": "ok", "score": 0.5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("It is fine.", "does not start with a JSON object$"),
        (f"Here you are: {GOOD}", "does not start with"),
        (f"{GOOD} I hope that helps", "more text"),
        (f"{GOOD}{GOOD}", "more text"),
        (f"```json\n{GOOD}\n```\n{GOOD}", "does not start with"),
        (f"Text\n```json\n{GOOD}\n```", "does not start with"),
        (f"[{GOOD}]", "not a JSON object"),
        ('"score"', "not a JSON object"),
        ('{"reasoning": "a", "score": 0, "score": 1}', "'score' is repeated"),
        ('{"reasoning": "a", "score": NaN}', "NaN"),
        ('{"reasoning": "a", "score": Infinity}', "Infinity"),
        ('{"reasoning": "a", "score": 1e999}', "1e999"),
        ('{"reasoning": "a", "score": 1.2}', "score"),
        ('{"reasoning": "a", "score": "1"}', "score"),
        ('{"reasoning": "a", "score": true}', "score"),
        ('{"score": 1}', "reasoning"),
        ('{"reasoning": "a", "score": 1, "verdict": "pass"}', "verdict"),
        ('{"reasoning": "a", "score": 1, "criteria": [{"id": "x", "y": 1}]}', "criteria"),
        ("{'reasoning': 'a', 'score': 1}", "is not valid JSON$"),
        ("[" * 100_000, "nested too deeply"),
        ('{"reasoning": "' + "a" * 1_000_001 + '"}', "longer than"),
        ('{"reasoning": "a", "score":', "breaks off before it ends$"),
        ('{"reasoning": "it is', "breaks off before it ends$"),
    ],
    ids=range(24),
)
def test_anything_else_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UnreadableReplyError, match=words):
        read_reply(text, SCHEMA)


@given(READABLE)
def test_every_object_of_the_schema_is_read_as_it_is(reply: dict[str, Any]) -> None:
    kept = storable(reply)
    assert read_reply(json.dumps(reply), SCHEMA) == kept
    assert read_reply(f"```json\n{json.dumps(reply)}\n```", SCHEMA) == kept


def test_what_no_database_keeps_is_replaced() -> None:
    text = r'{"reasoning": "a\u0000b\ud800c", "score": 1}'
    assert (
        read_reply(text, SCHEMA)["reasoning"]
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    )


@given(READABLE, st.text(min_size=1).filter(lambda text: text.strip()))
def test_no_reply_with_text_around_it_is_read(reply: dict[str, Any], text: str) -> None:
    for around in (f"{text}\n{json.dumps(reply)}", f"{json.dumps(reply)}\n{text}"):
        with pytest.raises(UnreadableReplyError):
            read_reply(around, SCHEMA)


def test_closing_reaches_every_object_and_leaves_an_open_one_open() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {}}},
            "b": {"type": "object", "properties": {}, "additionalProperties": True},
        },
    }

    found = closed_schema(schema)

    assert found["additionalProperties"] is False
    assert found["properties"]["a"]["items"]["additionalProperties"] is False
    assert found["properties"]["b"]["additionalProperties"] is True

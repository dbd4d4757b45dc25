"""JSON from outside: what is refused, what is replaced, and that no text of a size takes long or much memory."""

from __future__ import annotations

import json
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from evaluators.reading.json import MAX_DEPTH, MAX_VALUES, count_values, is_storable, read_json


def nested(depth: int) -> str:
    return "[" * depth + "1" + "]" * depth


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' is repeated in one object"),
        ('{"a": NaN}', "NaN is not JSON"),
        ("[1e999]", "1e999 is not a finite number"),
        ("1" * 400, "is too large a number"),
        (nested(MAX_DEPTH + 1), "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('["\\u0000"]', "cannot be stored"),
        ('{"\\ud800": 1}', "cannot be stored"),
        ('["\ud800"]', "cannot be stored"),
        ("[" + "1," * 1_000_000 + "1]", "it contains more than 1,000,000 values"),
        ("[" + "[]," * 500_000 + "1]", "it contains more than 1,000,000 values"),
        # Looking for the end of the text from each quote would take an hour.
        ("," * 1_000_000 + '"' + '\\"' * 500_000, "it contains more than 1,000,000 values"),
        ("," * 1_000_000 + '"' + '\\"' * 500_000 + "\\", "it contains more than 1,000,000 values"),
    ],
)
def test_what_no_reader_could_use_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_json(text)


def test_refusing_millions_of_short_names_takes_less_memory_than_their_text() -> None:
    text = '{"":' * (MAX_VALUES + 1)
    tracemalloc.start()
    with pytest.raises(ValueError, match="it contains more than 1,000,000 values"):
        read_json(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < len(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('["a,", {"[": "\\",{"}]', 4),
        ('"",[' * 30_000, 60_001),
        ("[1," * 30_000 + '"' + "," * 30_000, 60_001),
    ],
)
def test_values_are_counted_over_all_parts_of_a_text(text: str, values: int) -> None:
    assert count_values(text) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (nested(MAX_DEPTH), None),
        ('"\\ud83d\\ude00 \\\\u0000"', "\N{GRINNING FACE} \\u0000"),
        ('["é", {}, null, true, -0.5]', ["é", {}, None, True, -0.5]),
        (json.dumps(["[{,"] * 400_000), ["[{,"] * 400_000),
        ("[" + "1," * 999_998 + "1]", [1] * 999_999),
    ],
)
def test_what_is_within_the_limits_is_read(text: str, value: Any) -> None:
    assert read_json(text) == (json.loads(text) if value is None else value)


def test_the_last_value_of_a_key_counts_and_characters_are_replaced_where_the_caller_says_so() -> (
    None
):
    text = '{"a": 1, "a": "x\\u0000", "\\udc00": ["\\ud800"]}'

    assert read_json(text, keeps_last=True, unstorable="replace") == {"a": "x�", "�": ["�"]}


def test_numbers_are_read_as_the_caller_needs_them() -> None:
    assert read_json("[0.10, 2]", number=Decimal) == [Decimal("0.10"), 2]


def test_a_repeated_key_is_found_among_very_many() -> None:
    # Counting each name among all would take days.
    names = [f'"k{n}": 0' for n in range(500_000)]

    with pytest.raises(ValueError, match="the key 'k499999' is repeated"):
        read_json("{" + ", ".join([*names, names[-1]]) + "}")


def test_a_value_is_stored_as_it_is_unless_a_text_of_it_cannot_be() -> None:
    assert is_storable({"é": ["\N{GRINNING FACE}", 1, None]})
    assert not is_storable({"a": [{"\ud800": 1}]})
    assert not is_storable(["\0"])

"""YAML from outside: what files may hold, what fields of forms may hold, and places of problems."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evaluators.reading.yaml import (
    FIELD_LIMITS,
    FILE_LIMITS,
    UnreadableYamlError,
    YamlLimits,
    read_yaml,
    write_yaml,
)

# Six levels of ten: a million values in 280 characters.
NESTED = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7)
)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("{<<: " * 400 + "{a: 1}" + "}" * 400, "<< is nested too deeply; write the merged", 0),
        ("a: 1\nb: &b x\nc: *b", "an alias repeats a value; write the value out", 2),
        ("a: &a {x: 1}\nb:\n  <<: *a", "an alias repeats a value", 1),
        ("[" + "x," * 10_001 + "]", "it contains more than 10,000 values", 1),
        ("- x\n" * 10_001, "it contains more than 10,000 values", 10_000),
        (NESTED, "an alias repeats a value", 1),
    ],
)
def test_a_field_of_a_form_holds_fewer_values_and_no_aliases(
    text: str, reason: str, line: int
) -> None:
    with pytest.raises(UnreadableYamlError, match=reason) as refused:
        read_yaml(text, FIELD_LIMITS)

    assert refused.value.line == line


def test_values_that_take_more_space_count_as_more() -> None:
    limits = YamlLimits(1_000, "split it", repeated=500)
    ones = ",".join(["1"] * 600)
    assert read_yaml(f"[{ones}]", limits)
    for text in (
        "[" * 50 + ones + "]" * 50,
        f"&a [{ones}]",
        "[" + ",".join(f"&a{n} 1" for n in range(600)) + "]",
    ):
        with pytest.raises(UnreadableYamlError, match="more than 1,000 values; split it"):
            read_yaml(text, limits)
    with pytest.raises(UnreadableYamlError, match="unfolds to too many values"):
        read_yaml(f"a: &a [{ones[:500]}]\nb: {'[' * 50}*a{']' * 50}", limits)


def test_aliases_of_a_file_unfold_to_a_limit() -> None:
    content = read_yaml("a: &a [1, 2.50]\nb: *a", FILE_LIMITS)

    assert content is not None
    assert content.value == {"a": [1, 2.5], "b": [1, 2.5]}
    assert content.written["b", 1] == "2.50"
    with pytest.raises(UnreadableYamlError, match="unfolds to too many values"):
        read_yaml(NESTED, FILE_LIMITS)


@pytest.mark.parametrize(
    "repeated",
    [
        "? &long {long}\n: 1\nlist:\n{aliases}",
        "first: &long\n  {long}: 1\nlist: [{mappings}]",
        "first: &long\n  {long}: 1\nlist: [{merges}]",
    ],
    ids=["as a key", "within a mapping", "by a merge"],
)
def test_a_long_key_that_is_repeated_counts_by_its_length(repeated: str) -> None:
    text = (
        repeated.replace("{long}", f'"{"k" * 1_000}"')
        .replace("{aliases}", "- *long : 1\n" * 400)
        .replace("{mappings}", ",".join(["*long"] * 400))
        .replace("{merges}", ",".join(["{<<: *long}"] * 400))
    )

    with pytest.raises(UnreadableYamlError, match="unfolds to too many values"):
        read_yaml(text, replace(FILE_LIMITS, repeated=1_000))


@pytest.mark.parametrize(
    "merges",
    [
        "".join(f"<<: {{k{n}: 1}}\n" for n in range(20_000)),
        "<<: [" + ",".join(f"{{k{n}: 1}}" for n in range(20_000)) + "]",
    ],
    ids=["keys", "a list"],
)
def test_very_many_mappings_are_merged(merges: str) -> None:
    # Copying what is merged so far for each would take minutes.
    content = read_yaml(f"{merges}\nk0: 2")

    assert content is not None
    assert content.value == {"k0": 2} | {f"k{n}": 1 for n in range(1, 20_000)}


def test_of_merged_mappings_the_first_wins() -> None:
    content = read_yaml("a:\n  <<: [{x: 1, y: 1}, {x: 2, z: 2}]\n  <<: {z: 3, v: 3}")

    assert content is not None
    assert content.value == {"a": {"x": 1, "y": 1, "z": 2, "v": 3}}


def test_an_empty_text_holds_no_document() -> None:
    assert read_yaml("# nothing\n") is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_reads_back_the_same(value: Any) -> None:
    text = write_yaml(value)
    reading = read_yaml(text)
    assert reading is not None
    assert reading.value == value
    # Readers of YAML 1.1, which take `no` and dates for more than text, agree.
    assert yaml.safe_load(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"steps": ["Open it.", "Close it."]}, "steps:\n- Open it.\n- Close it.\n"),
        ("Dear Ada,\nyour refund 🎉", "|-\n  Dear Ada,\n  your refund 🎉\n"),
        (["no", "2024-01-01", "1e3", "~"], "- 'no'\n- '2024-01-01'\n- '1e3'\n- '~'\n"),
        ([Decimal("0.10"), Decimal("1E+3")], "- 0.10\n- 1000\n"),
        ("ends in a space \nhere", '"ends in a space \\nhere"\n'),
    ],
)
def test_texts_are_written_as_a_person_would(value: Any, text: str) -> None:
    assert write_yaml(value) == text

"""Paths lead into replies, and say where they break off."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.kinds._json_paths import PathError, PathIndex, follow, parse_path

REPLY = {
    "choices": [{"message": {"content": "Hello"}}],
    "steps": [{"tool": "look_up"}, {"tool": "refund"}],
    "odd.name": {"a b": 1},
    "0": "a field named 0",
    "none": None,
    "grid": [[1, 2], [3]],
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("choices.0.message.content", "Hello"),
        ("choices[0].message.content", "Hello"),
        ("choices[-1].message.content", "Hello"),
        ('["odd.name"]["a b"]', 1),
        ("steps[*].tool", ["look_up", "refund"]),
        ("steps.*.tool", ["look_up", "refund"]),
        ("grid[*][0]", [1, 3]),
        ("0", "a field named 0"),
        ("none", None),
    ],
)
def test_a_path_leads_to_what_stands_there(path: str, value: Any) -> None:
    assert follow(path, REPLY) == value


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("choices.1.message", "choices is a list of 1, without a part 1"),
        ("choices.0.text", "choices[0] is an object with message, without 'text'"),
        ("choices.first", "choices is a list of 1, where an object with 'first' is expected"),
        ("none.deeper", "none is null, where an object with 'deeper' is expected"),
        ("choices[*].message.text", "without 'text'"),
        ("odd[*]", "the reply is an object"),
        ("steps[0][*]", "steps[0] is an object with tool, not a list"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_stood_there(path: str, words: str) -> None:
    with pytest.raises(PathError) as refusal:
        follow(path, REPLY)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "at character 1"),
        ("a.", "at character 3"),
        ("a..b", "at character 3"),
        (".a", "at character 1"),
        ("a[", "at character 2"),
        ("a[b]", "at character 2"),
        ("a]", "at character 2"),
        ("a[0]b", "at character 5"),
    ],
)
def test_what_is_no_path_is_refused_with_the_character(path: str, words: str) -> None:
    with pytest.raises(PathError) as refusal:
        parse_path(path)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "path",
    [
        "choices[0].message",
        "$.choices[0].message",
        "$['choices'][0]['message']",
        "choices.0.message",
    ],
)
def test_short_forms_and_jsonpath_are_one_language(path: str) -> None:
    assert follow(path, REPLY) == {"content": "Hello"}


def test_a_quoted_star_is_a_name() -> None:
    assert follow('["*"]', {"*": 1, "a": 2}) == 1


def test_a_dollar_alone_is_the_whole_value() -> None:
    assert follow("$", REPLY) == REPLY


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (("a", "b"), 0),
        (("a", "c"), 2),
        (("x", 7), 3),
        (("lines", 3, "id"), 1),
        (("lines", 3), None),
        (("a",), None),
        ((), None),
    ],
)
def test_the_first_of_many_paths_to_a_place_is_found(
    place: tuple[str | int, ...], found: int | None
) -> None:
    paths = ("a.b", "lines[*].id", "a[*]", "[*][7]", "a.b")
    assert PathIndex(map(parse_path, paths)).find(place) == found

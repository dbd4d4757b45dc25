"""YAML from outside: what files may hold, what fields of forms may hold, and places of problems."""

from __future__ import annotations

import pytest

from evaluators.reading.yaml import FIELD_LIMITS, FILE_LIMITS, UnreadableYamlError, read_yaml

# Six levels of ten: a million values in 280 characters.
NESTED = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 7)
)


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ("a: 1\nb: &b x\nc: *b", "an alias repeats a value; write the value out", 2),
        ("a: &a {x: 1}\nb:\n  <<: *a", "an alias repeats a value", 1),
        ("[" + "x," * 10_001 + "]", "it holds more than 10,000 values", 1),
        ("- x\n" * 10_001, "it holds more than 10,000 values", 10_000),
        (NESTED, "an alias repeats a value", 1),
    ],
)
def test_a_field_of_a_form_holds_fewer_values_and_no_aliases(
    text: str, reason: str, line: int
) -> None:
    with pytest.raises(UnreadableYamlError, match=reason) as refused:
        read_yaml(text, FIELD_LIMITS)

    assert refused.value.line == line


def test_aliases_of_a_file_unfold_to_a_limit() -> None:
    content = read_yaml("a: &a [1, 2.50]\nb: *a", FILE_LIMITS)

    assert content is not None
    assert content.value == {"a": [1, 2.5], "b": [1, 2.5]}
    assert content.written["b", 1] == "2.50"
    with pytest.raises(UnreadableYamlError, match="unfolds to too many values"):
        read_yaml(NESTED, FILE_LIMITS)


def test_an_empty_text_holds_no_document() -> None:
    assert read_yaml("# nothing\n") is None

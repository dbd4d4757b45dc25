"""Broken characters in what a program prints."""

from __future__ import annotations

import json

import pytest

from runs.target_kinds._outputs import trace_as_json
from runs.target_kinds._replies import UnreadablePartError
from runs.target_kinds.command import read_printed
from tests.evaluators.kinds.doubles import case_of


def test_halves_of_characters_that_a_program_prints_can_be_stored_and_shown() -> None:
    step = {"type": "tool", "name": "half \ud800", "input": {"q": "\udc00"}}
    printed = json.dumps({"output": "so \ud83d", "trace": [step]})
    output = read_printed(printed, "auto", case_of())
    kept = json.dumps([output.text, trace_as_json(output)], ensure_ascii=False)
    assert "so \N{REPLACEMENT CHARACTER}" in kept
    assert "half \N{REPLACEMENT CHARACTER}" in kept
    assert kept.encode().decode() == kept


def test_a_report_of_too_many_values_is_an_error_and_no_answer() -> None:
    printed = json.dumps({"output": "Yes.", "trace": [1] * 250_000})
    with pytest.raises(UnreadablePartError, match="too large: it contains more than 250,000 val"):
        read_printed(printed, "auto", case_of())


@pytest.mark.parametrize("name", ["trace", "messages"])
def test_arguments_of_too_many_values_together_are_an_error(name: str) -> None:
    call = {"name": "add", "arguments": json.dumps([1] * 100_000)}
    parts = {"trace": [call] * 3, "messages": [{"role": "assistant", "tool_calls": [call] * 3}]}
    printed = json.dumps({"output": "Yes.", name: parts[name]})
    with pytest.raises(UnreadablePartError, match="arguments of tool_calls contain more than 250"):
        read_printed(printed, "auto", case_of())

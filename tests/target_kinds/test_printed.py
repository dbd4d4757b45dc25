"""Broken characters in what a program prints."""

from __future__ import annotations

import json

from runs.target_kinds._outputs import trace_as_json
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

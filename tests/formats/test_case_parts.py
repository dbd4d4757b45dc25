"""Parts of a case as a page's fields hold them: what is written reads back, and problems name the line."""

from __future__ import annotations

import pytest

from evaluators.scoring.tree import EvaluatorSpec
from runs.cases.checks import (
    mapping_text,
    own_text,
    read_mapping,
    read_own,
    read_recorded_json,
    recorded_text,
)
from runs.formats.suite_evaluators import default_children, make_root
from runs.specs.problems import UnreadableFileError

SUITE = make_root(default_children())
OWN = """\
- type: contains
  value: refund
- name: both
  type: composite
  required: true
  evaluators:
    - type: llm_judge
      prompt: Is it kind?
    - type: regex
      value: days
"""


@pytest.mark.parametrize(
    "text", [OWN, f"evaluators:\n  {'  '.join(OWN.splitlines(True))}aggregator:\n  type: minimum\n"]
)
def test_own_evaluators_read_back(text: str) -> None:
    own = read_own(text, root=SUITE, append=False)
    assert own is not None
    assert [child.kind for child in own.children] == ["text_check", "composite"]
    assert read_own(own_text(own), root=SUITE, append=False) == own
    assert EvaluatorSpec.model_validate(own.as_json()) == own
    assert read_own(" \n", root=SUITE, append=False) is None


@pytest.mark.parametrize(
    ("text", "append", "said"),
    [
        ("- type: contains\n- type: palmistry", False, "line 2, [1].type"),
        ("- type: contains\n  valeu: x", False, "line 2, [0].valeu"),
        ("- type: [", False, "line 2: not readable"),
        ("- type: contains\n  value: a\n  value: b", False, "is repeated"),
        ("- name: llm_judge\n  type: contains\n  value: x", True, "need names of their own"),
        ("evaluators:\n  - x is named\naggregator:\n  type: minimum", True, "line 3, aggregator"),
        ("evaluators: []", False, "no evaluator is listed"),
        ("evaluator:\n  - x", False, "line 1, evaluator: is unknown here"),
        ("just a text", False, "expected a mapping of keys"),
        ("- type: script\n  script: ../secrets.py", False, "secrets.py"),
        ("- type: contains\n  value: x\n  weight: -1", False, "line 3"),
    ],
)
def test_problems_of_own_evaluators_name_line_and_key(text: str, append: bool, said: str) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        read_own(text, root=SUITE, append=append)
    assert said in str(refusal.value)


def test_a_mapping_is_yaml_or_json_and_reads_back() -> None:
    values = {"plan": "pro", "seats": 3, "since": "2024-01-01", "deep": [{"a": None}]}
    assert read_mapping(mapping_text(values)) == values
    assert read_mapping('{"a": [1, "<b>"]}') == {"a": [1, "<b>"]}
    assert read_mapping(" ") == {}
    assert mapping_text({}) == ""
    for text, said in (
        ("- a", "expected names with values"),
        ("a: 1\nb: [", "line"),
        ("a: 1\na: 2", "line 2: the key 'a' is repeated"),
        ('a: "\\ud800"', "line 1"),
        ("a: .nan", "is not a number"),
        ("a: !!python/name:os.system x", "tag"),
    ):
        with pytest.raises(UnreadableFileError) as refusal:
            read_mapping(text)
        assert said in str(refusal.value), text


def test_a_recorded_output_is_a_text_or_json() -> None:
    assert recorded_text(None) == ("", False)
    assert recorded_text({"output": "<b>Hi</b>"}) == ("<b>Hi</b>", False)
    whole = {"output": "Hi", "usage": {"input_tokens": 3}, "latency_ms": 12.5}
    text, is_json = recorded_text(whole)
    assert is_json
    assert read_recorded_json(text) == whole
    for wrong, said in (
        ('{"usage": {}}', "contains no output"),
        ('{\n "output": "Hi",\n "latency_ms": "slow"}', "line"),
        ("null", "this is null"),
        ('{"output": ', "line"),
    ):
        with pytest.raises(UnreadableFileError) as refusal:
            read_recorded_json(wrong)
        assert said in str(refusal.value), wrong

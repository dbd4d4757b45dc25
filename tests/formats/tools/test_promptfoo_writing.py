"""Suites as configurations of promptfoo: what comes back is what went out, and the rest is named."""

from __future__ import annotations

import yaml

from runs.formats.suite_files import read_suite
from runs.formats.tools.promptfoo_writing import promptfoo_config
from tests.formats.tools.support import found, tree_lines

SUITE = """
name: shop
verdicts: {pass: 0, borderline: 0}
evaluators:
  - {name: tone, type: contains, value: stupid, ignore_case: true, negate: true, required: true}
  - {name: latency, type: execution_metrics, max_duration_ms: 900, required: true}
  - {name: kind, type: rubric, rubrics: [Is kind], mode: graded, min_score: 0.7, weight: 2}
tests:
  - id: opening-hours
    input: When?
    metadata: {area: hours}
    assertions:
      - {name: either, type: composite, min_score: 0.5, evaluators: [
          {name: any, type: contains_any, values: [nine, ten]},
          {name: regex, type: regex, value: "[0-9]+"}]}
  - id: data
    input: As JSON
    evaluators: [{name: shape, type: json_schema, json_schema: {type: object}, required: true}]
"""


def test_a_configuration_reads_as_the_suite_it_was_made_from() -> None:
    suite = read_suite(SUITE.encode(), file="shop.yaml")
    config = promptfoo_config(suite)
    [again], _ = found({"shop/promptfooconfig.yaml": config.write().decode()})
    assert [str(note) for note in config.notes] == [
        "promptfooconfig.yaml: the provider echo stands for your agent; name it"
    ]
    assert again.slug == suite.slug
    assert tree_lines(again.evaluators) == tree_lines(suite.evaluators)
    assert again.evaluators.children == suite.evaluators.children
    assert (again.policy.pass_threshold, again.policy.borderline_threshold) == (0, 0)
    for ours, theirs in zip(suite.cases, again.cases, strict=True):
        assert (theirs.key, theirs.input) == (ours.key, ours.input)
        assert theirs.metadata == {**ours.metadata, "vars": {"input": ours.input[0]["content"]}}
        assert ours.evaluators is not None
        assert theirs.evaluators is not None
        assert theirs.evaluators.children == ours.evaluators.children
        assert theirs.evaluators_append == ours.evaluators_append
    assert promptfoo_config(again).values["tests"] == config.values["tests"]


SCORED = """
name: desk
evaluators:
  - {name: right, type: expected_output, match: contains}
  - {name: short, type: max_length, value: 9}
  - {name: judge, type: llm_judge, prompt: Is it right?, required: true}
tests:
  - {id: A, input: hi, expected_output: Hello, tags: [smoke], criteria: Be kind}
  - {id: B, input: "Say {{x}}"}
  - {id: C, input: [{role: system, content: Be brief}, {role: user, content: Go}], expected_output: Gone}
"""


def test_what_has_no_counterpart_is_named() -> None:
    suite = read_suite(SCORED.encode(), file="desk.yaml")
    config = promptfoo_config(suite)
    values = yaml.safe_load(config.write())
    assert values["defaultTest"] == {"threshold": suite.policy.pass_threshold}
    first, second, third = values["tests"]
    assert first["assert"] == [{"type": "contains", "value": "Hello", "metric": "right"}]
    assert "assert" not in second
    assert third["vars"]["input"].startswith('[{"role": "system"')
    notes = "\n".join(map(str, config.notes))
    for part in (
        "the evaluator short (text_check) was left out: max_length is not known there",
        "the evaluator judge (llm_judge) was left out: there is no such assertion",
        "judge is required; with a threshold only its weight counts",
        "case B: its input has {{ or {%, which promptfoo fills in",
        "case B: the evaluator right (expected_output) was left out: it has no text to compare with",
        "case C: its conversation is written as JSON",
    ):
        assert part in notes, (part, notes)
    assert "case A: " in notes
    assert "tags" in notes


ZEROS = """
name: shop
verdicts: {pass: 0, borderline: 0}
evaluators:
  - {name: cost, type: execution_metrics, max_cost_usd: 0, required: true}
  - {name: kind, type: rubric, rubrics: [Is kind], mode: graded, min_score: 0}
  - {name: free, type: composite, min_score: 0, evaluators: [{type: contains, value: x}]}
  - {name: word, type: contains, value: refund}
tests: [{id: A, input: hi}]
"""


def test_limits_and_thresholds_of_zero_are_written_or_named() -> None:
    config = promptfoo_config(read_suite(ZEROS.encode(), file="shop.yaml"))
    cost, kind, word = config.values["defaultTest"]["assert"]
    assert (cost["type"], cost["threshold"]) == ("cost", 0)
    assert (kind["type"], kind["threshold"]) == ("llm-rubric", 0)
    assert word["type"] == "contains"
    notes = "\n".join(map(str, config.notes))
    assert "the evaluator free (composite) was left out: it always passes" in notes
    assert "a threshold of 0 is none there, so that every assertion must pass" in notes

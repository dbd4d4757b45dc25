"""promptfoo: a configuration becomes a suite whose cases carry the keys its results have."""

from __future__ import annotations

import json

import pytest

from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.formats.suite_files import read_suite, write_suite
from runs.specs.problems import UnreadableFileError
from tests.formats.tools.support import found, given, tree_lines

CONFIG = """\
description: Shop
prompts:
  - {label: plain, raw: '{{question}}'}
  - file://chat.json
  - 'Hi {{ question | upper }}'
providers: [echo, {id: 'openai:x', label: big}]
env: {A: b}
assertionTemplates: {polite: {type: not-icontains, value: stupid}}
defaultTest:
  vars: {shop: Acme}
  assert: [{$ref: '#/assertionTemplates/polite', metric: tone}, {type: latency, threshold: 900}]
tests:
  - description: Opening hours
    vars: {question: [When?, Wann?]}
    metadata: {area: hours}
    assert:
      - {type: contains, value: '{{shop}}', weight: 3}
      - {type: similar, value: x}
      - {type: javascript, value: output.length < 500}
  - vars: {question: Fruits}
    threshold: 0.5
    assert:
      - {type: contains-any, value: 'apple, pear'}
      - {type: assert-set, metric: either, threshold: 0.5, assert: [{type: icontains, value: a}, {type: regex, value: b}]}
  - file://more.csv
"""
CSV = 'question,__expected,__expected2\n"Two\nlines",icontains:hello,llm-rubric(0.7):Is kind\nSame,same text,\n'
FILES = {
    "shop/promptfooconfig.yaml": CONFIG,
    "shop/chat.json": '[{"role": "system", "content": "For {{shop}}"}, {"role": "user", "content": "{{question}}"}]',
    "shop/more.csv": CSV,
}


def test_a_configuration_becomes_cases_of_every_test_and_prompt():
    [suite], notes = found(FILES)
    assert (suite.slug, len(suite.cases)) == ("shop", 10)
    cases = {case.key: case for case in suite.cases}
    hours = cases["opening-hours.plain"]
    assert [turn["content"] for turn in hours.input] == ["When?"]
    assert [turn["content"] for turn in cases["opening-hours-2.chat-json"].input] == [
        "For Acme",
        "Wann?",
    ]
    assert hours.title == "Opening hours"
    assert hours.tags == ("plain",)
    assert hours.metadata["vars"] == {"shop": "Acme", "question": "When?"}
    assert hours.evaluators_append
    # All of it is required, as there a failed assertion fails the test, and no score does more.
    assert (suite.policy.pass_threshold, suite.policy.borderline_threshold) == (0, 0)
    assert tree_lines(suite.evaluators) == [
        "tone text_check not required",
        "latency execution_metrics required",
    ]
    assert tree_lines(hours.evaluators) == [
        "contains text_check ×3 required",
        "javascript script required",
    ]
    assert hours.evaluators.children[0].config["value"] == "Acme"
    # A test with a threshold passes by its score, so nothing in it is required by itself.
    assert tree_lines(cases["acme-fruits.plain"].evaluators) == [
        "threshold composite ≥0.5",
        "threshold/tone text_check not",
        "threshold/latency execution_metrics",
        "threshold/contains-any text_check",
        "threshold/either composite",
        "threshold/either/icontains text_check",
        "threshold/either/regex text_check",
    ]
    assert tree_lines(cases["acme-two-lines.plain"].evaluators) == [
        "icontains text_check required",
        "llm-rubric rubric ≥0.7",
    ]
    assert cases["acme-same.plain"].evaluators.children[0].config["operator"] == "equals"
    assert read_suite(write_suite(suite), file="again.yaml").cases == suite.cases
    for part in (
        "4 tests × 2 prompts make 10 cases",
        "providers as targets: echo, big",
        "line 2, prompts: the prompt 'Hi {{ question | upper }}' uses {{question | upper}}",
        "line 13: the assertion similar: it has no counterpart here",
        "line 7, env: has no counterpart",
    ):
        assert any(part in note for note in notes), (part, notes)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a.yaml": CONFIG}, "line 4, prompts: the file 'chat.json' is not among"),
        (FILES | {"shop/promptfooconfig.yaml": CONFIG.replace("file://more.csv", "file://more.py")}, "without running it"),
        (FILES | {"shop/promptfooconfig.yaml": CONFIG.replace("[When?", "[file://x.js")}, "question: 'file://x.js' is a program"),
        (FILES | {"shop/promptfooconfig.yaml": CONFIG.replace("{type: contains,", "{type: contains, weight: x,")}, "line 17"),
        (FILES | {"shop/more.csv": CSV.replace("Same", "Sa\0me")}, "line 4: cell 1 contains the character NUL"),
        (FILES | {"shop/chat.json": "Hello,\n\0"}, "chat.json, line 2: contains the character NUL"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(files, reason):
    with pytest.raises(UnreadableFileError, match=".*") as refusal:
        read_suites([given(files)])
    assert reason in str(refusal.value)


def row(test, prompt, *, success=True, score=1.0, reason=0, error=None, components=()):
    question = ["When?", "Fruits"][test]
    return {
        "testIdx": test,
        "promptIdx": prompt,
        "success": success,
        "failureReason": reason,
        "score": score,
        "error": error,
        "latencyMs": 40,
        "cost": 0,
        "provider": {"id": "openai:x", "label": "big"},
        "prompt": {"raw": f"{prompt} {question}", "label": ["plain", "warm"][prompt]},
        "vars": {"question": question},
        "response": {} if reason == 2 else {"output": {"a": 1}},
        "tokenUsage": {"prompt": 7, "completion": 3},
        "gradingResult": {"componentResults": list(components)} if reason != 2 else None,
        "testCase": {
            "description": ["Opening hours", ""][test],
            **({"threshold": 0.5} if test else {}),
        },
    }


LEAF = {"pass": True, "score": 0.5, "reason": "so", "tokensUsed": {"prompt": 4, "completion": 2}}
RUBRIC = {
    **LEAF,
    "assertion": {"type": "not-llm-rubric", "value": "x", "weight": 2, "metric": "a/b"},
}
PART = {"pass": False, "score": 0, "assertion": {"type": "icontains", "value": "y"}}
SET = {
    **{"pass": True, "score": 0.5, "componentResults": [PART]},
    "metadata": {"assertionSet": {"type": "assert-set", "metric": "either"}},
}
ROWS = [
    row(0, 1, success=False, score=0.5, reason=1, components=[RUBRIC, SET, PART, RUBRIC]),
    row(0, 0, success=False, score=0, reason=2, error="no connection"),
    row(1, 0, score=3.5, components=[RUBRIC]),
    row(1, 1),
]
DOCUMENT = {
    "results": {"version": 3, "results": ROWS, "stats": {}},
    "config": {"description": "Shop"},
}


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_results_keep_their_verdicts_and_say_what_they_cost(form):
    text = (
        json.dumps(DOCUMENT)
        if form == "json"
        else "".join(json.dumps(each) + "\n" for each in ROWS)
    )
    read = read_results(text.encode(), file=f"r.{form}")
    lines = {entry.result.eval_id: entry.result for entry in read.results}
    assert {key: line.verdict or line.error for key, line in lines.items()} == {
        "opening-hours.plain": "no connection",
        "opening-hours.warm": "fail",
        "fruits.plain": "pass",
        "fruits.warm": "pass",
    }
    failed, error = lines["opening-hours.warm"], lines["opening-hours.plain"]
    assert (error.status, error.score, error.run_cost_usd, error.output) == (
        "error",
        None,
        None,
        None,
    )
    assert (failed.target, failed.output, failed.run_cost_usd, failed.usage.latency_ms) == (
        "big",
        '{"a": 1}',
        0,
        40,
    )
    assert (failed.usage.input_tokens, failed.usage.output_tokens) == (7, 3)
    # What stands in a set is told once more behind it.
    assert [(one.name, one.score, one.weight, one.is_negated) for one in failed.evaluators] == [
        ("a-b", 0.5, 2, True),
        ("either", 0.5, 1, False),
        ("a-b 2", 0.5, 2, True),
    ]
    assert failed.evaluators[1].children[0].name == "icontains"
    assert failed.evaluators[0].usage.input_tokens == 4
    assert [one.name for one in lines["fruits.plain"].evaluators[0].children] == ["a-b"]
    assert lines["fruits.plain"].score == 1
    first = read.results[0]
    assert (first.title, first.tags, first.metadata["vars"]) == (
        "Opening hours",
        ("plain",),
        {"question": "When?"},
    )


TABLE = (
    "Description,question,[big] {{question}}!,Status,Score,Named Scores,Grader Reason,Comment,[small] {{question}}!,Status,"
    "Score,Named Scores,Grader Reason,Comment\n"
    'Opening hours,When?,"At 9, sir",PASS,1.00,{},All passed,,,ERROR,0.00,,,\n'
)


def test_a_table_of_results_has_every_provider():
    read = read_results(TABLE.encode(), file="r.csv")
    good, bad = (entry.result for entry in read.results)
    assert (good.eval_id, good.target, good.verdict, good.score) == (
        "opening-hours",
        "big",
        "pass",
        1.0,
    )
    assert (bad.target, bad.status, bad.score) == ("small", "error", None)
    assert read.results[0].input[0]["content"] == "When?!"
    assert "rounded scores" in str(read.notes[-1])


def test_a_file_given_as_the_other_kind_is_refused_by_name():
    with pytest.raises(
        UnreadableFileError,
        match="a promptfoo configuration: it contains cases; import it as a suite",
    ):
        read_results(CONFIG.encode(), file="promptfooconfig.yaml")
    with pytest.raises(
        UnreadableFileError,
        match="results of promptfoo, no cases; import it as the results of a run",
    ):
        read_suites([given({"results.json": json.dumps(DOCUMENT)})])
    with pytest.raises(
        UnreadableFileError, match="a JUnit report: it has verdicts, but no answers"
    ):
        read_results(b"<testsuites></testsuites>", file="r.xml")


def test_a_threshold_of_zero_is_none_as_there() -> None:
    free = {"type": "assert-set", "threshold": 0, "assert": [{"type": "contains", "value": "b"}]}
    test = {"threshold": 0, "vars": {"q": "Hi"}, "assert": [{"type": "equals", "value": "a"}, free]}
    config = {"prompts": ["{{q}}"], "providers": ["echo"], "tests": [test]}
    [suite], _ = found({"promptfooconfig.yaml": json.dumps(config)})
    assert suite.cases[0].evaluators is not None
    lines = tree_lines(suite.cases[0].evaluators)
    assert lines == [
        "equals text_check required",
        "assert-set composite",
        "assert-set/contains text_check required",
    ]

"""OpenAI Evals: a registry and a hosted eval become suites with their graders, output items become results."""

from __future__ import annotations

import json

import pytest

from runs.formats import shared_texts
from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.formats.tools import openai_evals
from runs.specs.problems import UnreadableFileError
from tests.formats.tools.support import found, given, tree_lines

YAML = """\
birth: {id: birth.v0, metrics: [accuracy]}
birth.v0: {class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: born/one.jsonl}}
has: {id: has.v0}
has.v0: {class: 'evals.elsuite.basic.includes:Includes', args: {samples_jsonl: born/one.jsonl, ignore_case: true}}
fun: {id: fun.v0}
fun.v0: {class: 'evals.elsuite.modelgraded.classify:ModelBasedClassify', args: {samples_jsonl: jokes.jsonl, modelgraded_spec: humor}}
meta: {id: meta.v0}
meta.v0: {class: 'evals.elsuite.modelgraded.classify:ModelBasedClassify', args: {samples_jsonl: jokes.jsonl, metaeval: true}}
lost: {id: lost.v0}
lost.v0: {class: 'evals.elsuite.basic.match:Match', args: {samples_jsonl: lost.jsonl}}
fuzzy: {id: fuzzy.v0}
fuzzy.v0: {class: 'evals.elsuite.basic.fuzzy_match:FuzzyMatch', args: {samples_jsonl: born/one.jsonl}}
"""
BORN = """\
{"input": [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Who?"}], "ideal": "Lincoln"}
{"input": "When?", "ideal": ["1809", "(in) 1809"], "note": 1}
"""
REGISTRY = {
    "r/evals/my.yaml": YAML,
    "r/data/born/one.jsonl": BORN,
    "r/data/jokes.jsonl": '{"input": "Tell a joke"}\n{"input": "Another"}\n',
    "r/modelgraded/humor.yaml": "humor: {prompt: 'Funny? {completion} of {input}', choice_scores: {Yes: 1.0, No: 0.0}}\n",
}


def test_a_registry_becomes_a_suite_for_each_eval_with_its_grader():
    suites, notes = found(REGISTRY)
    by_name = {suite.slug: suite for suite in suites}
    assert {name: len(suite.cases) for name, suite in by_name.items()} == {
        "birth": 2,
        "has": 2,
        "fun": 2,
        "fuzzy": 2,
    }
    who, when = by_name["birth"].cases
    assert [turn["role"] for turn in who.input] == ["system", "user"]
    assert (who.key, who.expected_output, when.expected_output) == ("0", "Lincoln", "1809")
    assert when.metadata == {"note": 1, "ideal": ["1809", "(in) 1809"]}
    checks = [case.evaluators.children[0].config for case in (who, when, by_name["has"].cases[1])]
    assert [(check["operator"], check["value"], check["ignore_case"]) for check in checks] == [
        ("starts_with", "Lincoln", False),
        ("regex", r"\A(?:1809|\(in\)\ 1809)", False),
        ("contains_any", None, True),
    ]
    prompt = by_name["fun"].cases[0].evaluators.children[0].config["prompt"]
    assert prompt == "Funny? {{output}} of {{input}}\n\nThe score of each choice: Yes: 1, No: 0."
    assert by_name["fuzzy"].cases[0].evaluators is None
    for part in (
        "line 7: the eval meta was left out: metaeval has no counterpart",
        "line 9: the eval lost was left out: its data lost.jsonl are not here",
        "fuzzy: its class basic.fuzzy_match:FuzzyMatch has no counterpart here",
    ):
        assert any(part in note for note in notes), (part, notes)


def test_measures_with_a_published_formula_compare_with_the_expected_output_and_say_that_they_changed():
    def alike(name, metric, reference="{{item.label}}", **given):
        own = {"input": "{{ sample.output_text }}", "reference": reference, "pass_threshold": 0.6}
        return {
            "type": "text_similarity",
            "name": name,
            "evaluation_metric": metric,
            **own,
            **given,
        }

    criteria = [
        *(alike("words", "rouge_l"), alike("phrases", "bleu"), alike("fuzzy", "fuzzy_match")),
        alike("other", "rouge_1", reference="{{item.ticket}}"),
        alike("more", "rouge_2", input="{{ sample.output_json }}"),
    ]
    [suite], notes = found(
        {**HOSTED, "eval.json": json.dumps(EVAL | {"testing_criteria": criteria})}
    )
    first, second = suite.cases
    assert (first.expected_output, second.expected_output) == ("Hardware", "Other")
    assert tree_lines(first.evaluators) == [
        "words text_similarity ≥0.6",
        "phrases text_similarity ≥0.6",
    ]
    assert [node.config["measure"] for node in first.evaluators.children] == ["rouge_l", "bleu"]
    for part in (
        "words is changed: rouge_l is computed by its published formula",
        "phrases is changed: bleu is computed by its published formula",
        "fuzzy: text_similarity fuzzy_match has no counterpart here; it was left out",
        "other: a case has one expected output, here {{item.label}}; it was left out",
        "more: it compares more than {{ sample.output_text }}; it was left out",
    ):
        assert any(part in note for note in notes), (part, notes)


def test_data_come_in_alone_and_pairs_are_refused():
    [suite], notes = found({"one.jsonl": BORN})
    assert ([case.key for case in suite.cases], suite.slug) == (["0", "1"], "one")
    assert "they name no grader" in notes[0]
    [labelled], _ = found({"l.jsonl": '{"input": "a", "completion": "b", "choice": "Yes"}\n' * 2})
    assert labelled.cases[1].recorded_output == {"output": "b"}
    assert labelled.cases[1].metadata == {"choice": "Yes"}
    with pytest.raises(UnreadableFileError, match="a case has one input"):
        read_suites([given({"p.jsonl": '{"input1": "a", "input2": "b"}\n' * 2})])
    with pytest.raises(UnreadableFileError, match="give the folder that contains evals and data"):
        read_suites([given({"my.yaml": YAML})])


def messages(text):
    return [{"role": "user", "content": {"type": "input_text", "text": text}}]


EVAL = {
    "object": "eval",
    "id": "eval_1",
    "name": "Ticket sorting",
    "metadata": {"team": "support"},
    "testing_criteria": [
        {"type": "string_check", "name": "same", "input": "{{ sample.output_text }}", "reference": "{{item.label}}", "operation": "ne"},
        {"type": "text_similarity", "name": "close", "evaluation_metric": "gleu", "pass_threshold": 0.8},
        {"type": "score_model", "name": "help", "range": [0, 10], "pass_threshold": 7, "input": messages("Rate {{ sample.output_text }} for {{item.label}}")},
        {"type": "label_model", "name": "tone", "labels": ["kind", "rude"], "passing_labels": ["kind"], "input": messages("{{ sample.output_text }}")},
        {"type": "python", "name": "short/long", "source": "def grade(sample, item):\n    return 1", "pass_threshold": 0.5},
    ],
}  # fmt: skip
RUN = {
    "object": "eval.run",
    "eval_id": "eval_1",
    "result_counts": {"total": 1},
    "data_source": {"input_messages": {"template": [{"role": "developer", "content": "Sort."}, *messages("{{ item.ticket }}")]}},
}  # fmt: skip
ITEMS = '{"item": {"ticket": "My monitor is dead", "label": "Hardware"}}\n{"item": {"ticket": "", "label": "Other"}}\n'
HOSTED = {"eval.json": json.dumps(EVAL), "run.json": json.dumps(RUN), "items.jsonl": ITEMS}


def test_a_hosted_eval_takes_its_items_and_the_template_of_its_run():
    [suite], notes = found(HOSTED)
    first, second = suite.cases
    assert (suite.slug, first.key, second.key) == ("ticket-sorting", "0", "1")
    assert [(turn["role"], turn["content"]) for turn in first.input] == [
        ("developer", "Sort."),
        ("user", "My monitor is dead"),
    ]
    assert tree_lines(first.evaluators) == [
        "same text_check not required",
        "help llm_judge ≥0.7",
        "tone llm_judge required",
        "short-long script ≥0.5",
    ]
    same, rating, tone, _ = (node.config for node in first.evaluators.children)
    assert same["value"] == "Hardware"
    assert rating["prompt"].startswith("Rate {{output}} for Hardware\n\nThe score is 0 for")
    assert "The score is 1 for kind" in tone["prompt"]
    assert any("close: text_similarity gleu has no counterpart" in note for note in notes)
    assert first.expected_output == ""
    [alone], notes = found({"items.jsonl": ITEMS})
    assert (
        alone.cases[0].input[0]["content"]
        == '{"ticket": "My monitor is dead", "label": "Hardware"}'
    )
    assert "an item is its own input" in notes[0]
    with pytest.raises(UnreadableFileError, match="criteria and no items"):
        read_suites([given({"eval.json": json.dumps(EVAL)})])


def test_a_hosted_eval_with_too_many_items_is_refused_and_not_cut_short(monkeypatch):
    for module in (shared_texts, openai_evals):
        monkeypatch.setattr(module, "MAX_CASES", 1)
    with pytest.raises(UnreadableFileError, match="more than 1 cases together"):
        read_suites([given({"items.jsonl": ITEMS})])
    with pytest.raises(UnreadableFileError, match="more than 1 cases together"):
        read_suites([given(HOSTED)])


def item(number, status, results=(), **sample):
    return {
        "object": "eval.run.output_item",
        "eval_id": "eval_1",
        "status": status,
        "datasource_item_id": number,
        "datasource_item": {"ticket": "x"},
        "results": list(results),
        "sample": {
            "model": "gpt",
            "input": [{"role": "user", "content": "x"}],
            "output": [],
            "usage": {"prompt_tokens": 4, "completion_tokens": 2},
            **sample,
        },
    }


OUTPUT = [
    item(
        0,
        "fail",
        [
            {"name": "same", "type": "string_check", "passed": True, "score": 0.88},
            {"name": "help", "type": "score_model", "passed": False, "score": 6.0},
        ],
        output=[{"role": "assistant", "content": "Hardware"}],
    ),
    item(1, "error", error={"code": "e", "message": "not reached"}),
]


def test_output_items_are_results_as_reported():
    read = read_results(json.dumps({"object": "list", "data": OUTPUT}).encode(), file="items.json")
    failed, errored = (entry.result for entry in read.results)
    assert (failed.eval_id, failed.verdict, failed.score, failed.output) == (
        "0",
        "fail",
        0,
        "Hardware",
    )
    assert (failed.target, failed.usage.input_tokens) == ("gpt", 4)
    assert [(one.name, one.type, one.score, one.reasoning) for one in failed.evaluators] == [
        ("same", "string_check", 0.88, "Passed."),
        ("help", "llm_judge", 0, "Failed with the score 6.0."),
    ]
    assert (errored.status, errored.error, errored.score) == ("error", "not reached", None)
    assert read.results[0].input[0]["content"] == "x"
    with pytest.raises(UnreadableFileError, match="it contains counts, but no answers"):
        read_results(json.dumps(RUN).encode(), file="run.json")

"""Every spelling of a type, a setting, a place and a value that files of the family have used."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.formats import suite_files
from runs.formats.reading import MAX_PROBLEMS
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import CaseSpec, SuiteWithCases

HEAD = "name: shop\n"
CASES = "tests:\n  - id: A\n    input: hi\n"
FILES = {
    "evals/prompts/kind.md": b"Is it kind?",
    "shared/rules.txt": "Günstig.".encode("utf-8-sig"),
    "evals/judges/check.py": b"#!/usr/bin/env python3\n",
    "evals/cat.png": b"\x89PNG\xff",
}


def read(text: str) -> SuiteWithCases:
    content = suite_files.read_suite(text.encode(), file="evals/shop.yaml", files=FILES)
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content
    return content


def evaluator(written: str) -> EvaluatorSpec:
    return read(f"{HEAD}{CASES}assertions:\n  - {written}\n").evaluators.children[0]


def first_case(written: str, suite: str = "") -> CaseSpec:
    return read(f"{HEAD}{suite}tests:\n  - id: A\n    {written}\n").cases[0]


@pytest.mark.parametrize(
    ("written", "kind", "config"),
    [
        *(
            (f"{{type: {name}, prompt: Kind?}}", "llm_judge", {"prompt": "Kind?"})
            for name in ("llm_judge", "llm-judge", "llmJudge", "llm-grader", "llm_eval", "LLM-Grader", "LLMJudge")
        ),
        ("{type: llm-rubric, value: Kind?}", "llm_judge", {"prompt": "Kind?"}),
        ("{type: llm_judge, criteria: Kind?}", "llm_judge", {"prompt": "Kind?"}),
        ("{type: llm-grader}", "llm_judge", {"prompt": ""}),
        ("{type: llm_judge, prompt: ./prompts/kind.md}", "llm_judge", {"prompt": "./evals/prompts/kind.md"}),
        ("{type: llm_judge, prompt: prompts/kind.md}", "llm_judge", {"prompt": "./evals/prompts/kind.md"}),
        ("{type: llm_judge, prompt: 'file://prompts/kind.md'}", "llm_judge", {"prompt": "./evals/prompts/kind.md"}),
        ("{type: llm_judge, prompt: ../shared/rules.txt}", "llm_judge", {"prompt": "./shared/rules.txt"}),
        ("{type: llm_judge, prompt: {file: prompts/kind.md}}", "llm_judge", {"prompt": "./evals/prompts/kind.md"}),
        ("{type: llm_judge, prompt: {path: ./prompts/kind.md}}", "llm_judge", {"prompt": "./evals/prompts/kind.md"}),
        ("{type: llm_judge, prompt: {text: Kind?}}", "llm_judge", {"prompt": "Kind?"}),
        ("{type: llm_judge, prompt: {type: text, value: Kind?}}", "llm_judge", {"prompt": "Kind?"}),
        ("{type: llm_judge, prompt: '{{answer}} {{input_messages}} {{note}}'}", "llm_judge", {}),
        ("{type: llm_judge, prompt: '{{expected_messages}} {{output_messages}}'}", "llm_judge", {}),
        ("{type: contains, value: a}", "text_check", {"operator": "contains", "value": "a"}),
        ("{type: icontains, value: a}", "text_check", {"operator": "contains", "ignore_case": True}),
        ("{type: contains-any, value: [a]}", "text_check", {"operator": "contains_any", "values": ["a"]}),
        ("{type: containsAll, values: [a]}", "text_check", {"operator": "contains_all", "values": ["a"]}),
        ("{type: icontains-any, value: [a]}", "text_check", {"operator": "contains_any", "ignore_case": True}),
        ("{type: starts-with, value: a}", "text_check", {"operator": "starts_with"}),
        ("{type: ends_with, value: a}", "text_check", {"operator": "ends_with"}),
        ("{type: equals, value: a}", "text_check", {"operator": "equals"}),
        ("{type: is-json}", "text_check", {"operator": "is_json"}),
        ("{type: isJSON}", "text_check", {"operator": "is_json"}),
        ("{type: regex, value: a}", "text_check", {"operator": "regex", "value": "a"}),
        ("{type: regex, pattern: a, flags: gi}", "text_check", {"value": "a", "ignore_case": True}),
        ("{type: regex, value: a, flags: ms}", "text_check", {"value": "(?ms)a", "ignore_case": False}),
        ("{type: max-length, value: 9}", "text_check", {"operator": "max_length", "max_length": 9}),
        ("{type: code_judge, script: [python, ./judges/check.py]}", "script", {"protocol": "stdin"}),
        ("{type: code-judge, script: [python, ./judges/check.py]}", "script", {"protocol": "stdin"}),
        ("{type: code-grader, command: [./judges/check.py]}", "script", {"protocol": "stdin"}),
        ("{type: codeGrader, command: python ./judges/check.py}", "script", {"protocol": "stdin"}),
        ("{type: script, script: 'echo 1; echo 2'}", "script", {"protocol": "env"}),
        ("{type: expected_output, match: contains}", "expected_output", {"match": "contains"}),
        ("{kind: is_json}", "text_check", {"operator": "is_json"}),
    ],
)  # fmt: skip
def test_a_type_in_each_of_its_spellings(written: str, kind: str, config: dict[str, Any]) -> None:
    node = evaluator(written)

    assert node.kind == kind
    assert {key: node.config[key] for key in config} == config


@pytest.mark.parametrize(
    "written",
    [
        "{type: rubric, rubrics: [Is kind, Is short]}",
        "{type: rubrics, criteria: [Is kind, Is short]}",
        "{type: llm-rubric, value: [Is kind, Is short]}",
        "{type: llm-grader, rubrics: [Is kind, Is short]}",
        "{type: llm_judge, criteria: [Is kind, Is short]}",
        "{type: rubric, rubrics: [{outcome: Is kind}, {expected_outcome: Is short}]}",
        "{type: rubric, rubrics: [{description: Is kind}, {expectedOutcome: Is short}]}",
        "{type: rubric, rubrics: [{id: c1, text: Is kind}, {id: c2, criteria: Is short}]}",
        "Is kind\n  - Is short",
    ],
)
def test_a_rubric_in_each_of_its_spellings(written: str) -> None:
    node = evaluator(written)

    assert node.kind == "rubric"
    assert [(c["id"], c["expected_outcome"]) for c in node.config["rubrics"]] == [
        ("c1", "Is kind"),
        ("c2", "Is short"),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("required: true", {"required": True, "min_score": None}),
        ("required: 0.7", {"required": False, "min_score": 0.7}),
        ("min_score: 0.7", {"required": False, "min_score": 0.7}),
        ("required-min-score: 7", {"required": False, "min_score": 0.7}),
        ("weight: 3", {"weight": 3.0}),
    ],
)
def test_a_criterion_may_be_weighed_and_required(written: str, expected: dict[str, Any]) -> None:
    node = evaluator(f"{{type: rubric, rubrics: [{{id: a, outcome: Is kind, {written}}}]}}")

    criterion = node.config["rubrics"][0]
    assert {key: criterion[key] for key in expected} == expected


@pytest.mark.parametrize(
    "ranges",
    ["{0: Bad, 10: Good}", "[{score_range: [0, 0], expected_outcome: Bad}, {score_range: [10, 10], description: Good}]", "[{score_range: [0, 0], outcome: Bad}, {scoreRange: [10, 10], outcome: Good}]"],
)  # fmt: skip
def test_grades_with_a_meaning_make_a_rubric_graded(ranges: str) -> None:
    node = evaluator(f"{{type: rubric, rubrics: [{{outcome: Tone, score_ranges: {ranges}}}]}}")

    assert node.config["mode"] == "graded"
    assert node.config["rubrics"][0]["expected_outcome"] == "Tone\n0: Bad\n10: Good"


def test_the_id_of_a_criterion_may_be_a_number() -> None:
    node = evaluator("{type: rubric, rubrics: [{id: 7, outcome: Is kind}]}")

    assert node.config["rubrics"][0]["id"] == "7"


def test_grades_may_be_spans_and_stand_without_another_text() -> None:
    ranges = "[{score_range: [0, 4], outcome: Bad}, {score_range: [5, 10], outcome: Good}]"

    node = evaluator(f"{{type: rubric, rubrics: [{{id: tone, score_ranges: {ranges}}}]}}")

    assert node.config["rubrics"][0]["expected_outcome"] == "tone\n0 to 4: Bad\n5 to 10: Good"


def test_sentences_are_gathered_where_the_first_of_them_stands() -> None:
    written = "{type: is_json}\n  - Is kind\n  - {type: contains, value: a}\n  - Is short"

    root = read(f"{HEAD}{CASES}assertions:\n  - {written}\n").evaluators

    assert [node.name for node in root.children] == ["is_json", "rubric", "contains"]
    assert len(root.children[1].config["rubrics"]) == 2


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("evaluators: [{type: is_json}]", ["is_json"]),
        ("execution: {evaluators: [{type: is_json}]}", ["is_json"]),
        ("execution: {assert: [{type: is_json}]}", ["is_json"]),
        ("assertions: [{type: is_json}]\nrubrics: [Is kind]", ["is_json", "rubric"]),
        ("rubrics: [Is kind]", ["rubric"]),
        ("execution: {evaluators: [{type: is_json}]}\nrubrics: [Is kind]", ["is_json", "rubric"]),
        ("evaluators: []", ["llm_judge"]),
        ("evaluators:", ["llm_judge"]),
        ("", ["llm_judge"]),
    ],
)
def test_the_evaluators_of_a_suite(written: str, names: list[str]) -> None:
    assert [node.name for node in read(f"{HEAD}{CASES}{written}\n").evaluators.children] == names


SUITE = "assertions: [{type: is_json}, Is kind]\n"


@pytest.mark.parametrize(
    ("written", "names", "append"),
    [
        ("assertions: [{type: is_json}, Is short]", ["is_json_2", "rubric_2"], True),
        ("execution: {assertions: [{type: is_json}]}", ["is_json_2"], True),
        ("evaluators: [{type: is_json}]", ["is_json"], False),
        ("evaluators: [{type: is_json}]\n    assert: [{type: is_json}]", ["is_json", "is_json_2"], False),
        ("evaluators: [{type: is_json}]\n    rubrics: [Is short]", ["is_json", "rubric"], False),
        ("assert: [{type: is_json}]\n    skipDefaults: true", ["is_json"], False),
        ("execution: {skip-defaults: true}", ["llm_judge"], False),
    ],
)  # fmt: skip
def test_the_evaluators_of_a_case_and_the_names_they_find(
    written: str, names: list[str], append: bool
) -> None:
    case = first_case(f"input: hi\n    {written}", SUITE)

    assert case.evaluators is not None
    assert [node.name for node in case.evaluators.children] == names
    assert case.evaluators_append is append


def test_what_a_case_asserts_stands_alone_where_the_suite_lists_no_evaluators() -> None:
    content = read(f"{HEAD}{CASES}    assert: [{{type: is_json}}]\n  - {{id: B, input: hi}}\n")

    asserting, plain = content.cases
    assert asserting.evaluators_append is False
    assert plain.evaluators is None
    assert [node.kind for node in content.evaluators.children] == ["llm_judge"]


@pytest.mark.parametrize(
    ("written", "content"),
    [
        ("input: 42", "42"),
        ("input: 1.50", "1.50"),
        ("input: {role: User, content: hi}", "hi"),
        ("input: {order: 7}", '{"order": 7}'),
        ("input: [{role: user, content: {order: 7}}]", '{"order": 7}'),
        ("input: [{role: user, content: [{type: json, value: {order: 7}}]}]", '{"order": 7}'),
        ("input: [{role: user, content: [hi, {text: ho}]}]", "hi\nho"),
        ("input: [{role: user, content: [{type: file, path: ../shared/rules.txt}]}]", "Günstig."),
        (
            "input: [{role: user, content: [{type: text, value: 'Mind:'}, {type: file, value: ../shared/rules.txt}]}]",
            'Mind:\n<file path="shared/rules.txt">\nGünstig.\n</file>',
        ),
        (
            "input: hi\n    inputFiles: [../shared/rules.txt]",
            '<file path="shared/rules.txt">\nGünstig.\n</file>\nhi',
        ),
    ],
)  # fmt: skip
def test_an_input_in_each_of_its_forms(written: str, content: str) -> None:
    (turn,) = first_case(written).input

    assert (turn["role"], turn["content"]) == ("user", content)


def test_what_a_suite_asks_goes_before_each_case_that_does_not_skip_it() -> None:
    suite = "input: Be brief.\ninput_files: ../shared/rules.txt\n"
    turns = "input: [{role: user, content: hi}]"

    asked = first_case("input: hi", suite).input
    assert [turn["content"][:9] for turn in asked] == ["Be brief.", "<file pat"]
    assert [turn["content"] for turn in first_case(turns, suite).input] == ["Be brief.", "hi"]
    skips = first_case("input: hi\n    skip_defaults: true", suite).input
    assert [turn["content"] for turn in skips] == ["hi"]


def test_calls_of_tools_in_what_a_case_asks_are_kept_and_named() -> None:
    written = (
        "input:\n      - {role: assistant, content: '', tool_calls: [{tool: find}]}\n"
        "      - {role: tool, tool_call_id: c1, content: found}\n      - {role: user, content: hi}"
    )

    content = read(f"{HEAD}tests:\n  - id: A\n    {written}\n")

    assert content.cases[0].input[0]["tool_calls"] == [{"tool": "find"}]
    assert [(w.line, w.key) for w in content.warnings] == [
        (5, "tests[0].input[0].tool_calls"),
        (6, "tests[0].input[1].tool_call_id"),
    ]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("expected_output: 1.50", "1.50"),
        ("expected_output: true", "true"),
        ("expected_output: [1, 2]", "[1, 2]"),
        ("expected_output: {role: assistant, content: Yes}", "Yes"),
        ("expectedOutput: [{a: 1}]", '[{"a": 1}]'),
        ("expected_messages: [{role: user, content: a}, {role: assistant, content: b}]", "b"),
        (
            "expected_output: [{role: assistant, content: [{type: file, value: prompts/kind.md}]}]",
            "Is it kind?",
        ),
        ("expected_output:", ""),
    ],
)
def test_an_expected_output_in_each_of_its_forms(written: str, expected: str) -> None:
    case = first_case(f"input: hi\n    {written}")

    assert case.expected_output == expected


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        ("output: 42", {"output": "42"}),
        ("recordedOutput: Yes.", {"output": "Yes."}),
        ("output: {answer: 'Yes.'}", {"output": "Yes."}),
        ("output: {text: 3.10}", {"output": "3.10"}),
        ("output: ''", {"output": ""}),
        (
            "output: {output: a, tokenUsage: {input: 1, completionTokens: 2, cached: 3}}",
            {"output": "a", "usage": {"input_tokens": 1, "output_tokens": 2, "cached": 3}},
        ),
        ("output: a\n    durationMs: 5\n    cost-usd: 0.1", {"output": "a", "latency_ms": 5, "cost_usd": 0.1}),
        ("output: {files: {a.md: x}}", {"files": {"a.md": "x"}}),
        ("output: a\n    files: {a.md: ../shared/rules.txt}", {"output": "a", "files": {"a.md": {"path": "./shared/rules.txt"}}}),
        ("output: a\n    files: {a.png: {file: cat.png}}", {"output": "a", "files": {"a.png": {"path": "./evals/cat.png"}}}),
        ("output: a\n    files: {a.md: {text: ./no/file}}", {"output": "a", "files": {"a.md": {"text": "./no/file"}}}),
        ("output: {output: a, owner: desk}", {"output": "a", "owner": "desk"}),
    ],
)  # fmt: skip
def test_a_recorded_output_in_each_of_its_forms(written: str, recorded: dict[str, Any]) -> None:
    assert first_case(f"input: hi\n    {written}").recorded_output == recorded


@pytest.mark.parametrize("key", ["title", "tags", "criteria", "expected_outcomes", "metadata",
                                 "execution", "evaluators", "assertions", "rubrics", "aggregator",
                                 "output", "skip_defaults", "input_files"])  # fmt: skip
def test_a_key_without_a_value_says_nothing(key: str) -> None:
    assert first_case(f"input: hi\n    {key}:") == first_case("input: hi")


def test_of_two_spellings_the_one_with_a_value_counts() -> None:
    assert first_case("input: hi\n    criteria:\n    outcome: Kind").criteria == "Kind"


def test_keys_in_any_script_and_values_of_any_kind_are_kept() -> None:
    case = first_case("input: 你好 🎒\n    größe: [1, 2.50, null, {a: no}]\n    🎒: ''")

    assert case.input[0]["content"] == "你好 🎒"
    assert case.metadata == {"größe": [1, 2.5, None, {"a": "no"}], "🎒": ""}


def test_evaluators_may_be_shared_by_an_anchor() -> None:
    text = (
        "x: &checks [{type: is_json}, {type: contains, value: a}]\n"
        "tests:\n  - {id: A, input: hi, evaluators: *checks}\n"
        "  - {id: B, input: hi, evaluators: *checks}\n"
    )

    first, second = read(f"{HEAD}{text}").cases

    assert first.evaluators == second.evaluators
    assert first.evaluators is not None
    assert len(first.evaluators.children) == 2


def test_what_an_evaluator_says_that_nothing_uses_survives_with_its_path() -> None:
    written = "{name: all, type: composite, owner: me, evaluators: [{name: one, type: is_json, target: x}]}"

    content = read(
        f"{HEAD}evaluators: [{written}]\n{CASES}    assert: [{{type: is_json, note: y}}]\n"
    )

    assert content.metadata == {"evaluators": {"all": {"owner": "me"}, "all/one": {"target": "x"}}}
    assert content.cases[0].metadata == {"evaluators": {"is_json": {"note": "y"}}}
    assert [w.key.rpartition(".")[2] for w in content.warnings] == ["target", "owner", "note"]


def test_a_metric_names_an_evaluator_and_a_set_is_a_composite() -> None:
    node = evaluator("{metric: gate, type: assert-set, assert: [{type: is-json}, Is kind]}")

    assert (node.name, node.kind) == ("gate", "composite")
    assert [path for path, _ in walk(node)] == ["", "is_json", "rubric"]


def test_the_threshold_of_a_set_is_what_the_set_has_to_reach() -> None:
    text = "{metric: gate, type: assert-set, threshold: %s, assert: [{type: is-json}]%s}"
    node = evaluator(text % ("0.7", ""))
    assert (node.required_below, node.is_required) == (0.7, True)
    assert evaluator(text % ("0", "")).required_below is None

    content = read(f"{HEAD}evaluators: [{text % ('0.7', '')}]\n{CASES}")
    assert [str(note).partition("gate: ")[2] for note in content.warnings] == [
        "a result fails when the set scores below it, as with required: 0.7"
    ]
    assert suite_files.read_suite(suite_files.write_suite(content)).evaluators == content.evaluators


@pytest.mark.parametrize(
    ("threshold", "more", "said"),
    [
        ("70", "", "evaluator gate: 70 is not a number from 0 to 1"),
        ("0.7", ", required: 0.5", "gate: threshold and required both say"),
    ],
)
def test_a_threshold_of_a_set_that_cannot_be_is_refused(
    threshold: str, more: str, said: str
) -> None:
    text = f"{{metric: gate, type: assert-set, threshold: {threshold}, assert: [{{type: is-json}}]{more}}}"
    with pytest.raises(UnreadableFileError, match=said):
        read(f"{HEAD}evaluators: [{text}]\n{CASES}")


@pytest.mark.parametrize(
    ("written", "aggregator"),
    [
        ("{type: threshold, threshold: 0.4}", ("threshold", 0.4)),
        ("{type: threshold, share: 0.4}", ("threshold", 0.4)),
        ("{type: weighted-average}", ("weighted_average", 0.5)),
        ("{type: allOrNothing, threshold: 0.4}", ("all_or_nothing", 0.5)),
        ("{type: code-grader, path: ./judges/check.py}", ("code_judge", 0.5)),
    ],
)
def test_an_aggregator_in_each_of_its_spellings(written: str, aggregator: Any) -> None:
    node = evaluator(f"{{type: composite, evaluators: [{{type: is_json}}], aggregator: {written}}}")

    assert node.aggregator is not None
    assert (node.aggregator.type, node.aggregator.share) == aggregator


def test_reading_ends_when_there_is_plenty_to_mend() -> None:
    cases = "".join(f"  - {{id: C{n}}}\n" for n in range(MAX_PROBLEMS * 2))

    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(f"{HEAD}tests:\n{cases}".encode())

    assert len(refused.value.problems) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [" + "1," * 1_000_001 + "]", "contains more than 1,000,000 values; split it"),
        (f"{HEAD}{CASES}evaluators: [" + "{type: is_json}," * 501 + "]", "501 evaluators, and 500 is"),
    ],
    ids=["values", "evaluators"],
)  # fmt: skip
def test_a_file_without_measure_is_refused_before_it_fills_the_memory(text: str, said: str) -> None:
    with pytest.raises(UnreadableFileError, match=said):
        suite_files.read_suite(text.encode())


def test_what_is_said_of_a_file_stays_readable_whatever_stands_in_it() -> None:
    text = f"{HEAD}{CASES}    tags: [{{a: b}}]\nevaluators: [{{type: {'x' * 100_000}}}]\n"
    text += f"policy: {{{'y' * 900}: 1}}\n"

    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(text.encode())

    assert all(len(str(problem)) < 2_500 for problem in refused.value.problems)
    assert any("llm_judge" in problem.message for problem in refused.value.problems)


@pytest.mark.parametrize(
    "written",
    [
        "input_files: [long.txt]\ntests: {many}",
        "input: [{role: user, content: [{type: file, value: long.txt}]}]\ntests: {many}",
        "x: &long {long}\ntests: {aliased}",
    ],
)
def test_a_long_text_is_not_given_to_cases_without_end(written: str) -> None:
    many = [f"{{id: C{n}, input: hi}}" for n in range(300)]
    aliased = [f"{{id: C{n}, input: *long}}" for n in range(300)]
    text = written.replace("{long}", "z" * 1_000_000)
    text = text.replace("{many}", f"[{', '.join(many)}]").replace(
        "{aliased}", f"[{', '.join(aliased)}]"
    )

    with pytest.raises(UnreadableFileError, match="shared texts|unfolds to too many"):
        suite_files.read_suite(text.encode(), files={"long.txt": b"z" * 1_000_000})


BESIDE = b"- {id: A, input: 1.50}\n- id: B\n  input: hi\n  note: x\n"


def test_cases_may_stand_in_a_file_of_their_own() -> None:
    text = b"name: shop\nevaluators: [Is kind]\ntests: ./data/cases.yaml\n"
    files = {"evals/data/cases.yaml": BESIDE}

    content = suite_files.read_suite(text, file="evals/shop.yaml", files=files)

    assert [case.input[0]["content"] for case in content.cases] == ["1.50", "hi"]
    assert [(w.file, w.line, w.case) for w in content.warnings] == [
        ("evals/data/cases.yaml", 4, "B")
    ]
    assert content.files == {}
    assert suite_files.read_suite(suite_files.write_suite(content)) == content


def test_cases_may_stand_in_lines_of_their_own() -> None:
    text = b"name: shop\nevaluators: [Is kind]\ntests: ./cases.jsonl\n"
    lines = (
        b'{"id": "A", "input": "x", "expected_output": 1.50}\n\n{"id": "B", "input": "y", "n": 1}\n'
    )

    content = suite_files.read_suite(text, file="shop.yaml", files={"cases.jsonl": lines})

    assert [(case.key, case.expected_output) for case in content.cases] == [
        ("A", "1.50"),
        ("B", ""),
    ]
    assert [(w.file, w.line, w.case) for w in content.warnings] == [("cases.jsonl", 3, "B")]
    assert suite_files.read_suite(suite_files.write_suite(content)) == content


@pytest.mark.parametrize(
    ("reference", "beside", "said"),
    [
        ("./gone.yaml", b"", "shop.yaml, line 1, tests: the file './gone.yaml' is not among"),
        ("cases.yml", b"a: 1", "cases.yml, line 1: expected a list of cases, but found a mapping"),
        ("cases.yml", b"[", "cases.yml, line 2: not readable as YAML"),
        ("cases.yml", b"- {id: A}\n", "cases.yml, line 1, case A, tests[0]: the case has no input"),
        ("cases.csv", b"", "shop.yaml, line 1, tests: 'cases.csv' names no cases"),
        ("./gone.jsonl", b"", "shop.yaml, line 1, tests: the file './gone.jsonl' is not among"),
        ("c.jsonl", b"\n", "c.jsonl: the file contains no cases"),
        ("c.jsonl", b'\n{"id": "A"}', "c.jsonl, line 2, case A, tests[0]: the case has no input"),
        ("c.jsonl", b'{"id": "A", "input": "x"}\n{', "c.jsonl, line 2: not readable as JSON"),
        ("c.jsonl", b'{"id": "A", "output": "x"}', "c.jsonl: the file contains recorded outputs"),
    ],
)  # fmt: skip
def test_cases_elsewhere_that_cannot_be_read_name_their_file(
    reference: str, beside: bytes, said: str
) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        suite_files.read_suite(
            f"tests: {reference}".encode(),
            file="shop.yaml",
            files=dict.fromkeys(("cases.yml", "c.jsonl"), beside),
        )

    assert str(refused.value).startswith(said)

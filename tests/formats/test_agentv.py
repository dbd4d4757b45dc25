"""Suite files: what they say, in whatever spelling, and what is said of files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from runs.specs.suites import SuiteWithCases

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = "name: shop\n"
CASES = "tests:\n  - id: A\n    input: hi\n"


def read(text: str, **options: Any) -> SuiteWithCases:
    return suite_files.read_suite(text.encode(), file=options.pop("file", "shop.yaml"), **options)


def problems(text: str, **options: Any) -> list[str]:
    with pytest.raises(UnreadableFileError) as refused:
        read(text, **options)
    return [str(problem) for problem in refused.value.problems]


def leaves(root: EvaluatorSpec) -> dict[str, EvaluatorSpec]:
    return {path: node for path, node in walk(root) if not node.is_composite}


def test_a_whole_suite() -> None:
    content = read("""
name: support-agent
title: Customer support, core
description: What has to hold.
tags: [support]
judge: strict
policy: {case_gate: expected_outcomes, pass_threshold: 70, metrics_pass_threshold: 82.5,
         max_avg_score_drop: 3, max_pass_rate_drop: 0.02}
verdicts: {pass: 0.9, borderline: 0.7}
aggregator: {type: minimum}
evaluators:
  - {name: tone, type: llm-judge, weight: 2, prompt: "Is it kind?"}
  - name: gate
    type: composite
    required: true
    aggregator: {type: safety_gate, required: [safe]}
    evaluators:
      - {name: safe, type: icontains, value: sorry, negate: true}
      - {name: facts, type: rubric, min_score: 0.5, rubrics: [Names the day]}
tests:
  - id: CS-1
    title: A tent
    tags: [refunds]
    criteria: Offers a refund
    input: [{role: system, content: Be kind}, {role: user, content: My tent is torn}]
    expected_output: A refund
    expected_outcomes: [Offers a refund]
    metadata: {asked_on: 2026-03-10, order: 00123}
    output: {output: Sorry., trace: [{type: tool, name: find}], latency_ms: 20}
""")

    assert (content.slug, content.title, content.judge) == (
        "support-agent",
        "Customer support, core",
        "strict",
    )
    policy = content.policy
    assert (policy.case_gate, policy.fallback_threshold) == ("expected_outcomes", 0.7)
    assert (policy.metrics_pass_threshold, policy.max_avg_score_drop) == (0.825, 0.03)
    assert (policy.pass_threshold, policy.borderline_threshold) == (0.9, 0.7)
    assert (policy.max_pass_rate_drop, policy.cases_pass_threshold) == (0.02, 1.0)
    root = content.evaluators
    assert root.aggregator is not None
    assert root.aggregator.type == "minimum"
    found = leaves(root)
    assert list(found) == ["tone", "gate/safe", "gate/facts"]
    assert (found["tone"].weight, found["gate/safe"].negate) == (2, True)
    assert found["gate/safe"].config["ignore_case"] is True
    assert found["gate/facts"].required_below == 0.5
    assert root.children[1].required is True
    case = content.cases[0]
    assert [turn["role"] for turn in case.input] == ["system", "user"]
    assert case.metadata["asked_on"] == "2026-03-10"
    assert case.recorded_output is not None
    assert case.recorded_output["latency_ms"] == 20
    assert content.warnings == ()


@pytest.mark.parametrize(
    "key", ["tests", "cases", "evalcases", "eval_cases", "evalCases", "eval-cases"]
)
def test_cases_stand_under_any_of_their_names(key: str) -> None:
    assert [c.key for c in read(f"{HEAD}{key}:\n  - {{id: A, input: hi}}\n").cases] == ["A"]


@pytest.mark.parametrize(
    ("written", "field", "meant"),
    [
        ("expected_outcome: Kind", "criteria", "Kind"),
        ("expectedOutcome: Kind", "criteria", "Kind"),
        ("outcome: Kind", "criteria", "Kind"),
        ("criteria: Kind", "criteria", "Kind"),
        ("expected_outcomes: [A, B]", "expected_outcomes", ("A", "B")),
        ("expected_messages: [{role: assistant, content: Yes}]", "expected_output", "Yes"),
        ("expected_output: {a: 1}", "expected_output", '{"a": 1}'),
        ("expected_output: 1.50", "expected_output", "1.50"),
        ("name: A tent", "title", "A tent"),
        ("tags: refunds", "tags", ("refunds",)),
        ("tags: [2026, 1.0]", "tags", ("2026", "1.0")),
        ("output: Done.", "recorded_output", {"output": "Done."}),
        (
            "output: [{role: assistant, content: Done}]",
            "recorded_output",
            {"output": "Done", "messages": [{"role": "assistant", "content": "Done"}]},
        ),
        ("conversation_id: c7", "metadata", {"conversation_id": "c7"}),
    ],
)
def test_a_case_is_read_in_every_spelling(written: str, field: str, meant: Any) -> None:
    case = read(f"{HEAD}{CASES}    {written}\n").cases[0]

    assert getattr(case, field) == meant


def test_ids_stay_as_they_are_written() -> None:
    assert read(f"{HEAD}tests:\n  - {{id: 007, input: hi}}\n").cases[0].key == "007"


@pytest.mark.parametrize(
    "written",
    [
        "input: hi",
        "input: [{role: user, content: hi}]",
        "input_messages: [{role: user, content: hi}]",
        "input: [{role: user, content: [{type: text, value: hi}]}]",
    ],
)
def test_an_input_is_a_text_or_turns(written: str) -> None:
    case = read(f"{HEAD}tests:\n  - id: A\n    {written}\n").cases[0]

    assert case.input == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize(
    "written", ["evaluators:", "assertions:", "assert:", "execution:\n  evaluators:"]
)
def test_evaluators_stand_under_any_of_their_names(written: str) -> None:
    indent = "    " if "execution" in written else "  "

    root = read(f"{HEAD}{written}\n{indent}- {{type: contains, value: x}}\n{CASES}").evaluators

    assert [(node.name, node.kind) for node in root.children] == [("contains", "text_check")]


def test_evaluators_without_a_name_are_named_after_their_type() -> None:
    two = "evaluators: [{type: contains, value: a}, {type: contains, value: b}]\n"

    assert [n.name for n in read(HEAD + two + CASES).evaluators.children] == [
        "contains",
        "contains_2",
    ]


def test_without_evaluators_one_judge_scores_by_the_criteria_of_each_case() -> None:
    assert [node.kind for node in read(HEAD + CASES).evaluators.children] == ["llm_judge"]


@pytest.mark.parametrize(
    ("written", "append"),
    [
        ("evaluators: [{type: is_json}]", False),
        ("execution: {evaluators: [{type: is_json}]}", False),
        ("assertions: [{type: is_json}]", True),
        ("assert: [{type: is_json}]", True),
        ("assertions: [{type: is_json}]\n    skip_defaults: true", False),
        ("assert: [{type: is_json}]\n    execution: {skip_defaults: true}", False),
        ("rubrics: [Kind]", True),
    ],
)
def test_evaluators_of_a_case_replace_those_of_the_suite_and_assertions_join_them(
    written: str, append: bool
) -> None:
    suite = "evaluators: [{type: contains, value: x}]\n"

    case = read(f"{HEAD}{suite}{CASES}    {written}\n").cases[0]

    assert case.evaluators is not None
    assert (len(case.evaluators.children), case.evaluators_append) == (1, append)


def test_unknown_harmless_keys_are_reported_and_kept() -> None:
    content = read(f"{HEAD}version: 1.0\nexecution: {{target: default}}\n{CASES}    note: x\n")

    assert content.metadata == {"version": 1.0, "execution": {"target": "default"}}
    assert content.cases[0].metadata == {"note": "x"}
    assert [(w.line, w.case, w.key) for w in content.warnings] == [
        (2, "", "version"),
        (3, "", "execution.target"),
        (7, "A", "tests[0].note"),
    ]


def test_prompts_may_stand_in_files_beside_the_suite() -> None:
    text = (
        f"{HEAD}evaluators: [{{name: tone, type: llm_judge, prompt: ../prompts/tone.md}}]\n{CASES}"
    )
    files = {"prompts/tone.md": b"Is it kind?", "prompts/unused.md": b"x"}

    content = read(text, file="suites/shop.yaml", files=files)

    assert content.evaluators.children[0].config["prompt"] == "./prompts/tone.md"
    assert content.files == {"prompts/tone.md": b"Is it kind?"}


def test_a_database_that_an_evaluator_names_is_kept_as_it_is() -> None:
    rows = "{name: rows, type: sql_equivalence, database: ../data/shop.db, query: SELECT 1}"
    text = f"{HEAD}evaluators: [{rows}]\n{CASES}"
    files = {"data/shop.db": b"SQLite format 3\0\xff"}

    content = suite_files.read_suite(text.encode(), file="evals/suite.yaml", files=files)

    assert content.evaluators.children[0].config["database"] == "./data/shop.db"
    assert content.files == files
    with pytest.raises(UnreadableFileError, match=r"the file '\.\./data/shop\.db'"):
        suite_files.read_suite(text.encode(), file="evals/suite.yaml", files={})


def test_the_suite_is_named_after_its_file_when_it_has_no_name() -> None:
    content = read(CASES, file="evals/Refund Policy.yaml")

    assert (content.slug, content.title) == ("refund-policy", "Refund Policy")


@pytest.mark.parametrize("slug", ["0--0", "a_b-c", "7"])
def test_a_name_that_is_a_slug_is_the_slug(slug):
    content = suite_files.read_suite(f"name: {slug!r}\ntests: [{{id: a, input: hi}}]".encode())
    assert content.slug == slug


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: path.parent.name
)
def test_every_example_reads_and_reads_back_the_same(path: Path) -> None:
    folder = {
        p.relative_to(path.parent).as_posix(): p.read_bytes()
        for p in path.parent.rglob("*")
        if p.is_file()
    }

    content = suite_files.read_suite(path.read_bytes(), file=path.name, files=folder)

    assert content.warnings == ()
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content


EVALUATOR = f"{HEAD}{CASES}evaluators:\n  - "
LONG = "a" * 100
DEEP = "{name: tone, type: is_json}"
for _ in range(5):
    DEEP = f"{{name: {LONG}, type: composite, evaluators: [{DEEP}]}}"
# Every line merges the one before twice, so the last one asks for the first a billion times.
MERGES = "m0: &m0 {}\n" + "".join(
    f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 31)
)
REFUSED = [
    ("", "shop.yaml: the file is empty"),
    ("a: [1", "not readable as YAML: did not find expected ',' or ']' in what begins on line 1"),
    ("a: 1\nb: x\x00", "shop.yaml, line 2: contains the character NUL"),
    ("just text", "shop.yaml, line 1: expected a mapping of keys, but found 'just text'"),
    ("a: 1\na: 2\n", "line 2: the key 'a' is repeated"),
    ("a: !!python/object:os.system x", "is not known; write a plain value"),
    ("a: 1\nb: !mine [x]\n", "line 2: the tag '!mine' is not known; write a plain value"),
    ("a: 1\nb: !mine {x: 1}\n", "line 2: the tag '!mine' is not known"),
    ("a: 1\nb: !!set {x}\n", "line 2: the tag 'tag:yaml.org,2002:set' is not known"),
    ("a: 1\n!mine b: 2\n", "line 2: the tag '!mine' is not known"),
    ("a: 1\nb: {<<: !mine [{x: 1}]}\n", "line 2: the tag '!mine' is not known"),
    ("a: 1\nb: {<<: [!mine {x: 1}]}\n", "line 2: the tag '!mine' is not known"),
    ("!mine\na: 1\n", "line 1: the tag '!mine' is not known"),
    ("a: &a [*a]", "an alias contains itself"),
    ("x: &a\n  <<: *a", "an alias contains itself"),
    ("[" * 50_000, "line 1: it is nested too deeply"),
    ("- " * 50_000, "line 1: it is nested too deeply"),
    ("? " * 50_000, "line 1: a key is not plain text"),
    (MERGES, "unfolds to too many values"),
    ('a: "x\\0"', "line 1: 'x\\x00' contains the character NUL, which cannot be stored"),
    ('"a\\0": 1', "a key contains the character NUL"),
    ("a: 0x" + "f" * 5000, "is too large a number"),
    ("a: " + "9" * 400, "is too large a number"),
    (f"{HEAD}{CASES}    metadata: {{a: .inf}}\n", "line 5: '.inf' is not a number"),
    (f"{HEAD}{CASES}    metadata: {{a: 1e999}}\n", "line 5: '1e999' is not a number"),
    (HEAD, "the suite has no cases; list them under tests"),
    (f"{HEAD}tests: 3\n", "line 2, tests: expected a list of cases, but found 3"),
    (f"{HEAD}tests: [x]\n", "tests[0]: 'x' is not a case"),
    (f"{HEAD}tests:\n  - input: hi\n", "line 3, tests[0]: the case has no id"),
    (f"{HEAD}tests:\n  - id: A\n", "line 3, case A, tests[0]: the case has no input"),
    (f"{HEAD}tests:\n  - {{id: A, input: []}}\n", "case A, tests[0].input: the case has no input"),
    (
        f"{HEAD}{CASES}  - id: A\n    input: x\n",
        "line 5, case A, tests[1].id: the id 'A' is repeated",
    ),
    (
        f"{HEAD}{CASES}    expected_outcomes: 3\n",
        "expected_outcomes: expected a list of texts, but found 3",
    ),
    (
        f"{HEAD}{CASES}    expected_outcomes: [{{a: 1}}]\n",
        "expected_outcomes[0]: expected a text, but found a mapping",
    ),
    (f"{HEAD}{CASES}    expected_outcomes: ['']\n", "an expected outcome is empty"),
    (f"{HEAD}{CASES}    tags: {{a: 1}}\n", "tags: expected a list of texts, but found a mapping"),
    (f"{HEAD}{CASES}    metadata: [1]\n", "metadata: expected a mapping of keys, but found a list"),
    (f"{HEAD}{CASES}    criteria: x\n    expected_outcome: y\n", "says the same as 'criteria'"),
    (f"{HEAD}{CASES}    expectedOutput: x\n    expected_output: y\n", "is repeated"),
    (f"{HEAD}{CASES}    output: {{output: {{a: 1}}}}\n", "the recorded output is not readable"),
    (f"{HEAD}{CASES}    latency_ms: 3\n", "belongs to an output, and the case has none"),
    (f"{HEAD}tests: [{{id: A, input: [{{content: x}}]}}]\n", "the turn has no role"),
    (
        f"{HEAD}tests: [{{id: A, input: [{{role: user, content: [{{type: image}}]}}]}}]\n",
        "a block of type image cannot be made text",
    ),
    (
        f"{HEAD}{CASES}policy: {{case_gate: vibes}}\n",
        "policy.case_gate: 'vibes' is not one of score",
    ),
    (f"{HEAD}{CASES}policy: {{pass_thershold: 3}}\n", "policy.pass_thershold: is not known here"),
    (f"{HEAD}{CASES}policy: {{metrics_pass_threshold: 180}}\n", "metrics_pass_threshold 1.8"),
    (f"{HEAD}{CASES}policy: {{pass_threshold: high}}\n", "'high' is not a number"),
    (f"{HEAD}{CASES}policy: {{scale: 7}}\n", "7 is not one of 1, 5, 10, 100"),
    (f"{HEAD}{CASES}policy: {{count_reviews: 1}}\n", "1 is not true or false"),
    (
        f"{HEAD}{CASES}policy: {{review: {{borderlin: true}}}}\n",
        "policy.review.borderlin: is not known here",
    ),
    (f"{HEAD}{CASES}policy: {{review: {{near_threshold: 2}}}}\n", "2 is not true or false"),
    (f"{HEAD}{CASES}policy: {{review: {{pass_sample: 5}}}}\n", "review_pass_sample 5.0 is not"),
    (f"{HEAD}{CASES}policy: {{review: {{reviewers: 1.5}}}}\n", "1.5 is not a whole number"),
    (f"{HEAD}{CASES}policy: {{review: {{reviewers: 10}}}}\n", "review_reviewers 10 is not 1 to 9"),
    (f"{HEAD}{CASES}policy: {{review: all}}\n", "policy.review"),
    (f"{HEAD}{CASES}verdicts: {{pass: 0.5, borderline: 0.8}}\n", "line 5, verdicts: borderline"),
    (f"{HEAD}{CASES}verdicts: {{fail: 0.2}}\n", "fail begins at 0"),
    (f"{HEAD}{CASES}verdicts: {{pass: .nan}}\n", "'.nan' is not a number"),
    (
        f"{HEAD}{CASES}aggregator: {{type: median}}\n",
        "line 5, aggregator.type: type: 'median' is not",
    ),
    (f"{EVALUATOR}{{name: x}}", "line 6, evaluators[0]: evaluator x: type is missing"),
    (
        f"{EVALUATOR}{{name: x, type: telepathy}}",
        "evaluator x: There is no evaluator type 'telepathy'",
    ),
    (f"{EVALUATOR}{{name: x, type: contains}}", "evaluator x: contains needs value"),
    (
        f"{EVALUATOR}{{name: x, type: contains, value: a, ignore_caes: true}}",
        "evaluator x: ignore_caes: is not a setting",
    ),
    (
        f"{EVALUATOR}{{name: x, type: contains, value: a, prompt: b}}",
        "evaluator x: prompt: is not a setting",
    ),
    (
        f"{EVALUATOR}{{name: x, type: is_json, weight: -1}}",
        "evaluator x: the weight -1.0 is below 0",
    ),
    (f"{EVALUATOR}{{name: x, type: is_json, weight: .inf}}", "'.inf' is not a number"),
    (f"{EVALUATOR}{{name: x, type: is_json, weight: 0}}", "weights of its evaluators sum to 0"),
    (f"{EVALUATOR}{{name: x, type: is_json, required: 7}}", "7.0 is not a number from 0 to 1"),
    (f"{EVALUATOR}{{name: x, type: is_json, required: maybe}}", "'maybe' is neither true or false"),
    (f"{EVALUATOR}{{name: a/b, type: is_json}}", "no slash"),
    (
        f"{EVALUATOR}{{name: x, type: is_json}}\n  - {{name: x, type: is_json}}",
        "line 7, evaluators[1].name",
    ),
    (f"{EVALUATOR}{DEEP}", f"line 5, evaluators: evaluator “{LONG}” is nested too deep"),
    (f"{HEAD}{CASES}    evaluators: [{DEEP}]\n", f"line 3, case A, tests[0]: evaluator “{LONG}”"),
    (f"{EVALUATOR}{{name: x, type: composite}}", "a composite needs evaluators"),
    (
        f"{EVALUATOR}{{name: x, type: composite, evaluators: [{{type: is_json}}], prompt: p}}",
        "prompt: is not known here",
    ),
    (
        f"{EVALUATOR}{{name: x, type: composite, evaluators: [{{name: a, type: is_json}}],"
        " aggregator: {type: safety_gate, required: [b]}}",
        "its evaluators are",
    ),
    (
        f"{EVALUATOR}{{name: x, type: llm_judge, prompt: 'See {{{{nothing}}}}'}}",
        "{{nothing}} is not a variable",
    ),
    (
        f"{EVALUATOR}{{name: x, type: llm_judge, prompt: ./gone.md}}",
        "the file './gone.md' is not among",
    ),
    (
        f"{EVALUATOR}{{name: x, type: llm_judge, prompt: ../../etc/passwd}}",
        "is outside the folder",
    ),
    (
        f"{EVALUATOR}{{name: x, type: rubric, rubrics: [{{id: a}}]}}",
        "evaluators[0].rubrics[0].expected_outcome: evaluator x: rubrics[0].expected_outcome: is missing",
    ),
    (
        f"{EVALUATOR}{{name: x, type: is_json}}\nexecution: {{evaluators: [{{type: is_json}}]}}",
        "keep one list",
    ),
    (
        f"{HEAD}evaluators: [{{name: x, type: is_json}}]\n{CASES}    assertions: [{{name: x, type: is_json}}]\n",
        "case A, tests[0].assertions[0].name: the evaluator 'x' is repeated",
    ),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_file_that_cannot_be_used_is_refused_with_place_and_remedy(text: str, said: str) -> None:
    found = problems(text)

    assert any(said in one for one in found), found
    assert all(one.startswith("shop.yaml") for one in found)


def test_every_problem_of_a_file_is_said_at_once_in_its_order() -> None:
    text = (
        f"{HEAD}evaluators:\n  - {{type: telepathy}}\n  - {{type: contains}}\ntests:\n  - id: A\n"
    )

    lines = [one.split(",")[1] for one in problems(text)]

    assert lines == [" line 3", " line 4", " line 6"]


def test_a_file_that_is_no_text_names_the_line() -> None:
    with pytest.raises(UnreadableFileError, match="line 2: not text in UTF-8"):
        suite_files.read_suite(b"name: x\n\xff\n", file="shop.yaml")


@pytest.mark.parametrize(
    ("file", "slug", "title"),
    [
        ("evals/capitals.eval.yaml", "capitals", "capitals"),
        ("Capitals of 2026.EVALS.yml", "capitals-of-2026", "Capitals of 2026"),
        ("eval.yaml", "eval", "eval"),
        ("v1.2.yaml", "v1-2", "v1.2"),
    ],
)
def test_a_suite_without_a_name_is_called_like_its_file(file: str, slug: str, title: str) -> None:
    content = suite_files.read_suite(b"tests: [{id: A, input: hi}]", file=file)
    assert (content.slug, content.title) == (slug, title)


def test_a_key_that_is_kept_may_be_a_misspelt_one() -> None:
    content = suite_files.read_suite(
        b"evaluatrs: []\ntests: [{id: A, input: hi, expected_outcmes: [x], owner: me}]"
    )
    said = {warning.key: warning.message.partition("; ")[2] for warning in content.warnings}
    assert said == {
        "evaluatrs": "did you mean evaluators?",
        "tests[0].expected_outcmes": "did you mean expected_outcomes?",
        "tests[0].owner": "",
    }


def test_keys_beside_very_many_others_are_no_slips() -> None:
    # To compare the half million that a file can hold would take a minute.
    others = "".join(f"evaluator{n}: 1\n" for n in range(101))
    content = suite_files.read_suite(f"{others}tests: [{{id: A, input: hi}}]".encode())

    assert len(content.warnings) == 101
    assert not any("did you mean" in warning.message for warning in content.warnings)


def test_a_variable_in_a_text_check_is_noted_with_what_was_likely_meant() -> None:
    text = (
        f"{HEAD}evaluators:\n"
        '  - {name: right, type: contains, value: "{{expected_output}}"}\n'
        '  - {name: tone, type: llm_judge, prompt: "Is {{answer}} kind?"}\n'
        f'{CASES}    evaluators: [{{name: own, type: equals, value: "{{{{ input }}}}"}}]\n'
    )
    found = [(one.case, one.key, one.message) for one in read(text).warnings]
    assert [one[:2] for one in found] == [("", "evaluators[0]"), ("A", "tests[0].evaluators[0]")]
    first, second = (message for *_, message in found)
    assert first.startswith("evaluator right: looks for “{{expected_output}}” literally")
    assert "type expected_output with match: contains" in first
    assert "type expected_output with match: exact" in second


def test_the_data_set_names_the_suite() -> None:
    named = read("dataset: Composite examples\n" + CASES, file="dataset.yaml")

    assert (named.slug, named.title) == ("composite-examples", "Composite examples")
    assert (named.metadata, named.warnings) == ({}, ())
    both = read(HEAD + "dataset: examples\n" + CASES)
    assert (both.slug, both.metadata) == ("shop", {"dataset": "examples"})

"""Suites in JSON Lines: a case a line, the rest in the YAML of the same name."""

from __future__ import annotations

import json

import pytest

from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError

SIDECAR = b"""
name: refunds
title: Refunds
judge: strict
verdicts: {pass: 0.9, borderline: 0.7}
evaluators:
  - {name: time, type: contains, value: 5 days}
  - {name: tone, type: llm_judge, prompt: ./tone.md}
"""
LINES = b"""\xef\xbb\xbf{"id": "A", "input": "When?", "criteria": "Says when", "expected_output": 1.50}

{"evalId": 7, "input_messages": [{"role": "user", "content": "Why?"}], "assertions": [{"type": "max-length", "value": 9}]}
"""


def problems(lines: str | bytes, **files: bytes) -> list[str]:
    content = lines.encode() if isinstance(lines, str) else lines
    around = {name.replace("_", "."): part for name, part in files.items()}
    with pytest.raises(UnreadableFileError) as refusal:
        suite_files.read_case_lines(content, file="cases.jsonl", files=around)
    return [str(problem) for problem in refusal.value.problems]


def test_the_lines_are_the_cases_of_the_suite_beside_them() -> None:
    files = {"evals/refunds.yaml": SIDECAR, "evals/tone.md": b"Kind?"}

    suite = suite_files.read_case_lines(LINES, file="evals/refunds.jsonl", files=files)

    inline = SIDECAR + (
        b"tests:\n"
        b"  - {id: A, input: When?, criteria: Says when, expected_output: 1.50}\n"
        b"  - {evalId: 7, input_messages: [{role: user, content: Why?}], "
        b"assertions: [{type: max-length, value: 9}]}\n"
    )
    assert suite == suite_files.read_suite(inline, file="evals/refunds.yaml", files=files)
    assert (suite.cases[0].expected_output, suite.cases[1].key) == ("1.50", "7")


def test_lines_alone_are_a_suite_named_after_their_file() -> None:
    suite = suite_files.read_case_lines(b'{"id": "A", "input": "x"}', file="Returns 2026.jsonl")

    assert (suite.slug, suite.title) == ("returns-2026", "Returns 2026")
    assert [child.kind for child in suite.evaluators.children] == ["llm_judge"]
    assert (
        suite_files.read_case_lines(b'{"id": "A", "input": "x"}', file="x.evals.jsonl").slug == "x"
    )


def test_the_data_set_that_others_name_is_the_suite() -> None:
    lines = b'{"id": "A", "input": "x"}'
    suite = suite_files.read_case_lines(
        lines, file="c.jsonl", files={"c.yaml": b"dataset: math-tests\n"}
    )
    assert (suite.slug, suite.metadata, suite.warnings) == ("math-tests", {}, ())
    both = {"c.yaml": b"name: sums\ndataset: math-tests\n"}
    assert suite_files.read_case_lines(lines, file="c.jsonl", files=both).slug == "sums"


def test_the_yaml_beside_may_name_the_lines() -> None:
    lines = b'{"id": "A", "input": "x"}'
    head = {"e/c.yaml": b"name: c\ntests: ./c.jsonl\n"}
    assert suite_files.read_case_lines(lines, file="e/c.jsonl", files=head).warnings == ()


def test_what_is_not_used_is_told_with_the_line_of_its_own_file() -> None:
    lines = b'{"id": "A", "input": "x"}\n{"id": "B", "input": "x", "owner": {"team": "red"}}'

    suite = suite_files.read_case_lines(
        lines, file="c.jsonl", files={"c.yaml": b"name: c\n\nversion: 3\n"}
    )

    places = [(w.file, w.line, w.case, w.key) for w in suite.warnings]
    assert sorted(places) == [("c.jsonl", 2, "B", "owner"), ("c.yaml", 3, "", "version")]
    assert suite.cases[1].metadata == {"owner": {"team": "red"}}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "cases.jsonl, line 2: not readable as JSON: Expecting property name"),
        ("[1]", "cases.jsonl, line 2: the line is not a JSON object"),
        ('{"input": "x"}', "cases.jsonl, line 2: the case has no id"),
        ('{"id": "B"}', "cases.jsonl, line 2, case B: the case has no input"),
        ('{"id": "A", "input": "x"}', "the id 'A' is repeated, first on line 1"),
        ('{"id": "B", "input": true}', "cases.jsonl, line 2, case B, input: is neither a text nor"),
        (
            '{"id": "B", "input": "x", "evaluators": [{"type": "guess"}]}',
            "cases.jsonl, line 2, case B, evaluators[0].type: evaluator guess: There is no",
        ),
        ('{"id": "B", "input": "x", "metadata": {"n": 1e999}}', "line 2: 1e999 is not a finite"),
        ('{"id": "B", "input": "\\ud800"}', "line 2: a text contains a character that cannot be"),
        ('{"id": "B", "input": "x", "metadata": ' + '{"a":' * 80 + "1" + "}" * 81, "too deeply"),
    ],
)
def test_every_refusal_names_the_line(line: str, said: str) -> None:
    (found,) = problems('{"id": "A", "input": "x"}\n' + line)
    assert said in found


def test_a_file_full_of_nonsense_is_not_told_line_by_line() -> None:
    assert len(problems("nonsense\n" * 5_000)) == 100


def test_problems_of_both_files_are_told_at_once() -> None:
    found = problems('{"id": "A"}\nnonsense', cases_yaml=b"verdicts: {pass: 7}\n")

    assert len(found) == 3
    assert any(one.startswith("cases.yaml, line 1, verdicts") for one in found)


@pytest.mark.parametrize(
    ("sidecar", "said"),
    [
        (b"tests: []\n", "cases.yaml, line 1, tests: the cases are in the JSON Lines next to"),
        (b"- a\n", "cases.yaml, line 1: the file is not a mapping of keys"),
        (b"a: [\n", "cases.yaml, line 2: not readable as YAML"),
    ],
)
def test_a_yaml_beside_that_cannot_be_used_is_refused(sidecar: bytes, said: str) -> None:
    assert said in problems('{"id": "A", "input": "x"}', cases_yaml=sidecar)[0]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            '{"id": "A", "output": "x"}\n',
            "contains recorded outputs, not cases; give it as recorded",
        ),
        (
            '{"eval_id": "A", "score": 0.5, "hits": [], "candidate_answer": "x"}\n',
            "contains results of a run, not cases; import it as the results of a run",
        ),
        ("\n\n", "the file contains no cases"),
        ('{"id": "A"}\n', "the case has no input"),
    ],
)
def test_lines_of_another_kind_are_told_apart(lines: str, said: str) -> None:
    (found,) = problems(lines)
    assert said in found


def test_a_suite_written_as_lines_reads_back_the_same() -> None:
    files = {"r.yaml": SIDECAR, "tone.md": b"Kind?"}
    suite = suite_files.read_case_lines(LINES, file="r.jsonl", files=files)

    lines, head = suite_files.write_case_lines(suite)

    again = suite_files.read_case_lines(
        lines, file="x.jsonl", files={"x.yaml": head, "tone.md": b"Kind?"}
    )
    assert again == suite
    assert [json.loads(line)["id"] for line in lines.splitlines()] == ["A", "7"]

"""Recorded outputs: one line a case, and the line that is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.formats import lines, recorded_outputs
from runs.formats.lines import numbered_lines
from runs.formats.recorded_outputs import RecordedLine, read_outputs, write_outputs
from runs.specs.problems import UnreadableFileError

STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
FULL = (
    '{"id": "CS-1", "output": "Yes", "messages": [{"role": "assistant", "content": "Yes"}], '
    '"trace": [{"type": "tool", "name": "find", "input": {"a": 1}, "duration_ms": 4}], '
    '"usage": {"input_tokens": 812, "output_tokens": 120}, "latency_ms": 3400, "cost_usd": 0.0023}'
)


def test_a_line_holds_everything_an_answer_was() -> None:
    (line,) = read_outputs(FULL.encode())

    assert (line.key, line.line, line.output["latency_ms"]) == ("CS-1", 1, 3400)
    assert line.output["trace"][0]["name"] == "find"


def test_blank_lines_byte_order_marks_and_other_line_ends_are_fine() -> None:
    content = '\ufeff{"id": "A", "output": "one\u2028two"}\r\n\n{"case_id": 7, "output": ""}\n'

    assert [(line.key, line.line) for line in read_outputs(content.encode())] == [
        ("A", 1),
        ("7", 3),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not readable as JSON"),
        ('{"id": "a', "Unterminated string starting at character 8"),
        ("[1]", "not a JSON object"),
        ('{"output": "x"}', "no id of a case"),
        ('{"id": "", "output": "x"}', "no id of a case"),
        ('{"id": true, "output": "x"}', "not a text"),
        ('{"id": "B"}', "has no output"),
        ('{"id": "B", "output": 3}', "output is int, not text"),
        ('{"id": "B", "output": "x", "trace": [{"name": "x"}]}', "not a step with type and name"),
        ('{"id": "B", "output": "x", "messages": [3]}', "messages contains 3"),
        ('{"id": "B", "output": "x", "latency_ms": "fast"}', "latency_ms is 'fast'"),
        ('{"id": "B", "output": "x", "cost_usd": -1}', "cost_usd is -1"),
        ('{"id": "B", "output": "x", "cost_usd": NaN}', "NaN is not JSON"),
        ('{"id": "A", "output": "x"}', "case A: the id is repeated, first on line 1"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": "B", "output": "", "trace": ' + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
        ('{"id": "B", "output": "x", "more": 1e999}', "1e999 is not a finite number"),
        ('{"id": "B", "output": "x", "cost_usd": 1e9}', "cost_usd is 1000000000.0"),
        ('{"id": "B", "output": "x\\u0000"}', "contains a character that cannot be stored"),
        ('{"id": "\\ud800", "output": "x"}', "contains a character that cannot be stored"),
        ('{"id": "B", "output": "x", "output": "y"}', "the key 'output' is repeated"),
        (
            '{"id": "B", "output": "", "trace": [{"type": "a", "name": "b", "duration_ms": "4"}]}',
            "trace contains a step whose duration_ms is '4', not a number of 0 or more",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: str, said: str) -> None:
    content = f'{{"id": "A", "output": "x"}}\n{line}\n'.encode()

    with pytest.raises(UnreadableFileError) as refused:
        read_outputs(content, file="v2.jsonl")

    assert [problem.line for problem in refused.value.problems] == [2]
    assert str(refused.value).startswith("v2.jsonl, line 2")
    assert said in str(refused.value)


def test_every_bad_line_is_named() -> None:
    with pytest.raises(UnreadableFileError) as refused:
        read_outputs(b"{\n{}\n\xff")

    assert [problem.line for problem in refused.value.problems] == [1, 2, 3]


def test_of_a_file_of_bad_lines_no_more_is_read_than_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = []
    monkeypatch.setattr(recorded_outputs, "read_object", lambda raw: read.append(raw) or {})
    with pytest.raises(UnreadableFileError) as refused:
        read_outputs(b"x\n" * 5_000)

    assert len(refused.value.problems) == len(read) == 100


@pytest.mark.parametrize(("limit", "most"), [("MAX_CASES", 3), ("MAX_HELD_BYTES", 350_000)])
def test_a_file_of_more_than_memory_holds_is_refused_with_its_line(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps({"id": number, "output": "x" * 100_000}) for number in range(5)]
    content = "\n".join(lines).encode()
    assert len(read_outputs(content)) == 5

    monkeypatch.setattr(recorded_outputs, limit, most)
    with pytest.raises(UnreadableFileError, match="line 4: the file has more than .* split it"):
        read_outputs(content)


def test_a_line_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1024**2)
    content = b'{"id": "a", "output": "short"}\n{"id": "b", "output": "%s"}' % (b"x" * 1024**2)
    with pytest.raises(UnreadableFileError, match="line 2: the line has more than 1 MB; shorten"):
        read_outputs(content)


@given(st.text("\n \r\t\x0b\x0cax\u2028\x85", max_size=40))
def test_lines_are_numbered_as_an_editor_numbers_them(text: str) -> None:
    lines = list(enumerate(text.encode().split(b"\n"), 1))

    assert list(numbered_lines(text.encode())) == [line for line in lines if line[1].strip()]


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match="contains no outputs"):
        read_outputs(b"\n")


@given(
    st.dictionaries(
        st.text(STORABLE, min_size=1, max_size=20),
        st.text(STORABLE, max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_written_outputs_read_back_the_same(texts: dict[str, str]) -> None:
    lines = tuple(RecordedLine(key, {"output": text}) for key, text in texts.items())

    read = read_outputs(write_outputs(lines))

    assert [(line.key, line.output) for line in read] == [(line.key, line.output) for line in lines]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"id": "A", "input": "x"}',
            "contains cases, not recorded outputs; give it as the suite file",
        ),
        ('{"test_id": "A", "score": 1, "answer": "x"}', "contains results of a run, not recorded"),
    ],
)
def test_a_file_of_another_kind_is_told_apart(line: str, said: str) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        read_outputs(f"{line}\n{line}\n".encode())
    assert said in str(refusal.value)
    assert len(refusal.value.problems) == 1

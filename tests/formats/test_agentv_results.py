"""Result files of AgentV, each generation of them."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial

import pytest

from evaluators.kinds import kind_for_spelling
from evaluators.reading.json import read_json
from evaluators.scoring.types import Finding, OutcomeResult, Usage
from runs.formats import lines, results_reading
from runs.formats.results_reading import read_results
from runs.formats.results_writing import EvaluatorLine, ResultLine, write_results
from runs.formats.tools import _base
from runs.specs.problems import UnreadableFileError


def read(*lines):
    return read_results("\n".join(json.dumps(line) for line in lines).encode()).results


def refused(*lines):
    with pytest.raises(UnreadableFileError) as refusal:
        read(*lines)
    return [str(problem) for problem in refusal.value.problems]


NESTED = {
    "timestamp": "2026-02-20T21:38:46.160Z",
    "test_id": "greeting",
    "dataset": "composite-examples",
    "score": 0.9,
    "hits": ["[safety] no harm"],
    "misses": ["curt"],
    "target": "default",
    "reasoning": "fine",
    "evaluator_results": [
        {
            "name": "release_gate",
            "type": "composite",
            "score": 0.9,
            "weight": 1,
            "verdict": "pass",
            "hits": [],
            "misses": [],
            "evaluator_results": [
                {
                    "name": "safety",
                    "type": "llm_judge",
                    "score": 1,
                    "weight": 0.3,
                    "hits": ["no harm"],
                    "misses": [],
                    "reasoning": "kind",
                },
                {"name": "format", "type": "code_judge", "score": 0.5, "misses": ["curt"]},
            ],
        }
    ],
}


def camel(value):
    """Spell every key in camelCase."""
    if isinstance(value, dict):
        return {
            "".join(p.capitalize() if n else p for n, p in enumerate(key.split("_"))): camel(part)
            for key, part in value.items()
        }
    return [camel(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("line", [NESTED, camel(NESTED)], ids=["snake", "camel"])
def test_both_spellings_are_read_with_everything_nested(line):
    [found] = read(line)
    result = found.result
    assert (result.eval_id, result.suite, result.target) == (
        "greeting",
        "composite-examples",
        "default",
    )
    assert (result.status, result.score, result.verdict) == ("scored", 0.9, "")
    assert found.finished_at.isoformat() == "2026-02-20T21:38:46.160000+00:00"
    [gate] = result.evaluators
    assert (gate.type, gate.aggregator) == ("composite", {})
    safety, form = gate.children
    assert (safety.type, safety.weight, safety.reasoning) == ("llm_judge", 0.3, "kind")
    assert safety.findings == (Finding("no harm", True),)
    assert (form.score, form.weight, form.findings) == (0.5, 1.0, (Finding("curt", False),))


def test_the_newest_generation_is_read():
    [found] = read(
        {
            "test_id": "fizzbuzz",
            "suite": "my-eval",
            "score": 1,
            "target": "local",
            "input": [{"role": "user", "content": [{"type": "text", "value": "Write it"}]}],
            "output": [{"role": "assistant", "content": "for i in range(3): …"}],
            "token_usage": {"input": 12, "output": 34},
            "duration_ms": 1702,
            "cost_usd": 0.01,
            "scores": [
                {
                    "name": "contains-fizz",
                    "type": "contains",
                    "score": 1,
                    "assertions": [{"text": "has fizz", "passed": True, "evidence": "line 1"}],
                },
                {
                    "name": "llm-rubric",
                    "type": "llm-rubric",
                    "score": 1,
                    "token_usage": {"input": 5, "output": 6},
                },
                {"name": "llm-rubric", "type": "made-up", "score": 1},
            ],
            "execution_status": "ok",
        }
    )
    result = found.result
    assert [(one.name, one.type) for one in result.evaluators] == [
        ("contains-fizz", "text_check"),
        ("llm-rubric", kind_for_spelling("llm-rubric")[0].name),
        ("llm-rubric 2", "made_up"),
    ]
    assert result.evaluators[0].findings == (Finding("has fizz", True, "line 1"),)
    assert result.evaluators[1].usage == Usage(input_tokens=5, output_tokens=6)
    assert (result.output, result.run_cost_usd) == ("for i in range(3): …", Decimal("0.01"))
    assert result.usage == Usage(input_tokens=12, output_tokens=34, latency_ms=1702)
    assert found.input == ({"role": "user", "content": "Write it"},)


def test_figures_of_an_older_generation_stand_in_a_block():
    trace = {"tokenUsage": {"input": 1, "output": 2}, "costUsd": 0.5, "durationMs": 7}
    [found] = read({"evalId": "a", "score": 1, "candidateAnswer": "hi", "traceSummary": trace})
    assert found.result.usage == Usage(input_tokens=1, output_tokens=2, latency_ms=7)
    assert (found.result.run_cost_usd, found.result.output) == (Decimal("0.5"), "hi")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"score": 0, "error": "timed out"}, "timed out"),
        ({"score": 0, "error": {"message": "no reply"}}, "no reply"),
        ({"score": 0, "execution_status": "execution_error"}, "the file gives no reason"),
        ({"score": None, "status": "error"}, "the file gives no reason"),
    ],
)
def test_an_error_is_never_a_score_of_0(line, error):
    [found] = read({"eval_id": "a", **line})
    assert (found.result.status, found.result.score, found.result.verdict) == ("error", None, "")
    assert found.result.error.startswith(error)


def test_a_line_without_evaluators_has_one_that_said_its_score():
    [found] = read({"eval_id": "a", "score": 0.88, "hits": ["short"], "reasoning": "good"})
    [overall] = found.result.evaluators
    assert (overall.name, overall.score, overall.reasoning) == ("overall", 0.88, "good")
    assert overall.findings == (Finding("short", True),)


@pytest.mark.parametrize("name", ["trials", "attempts"])
def test_trials_become_repetitions(name):
    trials = [{"attempt": 0, "score": 1, "verdict": "pass"}, {"attempt": 1, "error": "gone"}]
    found = read({"test_id": "a", "score": 1, "target": "t", name: trials})
    assert [(one.result.repetition, one.result.status, one.result.target) for one in found] == [
        (1, "scored", "t"),
        (2, "error", "t"),
    ]


def test_what_was_never_carried_out_is_left_out_and_told():
    lines = [{"eval_id": "a", "score": 1}, {"eval_id": "b", "status": "cancelled", "score": None}]
    found = read_results("\n".join(map(json.dumps, lines)).encode(), file="r.jsonl")
    assert len(found.results) == 1
    assert [str(note) for note in found.notes] == [
        "r.jsonl, line 2: 1 result was left out, never run"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"score": 1}, "the line has no id of a case; add it as eval_id"),
        ({"eval_id": "a"}, "case a: the line has no score, no verdict and no error"),
        ({"eval_id": "a", "score": 1.5}, "the score 1.5 is not a number from 0 to 1"),
        ({"eval_id": "a", "score": "0.5"}, "the score '0.5' is not a number from 0 to 1"),
        ({"eval_id": "a", "score": True}, "the score True is not a number from 0 to 1"),
        (
            {"eval_id": "a", "score": 1, "verdict": "great"},
            "'great' is not a verdict; use pass, borderline or fail",
        ),
        ({"eval_id": "a", "score": 1, "cost_usd": -1}, "cost_usd"),
        (
            {"eval_id": "a", "score": 1, "scores": [{"name": "tone", "score": 7}]},
            "evaluator tone: the score 7 is not a number from 0 to 1",
        ),
        ({"eval_id": "a" * 201, "score": 1}, "the id is longer than 200 characters"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_place(line, message):
    said = refused({"eval_id": "good", "score": 1}, line)
    assert any(message in one for one in said)
    assert all(one.startswith("results.jsonl, line 2") for one in said)


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"{", b"[]", b'{"eval_id": "a", "score": NaN}', b"\xff\xfe", b'{"a":"\\u0000"}'],
)
def test_what_is_no_file_of_results_is_refused(content):
    with pytest.raises(UnreadableFileError):
        read_results(content)


def test_nesting_without_end_is_refused():
    line = {"name": "x" * 99, "score": 1}
    for _ in range(10):
        line = {"name": "x" * 99, "score": 1, "scores": [line]}
    assert "nested too deeply" in refused({"eval_id": "a", "score": 1, "scores": [line]})[0]


def test_names_that_could_not_stand_in_a_path_are_spelt_otherwise():
    scores = [{"name": "a/b", "score": 1}, {"name": "@x", "score": 1}, {"score": 1}]
    [found] = read({"eval_id": "a", "score": 1, "scores": scores})
    assert [one.name for one in found.result.evaluators] == ["a-b", "x", "evaluator"]


def test_what_we_write_reads_back():
    tone = EvaluatorLine(
        "tone",
        "llm_judge",
        "scored",
        0.25,
        2.0,
        is_negated=True,
        findings=(Finding("short", True), Finding("rude", False)),
        reasoning="because",
        usage=Usage(input_tokens=1, output_tokens=2, cost_usd=Decimal("0.004"), latency_ms=9),
    )
    both = EvaluatorLine(
        "both",
        "composite",
        "scored",
        0.25,
        aggregator={"type": "minimum"},
        children=(tone, EvaluatorLine("gone", "rubric", "unscored", reasoning="no reply")),
    )
    line = ResultLine(
        suite="support",
        run=0,
        target="agent",
        eval_id="C-1",
        repetition=2,
        status="scored",
        score=0.25,
        verdict="fail",
        decided_by="0.25 < 0.60",
        evaluators=(both,),
        outcomes=(OutcomeResult("Names the time", False, "It does not"),),
        warnings=("a warning",),
        output="Go away\u2028now",
        usage=Usage(input_tokens=5, output_tokens=7, latency_ms=40),
        run_cost_usd=Decimal("0.012"),
        evaluation_cost_usd=Decimal("0.004"),
    )
    [found] = read_results("".join(write_results([line])).encode()).results
    assert found.result == line


def test_a_title_and_tags_that_are_too_long_for_a_case_are_cut() -> None:
    [result] = read({"eval_id": "A", "score": 1, "title": "t" * 301, "tags": ["a", "b" * 3000]})

    assert (result.title, result.tags) == ("t" * 300, ("a", "b" * 200))


def test_evaluators_of_one_name_are_numbered() -> None:
    names = ["tone", "tone 3", "tone", "tone", "tone", "fact"]
    line = {"eval_id": "A", "score": 1, "scores": [{"name": name, "score": 1} for name in names]}
    [result] = read(line)

    numbered = ["tone", "tone 3", "tone 2", "tone 4", "tone 5", "fact"]
    assert [evaluator.name for evaluator in result.result.evaluators] == numbered


def test_a_cost_of_nothing_is_known() -> None:
    line = {"eval_id": "A", "score": 1, "run_cost_usd": 0, "trace": {"cost_usd": 2}}
    [result] = read(line)

    assert result.result.run_cost_usd == 0


EVALUATION = {
    "case_id": "A",
    "deterministic_dimensions": {"task": 10.0, "spark": None},
    "judge_dimensions": {"task": 8.0, "spark": 7.0},
    "final_dimensions": {"task": 8.0, "spark": 7.0},
    "judge_overall": {"score": 7.5, "evidence": ["Right"]},
    "final_score": 7.5,
    "summary": {"judge_successful_iterations": 1},
}


@pytest.mark.parametrize("document", [EVALUATION, [EVALUATION]])
def test_a_final_evaluation_in_a_document_of_its_own_is_a_result(document) -> None:
    content = json.dumps(document, indent=2).encode()

    [found] = read_results(content).results

    result = found.result
    assert (result.eval_id, result.score, result.status) == ("A", 0.75, "scored")
    [evaluator] = result.evaluators
    assert (evaluator.type, evaluator.score) == ("hybrid_judge", 0.75)
    assert evaluator.final_evaluation is not None
    assert evaluator.final_evaluation["deterministic_dimensions"] == {"task": 10.0}


@pytest.mark.parametrize("document", [{"results": [1]}, [1, 2], "text"])
def test_any_other_document_is_refused_in_one_sentence(document) -> None:
    with pytest.raises(UnreadableFileError) as refusal:
        read_results(json.dumps(document, indent=2).encode(), file="r.json")
    [problem] = refusal.value.problems
    assert str(problem).startswith("r.json: the file is one JSON document that is no result")


PROMPTFOO = {
    "testIdx": 0,
    "promptIdx": 0,
    "success": True,
    "failureReason": 0,
    "vars": {"numbers": [1] * 30},
}
AS_LINES = "write each result on a line of its own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps([{"eval_id": "A", "metadata": {"numbers": [1] * 50}}]), AS_LINES),
        (json.dumps([{"eval_id": "A", "metadata": {"numbers": [1] * 50}}], indent=1), AS_LINES),
        (json.dumps({"results": {"results": [PROMPTFOO] * 2}}), AS_LINES),
        (json.dumps({"results": {"results": [PROMPTFOO] * 2}}, indent=1), AS_LINES),
        (f"{json.dumps(PROMPTFOO)}\n" * 2, "split it into several files"),
    ],
)
def test_a_file_of_too_many_values_is_refused_before_they_take_memory(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (results_reading, _base):
        monkeypatch.setattr(module, "MAX_RESULT_VALUES", 50)
    monkeypatch.setattr(lines, "MAX_FILE_VALUES", 50)
    monkeypatch.setattr(lines, "read_json", partial(read_json, max_values=50))
    with pytest.raises(UnreadableFileError) as refusal:
        read_results(text.encode(), file="r.json")
    [problem] = refusal.value.problems
    assert "it contains more than 50 values" in str(problem)
    assert str(problem).endswith(message)

"""PAE: suites select their cases, each judged by a hybrid judge; a zip of outputs is the results of its runs."""

from __future__ import annotations

import json
import zipfile
from io import BytesIO

import pytest

from runs.formats.finding import read_suites
from runs.formats.results_reading import read_results
from runs.specs.problems import UnreadableFileError
from tests.formats.tools.support import found, given

CASE = """\
schema_version: 1
case_id: report
title: A report
runner: {type: llm_probe}
input:
  messages: [{role: user, content: Write report.md}]
  context: {tools: [exec]}
expectations:
  hard_expectations: [{text: Names the sum.}]
  soft_expectations: [{text: Is short., weight: 2}]
rubric:
  scale: {min: 0, max: 10, anchors: {"10": All there., "0": Nothing.}}
  criteria: [{name: Content, what_good_looks_like: Exact., what_bad_looks_like: Missing.}]
  scoring_instructions: Cap at 4 if a check fails.
deterministic_checks:
  - {check_id: answered, dimensions: [task], declarative: {kind: final_response_present}}
  - {check_id: report, dimensions: [process], declarative: {kind: openclaw_workspace_file_present, relative_path: report.md, contains: sum}}
  - {check_id: hook, python_hook: {path: x.py}}
tags: [office]
"""
TURNS = "case_id: talk\nrunner: {}\ninput: {turns: [{role: user, content: Hi}]}\ntags: [office]\n"
OTHER = "case_id: other\nrunner: {}\ninput: {messages: [{role: user, content: Hi}]}\ntags: [home]\n"
SUITE = """\
suite_id: office
title: Office work
models: [{model_id: m, label: maker/m}]
case_selection: {include_case_ids: [other, lost], include_tags: [office, home], exclude_tags: [secret]}
metadata: {owner: qa}
"""
CONFIGS = {
    "configs/suites/office.yaml": SUITE,
    "configs/suites/gone.yaml": "suite_id: gone\ncase_selection: {include_case_ids: [nowhere]}\n",
    "configs/cases/report/test.yaml": CASE,
    "configs/cases/talk/test.yaml": TURNS,
    "configs/cases/other/test.yaml": OTHER,
}


def test_a_suite_selects_its_cases_and_judges_each_as_there():
    [suite], notes = found(CONFIGS)
    assert (suite.slug, suite.title, suite.metadata) == (
        "office",
        "Office work",
        {"owner": "qa", "models": ["maker/m"]},
    )
    assert (suite.policy.final_score, suite.policy.scale) == ("judge_overall", 10)
    assert [case.key for case in suite.cases] == ["other", "report"]
    report = suite.cases[1]
    [judge] = report.evaluators.children
    assert (report.title, report.tags, report.input[0]["content"]) == (
        "A report",
        ("office",),
        "Write report.md",
    )
    assert (judge.kind, judge.config["hard_expectations"], judge.config["soft_expectations"]) == (
        "hybrid_judge",
        ["Names the sum."],
        ["Is short."],
    )
    assert [(check["type"], check["path"], check["value"]) for check in judge.config["checks"]] == [
        ("final_response_present", "", None),
        ("file_contains", "report.md", "sum"),
    ]
    assert judge.config["instructions"].splitlines() == [
        "10: All there.",
        "0: Nothing.",
        "Content. Good: Exact. Bad: Missing.",
        "Cap at 4 if a check fails.",
    ]
    for part in (
        "case talk: its turns are asked one after the other",
        "the check hook is of a program",
        "the weights of soft expectations",
        "its cases lost are not here",
        "gone.yaml: is a suite of PAE and was left out: its cases nowhere are not here",
        "Set up its models as targets: maker/m",
    ):
        assert any(part in note for note in notes), (part, notes)


def test_one_case_is_a_suite_of_its_own_and_a_suite_without_cases_is_refused():
    [suite], _ = found({"report/test.yaml": CASE})
    assert (suite.slug, len(suite.cases)) == ("report", 1)
    with pytest.raises(UnreadableFileError, match="its cases other, lost are not here"):
        read_suites([given({"suites/office.yaml": SUITE})])


FINAL = {
    "case_id": "report",
    "run_id": "run_a",
    "final_score": 8.0,
    "judge_overall": {"score": 8.0, "evidence": ["all there"]},
    "deterministic_dimensions": {"task": 10.0},
    "judge_dimensions": {"task": 8.0},
    "final_dimensions": {"task": 8.0},
    "summary": {"deterministic_passed_checks": 2},
    "warnings": [],
}
RUN = {
    "identity": {"case_id": "report", "run_id": "run_a", "suite_id": "office"},
    "status": "failed",
    "error": {"message": "too many turns"},
    "usage": {"cost_usd": 0.003, "normalized": {"input_tokens": 12, "output_tokens": 3}},
    "timing": {"duration_seconds": 1.5, "completed_at": "2026-04-22T21:54:22Z"},
    "runner_metadata": {},
    "request": {"metadata": {"model_selection": {"label": "maker/m"}, "resolved_messages": [{"role": "user", "content": "Write"}]}},
    "trace": [
        {"event_type": "tool_call", "call_id": "c", "tool_name": "exec", "parsed_arguments": {"cmd": "ls"}},
        {"event_type": "tool_result", "call_id": "c", "output": {"ok": True}},
        {"event_type": "message", "role": "assistant", "content": "Done."},
        {"event_type": "final_output", "content": "Done."},
    ],
}  # fmt: skip
FOLDER = "outputs/evaluations/s/p/m/report/raw_outputs"
JUDGE = {"raw_results": [{"usage": {"cost": 0.002}}, {"usage": {"cost": 0.001}}]}


def test_a_zip_of_outputs_joins_runs_and_their_evaluations():
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        packed.writestr(f"{FOLDER}/final_result_1.json", json.dumps(FINAL))
        packed.writestr(f"{FOLDER}/judge_1.json", json.dumps(JUDGE))
        packed.writestr("outputs/runs/s/p/m/report/run_1.json", json.dumps(RUN))
        packed.writestr(f"{FOLDER}/final_result_2.json", json.dumps(FINAL | {"run_id": "run_b"}))
    read = read_results(stream.getvalue(), file="outputs.zip")
    line, alone = (entry.result for entry in read.results)
    assert (line.suite, line.target, line.eval_id, line.score, line.repetition) == (
        "office",
        "maker/m",
        "report",
        0.8,
        1,
    )
    # PAE judges what a failed run left, so this is a score and no error.
    assert (line.status, line.warnings) == ("scored", ("the run failed: too many turns",))
    assert (line.usage.input_tokens, line.usage.latency_ms) == (12, 1500)
    assert (str(line.run_cost_usd), str(line.evaluation_cost_usd), line.output) == (
        "0.003",
        "0.003",
        "Done.",
    )
    assert line.evaluators[0].final_evaluation["final_dimensions"] == {"task": 8.0}
    assert read.results[0].messages[0]["tool_calls"][0]["name"] == "exec"
    assert (alone.score, alone.run_cost_usd) == (0.8, None)
    assert "1 results have no run in the zip" in str(read.notes[1])
    with pytest.raises(UnreadableFileError, match="a run of PAE: it has no score"):
        read_results(json.dumps(RUN).encode(), file="run_1.json")

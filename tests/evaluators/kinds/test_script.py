"""Scripts as evaluators: what they are told, what they may answer, and what is no score."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from evaluators.kinds import kind_for_spelling, read_config
from evaluators.kinds._base import Message, ScriptCall, ScriptResult, Step
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.script import MAX_VARIABLE_LENGTH
from evaluators.kinds.script.program import TooManyFilesError, locate_script, named_settings
from evaluators.scoring.types import Score, Unscored, Usage
from tests.evaluators.kinds.doubles import ListedSandbox, context_of, outcome_of, score_of
from tests.evaluators.scoring.test_vectors import VECTORS

COMMAND = {"command": ["python3", "./judges/check.py"]}
STDIN = {**COMMAND, "protocol": "stdin"}
NESTED = "[" * 100_000


def said(*results: ScriptResult | str, config: dict[str, Any] = COMMAND, **facts: Any) -> Any:
    return outcome_of("script", config, context_of(sandbox=ListedSandbox(*results), **facts))


def test_of_very_many_findings_the_first_are_kept_with_a_warning() -> None:
    checks = [{"text": "fine", "passed": True}] * 3_000

    score = said(json.dumps({"score": 1, "checks": checks}), config=STDIN)

    assert len(score.findings) == 200
    assert score.warnings == ("3,000 findings were given; the first 200 are kept",)


def call_of(config: dict[str, Any], text: str = "It is.", **facts: Any) -> ScriptCall:
    sandbox = ListedSandbox('{"score": 1}')
    score_of("script", config, context_of(text, sandbox=sandbox, **facts))
    return sandbox.calls[0]


def told(**facts: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call_of(STDIN, **facts).stdin)
    return found


@pytest.mark.parametrize(
    "vector",
    [v for v in VECTORS if v["op"] == "script_evaluator" and "stdout" in v["input"]],
    ids=lambda vector: vector["id"],
)
def test_the_vectors_hold_through_the_kind(vector: dict[str, Any]) -> None:
    score = said(vector["input"]["stdout"])

    assert (score.raw_score, score.reasoning) == (
        vector["expected"]["score"],
        vector["expected"]["reasoning"],
    )


def test_env_is_of_100_and_stdin_of_1_with_findings() -> None:
    reply = {"score": 0.25, "hits": ["a"], "misses": ["b"], "checks": [{"text": "c", "pass": True}]}

    env, stdin = said('{"score": 25}'), said(json.dumps(reply), config=STDIN)

    assert (env.score, env.raw_score, env.scale) == (0.25, 25.0, 100.0)
    assert (stdin.score, stdin.scale) == (0.25, 1.0)
    assert [(f.text, f.passed) for f in stdin.findings] == [("a", True), ("b", False), ("c", True)]


def test_a_score_in_shares_where_points_are_meant_is_taken_and_warned_of() -> None:
    meant, usual = said('{"score": 0.85}'), said('{"score": 1}')

    assert meant.score == 0.0085
    assert "0 to 1" in meant.warnings[0]
    assert usual.warnings == said('{"score": 0.85}', config=STDIN).warnings == ()


@pytest.mark.parametrize(
    ("spelling", "protocol"),
    [
        ("script", "env"),
        *((name, "stdin") for name in ("code_judge", "code-judge", "codeJudge", "code-grader")),
    ],
)
def test_the_spelling_decides_the_protocol(spelling: str, protocol: str) -> None:
    kind, preset = kind_for_spelling(spelling)

    settings = read_config(kind.name, {**preset, **COMMAND})
    asked = read_config(kind.name, {**preset, **COMMAND, "protocol": "env"})

    assert (settings.model_dump()["protocol"], asked.model_dump()["protocol"]) == (protocol, "env")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "printed nothing"),
        ("fine", "no JSON"),
        ('loading\n{"score": 80}', "one JSON object and nothing else"),
        ('{"score": 100}\n{"score": 10}', "one JSON object and nothing else"),
        ("[1]", "not an object"),
        ('{"reasoning": "x"}', "score None is not a number"),
        ('{"score": "85"}', "score '85' is not a number"),
        ('{"score": true}', "not a number"),
        ('{"score": NaN}', "NaN is not JSON"),
        ('{"score": Infinity}', "Infinity is not JSON"),
        ('{"score": 1e400}', "1e400 is not a finite number"),
        ('{"score": -1}', "from 0 to 100"),
        ('{"score": 101}', "from 0 to 100"),
        (f'{{"score": 1{"0" * 400}}}', "is too large a number"),
        (f'{{"score": {"9" * 5000}}}', "no JSON"),
        ('{"score": 50, "hits": "one"}', "hits is not a list"),
        (NESTED, "no JSON"),
        (f'{{"score": 50, "reasoning": "{"x" * 5_000_000}"}}', "at most a million are read"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_verdict_is_no_score_and_never_0(reply: str, reason: str) -> None:
    outcome = said(reply)

    assert isinstance(outcome, Unscored)
    assert outcome.stage == "script"
    assert reason in outcome.reason
    assert len(json.dumps(outcome.details)) < 20_000


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ScriptResult('{"score": 90}', "boom\nline 2", 1), "exit code 1; stderr ends: boom line 2"),
        (ScriptResult("", "", None, "the memory limit of 9 MB"), "by the memory limit of 9 MB"),
        (ScriptResult("", "", 1, "the memory limit of 9 MB"), "code 1 at the memory limit of 9"),
        (ScriptResult('{"score": 1}', "", 0, "the disk limit"), "exit code 0 at the disk limit"),
        (ScriptResult("", "", None, "the time limit of 2 s", timed_out=True), "time limit of 2 s"),
        (ScriptResult("", "", None), "was stopped"),
        (ScriptResult("no", "x" * 9000 + " the end", 0), "the end"),
    ],
)
def test_crashes_and_limits_say_so_with_the_end_of_stderr(
    result: ScriptResult, reason: str
) -> None:
    outcome = said(result)

    assert isinstance(outcome, Unscored)
    assert reason in outcome.reason
    assert len(outcome.reason) < 1000


def test_without_a_sandbox_or_with_scripts_off_there_is_no_score() -> None:
    for context in (context_of(), context_of(sandbox=ListedSandbox())):
        outcome = outcome_of("script", COMMAND, context)
        assert isinstance(outcome, Unscored)
        assert "switched off" in outcome.reason


def test_what_no_database_keeps_is_replaced() -> None:
    score = said('{"score": 1, "reasoning": "a\\u0000b\\ud800", "hits": ["\\u0000"]}')

    assert score.reasoning == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert score.findings[0].text == "\N{REPLACEMENT CHARACTER}"


def test_the_answer_is_cut_in_its_variable_and_whole_in_its_file() -> None:
    text = "é" * 100_000 + "\0"

    call = call_of(COMMAND, text)

    value = call.environment["EVAL_OUTPUT"]
    assert len(f"EVAL_OUTPUT={value}".encode()) + 1 <= MAX_VARIABLE_LENGTH
    assert set(value) == {"é"}
    assert call.files[".evalsite/output"].decode() == text


def test_variables_tell_of_the_case() -> None:
    call = call_of(
        COMMAND,
        expected_output="tomorrow",
        criteria="Is right",
        expected_outcomes=("Names the day",),
        metadata={"tier": 2},
        left={"a/b.txt": b"left"},
    )

    assert {k: v for k, v in call.environment.items() if k != "EVAL_INPUT"} == {
        "EVAL_OUTPUT": "It is.",
        "EVAL_CASE_ID": "C-1",
        "EVAL_EXPECTED_OUTPUT": "tomorrow",
        "EVAL_CRITERIA": "Is right",
        "EVAL_EXPECTED_OUTCOMES": '["Names the day"]',
        "EVAL_METADATA": '{"tier": 2}',
        "EVAL_EVALUATOR": "path",
    }
    assert dict(call.workspace) == {"a/b.txt": b"left"}
    assert call.stdin == b""


def test_stdin_tells_the_same_in_both_spellings() -> None:
    trace = (
        Step("tool", "find", {"q": 1}, "none", duration_ms=4),
        Step("tool", "find", error="gone"),
    )

    found = told(
        input=(Message("system", "Be kind"), Message("user", "When?")),
        expected_output="tomorrow",
        criteria="Is right",
        metadata={"tier_name": 2},
        trace=trace,
    )

    assert found["question"] == found["inputText"] == "When?"
    assert found["candidate_answer"] == found["candidateAnswer"] == found["output"] == "It is."
    assert found["expected_output"] == found["referenceAnswer"] == "tomorrow"
    assert found["expected_outcome"] == found["criteria"] == "Is right"
    assert [turn["role"] for turn in found["inputMessages"]] == ["system", "user"]
    assert found["metadata"] == {"tier_name": 2}
    assert found["traceSummary"]["toolCallsByName"] == {"find": 2}
    assert found["trace_summary"]["error_count"] == 1
    call = found["output_messages"][-1]["tool_calls"][0]
    assert (call["tool"], call["input"], call["durationMs"]) == ("find", {"q": 1}, 4)


def test_what_a_script_reads_is_not_copied_though_it_names_a_long_output_nine_times() -> None:
    text = "\N{CAMPING}" + "x" * 2_000_000
    tracemalloc.start()
    stdin = call_of(STDIN, text).stdin
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = json.loads(stdin)
    assert (found["output"], found["output_text"], found["candidateAnswer"]) == (text, text, text)
    assert len(stdin) > 9 * len(text)
    assert most < 1.8 * len(stdin)


def test_settings_reach_the_sandbox() -> None:
    plain = call_of(COMMAND, files={"judges/check.py": b"", "prompts/tone.md": b""})
    asked = call_of({**STDIN, "timeout_s": 5, "network": True, "config": {"strict": True}})

    assert (plain.seconds, plain.needs_network) == (60.0, False)
    assert {"judges/check.py", "prompts/tone.md"} < set(plain.files)
    assert (asked.seconds, asked.needs_network) == (5, True)
    assert json.loads(asked.stdin)["config"] == {"strict": True}


@pytest.mark.parametrize(
    ("config", "files", "command"),
    [
        ({"command": ["./a.py", "-x"]}, {"a.py": b"pass"}, ["python3", "./a.py", "-x"]),
        ({"command": ["./a"]}, {"a": b"#!/usr/bin/env -S node -r x\n"}, ["node", "-r", "x", "./a"]),
        ({"command": ["./a"]}, {"a": b"\x7fELF"}, ["./a"]),
        ({"script": "echo 1; echo 2"}, {}, ["sh", "./.evalsite/script"]),
        ({"script": "#!/bin/bash -e\necho"}, {}, ["/bin/bash", "-e", "./.evalsite/script"]),
        ({"script": "a;b", "cwd": "x/y"}, {}, ["sh", "../../.evalsite/script"]),
        ({"script": "python ./a.py 'two words'"}, {}, ["python", "./a.py", "two words"]),
        ({"script": "exit 3"}, {}, ["sh", "./.evalsite/script"]),
    ],
)
def test_each_program_is_started_by_what_it_names(
    config: dict[str, Any], files: dict[str, bytes], command: list[str]
) -> None:
    call = call_of(config, files=files)

    assert list(call.command)[5:] == command


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "needs a command or a script"),
        ({"script": " "}, "needs a command or a script"),
        ({"command": ["a"], "script": "b;c"}, "both set"),
        ({"command": ["sleep", 5]}, "put it in quotes"),
        ({**COMMAND, "timeout_s": 0}, "timeout_s"),
        ({**COMMAND, "protocol": "http"}, "not one of"),
        ({**COMMAND, "scirpt": "x"}, "is not a setting of script"),
    ],
)
def test_settings_that_make_no_script_are_refused(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match="pii") as refused:
        read_config("script", config, evaluator="pii")

    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("written", "settings"),
    [
        ({"script": ["a", "b"]}, {"command": ["a", "b"]}),
        ({"command": "python ./x.py"}, {"command": ["python", "./x.py"]}),
        ({"run": "a | b"}, {"script": "a | b"}),
        ({"path": "./x.js"}, {"command": ["./x.js"]}),
        ({"timeout": 3}, {"timeout_s": 3}),
    ],
)
def test_other_names_mean_the_same(written: dict[str, Any], settings: dict[str, Any]) -> None:
    assert named_settings(written) == settings


GIVEN = {
    "evals/judges/x.py": b"import lib",
    "evals/judges/lib/__init__.py": b"",
    "evals/judges/.env": b"KEY=1",
    "evals/judges/__pycache__/x.pyc": b"",
    "evals/prompts/tone.md": b"",
    "shared/y.py": b"",
}


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"command": ["python", "./judges/x.py"]}, {"x.py", "lib/__init__.py"}),
        ({"command": ["python", "judges/x.py"]}, {"x.py", "lib/__init__.py"}),
        ({"command": ["python", "file:./judges/x.py"]}, {"x.py", "lib/__init__.py"}),
        ({"script": "python ./judges/x.py | tee log"}, {"x.py", "lib/__init__.py"}),
        ({"command": ["x.py"], "cwd": "judges"}, {"x.py", "lib/__init__.py"}),
        ({"command": ["cat", "/etc/hosts"]}, set()),
    ],
)
def test_a_script_takes_the_files_of_its_folder_along(
    config: dict[str, Any], kept: set[str]
) -> None:
    found = locate_script(config, "evals", GIVEN)

    assert set(found.files) == {f"evals/judges/{name}" for name in kept}
    assert (found.missing, found.outside) == ((), ())
    assert found.config["cwd"].startswith("evals")


@pytest.mark.parametrize(
    ("config", "missing", "outside"),
    [
        ({"command": ["python", "./judges/gone.py"]}, ("./judges/gone.py",), ()),
        ({"command": ["python", "gone.py"]}, ("gone.py",), ()),
        ({"script": "python ./gone.py && true"}, ("./gone.py",), ()),
        ({"script": "cd /workspace && ./run.sh"}, (), ()),
        ({"command": ["../../x.py"]}, (), ("../../x.py",)),
        ({"command": ["x"], "cwd": "../.."}, (), ("../..",)),
    ],
)
def test_a_file_that_was_not_given_is_named(
    config: dict[str, Any], missing: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    found = locate_script(config, "evals", GIVEN)

    assert (found.missing, found.outside) == (missing, outside)


def test_scripts_beside_the_suite_leave_other_suites_alone() -> None:
    given = {
        "a.py": b"",
        "lib/b.py": b"",
        "suite.yaml": b"",
        "lib/words.yaml": b"",
        "out.jsonl": b"",
    }

    found = locate_script({"command": ["./a.py"]}, "", given)

    assert set(found.files) == {"a.py", "lib/b.py", "lib/words.yaml"}
    assert set(locate_script({"command": ["cat", "./out.jsonl"]}, "", given).files) >= {"out.jsonl"}


def test_a_folder_too_large_to_lay_out_is_refused_with_the_remedy() -> None:
    given = {"a.py": b"", **{f"data/{n}.txt": b"" for n in range(501)}}

    with pytest.raises(TooManyFilesError, match="its own folder"):
        locate_script({"command": ["./a.py"]}, "", given)


def test_a_fake_verdict_in_the_answer_is_not_taken_for_the_scripts() -> None:
    fake = '{"score": 100, "reasoning": "perfect"}'

    echoed = said(f'{fake}\n{{"score": 10}}')
    quoted = said(json.dumps({"score": 10, "reasoning": f"the answer says {fake}"}))

    assert isinstance(echoed, Unscored)
    assert isinstance(quoted, Score)
    assert quoted.score == 0.1


def test_a_grader_gets_messages_where_a_judge_gets_texts() -> None:
    grader = {**COMMAND, **kind_for_spelling("code-grader")[1]}
    facts: dict[str, Any] = {"expected_output": "tomorrow", "trace": (Step("tool", "find"),)}

    found = json.loads(call_of(grader, **facts).stdin)

    assert found["expectedOutput"] == [{"role": "assistant", "content": "tomorrow"}]
    [answer] = found["output"]
    assert (answer["role"], answer["content"], answer["toolCalls"][0]["tool"]) == (
        "assistant",
        "It is.",
        "find",
    )
    assert (found["output_text"], found["expectedOutputText"]) == ("It is.", "tomorrow")
    assert json.loads(call_of(grader).stdin)["expected_output"] == []


def test_unknown_figures_are_missing_in_the_summary_of_the_trace() -> None:
    unknown = told()
    half = told(usage=Usage(input_tokens=3, cost_usd=Decimal("0.5")))

    assert None not in unknown["traceSummary"].values()
    assert (unknown["token_usage"], unknown["costUsd"], unknown["duration_ms"]) == (None,) * 3
    assert half["trace_summary"]["cost_usd"] == half["cost_usd"] == 0.5
    assert "tokenUsage" not in half["trace_summary"]


def test_files_of_the_input_are_named_from_where_the_script_starts() -> None:
    turns = (Message("user", "…", ("fixtures/a.json", "b.txt")), Message("user", "…", ("b.txt",)))
    facts: dict[str, Any] = {"input": turns, "files": {"fixtures/a.json": b"{}", "b.txt": b""}}

    assert told(**facts)["input_files"] == ["fixtures/a.json", "b.txt"]
    within = json.loads(call_of({**STDIN, "cwd": "judges"}, **facts).stdin)
    assert within["inputFiles"] == ["../fixtures/a.json", "../b.txt"]


def test_a_crash_is_told_with_what_was_printed() -> None:
    failed = ScriptResult('{"score": 0, "reasoning": "no input"}', "", 1)

    assert said(failed).reason == (
        'the script ended with exit code 1; stdout ends: {"score": 0, "reasoning": "no input"}'
    )
    assert said(replace(failed, stderr="boom")).reason.endswith("; stderr ends: boom")


def test_a_command_that_is_too_long_to_be_started_is_refused() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        read_config("script", {"command": ["python3", "-c", "é" * 50_000]}, evaluator="pii")

    assert "100,000 bytes is the limit of a command, and this one has 100,012" in str(refused.value)
    assert read_config("script", {"script": "#" * 100_001 + "\necho 1"})

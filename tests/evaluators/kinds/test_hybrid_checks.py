"""The checks of a hybrid judge: what passes, fails or is left out, and the scripts among them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluators.kinds import all_kinds
from evaluators.kinds._base import Context, ScriptResult
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.plan import script_paths
from runs.formats import suite_files
from runs.specs.problems import UnreadableFileError
from tests.evaluators.kinds.doubles import ListedJudge, ListedSandbox, context_of, score_of
from tests.evaluators.kinds.hybrid import KIND, LEFT, PRESENT, TRACE, hybrid, reply, suite_with


def checked(check: dict[str, Any], context: Context | None = None, **facts: Any) -> tuple[str, str]:
    judge = ListedJudge(reply())
    score = score_of(KIND, {"checks": [check]}, context or context_of(judge=judge, **facts))
    (found,) = score.details["checks"]
    return found["outcome"], found["message"]


@pytest.mark.parametrize(
    ("check", "outcome", "said"),
    [
        ({"type": "contains", "value": "14:00"}, "passed", "Contains “14:00”"),
        ({"type": "contains", "value": "refund"}, "failed", "Does not contain"),
        ({"type": "contains", "value": "refund", "negate": True}, "passed", "Does not contain"),
        ({"type": "contains", "value": "OUT FOR", "ignore_case": True}, "passed", "Contains"),
        ({"type": "equals", "value": "x"}, "failed", "Is not “x”"),
        ({"type": "regex", "value": r"\d\d:\d\d"}, "passed", "14:00"),
        ({"type": "contains_all", "values": ["today", "17:00"]}, "passed", "today"),
        ({"type": "max_length", "max_length": 3}, "failed", "over the limit"),
        ({"type": "is_json"}, "failed", "Is not JSON"),
        (PRESENT, "passed", "A final response"),
        ({"type": "tool_call_count", "min": 2, "max": 2}, "passed", "2 tool calls"),
        ({"type": "tool_call_count", "tool": "find", "max": 1}, "failed", "2 calls of find"),
        ({"type": "tool_call_count", "tool": "pay", "max": 0}, "passed", "0 calls of pay"),
        ({"type": "file_exists", "path": "./out/report.md"}, "passed", "out/report.md"),
        ({"type": "file_exists", "path": "*.md"}, "passed", "out/report.md"),
        ({"type": "file_exists", "path": "out.md"}, "failed", "left no file out.md"),
        ({"type": "file_contains", "path": "out/*", "value": "12 EUR"}, "passed", "out/report.md"),
        ({"type": "file_contains", "path": "raw.bin", "value": "12"}, "failed", "Does not contain"),
        ({"type": "file_contains", "path": "no", "value": "12"}, "failed", "left no file no"),
        ({"type": "status_is", "status": "success"}, "passed", "success"),
        ({"type": "status_is", "status": "timed_out"}, "failed", "success"),
    ],
)  # fmt: skip
def test_every_check_passes_or_fails(check: dict[str, Any], outcome: str, said: str) -> None:
    found, words = checked(check, trace=TRACE, left=LEFT)

    assert found == outcome
    assert said in words or found == "passed"


def test_an_empty_answer_has_no_final_response() -> None:
    context = context_of("  \n", judge=ListedJudge(reply()))

    assert checked(PRESENT, context)[0] == "failed"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"type": "tool_call_count", "min": 1}, "does not report its tool calls"),
        ({"type": "script", "script": "exit 1"}, "scripts are switched off"),
    ],
)
def test_a_check_that_cannot_be_made_is_left_out(check: dict[str, Any], said: str) -> None:
    tagged = {**check, "name": "calls", "dimensions": ["task"]}

    score = hybrid(reply(), checks=[tagged, {**PRESENT, "dimensions": ["task"]}])

    assert said in score.details["checks"][0]["message"]
    assert score.details["dimensions"][0]["deterministic"] == 10
    assert score.warnings == ("check calls errored and is left out",)
    assert len(score.findings) == 1
    assert score.score == 0.85


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ('{"score": 100, "reasoning": "fine"}', "passed"),
        ('{"score": 99}', "failed"),
        ("garbage", "error"),
        (ScriptResult("", "boom", 1), "error"),
    ],
)
def test_a_script_passes_with_the_full_score_only(result: Any, outcome: str) -> None:
    check = {"type": "script", "script": "#!/bin/sh\necho"}

    assert checked(check, sandbox=ListedSandbox(result))[0] == outcome


def test_a_script_check_starts_a_file_of_the_suite_with_its_own_settings() -> None:
    sandbox = ListedSandbox('{"score": 1, "reasoning": "fine"}')
    check = {
        "type": "script",
        "command": ["python", "./judges/marker.py"],
        "protocol": "stdin",
        "config": {"marker": "OK"},
        "timeout_s": 5,
    }
    files = {"judges/marker.py": b"print()", "judges/words.py": b""}

    found = checked(
        check, context_of("OK", judge=ListedJudge(reply()), files=files, sandbox=sandbox)
    )

    assert found[0] == "passed"
    [call] = sandbox.calls
    assert call.command[-2:] == ("python", "./judges/marker.py")
    assert files.items() <= call.files.items()
    assert json.loads(call.stdin)["config"] == {"marker": "OK"}
    assert call.seconds == 5


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("script: ./judges/marker.py", {"command": ["./judges/marker.py"]}),
        ("script: [python, ./judges/marker.py]", {"command": ["python", "./judges/marker.py"]}),
        ("type: script, path: ./judges/marker.py x", {"command": ["./judges/marker.py", "x"]}),
        (
            "type: code_judge, command: [./judges/marker.py], dimensions: [task], timeout: 5",
            {"command": ["./judges/marker.py"], "protocol": "stdin", "timeout_s": 5.0},
        ),
        ("type: script, cwd: judges, run: ./marker.py", {"cwd": "judges"}),
    ],
)
def test_a_suite_file_names_the_file_of_a_script_check(
    written: str, stored: dict[str, Any]
) -> None:
    files = {"judges/marker.py": b"import words", "judges/words.py": b"", "other.py": b""}

    content = suite_with(f"    checks: [{{{written}}}]\n", files)

    [check] = content.evaluators.children[0].config["checks"]
    assert check["type"] == "script"
    assert stored.items() <= check.items()
    assert set(content.files) == {"judges/marker.py", "judges/words.py"}
    assert suite_files.read_suite(suite_files.write_suite(content), files=content.files) == content


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("script: ./judges/gone.py", "'./judges/gone.py' is not among"),
        ("type: script, command: [../up.py]", "'../up.py' is outside"),
        ("type: script", "needs a command or a script"),
        ("type: script, script: a; b, command: [c]", "keep one"),
        ("type: contains, value: x, command: [c]", "contains takes no command"),
    ],
)
def test_a_script_check_that_cannot_run_is_refused(check: str, said: str) -> None:
    with pytest.raises(UnreadableFileError) as refused:
        suite_with(f"    checks: [{{{check}}}]\n", {"judges/marker.py": b""})

    assert said in str(refused.value.problems[0])


def test_only_a_hybrid_judge_with_a_script_runs_programs() -> None:
    scripted = EvaluatorSpec(
        name="a", kind=KIND, config={"checks": [{"type": "script", "script": "x"}]}
    )
    plain = EvaluatorSpec(name="b", kind=KIND, config={"checks": [PRESENT]})
    root = EvaluatorSpec(
        name="", kind="composite", children=(scripted, plain, EvaluatorSpec(name="c", kind=KIND))
    )

    assert script_paths(root, all_kinds()) == ["a"]

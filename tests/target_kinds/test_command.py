"""Agents that are commands on this machine."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from evaluators.kinds._base import (
    CaseFacts,
    Message,
    Output,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
    Step,
)
from evaluators.sandbox.confinement import Terms
from evaluators.sandbox.local import LocalSandbox
from evaluators.scoring.types import Usage
from runs.engine.ports import Cause, TargetFailure
from runs.execution.run_worker import work_on_run
from runs.models.results import Artifact, Result
from runs.running.retrying import stop_run
from runs.running.services import start_run
from runs.target_kinds import get_target_kind
from runs.target_kinds._base import TargetContext
from runs.target_kinds.command import CommandConfig
from tests.evaluators.sandbox.offers import processes_named
from tests.support.factories import make_case, make_suite, make_target
from tests.support.run_workers import work_in_thread
from tests.support.trees import CHECK, tree

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASE = CaseFacts(
    key="RD-01",
    input=(
        Message("system", "Be kind."),
        Message("user", "Hello"),
        Message("assistant", "Hello!"),
        Message("user", "Where is my order? {{id}}"),
    ),
    expected_output="the secret answer",
    expected_outcomes=("a secret outcome",),
    criteria="secret criteria",
    metadata={"customer": {"id": 7}},
)
PRINTED = ScriptResult(stdout="On its way.\n", stderr="", exit_code=0, duration_ms=12)


@dataclass
class FakeSandbox:
    """A sandbox in which every program ends the same way; keeps what it was asked for."""

    result: ScriptResult | SandboxRefusal = PRINTED
    calls: list[ScriptCall] = field(default_factory=list)

    async def run(self, call):
        self.calls.append(call)
        if isinstance(self.result, SandboxRefusal):
            raise self.result
        return self.result


def answer(config, sandbox, case=CASE):
    kind = get_target_kind("command")
    settings = kind.config.model_validate(config)
    return asyncio.run(kind.answer(settings, TargetContext("desk", case, sandbox=sandbox)))


def printed(stdout, *, reply="auto", **result):
    result = ScriptResult(stdout=stdout, stderr="", exit_code=0, duration_ms=12, **result)
    return answer({"command": "agent", "reply": reply}, FakeSandbox(result))


def test_the_case_goes_in_and_what_is_expected_of_it_does_not():
    sandbox = FakeSandbox()
    answer({"command": "agent"}, sandbox)
    [call] = sandbox.calls
    assert json.loads(call.stdin) == {
        "id": "RD-01",
        "input": "Where is my order? {{id}}",
        "messages": [{"role": turn.role, "content": turn.content} for turn in CASE.input],
        "metadata": {"customer": {"id": 7}},
    }
    assert "secret" not in str(call)


@pytest.mark.parametrize("said", ["prlimit: failed to execute", "bwrap: execvp"])
def test_a_program_that_is_not_there_is_named_without_its_starter(said):
    result = ScriptResult(
        stdout="",
        stderr=f"{said} nosuchprog: No such file or directory\n",
        exit_code=127,
        duration_ms=1,
    )
    failure = answer({"command": "nosuchprog"}, FakeSandbox(result))
    assert "there is no program 'nosuchprog' in the sandbox" in failure.reason


def test_what_only_looks_like_a_program_that_is_not_there_is_read_in_time():
    """With every beginning followed to the end, a megabyte took an hour."""
    result = ScriptResult(stdout="", stderr="execvp " * 150_000, exit_code=127, duration_ms=1)
    failure = answer({"command": "busy"}, FakeSandbox(result))
    assert failure.reason.startswith("it ended with exit code 127: …")
    assert "prlimit" not in failure.reason


def test_plain_text_is_the_answer_with_how_long_it_took():
    output = answer({"command": "agent"}, FakeSandbox())
    assert output.text == "On its way.\n"
    assert output.messages == (*CASE.input, Message("assistant", "On its way.\n"))
    assert (output.trace, output.usage) == (None, Usage(latency_ms=12))


def test_a_report_holds_everything_the_agent_tells():
    report = {
        "output": "On its way.",
        "tool_calls": [{"tool": "find_order", "input": {"id": 7}, "output": "sent"}],
        "usage": {"input_tokens": 812, "output_tokens": 120},
        "cost_usd": "0.0023",
        "files": {"note.txt": "left"},
    }
    output = printed(json.dumps(report), files={"ticket.json": b"{}"})
    assert output.text == "On its way."
    assert output.trace == (Step(type="tool", name="find_order", input={"id": 7}, output="sent"),)
    assert output.usage == Usage(812, 120, Decimal("0.0023"), 12)
    assert output.files == {"note.txt": b"left", "ticket.json": b"{}"}


def test_a_conversation_is_a_report_too():
    turns = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "tool_calls": [{"tool": "find", "input": 7, "output": 8}]},
        {"role": "assistant", "content": "Here."},
    ]
    output = printed(json.dumps({"messages": turns}))
    assert output.text == "Here."
    assert [turn.role for turn in output.messages] == ["user", "assistant", "assistant"]
    assert output.trace == (Step(type="tool", name="find", input=7, output=8),)


@pytest.mark.parametrize(
    "text",
    [
        '{"action": "refund", "output": "x"}',
        '{"action": "refund"}',
        '{"usage": {}}',
        '["output"]',
        '{"output": "cut off',
        "7",
    ],
)
def test_an_answer_that_happens_to_be_json_stays_the_answer(text):
    assert printed(text).text == text
    report = '{"output": "x"}'
    assert printed(report, reply="text").text == report


def test_asked_for_json_other_keys_do_not_matter():
    assert printed('{"output": "x", "model": "m"}', reply="json").text == "x"
    assert printed('{"output": {"a": 1}}', reply="json").text == '{"a": 1}'


@pytest.mark.parametrize(
    ("text", "reply", "said"),
    [
        ("plain", "json", "not one JSON object"),
        ("", "json", "not one JSON object"),
        ('{"answer": 1}', "json", "neither output nor messages"),
        (
            '{"output": "x", "usage": {"input_tokens": -1}}',
            "auto",
            "input_tokens: there is the number -1",
        ),
        ('{"output": "x", "usage": 7}', "auto", "usage: there is the number 7"),
        ('{"output": "x", "tool_calls": [{}]}', "auto", "tool_calls: step 0"),
        ('{"output": "x", "cost_usd": "much"}', "auto", "cost_usd"),
        ('{"output": "x", "files": 7}', "auto", "files"),
        (" \n", "auto", "printed nothing"),
    ],
)
def test_a_reply_that_cannot_be_read_names_the_part(text, reply, said):
    failure = printed(text, reply=reply)
    assert failure.cause is Cause.BAD_REPLY
    assert said in failure.reason


def test_an_agent_that_only_leaves_files_has_answered():
    assert printed("", files={"report.md": b"# Done"}) == Output(
        text="",
        messages=(*CASE.input, Message("assistant", "")),
        files={"report.md": b"# Done"},
        usage=Usage(latency_ms=12),
    )


def test_a_file_left_under_a_name_that_cannot_be_kept_is_left_out_with_a_warning():
    output = printed("x", files={"a\\b": b"", "..%2fx": b"y", "a\udc80": b""})
    assert (output.text, output.files) == ("x", {"..%2fx": b"y"})
    assert [warning.split(": ")[2][:7] for warning in output.warnings] == ["'a\\\\b' ", "'a\\udc8"]


@pytest.mark.parametrize(
    ("result", "cause", "said"),
    [
        (
            ScriptResult("", "Traceback\nKeyError: 7\n", 1),
            Cause.FAILED,
            "it ended with exit code 1: Traceback\nKeyError: 7",
        ),
        (
            ScriptResult("half", "", None, ended_by="the time limit of 60 s", timed_out=True),
            Cause.TIMEOUT,
            "it passed the time limit of 60 s",
        ),
        (
            ScriptResult("", "MemoryError", 1, ended_by="the memory limit of 64 MB"),
            Cause.FAILED,
            "it passed the memory limit of 64 MB: MemoryError",
        ),
        (
            ScriptResult("x", "", 0, ended_by="it left more than 500 files in its workspace"),
            Cause.FAILED,
            "it left more than 500 files in its workspace",
        ),
        (SandboxRefusal("no sandbox works"), Cause.REFUSED, "no sandbox works"),
        (ScriptResult('{"error": "no key"}', "", 0), Cause.FAILED, "the agent says: no key"),
    ],
)
def test_a_program_that_fails_is_an_error_of_its_class(result, cause, said):
    assert answer({"command": "agent"}, FakeSandbox(result)) == TargetFailure(said, cause)


def test_of_long_errors_the_end_is_kept():
    failure = answer({"command": "agent"}, FakeSandbox(ScriptResult("", "x" * 9000 + "end", 1)))
    assert failure.reason.endswith("xend")
    assert len(failure.reason) < 1600


def test_without_the_switch_nothing_is_started():
    failure = answer({"command": "agent"}, None)
    assert failure.cause is Cause.REFUSED
    assert "EVALSITE_SCRIPTS=1" in failure.reason


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python3 agent.py --fast", ("python3", "agent.py", "--fast")),
        (["python3", "agent.py"], ("python3", "agent.py")),
        ("echo $HOME", ("/bin/sh", "-c", "echo $HOME")),
        ("cd x\r\n./run", ("/bin/sh", "-c", "cd x\n./run")),
        ("A=1 ./run", ("/bin/sh", "-c", "A=1 ./run")),
        (["echo", "two words"], ("/bin/sh", "-c", "echo 'two words'")),
    ],
)
def test_a_command_is_a_list_or_a_line_or_a_text_for_the_shell(command, words):
    sandbox = FakeSandbox()
    answer({"command": command}, sandbox)
    assert sandbox.calls[0].command == words


@pytest.mark.parametrize(
    ("config", "at"),
    [
        ({"command": " "}, "command"),
        ({"command": []}, "command"),
        ({"command": "x\0"}, "command"),
        ({}, "command"),
        ({"command": "x", "folder": "../x"}, "folder"),
        ({"command": "x", "folder": "/etc"}, "folder"),
        ({"command": "x", "files": {"../x": ""}}, "files"),
        ({"command": "x", "timeout_s": 0}, "timeout_s"),
        ({"command": "x", "folder": "a", "files": {"b": ""}}, ""),
        ({"command": "#!/bin/sh\necho", "folder": "a"}, ""),
    ],
)
def test_settings_that_cannot_work_are_refused_at_their_field(config, at):
    with pytest.raises(ValidationError) as refusal:
        get_target_kind("command").config.model_validate(config)
    assert ".".join(map(str, refusal.value.errors()[0]["loc"])) == at


@pytest.fixture
def desk():
    """Give the sandbox of this machine, with the examples as folders of agents."""
    return LocalSandbox(Terms(agents_dir=str(EXAMPLES)))


def test_the_agent_of_the_examples_answers_for_real(desk):
    asked = "The jacket from order TW-1042 is too small. I would like my money back."
    case = CaseFacts("RD-01", (Message("user", asked),), metadata={"received_on": "2026-05-11"})
    config = {"command": "python3 desk.py", "folder": "returns-desk/agent"}
    output = answer(config, desk, case)
    assert output.text.startswith("Hello,\n\nWe have refunded 129.00 EUR")
    assert json.loads(output.files["ticket.json"])["action"] == "refund"


def test_a_program_may_come_with_the_target(desk):
    text = "#!/usr/bin/env python3\nimport json, sys\nprint(json.load(sys.stdin)['id'])\n"
    config = {"command": "./bin/agent", "files": {"bin/agent": text}}
    assert answer(config, desk).text == "RD-01\n"


def test_the_command_may_be_the_text_of_a_program(desk):
    text = "#!/usr/bin/env python3\r\nimport sys\r\nprint(open('rules.txt').read())\r\n"
    config = {"command": text, "files": {"rules.txt": "of ours"}}
    assert answer(config, desk).text == "of ours\n"


def test_a_program_that_is_not_there_is_named(desk):
    failure = answer({"command": "no-such-agent"}, desk)
    assert failure.cause is Cause.FAILED
    assert "no-such-agent" in failure.reason


@pytest.mark.django_db(transaction=True)
def test_a_run_asks_the_program_and_keeps_what_it_left(settings):
    settings.SCRIPTS = True
    suite = make_suite(tree=tree(CHECK))
    for number in range(3):
        make_case(suite=suite, key=f"C-{number}", position=number)
    command = "cat > $EVAL_WORKSPACE/case.json; echo You get a refund."
    target = make_target(name="desk", kind="command", config={"command": command})
    run = start_run(suite=suite, target=target, started_by=None)

    work_on_run(run.pk)

    run.refresh_from_db()
    assert (run.status, run.pass_count, run.error_count) == ("completed", 3, 0)
    left = Artifact.objects.get(result__run=run, result__case__key="C-1")
    assert left.path == "case.json"
    assert json.loads(bytes(left.content.content))["id"] == "C-1"
    assert Result.objects.filter(run=run, latency_ms__isnull=True).count() == 0


@pytest.mark.django_db(transaction=True)
def test_a_run_whose_scripts_were_switched_off_meanwhile_says_so(settings):
    settings.SCRIPTS = True
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="C-1")
    target = make_target(name="desk", kind="command", config={"command": "true"})
    run = start_run(suite=suite, target=target, started_by=None)
    settings.SCRIPTS = False

    work_on_run(run.pk)

    result = Result.objects.get(run=run)
    assert result.error.startswith("Refused: scripts and commands are switched off")


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_stopped_ends_its_programs(settings):
    settings.SCRIPTS = True
    suite, mark = make_suite(tree=tree(CHECK)), f"9{os.getpid()}"
    make_case(suite=suite, key="C-1")
    target = make_target(name="desk", kind="command", config={"command": f"sleep {mark}"})
    run = start_run(suite=suite, target=target, started_by=None)
    thread = work_in_thread(run)
    while not processes_named(mark):
        thread.join(timeout=0.01)

    stop_run(run, stopped_by=None)
    thread.join()

    assert processes_named(mark) == []
    run.refresh_from_db()
    assert (run.status, run.done_count) == ("stopped", 0)


def test_a_command_that_is_too_long_to_be_started_is_refused():
    with pytest.raises(ValidationError, match="100,000 bytes is the limit of a command"):
        CommandConfig(command="echo " + "x" * 100_000)
    # The text of a program is written to a file.
    assert CommandConfig(command="#!/bin/sh\n" + "#" * 100_000).is_text

"""What an agent's program prints: a plain text, or one JSON object with everything it reports."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from evaluators.kinds._base import (
    CaseFacts,
    Message,
    Output,
    SandboxRefusal,
    ScriptCall,
    ScriptResult,
    Step,
)
from evaluators.kinds._json_paths import describe
from evaluators.kinds.script.program import check_command_length
from evaluators.reading.json import MAX_REPLY_VALUES, TooManyValuesError, read_json
from evaluators.scoring.types import Usage
from runs.engine.ports import Cause, TargetFailure
from runs.target_kinds._base import TargetConfig, TargetContext, target_kind
from runs.target_kinds._outputs import check_files, clean_path, select_files
from runs.target_kinds._replies import (
    UnreadablePartError,
    read_count,
    read_files,
    read_steps,
    read_text,
    read_turns,
    read_usd,
)
from runs.target_kinds.http import fill_template

Reply = Literal["auto", "text", "json"]
STEPS = ("tool_calls", "trace", "steps")
ANSWERS = ("output", "messages", "error")
KNOWN = {*ANSWERS, *STEPS, "files", "usage", "cost_usd"}
INPUT_TOKENS = ("input_tokens", "prompt_tokens")
OUTPUT_TOKENS = ("output_tokens", "completion_tokens")

Value = TypeVar("Value")


class AgentError(Exception):
    """The agent reports that it failed."""


def read_printed(printed: str, reply: Reply, case: CaseFacts) -> Output:
    """Return the printed output; the caller adds the latency and the files left behind.

    Raises UnreadablePartError naming the part that cannot be read, and AgentError.
    """
    report = None if reply == "text" else _object(printed)
    if reply == "json" and report is None:
        raise UnreadablePartError(f"it printed {describe(printed)}, which is not one JSON object")
    if report is None or (reply == "auto" and not _is_report(report)):
        return Output(text=printed, messages=_turns(case, printed))
    return _output(report, case)


def _object(printed: str) -> Mapping[str, Any] | None:
    if not printed.lstrip().startswith("{"):
        return None
    try:
        report = read_json(
            printed, keeps_last=True, unstorable="replace", max_values=MAX_REPLY_VALUES
        )
    except TooManyValuesError as error:
        raise UnreadablePartError(f"it printed JSON that is too large: {error}") from None
    except ValueError:
        return None
    return report if isinstance(report, dict) else None


def _is_report(report: Mapping[str, Any]) -> bool:
    """Tell a report from an answer that happens to be JSON: a report has no other keys."""
    return set(report) <= KNOWN and any(name in report for name in ANSWERS)


def _output(report: Mapping[str, Any], case: CaseFacts) -> Output:
    if report.get("error") and "output" not in report:
        raise AgentError(read_text(report["error"]))
    conversation = _part(report, "messages", read_turns)
    text = _part(report, "output", read_text)
    if text is None and conversation is None:
        raise UnreadablePartError("it printed a JSON object with neither output nor messages")
    answer = text if text is not None else conversation.answer if conversation else ""
    steps: tuple[Step, ...] | None = next(
        (_part(report, name, read_steps) for name in STEPS if report.get(name) is not None), None
    )
    files, warnings = _part(report, "files", read_files) or ({}, ())
    if conversation is not None:
        steps = conversation.steps if steps is None else steps
        warnings = (*warnings, *conversation.warnings)
    return Output(
        text=answer,
        messages=conversation.messages if conversation else _turns(case, answer),
        trace=steps,
        files=files,
        usage=_usage(report),
        warnings=warnings,
    )


def _usage(report: Mapping[str, Any]) -> Usage:
    usage = report.get("usage") or {}
    if not isinstance(usage, dict):
        raise UnreadablePartError(f"usage: there is {describe(usage)}, not an object")
    return Usage(
        input_tokens=_first(usage, INPUT_TOKENS),
        output_tokens=_first(usage, OUTPUT_TOKENS),
        cost_usd=_part(report, "cost_usd", read_usd),
    )


def _first(usage: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if usage.get(name) is not None), "")
    return _part(usage, name, read_count) if name else None


def _part(report: Mapping[str, Any], name: str, reader: Callable[[Any], Value]) -> Value | None:
    """Return a part as the reader reads it; None if the agent does not report it."""
    if report.get(name) is None:
        return None
    try:
        return reader(report[name])
    except UnreadablePartError as error:
        raise UnreadablePartError(f"{name}: {error}") from None


def _turns(case: CaseFacts, text: str) -> tuple[Message, ...]:
    return (*case.input, Message("assistant", text))


MAX_END_LENGTH = 1500
NO_PROGRAM = 127
# The message of the sandbox if no program has this name.
NOT_FOUND = re.compile(
    r"(?:failed to execute|execvp) (?P<program>.+): No such file or directory\s*\Z"
)


def read_ending(result: ScriptResult, reply: Reply, case: CaseFacts) -> Output | TargetFailure:
    """Return the output of the program, or the cause and reason of its failure."""
    return _failure(result) or _answered(result, reply, case)


def _failure(result: ScriptResult) -> TargetFailure | None:
    if result.timed_out:
        return TargetFailure(f"it passed {result.ended_by}{_end(result)}", Cause.TIMEOUT)
    if result.ended_by:
        passed = (
            result.ended_by if result.ended_by.startswith("it ") else f"it passed {result.ended_by}"
        )
        return TargetFailure(f"{passed}{_end(result)}", Cause.FAILED)
    # Only the end is searched: each "execvp" before it would be a beginning whose end is looked for.
    end = result.stderr[-MAX_END_LENGTH:]
    if result.exit_code == NO_PROGRAM and (match := NOT_FOUND.search(end)):
        return TargetFailure(
            f"there is no program {match['program']!r} in the sandbox; name one that workers have, or "
            "a file of the agent's folder as ./NAME",
            Cause.FAILED,
        )
    if result.exit_code:
        return TargetFailure(
            f"it ended with exit code {result.exit_code}{_end(result)}", Cause.FAILED
        )
    return None


def _end(result: ScriptResult) -> str:
    """Return the end of its standard error, which mostly holds the error."""
    message = result.stderr.strip()
    if len(message) > MAX_END_LENGTH:
        message = f"…{message[-MAX_END_LENGTH:]}"
    return f": {message}" if message else ""


def _answered(result: ScriptResult, reply: Reply, case: CaseFacts) -> Output | TargetFailure:
    try:
        output = _with_left(read_printed(result.stdout, reply, case), result.files)
    except AgentError as error:
        return TargetFailure(f"the agent says: {error}", Cause.FAILED)
    except (UnreadablePartError, ValueError) as error:
        return TargetFailure(str(error), Cause.BAD_REPLY)
    if not output.text.strip() and not output.files:
        return TargetFailure(f"it printed nothing and left no file{_end(result)}", Cause.BAD_REPLY)
    return replace(output, usage=replace(output.usage, latency_ms=result.duration_ms))


def _with_left(output: Output, left: Mapping[str, bytes]) -> Output:
    """Return the output with the files left behind added to those printed; raises ValueError for too many."""
    files, warnings = select_files(
        (*output.files.items(), *left.items()), lambda _, content: content
    )
    return replace(output, files=files, warnings=(*output.warnings, *warnings))


PROGRAM, LIMITS = "Program", "Limits and reply"
MAX_TIMEOUT_S = 3600
# A line without these characters needs no shell: its words are the arguments.
SHELL = re.compile(r"[^\w\s@%+=:,./-]|\n|^\s*\w+=")
# The name of the file that holds the program if the command is its text.
OWN_TEXT = "agent"
TEXT_START = "#!"
CASE = {"id": "{{case_id}}", "input": "{{input}}", "messages": "{{messages}}"}
SWITCHED_OFF = (
    "scripts and commands are switched off on this site; its operator can set EVALSITE_SCRIPTS=1"
)


class CommandConfig(TargetConfig):
    """The command, its folder and files, and the form of its reply."""

    sections: ClassVar[tuple[str, ...]] = (PROGRAM, LIMITS)

    command: str = Field(
        min_length=1,
        description="A program with its arguments, such as python3 agent.py; lines for the shell; or the "
        "text of a program that begins with #! and its interpreter.",
        json_schema_extra={"section": PROGRAM, "widget": "program"},
    )
    folder: str = Field(
        "",
        title="Folder of the agent",
        description="Where it starts: the name of a folder inside EVALSITE_AGENTS_DIR. Empty: a fresh "
        "directory with the files below.",
        json_schema_extra={"section": PROGRAM},
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description='Texts by path, such as {"rules.txt": "…"}, in the directory where it starts.',
        json_schema_extra={"section": PROGRAM},
    )
    reply: Reply = Field(
        "auto",
        title="What it prints",
        description="text: the answer. json: an object with output, messages and more. auto: such an "
        "object if it prints one, else the answer.",
        json_schema_extra={"section": LIMITS},
    )
    timeout_s: int = Field(
        60,
        ge=1,
        le=MAX_TIMEOUT_S,
        title="Timeout in seconds",
        description=f"For one case, 1 to {MAX_TIMEOUT_S}; never more than the site allows a program.",
        json_schema_extra={"section": LIMITS},
    )
    needs_network: bool = Field(
        False,
        title="Needs the network",
        description="For an agent that asks a model or a service; only where the site allows it.",
        json_schema_extra={"section": LIMITS},
    )

    @field_validator("command", mode="before")
    @classmethod
    def _words_become_a_line(cls, value: Any) -> Any:
        is_words = isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)
        return shlex.join(value) if is_words else value

    @field_validator("command")
    @classmethod
    def _can_be_run(cls, value: str) -> str:
        command = value.replace("\r\n", "\n").strip()
        if not command or "\0" in command:
            raise ValueError("Name the program to run, such as python3 agent.py")
        # The text of a program becomes a file.
        if not command.startswith(TEXT_START):
            check_command_length([command])
        return command

    @field_validator("folder")
    @classmethod
    def _is_agents_folder(cls, value: str) -> str:
        folder = value.strip().strip("/")
        if value.strip().startswith("/") or ".." in folder.split("/") or "\0" in folder:
            raise ValueError("Name a folder inside EVALSITE_AGENTS_DIR, such as returns-desk")
        return folder

    @field_validator("files")
    @classmethod
    def _have_paths_inside(cls, value: dict[str, str]) -> dict[str, str]:
        files = {clean_path(path): text.replace("\r\n", "\n") for path, text in value.items()}
        check_files({path: text.encode("utf-8", "replace") for path, text in files.items()})
        return files

    @model_validator(mode="after")
    def _starts_in_one_place(self) -> Self:
        if self.folder and (self.files or self.is_text):
            raise ValueError(
                "Give a folder, or files or the program's own text, not both: it starts in one place."
            )
        return self

    @property
    def is_text(self) -> bool:
        """Tell whether the command is the text of a program instead of its name."""
        return self.command.startswith(TEXT_START)


@target_kind(label="Command", icon="i-terminal", config=CommandConfig, uses_sandbox=True)
async def answer(config: CommandConfig, context: TargetContext) -> Output | TargetFailure:
    """Return what the program prints, with the files it left; a program that fails has no output."""
    if context.sandbox is None:
        return TargetFailure(SWITCHED_OFF, Cause.REFUSED)
    call = ScriptCall(
        command=(f"./{OWN_TEXT}",) if config.is_text else _words(config.command),
        stdin=_case_as_json(context.case),
        files=_files(config),
        folder=config.folder,
        seconds=config.timeout_s,
        needs_network=config.needs_network,
        keeps_workspace=True,
    )
    try:
        result = await context.sandbox.run(call)
    except SandboxRefusal as refusal:
        return TargetFailure(str(refusal), Cause.REFUSED)
    return read_ending(result, config.reply, context.case)


def _words(command: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", command) if SHELL.search(command) else tuple(command.split())


def _files(config: CommandConfig) -> dict[str, bytes]:
    texts = {**config.files, OWN_TEXT: config.command} if config.is_text else config.files
    return {path: text.encode("utf-8", "replace") for path, text in texts.items()}


def _case_as_json(case: CaseFacts) -> bytes:
    facts = {**fill_template(CASE, case), "metadata": dict(case.metadata)}
    return json.dumps(facts, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"

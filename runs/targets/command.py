"""Run an agent's program on the machine of a worker: the case goes in as JSON, what it prints is the answer.

The program reads one JSON object from standard input:
`{"id": "RD-01", "input": "the last text of the user", "messages": [{"role": "user", "content": "…"}],
"metadata": {…}}`. What is expected of a case is never sent.

What it prints is the output: plain text, or a JSON object with `output` or `messages`, and besides them
`tool_calls` (or `trace`), `usage` with `input_tokens` and `output_tokens`, `cost_usd` and `files`. As long as
the setting says auto, an object counts as that only when nothing else is in it; any other JSON is the
answer itself. An object with `error` alone says that the agent failed. Files that it leaves in the folder
`EVAL_WORKSPACE` names become artifacts of the result. What it has to tell besides goes to standard error.

It starts in a fresh directory with the files below, or in a folder of an agent: one inside the folder that
whoever runs the site names by `EVALSITE_AGENTS_DIR`, which it may read and not change. `python` and
`python3` are there. A command that begins with `#!/usr/bin/env python3` is the program itself. It sees no secrets and nothing of the site, has the network only where that is allowed,
and ends at the site's limits on time, memory, processes, output and files, with all it started.

An exit code other than 0 is an error of the target, shown with the end of standard error; so are a limit
that was passed and a reply that cannot be read. None of them is an answer, and none is scored.

Programs run only where the administrator has switched scripts on (`EVALSITE_SCRIPTS`), and only members
who may run scripts can start such a run.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from evaluators.kinds._base import CaseFacts, Output, SandboxRefusal, ScriptCall
from runs.plan import Cause, TargetFailure
from runs.targets._base import TargetConfig, TargetContext, target_kind
from runs.targets._files import check_files, clean_path
from runs.targets._placeholders import filled
from runs.targets._printed import Reply
from runs.targets._programs import read_ending

PROGRAM, LIMITS = "Program", "Limits and reply"
LONGEST_TIMEOUT_S = 3600
# A line without any of these means the same to a shell and word by word.
SHELL = re.compile(r"[^\w\s@%+=:,./-]|\n|^\s*\w+=")
# Where the text of a program lies when it is the command itself.
OWN_TEXT = "agent"
CASE = {"id": "{{case_id}}", "input": "{{input}}", "messages": "{{messages}}"}
SWITCHED_OFF = (
    "scripts and commands are switched off on this site; whoever runs it can set EVALSITE_SCRIPTS=1"
)


class Config(TargetConfig):
    """The command, where it starts, and how its reply is read."""

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
        description='Texts by path, such as {"rules.txt": "…"}, that lie where it starts.',
        json_schema_extra={"section": PROGRAM},
    )
    reply: Reply = Field(
        "auto",
        title="What it prints",
        description="text: the answer. json: an object with output, messages and more. auto: such an "
        "object if it is one, else the answer.",
        json_schema_extra={"section": LIMITS},
    )
    timeout_s: int = Field(
        60,
        ge=1,
        le=LONGEST_TIMEOUT_S,
        title="Time-out in seconds",
        description=f"For one case, 1 to {LONGEST_TIMEOUT_S}; never more than the site allows a program.",
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
        return command

    @field_validator("folder")
    @classmethod
    def _lies_among_the_agents(cls, value: str) -> str:
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
        return self.command.startswith("#!")


@target_kind(label="Command", icon="i-terminal", config=Config, uses_sandbox=True)
async def answer(config: Config, context: TargetContext) -> Output | TargetFailure:
    """Return what the program prints, with the files it left; a program that fails gives no output."""
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


def _files(config: Config) -> dict[str, bytes]:
    texts = {**config.files, OWN_TEXT: config.command} if config.is_text else config.files
    return {path: text.encode("utf-8", "replace") for path, text in texts.items()}


def _case_as_json(case: CaseFacts) -> bytes:
    told = {**filled(CASE, case), "metadata": dict(case.metadata)}
    return json.dumps(told, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"

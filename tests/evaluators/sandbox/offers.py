"""Programs run in every sandbox that this machine has: bubblewrap where it is allowed, and limits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from textwrap import dedent

from evaluators.kinds._base import ScriptCall, ScriptResult
from evaluators.sandbox.confinement import ProgramLimits, Terms
from evaluators.sandbox.local import LocalSandbox
from evaluators.sandbox.probe import SandboxOffer, find_limits, find_sandbox

BARE = SandboxOffer("limits", reason="asked for by a test")


def offers() -> list[SandboxOffer]:
    """Return those there are; where bubblewrap is forbidden, limits are what is in force.

    Limits close files and network too where the kernel lets a program restrict itself.
    """
    offered = find_sandbox()
    if offered.kind == "none":
        return []
    closing = find_limits("asked for by a test")
    limits = [closing, BARE] if closing.closed else [BARE]
    return [offered, *limits] if offered.kind == "bubblewrap" else limits


def name_of(offer: SandboxOffer) -> str:
    return "-".join([offer.kind, *offer.closed])


def make_sandbox(
    offer: SandboxOffer, *, limits: ProgramLimits | None = None, **terms
) -> LocalSandbox:
    """Return a sandbox with narrow limits, so that what passes them does so soon."""
    narrow = ProgramLimits(
        seconds=30, memory_mb=256, processes=24, output_kb=256, disk_mb=16, files=200
    )
    return LocalSandbox(Terms(limits=limits or narrow, **terms), offer)


def run(sandbox: LocalSandbox, *command: str, **call) -> ScriptResult:
    return asyncio.run(sandbox.run(ScriptCall(command, **call)))


def shell(sandbox: LocalSandbox, text: str, **call) -> ScriptResult:
    return run(sandbox, "sh", "-c", text, **call)


def python(sandbox: LocalSandbox, text: str, *, mark: str = "", **call) -> ScriptResult:
    files = {"program.py": dedent(text).encode()}
    return run(sandbox, "python3", "program.py", mark, files=files, **call)


def processes_named(mark: str) -> list[str]:
    """Return the command lines of all processes of the machine that hold the mark."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if mark in line:
                found.append(line)
    return found

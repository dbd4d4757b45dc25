"""Users' programs: who may run them here, and the sandbox of this process."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User

from evaluators.kinds._base import Sandbox, SandboxRefusal, ScriptCall, ScriptResult
from evaluators.sandbox import probe
from evaluators.sandbox.confinement import ProgramLimits, Terms
from evaluators.sandbox.local import LocalSandbox
from runs.formats.prompt_programs import RunProgram
from runs.models.database import database_now
from runs.models.runs import WorkerProcess
from runs.requests import RUN_SCRIPTS

# How workers report that they run no programs: switched off, or without a sandbox.
UNABLE = ("scripts off", "none")


def script_obstacle(user: User | AnonymousUser | None, *, command: str = "evaluate") -> str:
    """Return why the user cannot run programs, as the end of a sentence; "" if they can.

    Without a user, a `command` runs them on this machine.
    """
    if not settings.SCRIPTS and user is None:
        return (
            "scripts are switched off for this command, which runs them itself. For this command: "
            f"EVALSITE_SCRIPTS=1 evalsite {command} …"
        )
    if not settings.SCRIPTS:
        return (
            "scripts are switched off on this site. The administrator of the site can switch them on: set "
            "EVALSITE_SCRIPTS=1 for the site and its workers and start them again."
        )
    if user is not None and not user.has_perm(RUN_SCRIPTS):
        return (
            "you may not run scripts. An admin can allow it on your page under Members: "
            "“May run scripts”."
        )
    return _sandbox_problem(is_local_worker=user is None)


def _sandbox_problem(*, is_local_worker: bool) -> str:
    """Return what is wrong with the sandboxes of this process or of the live workers, or ""."""
    remedy = "Scripts run on Linux with bubblewrap or prlimit; install one of them and start the site again."
    if settings.IS_EMBEDDED or is_local_worker:
        offer = probe.find_sandbox()
        is_missing = offer.kind == "none"
        return f"no sandbox works on this machine ({offer.reason}). {remedy}" if is_missing else ""
    workers = WorkerProcess.objects.alive(now=database_now())
    shown = list(workers.order_by("name").values_list("sandbox", flat=True))
    if shown and all(words.startswith(UNABLE) for words in shown):
        return f"no running worker can run them ({shown[0]}). {remedy}"
    return ""


def sandbox_in_force() -> Sandbox | None:
    """Return the sandbox for users' programs, None unless the administrator has switched them on."""
    return _sandbox(_terms()) if settings.SCRIPTS else None


@cache
def _sandbox(terms: Terms) -> LocalSandbox:
    """Return the only sandbox of the process: its concurrency limit holds for all runs."""
    return LocalSandbox(terms)


def _terms() -> Terms:
    limits = ProgramLimits(
        seconds=settings.SCRIPT_SECONDS,
        memory_mb=settings.SCRIPT_MEMORY_MB,
        processes=settings.SCRIPT_PROCESSES,
        output_kb=settings.SCRIPT_OUTPUT_KB,
        disk_mb=settings.SCRIPT_DISK_MB,
        files=settings.SCRIPT_FILES,
    )
    return Terms(
        limits=limits,
        allows_network=settings.SCRIPTS_NETWORK,
        concurrency=settings.SCRIPT_CONCURRENCY,
        python=settings.SCRIPT_PYTHON,
        folders=tuple(settings.SCRIPT_FOLDERS),
        hidden=_hidden(),
        agents_dir=settings.AGENTS_DIR,
    )


def _hidden() -> tuple[str, ...]:
    """Return the folders of the site: its data, and its code and .env where it runs from a checkout.

    An installed package lies among others that programs may need.
    """
    base = Path(settings.BASE_DIR).resolve()
    own = [base] if (base / "manage.py").exists() else []
    data, exports = settings.DATA_DIR.resolve(), settings.EXPORTS_DIR.resolve()
    elsewhere = [] if exports.is_relative_to(data) else [exports]
    return tuple(map(str, (*own, data, *elsewhere)))


def prompt_programs(user: User | AnonymousUser | None, *, command: str = "import") -> RunProgram:
    """Return what runs the programs of files that the user, or a command without one, reads."""

    def run(call: ScriptCall) -> ScriptResult:
        if obstacle := script_obstacle(user, command=command):
            raise SandboxRefusal(obstacle)
        if user is not None and not settings.IS_EMBEDDED:
            raise SandboxRefusal(
                "the pages of this site run no programs, its workers do. Import the file with evalsite import on the "
                "machine of a worker, or write the prompt as text."
            )
        return asyncio.run(_sandbox(_terms()).run(call))

    return run

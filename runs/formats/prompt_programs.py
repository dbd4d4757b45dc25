"""Programs that write prompts: they run while the file that names them is read, where scripts may run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from evaluators.kinds._base import SandboxRefusal, ScriptCall, ScriptResult
from evaluators.kinds.script import failure_text
from evaluators.kinds.script.program import ScriptSettings, locate_script, read_program
from runs.formats.bundles import OUTSIDE, missing_file_message

# Runs a program of a user; raises SandboxRefusal with the reason and the remedy where it may not.
RunProgram = Callable[[ScriptCall], ScriptResult]


def run_no_program(call: ScriptCall) -> ScriptResult:
    """Refuse every program, as the default for those who read files."""
    raise SandboxRefusal(
        "no program of a file is run here. Import the file in the browser or with evalsite import on the "
        "machine of the site, or write the prompt as text"
    )


def program_output(
    command: Sequence[str],
    folder: str,
    files: Mapping[str, bytes],
    run: RunProgram,
    *,
    wrapper: str = "",
    stdin: bytes = b"",
) -> str:
    """Return what a program of a file in `folder` prints; raises ValueError with the reason.

    It finds the files around it, as scripts that judge do. A `wrapper`, a script of our own that calls the program,
    is started in its place.
    """
    located = locate_script({"command": [*command]}, folder, files)
    if located.outside:
        raise ValueError(f"the file {located.outside[0]!r} {OUTSIDE}")
    if located.missing:
        raise ValueError(missing_file_message(located.missing[0], files, folder))
    starts = {"script": wrapper, "cwd": located.config["cwd"]} if wrapper else located.config
    program = read_program(ScriptSettings.model_validate(starts), located.files)
    call = ScriptCall(
        command=program.command, stdin=stdin, files={**located.files, **program.files}
    )
    who = f"the program {shlex.join(command)} writes this prompt"
    try:
        result = run(call)
    except SandboxRefusal as refusal:
        raise ValueError(f"{who}, and {refusal}") from refusal
    if failure := failure_text(result):
        raise ValueError(f"{who} and failed: {failure}")
    return result.stdout

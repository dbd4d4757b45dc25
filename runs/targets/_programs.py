"""What became of an agent's program: its output, or why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from evaluators.kinds._base import CaseFacts, Output, ScriptResult
from runs.plan import Cause, TargetFailure
from runs.targets._files import kept_files
from runs.targets._printed import AgentError, Reply, read_printed
from runs.targets._replies import UnreadableReplyError

LONGEST_END = 1500
NO_PROGRAM = 127
# What starts a program in its sandbox says this when there is none of that name.
NOT_FOUND = re.compile(
    r"(?:failed to execute|execvp) (?P<program>.+): No such file or directory\s*\Z"
)


def read_ending(result: ScriptResult, reply: Reply, case: CaseFacts) -> Output | TargetFailure:
    """Return what the program printed and left, or the class and reason of its failure."""
    return _failure(result) or _answered(result, reply, case)


def _failure(result: ScriptResult) -> TargetFailure | None:
    if result.timed_out:
        return TargetFailure(f"it passed {result.ended_by}{_end(result)}", Cause.TIMEOUT)
    if result.ended_by:
        passed = (
            result.ended_by if result.ended_by.startswith("it ") else f"it passed {result.ended_by}"
        )
        return TargetFailure(f"{passed}{_end(result)}", Cause.FAILED)
    if result.exit_code == NO_PROGRAM and (found := NOT_FOUND.search(result.stderr)):
        return TargetFailure(
            f"there is no program {found['program']!r} in the sandbox; name one that workers have, or "
            "a file of the agent's folder as ./NAME",
            Cause.FAILED,
        )
    if result.exit_code:
        return TargetFailure(
            f"it ended with exit code {result.exit_code}{_end(result)}", Cause.FAILED
        )
    return None


def _end(result: ScriptResult) -> str:
    """Return the end of what it said on standard error, where whatever went wrong mostly stands."""
    said = result.stderr.strip()
    if len(said) > LONGEST_END:
        said = f"…{said[-LONGEST_END:]}"
    return f": {said}" if said else ""


def _answered(result: ScriptResult, reply: Reply, case: CaseFacts) -> Output | TargetFailure:
    try:
        output = _with_left(read_printed(result.stdout, reply, case), result.files)
    except AgentError as error:
        return TargetFailure(f"the agent says: {error}", Cause.FAILED)
    except (UnreadableReplyError, ValueError) as error:
        return TargetFailure(str(error), Cause.BAD_REPLY)
    if not output.text.strip() and not output.files:
        return TargetFailure(f"it printed nothing and left no file{_end(result)}", Cause.BAD_REPLY)
    return replace(output, usage=replace(output.usage, latency_ms=result.duration_ms))


def _with_left(output: Output, left: Mapping[str, bytes]) -> Output:
    """Return the output with the files left beside those printed; raises ValueError for too much."""
    files, warnings = kept_files((*output.files.items(), *left.items()), lambda _, content: content)
    return replace(output, files=files, warnings=(*output.warnings, *warnings))

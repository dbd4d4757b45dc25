"""Running a script over one output and reading what it says (SCORING §7)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaluators.kinds._base import Context, SandboxRefusal, ScriptCall, ScriptResult
from evaluators.kinds._script_payload import environment, payload
from evaluators.kinds._scripts import OUTPUT_FILE, Protocol, ScriptSettings, program_of
from evaluators.scoring.scripts import (
    ENV_SCALE,
    ScriptReplyError,
    read_env_reply,
    read_stdin_reply,
)
from evaluators.scoring.types import Finding, Outcome, Score, Unscored, Usage

STAGE = "script"
USUAL_SECONDS = 60.0
MOST_KEPT = 4_000
MOST_REASON = 400
MOST_TEXT = 10_000
IN_SHARES = (
    "the score is below 1 of 100; a script that counts from 0 to 1 speaks the protocol stdin"
)
LONGEST_REPLY = 1_000_000
NO_SANDBOX = "scripts are switched off where this run is carried out, or no sandbox works there"
# NUL and halves of surrogate pairs: a script can print them, no database keeps them.
UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


async def judged_by_script(
    settings: ScriptSettings, protocol: Protocol, context: Context
) -> Outcome:
    """Return the score a script prints for an output; Unscored, with the end of stderr, without one."""
    if context.sandbox is None:
        return Unscored(NO_SANDBOX, stage=STAGE)
    program = program_of(settings, context.files)
    told = payload(context, settings.config) if protocol == "stdin" else b""
    answer = {OUTPUT_FILE: context.output.text.encode("utf-8", "replace")}
    call = ScriptCall(
        command=program.command,
        stdin=told,
        environment=environment(context),
        files={**context.files, **program.files, **answer},
        workspace=context.output.files,
        seconds=settings.timeout_s or USUAL_SECONDS,
        needs_network=settings.network,
    )
    try:
        result = await context.sandbox.run(call)
    except SandboxRefusal as refusal:
        return Unscored(f"the script was not started: {refusal}", stage=STAGE)
    return _read(result, protocol)


def _read(result: ScriptResult, protocol: Protocol) -> Outcome:
    details = {"protocol": protocol, **_kept(result)}
    usage = Usage(latency_ms=result.duration_ms)
    ended = _how_it_failed(result)
    if ended:
        reason = ended + _said(result.stderr)
        return Unscored(reason, stage=STAGE, details=details, usage=usage)
    try:
        score = (
            read_env_reply(result.stdout) if protocol == "env" else read_stdin_reply(result.stdout)
        )
    except ScriptReplyError as error:
        reason = _storable(str(error), MOST_REASON) + _said(result.stderr)
        return Unscored(reason, stage=STAGE, details=details, usage=usage)
    return _storable_score(score, details, usage)


def _how_it_failed(result: ScriptResult) -> str:
    """Say by what a script was ended, or how it ended itself; "" when it ended well."""
    if result.exit_code is None:
        return f"the script was stopped by {result.ended_by or 'something outside'}"
    at = f" at {result.ended_by}" if result.ended_by else ""
    if result.exit_code or at:
        return f"the script ended with exit code {result.exit_code}{at}"
    if len(result.stdout) > LONGEST_REPLY:
        return (
            f"the script printed {len(result.stdout):,} characters; a verdict has a million at most"
        )
    return ""


def _said(stderr: str) -> str:
    """Return the end of stderr as the end of a sentence, "" when nothing was said."""
    end = " ".join(_storable(stderr.strip()[-MOST_REASON:]).split())
    return f"; stderr ends: {end}" if end else ""


def _kept(result: ScriptResult) -> Mapping[str, Any]:
    return {
        "exit_code": result.exit_code,
        "ended_by": result.ended_by,
        "duration_ms": result.duration_ms,
        "sandbox": result.sandbox,
        "stdout": _storable(result.stdout.strip()[-MOST_KEPT:]),
        "stdout_length": len(result.stdout.strip()),
        "stderr": _storable(result.stderr.strip()[-MOST_KEPT:]),
        "stderr_length": len(result.stderr.strip()),
    }


def _storable_score(score: Score, details: Mapping[str, Any], usage: Usage) -> Score:
    is_tiny = score.scale == ENV_SCALE and 0 < (score.raw_score or 0) < 1
    findings = tuple(
        Finding(_storable(found.text), found.passed, _storable(found.evidence))
        for found in score.findings
    )
    return replace(
        score,
        reasoning=_storable(score.reasoning),
        findings=findings,
        details=details,
        usage=usage,
        warnings=(IN_SHARES,) if is_tiny else (),
    )


def _storable(text: str, most: int = MOST_TEXT) -> str:
    plain = UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"

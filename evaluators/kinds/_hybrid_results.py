"""Checks carried out on one output: passed, failed or without a result (SCORING §6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from evaluators.kinds import text_check
from evaluators.kinds._base import Context
from evaluators.kinds._hybrid_checks import CheckSetting
from evaluators.kinds._hybrid_packet import storable
from evaluators.kinds._script_runs import judged_by_script
from evaluators.scoring.hybrid import ERRORED, FAILED, PASSED, Check
from evaluators.scoring.types import Finding, Outcome, Score

# An evaluator is only asked about an answer that came: a target that failed leaves nothing to judge.
STATUS = "success"
SAME_STATUS = ("success", "completed", "ok")


class UndecidableError(Exception):
    """The check can be neither passed nor failed for this output."""


async def carried_out(check: CheckSetting, context: Context) -> dict[str, Any]:
    """Return what a check came to, as it is stored: passed, failed or error, and in words why."""
    try:
        holds, said, evidence = await _DECIDED.get(check.type, _text)(check, context)
    except UndecidableError as error:
        outcome, said, evidence = ERRORED, str(error), ""
    else:
        outcome = PASSED if holds != check.negate else FAILED
    words = {"said": storable(said), "evidence": storable(evidence)}
    return {"comparison": check.comparison, "outcome": outcome, **words}


def stored_checks(
    checks: tuple[CheckSetting, ...], stored: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]] | None:
    """Return of every check what is stored of it, under its present name; None when one is not there."""
    found = []
    for number, check in enumerate(checks, 1):
        said = next((one for one in stored if one["comparison"] == check.comparison), None)
        if said is None:
            return None
        own = {"name": check.name or f"check {number}", "type": check.type}
        found.append({**said, **own, "dimensions": list(check.dimensions), "negate": check.negate})
    return found


def scored_checks(stored: list[dict[str, Any]]) -> list[Check]:
    """Return the checks as the arithmetic knows them."""
    return [Check(one["outcome"], tuple(one["dimensions"]), one["name"]) for one in stored]


Decided = tuple[bool, str, str]


async def _text(check: CheckSetting, context: Context) -> Decided:
    return _of_outcome(await text_check.score(check.text_config, context))


async def _final_response(_: CheckSetting, context: Context) -> Decided:
    length = len(context.output.text.strip())
    return bool(length), f"A final response of {length} characters" if length else "None came", ""


async def _tool_calls(check: CheckSetting, context: Context) -> Decided:
    if context.output.trace is None:
        raise UndecidableError("the target does not report its tool calls")
    calls = [step.name for step in context.output.trace if step.type == "tool"]
    count = calls.count(check.tool) if check.tool else len(calls)
    low, high = check.min or 0, check.max
    what = f"calls of {check.tool}" if check.tool else "tool calls"
    wanted = f"at least {low}" if high is None else f"{low} to {high}"
    return (
        low <= count and (high is None or count <= high),
        f"{count} {what}, expected {wanted}",
        "",
    )


async def _file_exists(check: CheckSetting, context: Context) -> Decided:
    names = _files(check, context)
    if not names:
        return False, f"The agent left no file {check.path}", ""
    return True, f"The agent left {', '.join(names[:3])}", ""


async def _file_contains(check: CheckSetting, context: Context) -> Decided:
    names = _files(check, context)
    if not names:
        return False, f"The agent left no file {check.path}", ""
    said, evidence = "", ""
    for name in names:
        text = context.output.files[name].decode("utf-8", "replace")
        read = replace(context, output=replace(context.output, text=text))
        holds, said, evidence = await _text(check, read)
        if holds:
            return True, f"{name}: {said}", evidence
    return False, f"{', '.join(names[:3])}: {said}", evidence


async def _status(check: CheckSetting, _: Context) -> Decided:
    return check.status.strip().lower() in SAME_STATUS, f"The agent ended with {STATUS}", ""


async def _script(check: CheckSetting, context: Context) -> Decided:
    return _of_outcome(await judged_by_script(check.script_settings, check.protocol, context))


_DECIDED: Mapping[str, Callable[[CheckSetting, Context], Awaitable[Decided]]] = {
    "final_response_present": _final_response,
    "tool_call_count": _tool_calls,
    "file_exists": _file_exists,
    "file_contains": _file_contains,
    "status_is": _status,
    "script": _script,
}


def _of_outcome(outcome: Outcome) -> Decided:
    if not isinstance(outcome, Score):
        raise UndecidableError(outcome.reason)
    first = next(iter(outcome.findings), Finding("", True))
    said = outcome.reasoning or "; ".join(found.text for found in outcome.findings)
    return outcome.score == 1.0, said or f"Scored {outcome.score:g}", first.evidence


def _files(check: CheckSetting, context: Context) -> list[str]:
    path = check.path.removeprefix("./")
    return sorted(name for name in context.output.files if fnmatchcase(name, path))

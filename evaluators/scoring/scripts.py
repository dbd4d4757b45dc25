"""Read what a user's script prints: one JSON object with a score (SCORING §7)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.scoring.numbers import on_scale
from evaluators.scoring.types import DomainError, Finding, Score, ScoreOutOfRangeError

ENV_SCALE = 100.0
STDIN_SCALE = 1.0
TEXT_KEYS = ("text", "name", "description", "message")


class ScriptReplyError(DomainError):
    """A script printed something that is no score."""

    code = "unreadable_script_reply"


def read_env_reply(stdout: str) -> Score:
    """Return the score of the env protocol: {"score": 0–100, "reasoning"}.

    Raises ScriptReplyError when the output is not one JSON object with a score of that range.
    """
    return _score(_object(stdout), ENV_SCALE)


def read_stdin_reply(stdout: str) -> Score:
    """Return the score of the stdin protocol: {"score": 0–1, "hits", "misses", "reasoning"}.

    `assertions` and `checks` are findings too, each a mapping of text and passed (or pass). Raises
    ScriptReplyError when the output is not one JSON object of that form.
    """
    return _score(_object(stdout), STDIN_SCALE)


def _object(stdout: str) -> Mapping[str, Any]:
    if not stdout.strip():
        raise ScriptReplyError("the script printed nothing")
    try:
        reply = json.loads(stdout)
    except (ValueError, RecursionError) as error:
        raise ScriptReplyError(
            f"the script printed no JSON ({error}); stdout holds one JSON object and nothing else"
        ) from error
    if not isinstance(reply, dict):
        raise ScriptReplyError("the script printed JSON that is not an object")
    return reply


def _score(reply: Mapping[str, Any], scale: float) -> Score:
    raw = reply.get("score")
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise ScriptReplyError(f"score {raw!r} is not a number")
    try:
        score = on_scale(raw, scale, "score")
    except ScoreOutOfRangeError as error:
        raise ScriptReplyError(str(error)) from error
    reasoning = reply.get("reasoning") or reply.get("reason") or ""
    return Score(
        score=score,
        raw_score=float(raw),
        scale=scale,
        reasoning=reasoning if isinstance(reasoning, str) else json.dumps(reasoning),
        findings=_findings(reply),
    )


def _findings(reply: Mapping[str, Any]) -> tuple[Finding, ...]:
    found = [Finding(text, passed=True) for text in _texts(reply, "hits")]
    found += [Finding(text, passed=False) for text in _texts(reply, "misses")]
    for name in ("assertions", "checks"):
        found += [_finding(entry, name) for entry in _entries(reply, name)]
    return tuple(found)


def _finding(entry: Any, name: str) -> Finding:
    found = entry if isinstance(entry, Mapping) else {}
    passed = found.get("passed", found.get("pass"))
    text = next((found[key] for key in TEXT_KEYS if key in found), None)
    if not isinstance(passed, bool) or not isinstance(text, str):
        raise ScriptReplyError(f"{name}: {entry!r} is not an object of text and passed")
    evidence = found.get("evidence") or found.get("reason") or ""
    return Finding(text, passed, evidence if isinstance(evidence, str) else json.dumps(evidence))


def _texts(reply: Mapping[str, Any], name: str) -> Sequence[str]:
    entries = _entries(reply, name)
    if not all(isinstance(entry, str) for entry in entries):
        raise ScriptReplyError(f"{name} is not a list of texts")
    return entries


def _entries(reply: Mapping[str, Any], name: str) -> Sequence[Any]:
    entries = reply.get(name)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ScriptReplyError(f"{name} is not a list")
    return entries

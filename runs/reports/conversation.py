"""What was asked and answered, cut where it is too long to read on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.templatetags.steps import spelled
from runs.models import Case, ResultOutput

LONGEST_SHOWN = 20_000


@dataclass(frozen=True, slots=True)
class Turns:
    """A conversation, with what was cut from it so that the page stays readable."""

    messages: tuple[Mapping[str, Any], ...]
    cut_characters: int


def conversation(case: Case, output: ResultOutput) -> Turns:
    """Return the case's input and the target's answer as one conversation."""
    asked = [{"role": turn["role"], "content": turn["content"]} for turn in case.input]
    answered = list(output.messages)
    if answered[: len(asked)] != asked:
        is_whole = bool(answered) and answered[0].get("role") in ("user", "system")
        answered = answered if is_whole else [*asked, *answered]
    if output.text and not any(turn.get("content") == output.text for turn in answered):
        answered.append({"role": "assistant", "content": output.text})
    return cut_turns(answered)


def cut_turns(turns: Iterable[Mapping[str, Any]]) -> Turns:
    """Return the turns with their long texts cut; `size` is how many characters one of them had."""
    shown, cut = [], 0
    for turn in turns:
        content, whole = turn.get("content"), {}
        if isinstance(content, str) and len(content) > LONGEST_SHOWN:
            whole = {"size": len(content)}
            cut += len(content) - LONGEST_SHOWN
            content = content[:LONGEST_SHOWN]
        shown.append({"role": turn.get("role", "user"), "content": content or "", **whole})
    return Turns(tuple(shown), cut)


def cut_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step of a trace with its long texts cut."""
    return {name: _cut(value) for name, value in step.items()}


def _cut(value: Any) -> Any:
    is_plain = value is None or isinstance(value, int | float)
    text = value if is_plain or isinstance(value, str) else spelled(value)
    if isinstance(text, str) and len(text) > LONGEST_SHOWN:
        return f"{text[:LONGEST_SHOWN]}\n… {len(text) - LONGEST_SHOWN} characters more"
    return value

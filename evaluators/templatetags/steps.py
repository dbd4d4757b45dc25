"""Lay out what a target did as steps on one line of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.templatetags import figures

LONGEST_GIST = 120


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step as a trace shows it; `left` and `width` are percent of the whole time."""

    name: str
    icon: str
    gist: str
    tone: str
    left: str
    width: str
    duration_ms: float | None
    input: str
    output: str
    error: str


def spelled(value: Any) -> str:
    """Return a text as it is and everything else as indented JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def one_line(value: Any) -> str:
    """Return what fits beside a name: the values of an object, or the beginning of a text."""
    if isinstance(value, Mapping):
        value = ", ".join(
            part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, default=str)
            for part in value.values()
        )
    text = " ".join(spelled(value).split())
    return text if len(text) <= LONGEST_GIST else f"{text[: LONGEST_GIST - 1]}…"


def lay_out(steps: Sequence[Mapping[str, Any]]) -> list[StepRow]:
    """Return the rows of a trace; a step without a start follows the one before it."""
    spans: list[tuple[float, float | None]] = []
    clock = 0.0
    for step in steps:
        start, length = step.get("started_ms"), step.get("duration_ms")
        begin = float(start) if start is not None else clock
        spans.append((begin, None if length is None else float(length)))
        clock = max(clock, begin + (length or 0))
    return [_row(step, span, clock) for step, span in zip(steps, spans, strict=True)]


def _row(step: Mapping[str, Any], span: tuple[float, float | None], total: float) -> StepRow:
    begin, length = span
    is_tool = step.get("type") == "tool"
    error = str(step.get("error") or "")
    tokens = [
        f"{figures.thousands(step[key])} {word}"
        for key, word in (("input_tokens", "in"), ("output_tokens", "out"))
        if step.get(key) is not None
    ]
    known = length is not None and total > 0
    return StepRow(
        name=str(step.get("name") or step.get("type") or "step"),
        icon="e-tool" if is_tool else "e-chat",
        gist=one_line(step.get("input")) if is_tool else ", ".join(tokens),
        tone="bad" if error else "tool" if is_tool else "",
        left=f"{begin * 100 / total:.2f}" if known else "",
        width=f"{max((length or 0) * 100 / total, 0.4):.2f}" if known else "",
        duration_ms=length,
        input=spelled(step.get("input")),
        output=spelled(step.get("output")),
        error=error,
    )

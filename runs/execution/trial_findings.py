"""What a try of a target found, as its fragment shows it: plain JSON, long parts cut for reading."""

from __future__ import annotations

import json
from typing import Any

from evaluators.judging.calls import CallRecord
from evaluators.kinds._base import Output
from runs.plan import TargetFailure
from runs.targets._base import TargetConfig
from runs.targets._outputs import messages_as_json, trace_as_json, usage_as_json

MOST_SHOWN = 20_000
LONGEST_TURN = 100_000
MOST_TURNS, MOST_FILES, MOST_STEPS = 50, 50, 200


def failed(failure: TargetFailure) -> dict[str, Any]:
    """Return why there is no answer, with its class."""
    return {"cause": failure.cause.value, "label": failure.cause.label, "reason": failure.reason}


def answered(output: Output, config: TargetConfig) -> dict[str, Any]:
    """Return what the target answered, long parts cut for reading."""
    turns = messages_as_json(output)
    if not any(turn["content"] == output.text for turn in turns):
        turns = [*turns, {"role": "assistant", "content": output.text}]
    return {
        "length": len(output.text),
        "most": LONGEST_TURN,
        "messages": [
            {**turn, "content": turn["content"][:LONGEST_TURN]} for turn in turns[-MOST_TURNS:]
        ],
        "trace": _trace(output),
        "usage": usage_as_json(output.usage),
        "files": [
            _file(path, content) for path, content in list(output.files.items())[:MOST_FILES]
        ],
        "file_count": len(output.files),
        "reports_nothing_of": _unreported(output, config),
    }


def _trace(output: Output) -> list[dict[str, Any]] | None:
    """Return the first steps; what went in and came out of them is cut for reading."""
    steps = trace_as_json(output)
    return None if steps is None else [_cut_step(step) for step in steps[:MOST_STEPS]]


def _cut_step(step: dict[str, Any]) -> dict[str, Any]:
    long = {name: _spelled(step[name]) for name in ("input", "output") if name in step}
    return step | {name: text for name, text in long.items() if len(text) >= MOST_SHOWN}


def _unreported(output: Output, config: TargetConfig) -> list[str]:
    """Return the titles of paths that are set and led nowhere: a slip of the pen, or nothing to tell."""
    found = {
        "tool_calls_path": output.trace,
        "files_path": output.files or None,
        "input_tokens_path": output.usage.input_tokens,
        "output_tokens_path": output.usage.output_tokens,
        "cost_path": output.usage.cost_usd,
    }
    settings = type(config).model_fields
    return [
        f"{settings[name].title} ({getattr(config, name)})"
        for name, value in found.items()
        if value is None and name in settings and getattr(config, name)
    ]


def _file(path: str, content: bytes) -> dict[str, Any]:
    beginning = content[:MOST_SHOWN]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        # A character may be cut in half at the end; anywhere else it is no text.
        is_cut = error.start > len(beginning) - 4 and len(content) > MOST_SHOWN
        text = beginning[: error.start].decode() if is_cut else ""
    return {"path": path, "size": len(content), "text": text.replace("\x00", "")}


def call_found(record: CallRecord) -> dict[str, Any]:
    """Return one request with what came back; secrets never entered either."""
    return {
        "status": record.status.value,
        "http_status": record.http_status,
        "error": record.error,
        "latency_ms": record.latency_ms,
        "request": _spelled(record.request),
        "reply": _spelled(record.reply),
    }


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)[:MOST_SHOWN]

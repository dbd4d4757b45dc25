"""What an output took, counted: tokens, calls, time and money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evaluators.kinds._base import Output, Step

COST = "cost_usd"
NARROW = "\u202f"
NO_BREAK = "\u00a0"


@dataclass(frozen=True, slots=True)
class Limit:
    """One figure that may be limited: where it is kept, what it is called and its unit, "" for a count."""

    figure: str
    label: str
    noun: str
    unit: str = ""


LIMITS = {
    "max_tokens": Limit("tokens", "Tokens", "tokens"),
    "max_input_tokens": Limit("input_tokens", "Input tokens", "input tokens"),
    "max_output_tokens": Limit("output_tokens", "Output tokens", "output tokens"),
    "max_tool_calls": Limit("tool_calls", "Tool calls", "tool calls"),
    "max_model_calls": Limit("model_calls", "Model calls", "model calls"),
    "max_duration_ms": Limit("duration_ms", "Duration", "duration", "ms"),
    "max_cost_usd": Limit(COST, "Cost", "cost", "usd"),
}


def measured(output: Output) -> dict[str, Any]:
    """Return the figures an output has, by name; what is not known is left out, never 0.

    Money is text, so that nothing of it is lost in JSON.
    """
    input_tokens, output_tokens = _tokens(output, "input_tokens"), _tokens(output, "output_tokens")
    known = input_tokens is not None and output_tokens is not None
    cost = output.usage.cost_usd
    figures = {
        "tokens": (input_tokens or 0) + (output_tokens or 0) if known else None,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "tool_calls": None if output.trace is None else len(_steps(output, "tool")),
        "model_calls": _model_calls(output),
        "duration_ms": output.usage.latency_ms,
        COST: None if cost is None else f"{cost:f}",
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def spelt_figure(figure: str | int, unit: str) -> str:
    """Return a figure with its unit: `1 200`, `5 001 ms`, `$0.0123`."""
    if unit == "usd":
        whole, _, cents = str(figure).partition(".")
        return f"${whole}.{cents}" if cents else f"${whole}"
    count = f"{figure:,}".replace(",", NARROW)
    return f"{count}{NO_BREAK}{unit}" if unit else count


def _tokens(output: Output, name: Literal["input_tokens", "output_tokens"]) -> int | None:
    """Return the tokens the target reports, else those of its calls of a model where each tells them."""
    whole: int | None = getattr(output.usage, name)
    if whole is not None:
        return whole
    counts = [getattr(step, name) for step in _steps(output, "model")]
    return sum(int(count) for count in counts) if counts and None not in counts else None


def _model_calls(output: Output) -> int | None:
    """Return the calls of a model; a trace that holds tools alone does not say that there were none."""
    counted = len(_steps(output, "model"))
    spoken = sum(turn.role == "assistant" for turn in output.messages)
    return counted or spoken or None


def _steps(output: Output, kind: str) -> Sequence[Step]:
    return [step for step in output.trace or () if step.type == kind]

"""Put the spans of a trace in the order of their tree, and make an output of one of them and what is below it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs.target_kinds._outputs import MAX_COUNT, MAX_STEPS, MAX_USD
from runs.traces.conventions import ExecutionName, answer, question

NS_A_MS = 1_000_000
TOKENS = ("input_tokens", "output_tokens")
NO_ANSWER = (
    "The trace has no answer. Set output.value or gen_ai.output.messages on the span of the agent."
)


@dataclass(frozen=True, slots=True)
class PlacedStep:
    """A step as it is stored, with the ids of its span and of the span above, "" for none."""

    span_id: str
    parent_id: str
    started_ns: int | None
    mark: ExecutionName | None
    step: Mapping[str, Any]


class SpanTree:
    """The spans of a trace that have arrived, whatever they say about their parents."""

    def __init__(self, spans: Sequence[PlacedStep]) -> None:
        """Sort the spans by their parents."""
        self._spans = {span.span_id: span for span in spans}
        self._below: dict[str, list[PlacedStep]] = defaultdict(list)
        for span in sorted(spans, key=_start):
            self._below[span.parent_id].append(span)

    @property
    def root(self) -> PlacedStep | None:
        """Return the first span without a parent; None while it has not arrived."""
        return next(iter(self._below.get("", ())), None)

    def executions(self) -> list[tuple[ExecutionName, list[PlacedStep]]]:
        """Return the executions that spans name, each with its spans in tree order.

        A span below one with the same mark is part of that execution.
        """
        marked = [span for span in self._spans.values() if span.mark]
        return [
            (span.mark, self.in_order(span))
            for span in marked
            if span.mark and not self._is_below_same(span)
        ]

    def _is_below_same(self, span: PlacedStep) -> bool:
        seen, above = {span.span_id}, self._spans.get(span.parent_id)
        while above is not None and above.span_id not in seen:
            if above.mark == span.mark:
                return True
            seen.add(above.span_id)
            above = self._spans.get(above.parent_id)
        return False

    def in_order(self, first: PlacedStep) -> list[PlacedStep]:
        """Return a span and all below it: each after the one above it, siblings by their start.

        Below the only root of a trace are also the spans whose parents never arrived, or lead in a circle.
        """
        ordered: list[PlacedStep] = []
        seen: set[str] = set()
        starts = [first]
        if not first.parent_id and len(self._below[""]) == 1:
            lost = (one for one in self._spans.values() if one.parent_id not in self._spans)
            starts += [*sorted(lost, key=_start), *sorted(self._spans.values(), key=_start)]
        for start in starts:
            waiting = [start]
            while waiting:
                span = waiting.pop()
                if span.span_id not in seen:
                    seen.add(span.span_id)
                    ordered.append(span)
                    waiting += reversed(self._below.get(span.span_id, ()))
        return ordered


def _start(span: PlacedStep) -> tuple[int, str]:
    return (span.started_ns or 0, span.span_id)


def nested_steps(spans: Sequence[PlacedStep]) -> list[dict[str, Any]]:
    """Return spans in tree order as the steps of a trace, the first 5,000 of them.

    A step begins so many milliseconds after the first, and has the tokens and the cost of the steps below it
    unless it says its own.
    """
    steps: list[dict[str, Any]] = [{**span.step, "id": span.span_id} for span in spans]
    places = {span.span_id: place for place, span in enumerate(spans)}
    begin = next((span.started_ns for span in spans if span.started_ns is not None), None)
    sums: dict[int, dict[str, Any]] = defaultdict(dict)
    for place in range(len(spans) - 1, -1, -1):
        span, step = spans[place], steps[place]
        for name, total in sums.pop(place, {}).items():
            if total <= (MAX_USD if name == "cost_usd" else MAX_COUNT):
                step.setdefault(name, f"{total:f}" if name == "cost_usd" else total)
        if span.started_ns is not None and begin is not None:
            step["started_ms"] = min(max(span.started_ns - begin, 0) // NS_A_MS, MAX_COUNT)
        if not place:
            break
        above = places.get(span.parent_id, 0)
        # A parent that comes later closes a circle.
        above = above if above < place else 0
        step["parent_id"] = spans[above].span_id
        figures = {name: step.get(name) for name in TOKENS}
        if "cost_usd" in step:
            figures["cost_usd"] = Decimal(step["cost_usd"])
        for name, value in figures.items():
            if value is not None:
                sums[above][name] = sums[above].get(name, 0) + value
    return steps[:MAX_STEPS]


def make_output(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answer of an agent in the form of a recorded line, from the steps of its trace.

    The first step is the agent. Without an answer of its own, that of the last model counts. An agent that failed, or
    gave no answer, has an error instead.
    """
    first = steps[0]
    if error := first.get("error"):
        return {"error": str(error)}
    models = (step for step in reversed(steps) if step["type"] == "model")
    text = _first_text(answer(step.get("output")) for step in (first, *models))
    if not text:
        return {"error": NO_ANSWER}
    usage = {name: first[name] for name in TOKENS if name in first}
    return {
        "output": text,
        "trace": list(steps),
        **({"usage": usage} if usage else {}),
        **({"latency_ms": first["duration_ms"]} if "duration_ms" in first else {}),
        **({"cost_usd": first["cost_usd"]} if "cost_usd" in first else {}),
    }


def _first_text(texts: Iterable[str]) -> str:
    return next((text for text in texts if text.strip()), "")


def make_question(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return what the agent was asked: by its own input, or else by that of its first model."""
    models = (step for step in steps if step["type"] == "model")
    turns = (question(step.get("input")) for step in (steps[0], *models))
    return next((found for found in turns if found), [])

"""Put the spans of a trace in the order of their tree, and make an output of one of them and what is below it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs.target_kinds._outputs import MAX_COUNT, MAX_STEPS, MAX_USD
from runs.traces.conventions import NS_PER_MS, ExecutionName, answer, question

TOKENS = ("input_tokens", "output_tokens")
FIGURES = (*TOKENS, "cost_usd")
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

        What is below a span with a name belongs to that execution, down to the next span with another name.
        """
        found: list[tuple[ExecutionName, list[PlacedStep]]] = []
        inside: dict[str, list[PlacedStep]] = {}
        for above, span in self._walk():
            spans = inside.get(above.span_id) if above else None
            if span.mark and (above is None or spans is None or span.mark != spans[0].mark):
                spans = []
                found.append((span.mark, spans))
            if spans is not None:
                spans.append(span)
                inside[span.span_id] = spans
        return found

    def in_order(self) -> list[PlacedStep]:
        """Return all spans: each after the one above it, siblings by their start."""
        return [span for _, span in self._walk()]

    def _walk(self) -> Iterator[tuple[PlacedStep | None, PlacedStep]]:
        """Yield each span once, after the one above it, with that one.

        Spans whose parents never arrived, or lead in a circle, are below the root if there is only one.
        """
        roots = self._below.get("", [])
        lost = [span for span in self._spans.values() if span.parent_id not in self._spans]
        rest = [*sorted(lost, key=_start), *sorted(self._spans.values(), key=_start)]
        only = roots[0] if len(roots) == 1 else None
        seen: set[str] = set()
        for start in (*roots, *rest):
            waiting = [(None if start is only else only, start)]
            while waiting:
                above, span = waiting.pop()
                if span.span_id not in seen:
                    seen.add(span.span_id)
                    yield above, span
                    waiting += (
                        (span, part) for part in reversed(self._below.get(span.span_id, ()))
                    )


def _start(span: PlacedStep) -> tuple[int, str]:
    return (span.started_ns or 0, span.span_id)


def nested_steps(spans: Sequence[PlacedStep]) -> list[dict[str, Any]]:
    """Return spans in tree order as the steps of a trace, the first 5,000 of them.

    A step begins so many milliseconds after the first, and has the tokens and the cost of the steps below it
    unless it says its own.
    """
    steps: list[dict[str, Any]] = [{**span.step, "id": span.span_id} for span in spans]
    above = _places_above(spans)
    begin = next((span.started_ns for span in spans if span.started_ns is not None), None)
    for span, step, parent in zip(spans, steps, above, strict=True):
        if span.started_ns is not None and begin is not None:
            step["started_ms"] = min(max(span.started_ns - begin, 0) // NS_PER_MS, MAX_COUNT)
        if parent is not None:
            step["parent_id"] = spans[parent].span_id
    _add_up(steps, above)
    return steps[:MAX_STEPS]


def _places_above(spans: Sequence[PlacedStep]) -> list[int | None]:
    """Return the place of the span above each; below a root is also what lost its parent or closes a circle."""
    places = {span.span_id: place for place, span in enumerate(spans)}
    above: list[int | None] = []
    for place, span in enumerate(spans):
        parent = places.get(span.parent_id, place)
        takes_strays = bool(place and span.parent_id and not spans[0].parent_id)
        above.append(parent if parent < place else 0 if takes_strays else None)
    return above


def _add_up(steps: Sequence[dict[str, Any]], above: Sequence[int | None]) -> None:
    """Give each step the sums of those below it; a sum that is more than can be is left out."""
    sums: dict[int, dict[str, Any]] = defaultdict(dict)
    for place in range(len(steps) - 1, -1, -1):
        step, parent = steps[place], above[place]
        for name, total in sums.pop(place, {}).items():
            if total <= (MAX_USD if name == "cost_usd" else MAX_COUNT):
                step.setdefault(name, f"{total:f}" if name == "cost_usd" else total)
        if parent is not None:
            for name in FIGURES:
                if name in step:
                    value = Decimal(step[name]) if name == "cost_usd" else step[name]
                    sums[parent][name] = sums[parent].get(name, 0) + value


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

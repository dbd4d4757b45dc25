"""Read stored traces back: their spans, and what they say as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.models.database import among
from runs.models.traces import Trace, TraceSpan
from runs.traces.conventions import ExecutionName
from runs.traces.trees import PlacedStep, SpanTree, make_output, make_question, nested_steps


def placed_steps(trace_ids: Sequence[int]) -> Iterator[tuple[int, PlacedStep]]:
    """Yield the spans of traces with the id of the trace; one query."""
    rows = TraceSpan.objects.filter(trace__in=among(trace_ids)).order_by()
    columns = ("trace_id", "span_id", "parent_id", "started_ns", "mark", "step")
    for pk, span_id, parent_id, started_ns, mark, step in rows.values_list(*columns).iterator():
        named = ExecutionName(*mark) if mark else None
        yield pk, PlacedStep(span_id, parent_id, started_ns, named, step)


@dataclass(frozen=True, slots=True)
class WholeTrace:
    """What a trace says as a whole: the question, the answer in the form of a recorded line, and the steps."""

    question: Sequence[Mapping[str, str]]
    output: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]


def read_traces(traces: Sequence[Trace]) -> dict[int, WholeTrace]:
    """Return what traces say by their ids; one query."""
    spans: dict[int, list[PlacedStep]] = {trace.pk: [] for trace in traces}
    for pk, span in placed_steps(list(spans)):
        spans[pk].append(span)
    whole = {}
    for pk, placed in spans.items():
        if placed:
            steps = nested_steps(SpanTree(placed).in_order())
            whole[pk] = WholeTrace(make_question(steps), make_output(steps), steps)
    return whole

"""Store the spans that agents send, and give each execution that one of them names to its run.

A span is exported when it ends, so the agent's span comes after those below it: with it an execution is complete, and
its output is pushed at once. Spans may come in any number of requests, in any order, and twice. What comes late joins
the output while that waits to be scored; after that the push is refused, and the run says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Sum

from evaluators.reading.json import MAX_REPLY_VALUES, count_values
from evaluators.scoring.types import DomainError
from evaluators.templatetags.ui import one_line
from runs.models.database import among, database_now, insert_rows, update_rows
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.models.traces import Trace, TraceSpan, TraceState
from runs.running.pushing import Push, UnusablePushesError, push_outputs
from runs.traces.conventions import ExecutionName, read_execution, read_place, read_step
from runs.traces.queries import placed_steps
from runs.traces.spans import ReceivedSpans, Span
from runs.traces.trees import PlacedStep, SpanTree, make_output, make_question, nested_steps

MAX_TRACE_SPANS, MAX_TRACE_SIZE = 10_000, 20 * 1024**2
# What is left of them for the span that completes a trace.
LAST_SPANS, LAST_SIZE = 1, 2 * 1024**2
# What a value takes besides its text.
VALUE_SIZE = 30
# In the spans of a request. Reading, storing and describing a million takes seconds, and only so few requests are
# answered at once.
MAX_VALUES = 500_000
# Each run that is named takes some queries.
MAX_RUNS = 100
TOO_MANY_RUNS = (
    f"A request names at most {MAX_RUNS} runs. Send this trace again in another request."
)
BATCH = 1_000
MAX_GIST_LENGTH, MAX_PROBLEM_LENGTH, MAX_MESSAGES = 300, 500, 10
SAMPLED_DIGITS = 14
SAMPLED_RANGE = 16**SAMPLED_DIGITS
COLUMNS = (
    *("suite_id", "case_key", "state", "root_id", "name", "service", "question", "answer", "error"),
    *("problem", "started_at", "changed_at", "latency_ms", "input_tokens", "output_tokens"),
    *("cost_usd", "span_count", "size"),
)


@dataclass(slots=True)
class Receipt:
    """How many spans of a request were not stored, what its sender should know, and how many values it had."""

    rejected: int = 0
    messages: list[str] = field(default_factory=list)
    values: int = 0

    @property
    def message(self) -> str:
        """Return the messages as one text, each once."""
        distinct = list(dict.fromkeys(self.messages))
        more = len(distinct) - MAX_MESSAGES
        shown = [*distinct[:MAX_MESSAGES], *([f"And {more} more."] if more > 0 else [])]
        return " ".join(shown)


@dataclass(frozen=True, slots=True)
class _ReadSpan:
    """A span as it will be stored."""

    span: Span
    mark: ExecutionName | None
    step: dict[str, Any]
    size: int

    @property
    def is_last(self) -> bool:
        """Tell whether it is the span that completes a trace or an execution."""
        return not self.span.parent_id or self.mark is not None


@dataclass(slots=True)
class _HeldTrace:
    """A trace that this request has spans of, its row locked."""

    trace: Trace
    new: list[_ReadSpan]
    tree: SpanTree = field(default_factory=lambda: SpanTree(()))
    executions: int = 0
    taken: int = 0
    problems: list[str] = field(default_factory=list)


def receive_spans(received: ReceivedSpans) -> Receipt:
    """Store spans, and push the outputs of the executions that are complete with them; safe to repeat."""
    receipt = Receipt(len(received.refusals), list(received.refusals))
    now = database_now()
    runs: set[str] = set()
    for batch in _batches(received.spans, receipt):
        with transaction.atomic():
            traces = _hold(batch, now)
            suites = _named_suites((one.span for held in traces for one in held.new), receipt)
            _store(traces, receipt)
            _read_trees(traces)
            _push(traces, runs, receipt)
            _describe(traces, suites, now)
    Trace.objects.forget_old(now=now)
    return receipt


def _batches(spans: Iterable[Span], receipt: Receipt) -> Iterator[Mapping[str, list[_ReadSpan]]]:
    """Yield spans by trace, as many traces at a time as are read and written quickly and fit into memory."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    rows = Trace.objects.filter(trace_id__in=among(by_trace, "text"))
    stored = {
        trace_id: (count, size)
        for trace_id, count, size in rows.values_list("trace_id", "span_count", "size")
    }
    batch: dict[str, list[_ReadSpan]] = {}
    count = size = 0
    for trace_id in sorted(by_trace):
        new = _read_spans(by_trace.pop(trace_id), receipt)
        if not new:
            continue
        more, larger = stored.get(trace_id, (0, 0))
        more, larger = more + len(new), larger + sum(one.size for one in new)
        if batch and (count + more > BATCH or size + larger > MAX_TRACE_SIZE):
            yield batch
            batch, count, size = {}, 0, 0
        batch[trace_id] = new
        count, size = count + more, size + larger
    if batch:
        yield batch


def _read_spans(spans: Sequence[Span], receipt: Receipt) -> list[_ReadSpan]:
    """Return the spans of a trace, those that complete it first; what is too large for any trace is left out."""
    marks = {id(span): read_execution(span) for span in spans}
    read: list[_ReadSpan] = []
    size = 0
    for span in sorted(spans, key=lambda span: bool(span.parent_id) and not marks[id(span)]):
        try:
            step = read_step(span) if receipt.values < MAX_VALUES else None
        except ValueError:
            step = None
        text = json.dumps(step, ensure_ascii=False)
        count = count_values(text)
        own = len(text.encode()) + VALUE_SIZE * count
        receipt.values += count
        if step is None or receipt.values > MAX_VALUES:
            receipt.rejected += 1
            receipt.messages.append(
                f"A request may have {MAX_VALUES:,} values in its spans, and a span {MAX_REPLY_VALUES:,}; more are "
                "left out. Send fewer spans at a time."
            )
        elif size + own > MAX_TRACE_SIZE:
            _leave_out(span.trace_id, 1, receipt)
        else:
            read.append(_ReadSpan(span, marks[id(span)], step, own))
            size += own
    return read


def _leave_out(trace_id: str, count: int, receipt: Receipt) -> None:
    receipt.rejected += count
    receipt.messages.append(
        f"Trace {trace_id} may have {MAX_TRACE_SPANS:,} spans and {MAX_TRACE_SIZE // 1024**2} MB; more are left out."
    )


def _hold(by_trace: Mapping[str, list[_ReadSpan]], now: datetime) -> list[_HeldTrace]:
    """Return the traces, new ones too, locked in one order for all."""
    share = settings.TRACES_SAMPLED_PCT / 100
    made = [
        Trace(
            trace_id=trace_id,
            received_at=now,
            changed_at=now,
            # By its id, so that all its spans agree.
            is_sampled=int(trace_id[-SAMPLED_DIGITS:], 16) < share * SAMPLED_RANGE,
        )
        for trace_id in sorted(by_trace)
    ]
    named = Trace.objects.filter(trace_id__in=among(by_trace, "text")).order_by("trace_id")
    rows: Sequence[Trace] = ()
    # A removal that held some of them may have taken them meanwhile; then they are made anew.
    while len(rows) < len(made):
        Trace.objects.bulk_create(made, ignore_conflicts=True, batch_size=BATCH)
        rows = list(named.select_for_update(no_key=True))
    return [_HeldTrace(row, by_trace[row.trace_id]) for row in rows]


def _named_suites(spans: Iterable[Span], receipt: Receipt) -> Mapping[str, int]:
    named = {slug for span in spans if (slug := read_place(span)[0])}
    rows = Suite.objects.filter(slug__in=among(named, "text")).values_list("slug", "pk")
    known = dict(rows) if named else {}
    receipt.messages += [
        f"There is no suite {slug[:60]!r}; its traces are in the inbox without a suite."
        for slug in sorted(named - known.keys())
    ]
    return known


def _store(traces: Sequence[_HeldTrace], receipt: Receipt) -> None:
    made: list[tuple[Any, ...]] = []
    for held in traces:
        new, trace = held.new, held.trace
        size = trace.size + sum(one.size for one in new)
        if trace.span_count + len(new) > MAX_TRACE_SPANS or size > MAX_TRACE_SIZE - LAST_SIZE:
            new = _within_limit(held)
            if left_out := len(held.new) - len(new):
                _leave_out(trace.trace_id, left_out, receipt)
        made += [_row(trace, one) for one in new]
    # Their traces are locked. An insert that ignores those stored before would be sent as arrays, in which the driver
    # quotes each quote and backslash in Python: seconds for some megabytes.
    arrived = TraceSpan.objects.filter(
        trace__in=among(held.trace.pk for held in traces),
        span_id__in=among({row[1] for row in made}, "text"),
    )
    stored = set(arrived.values_list("trace_id", "span_id"))
    fresh: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in made:
        if row[:2] not in stored:
            fresh.setdefault(row[:2], row)
    insert_rows(TraceSpan, SPAN_COLUMNS, fresh.values())


def _within_limit(held: _HeldTrace) -> list[_ReadSpan]:
    """Return the spans that still have room; some is kept for the one that completes the trace."""
    stored = set(held.trace.spans.values_list("span_id", flat=True))
    fresh = {one.span.span_id: one for one in held.new if one.span.span_id not in stored}
    kept = [one for one in held.new if one.span.span_id in stored]
    has_last = any(one.is_last for one in fresh.values())
    count, size = len(stored), held.trace.size
    for one in fresh.values():
        reserved = (0, 0) if one.is_last or has_last else (LAST_SPANS, LAST_SIZE)
        count, size = count + 1, size + one.size
        if count > MAX_TRACE_SPANS - reserved[0] or size > MAX_TRACE_SIZE - reserved[1]:
            count, size = count - 1, size - one.size
        else:
            kept.append(one)
    return kept


SPAN_COLUMNS = ("trace_id", "span_id", "parent_id", "started_ns", "mark", "step", "size")


def _row(trace: Trace, one: _ReadSpan) -> tuple[Any, ...]:
    """Return the values of a span's columns."""
    span, mark = one.span, one.mark.as_json() if one.mark else None
    return (trace.pk, span.span_id, span.parent_id, span.started_ns, mark, one.step, one.size)


def _read_trees(traces: Sequence[_HeldTrace]) -> None:
    by_trace: dict[int, list[PlacedStep]] = defaultdict(list)
    for pk, span in placed_steps([held.trace.pk for held in traces]):
        by_trace[pk].append(span)
    for held in traces:
        held.tree = SpanTree(by_trace[held.trace.pk])


def _push(traces: Sequence[_HeldTrace], runs: set[str], receipt: Receipt) -> None:
    """Push the outputs of executions that have a span in this request, run by run; `runs` are those so far."""
    by_run: dict[str, list[tuple[_HeldTrace, Push]]] = defaultdict(list)
    for held in traces:
        arrived = {one.span.span_id for one in held.new}
        executions = held.tree.executions()
        held.executions = len(executions)
        for mark, spans in executions:
            if not arrived.isdisjoint(span.span_id for span in spans):
                output = make_output(nested_steps(spans))
                by_run[mark.run].append((held, Push(mark.case, output, mark.repetition)))
    for run_name, pushes in sorted(by_run.items()):
        refused: Mapping[int, str]
        if run_name in runs or len(runs) < MAX_RUNS:
            runs.add(run_name)
            refused = _push_into(run_name, [push for _, push in pushes])
        else:
            refused = dict.fromkeys(range(len(pushes)), TOO_MANY_RUNS)
        for place, (held, push) in enumerate(pushes):
            if reason := refused.get(place):
                held.problems.append(reason)
                receipt.messages.append(f"Run {run_name[:60]}, case {push.case[:60]}: {reason}")
            else:
                held.taken += 1


def _push_into(run_name: str, pushes: Sequence[Push]) -> Mapping[int, str]:
    """Push outputs into the run of a name; return why some were refused, by their place."""
    runs = Run.objects.called(run_name).select_related("suite")
    run = runs.defer("summary", "leaf_scores").first()
    if run is None:
        reason = f"There is no run {run_name[:60]!r}. A run is named by its id, or as suite:number."
        return dict.fromkeys(range(len(pushes)), reason)
    refused: dict[int, str] = {}
    while places := [place for place in range(len(pushes)) if place not in refused]:
        try:
            summary = push_outputs(run, [pushes[place] for place in places])
        except UnusablePushesError as error:
            refused |= {places[place]: reason for place, reason in error.problems.items()}
        except DomainError as error:
            return refused | dict.fromkeys(places, str(error))
        else:
            return refused | {places[refusal.place]: refusal.reason for refusal in summary.refused}
    return refused


def _describe(traces: Sequence[_HeldTrace], suites: Mapping[str, int], now: datetime) -> None:
    """Set the columns of the traces by the spans that they have now."""
    ids = [held.trace.pk for held in traces]
    spans = TraceSpan.objects.filter(trace__in=among(ids)).order_by().values("trace_id")
    sizes = spans.annotate(count=Count("pk"), total=Sum("size"))
    stored = {row["trace_id"]: (row["count"], row["total"]) for row in sizes}
    rows = []
    for held in traces:
        trace = held.trace
        trace.changed_at = now
        trace.span_count, trace.size = stored.get(trace.pk, (0, 0))
        for slug, case in (read_place(one.span) for one in held.new):
            trace.suite_id = trace.suite_id or suites.get(slug)
            trace.case_key = trace.case_key or case
        service = next((one.span.resource.get("service.name") for one in held.new), "") or ""
        trace.service = trace.service or str(service)[:200]
        if held.problems:
            if trace.state == TraceState.WAITING:
                trace.problem = " ".join(dict.fromkeys(held.problems))[:MAX_PROBLEM_LENGTH]
        elif held.taken and (held.taken == held.executions or not trace.problem):
            trace.state, trace.problem = TraceState.RUN, ""
        _describe_root(trace, held.tree)
        rows.append((*(getattr(trace, column) for column in COLUMNS), trace.pk))
    update_rows(Trace, COLUMNS, rows, key=("id",))


def _describe_root(trace: Trace, tree: SpanTree) -> None:
    root = tree.root
    if root is None:
        return
    steps = nested_steps(tree.in_order())
    first, output = steps[0], make_output(steps)
    trace.root_id, trace.name = root.span_id, str(first["name"])
    turns = make_question(steps)
    trace.question = one_line(turns[-1]["content"])[:MAX_GIST_LENGTH] if turns else ""
    trace.answer = one_line(output.get("output", ""))[:MAX_GIST_LENGTH]
    trace.error = one_line(output.get("error", ""))[:MAX_GIST_LENGTH]
    if root.started_ns is not None:
        trace.started_at = datetime.fromtimestamp(root.started_ns / 10**9, tz=UTC)
    trace.latency_ms = first.get("duration_ms")
    trace.input_tokens, trace.output_tokens = first.get("input_tokens"), first.get("output_tokens")
    trace.cost_usd = Decimal(first["cost_usd"]) if "cost_usd" in first else None

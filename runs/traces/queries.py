"""The inbox of traces: which are listed and chosen, one in full, and what stored traces say as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.http import QueryDict

from runs import lists
from runs.lists import NEWEST_FIRST, Control, ListQuery, Page, read_integer
from runs.models.database import among
from runs.models.suites import Suite
from runs.models.traces import Trace, TraceQuerySet, TraceSpan, TraceState
from runs.texts import Turns, cut_step, cut_turns
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


# Their spans are read at once.
MAX_CHOSEN, MAX_CHOSEN_MB = 500, 50
MAX_STEPS_SHOWN = 300
ALL = "all"
NO_SUITE = "-"
FIELDS = ("q", "suite", "state")


@dataclass(frozen=True, slots=True)
class TracesQuery(ListQuery):
    """Which traces of the inbox are listed: those that wait, unless it says otherwise."""

    search: str = lists.search()
    suite: str = lists.text()
    state: str = lists.option((TraceState.WAITING, TraceState.USED, ALL), TraceState.WAITING)
    after: str = lists.after()

    def traces(self) -> TraceQuerySet:
        """Return the traces that match."""
        traces = Trace.objects.in_inbox()
        if self.state != ALL:
            traces = traces.filter(state=self.state)
        if self.suite == NO_SUITE:
            traces = traces.filter(suite=None)
        elif self.suite:
            traces = traces.filter(suite__slug=self.suite)
        for word in self.search.split():
            found = Q()
            for column in ("question", "answer", "name", "service", "problem", "trace_id"):
                found |= Q(**{f"{column}__icontains": word})
            traces = traces.filter(found)
        return traces


@dataclass(frozen=True, slots=True)
class TraceList:
    """One page of the inbox; `total` traces match, and `is_empty` tells that none was ever sent."""

    query: TracesQuery
    page: Page[Trace]
    total: int
    is_empty: bool
    suites: Sequence[tuple[str, str]]
    days: int
    megabytes: int

    @property
    def next_address(self) -> str:
        """Return the query part of the address of the next page, "" at the end."""
        return self.page.next_address(self.query)

    @property
    def controls(self) -> tuple[Control, ...]:
        """Return the fields of the filter."""
        query = self.query
        states = ((TraceState.WAITING, "Waiting"), (TraceState.USED, "Used"), (ALL, "All traces"))
        return (
            query.search_box("search", "Find in traces"),
            query.select(
                "suite", "Suite", [*self.suites, (NO_SUITE, "No suite")], all="All suites"
            ),
            query.select("state", "State", states),
        )


def trace_list(query: TracesQuery) -> TraceList:
    """Return a page of the inbox, newest first; at most four queries."""
    traces = query.traces()
    page = NEWEST_FIRST.page(traces.select_related("suite").defer("suite__content"), query.after)
    total = traces.count()
    named = Suite.objects.filter(traces__isnull=False).distinct().order_by("title")
    return TraceList(
        query=query,
        page=page,
        total=total,
        is_empty=not total and not Trace.objects.in_inbox().exists(),
        suites=list(named.values_list("slug", "title")),
        days=settings.TRACES_DAYS,
        megabytes=settings.TRACES_MB,
    )


@dataclass(frozen=True, slots=True)
class ChosenTraces:
    """The traces that a form names, oldest first: the ticked ones, or everything that matches its filter."""

    query: TracesQuery
    ids: Sequence[int]
    is_everything: bool

    @property
    def refusal(self) -> str:
        """Say why there is nothing to do, and what to do instead; "" where there are traces."""
        if len(self.ids) > MAX_CHOSEN:
            return f"These are more than {MAX_CHOSEN} traces. Choose fewer at a time."
        if self.ids:
            return ""
        if self.is_everything:
            return "No trace matches the filter. Change or clear it, then choose again."
        return "No trace is ticked. Tick some rows, or all matching traces."

    @property
    def fields(self) -> Sequence[tuple[str, Any]]:
        """Return the hidden fields that name the same traces again."""
        kept = [(name, value) for name, value in self.query.parameters().items() if name in FIELDS]
        return [*kept, *(("trace", pk) for pk in self.ids)]

    def traces(self) -> TraceQuerySet:
        """Return the traces."""
        return Trace.objects.filter(pk__in=self.ids).order_by("pk")


def chosen_traces(data: QueryDict) -> ChosenTraces:
    """Return the traces a form names that still exist."""
    query = TracesQuery.read({name: data.get(name, "") for name in FIELDS})
    is_everything = "everything" in data
    traces = query.traces() if is_everything else Trace.objects.in_inbox()
    if not is_everything:
        named = [pk for text in data.getlist("trace") if (pk := read_integer(text)) is not None]
        traces = traces.filter(pk__in=named[: MAX_CHOSEN + 1])
    ids = traces.order_by("pk").values_list("pk", flat=True)[: MAX_CHOSEN + 1]
    return ChosenTraces(query, list(ids), is_everything)


@dataclass(frozen=True, slots=True)
class TracePage:
    """What one trace says in full, with its first steps; long texts are cut."""

    turns: Turns
    steps: Sequence[Mapping[str, Any]]
    step_count: int


def trace_page(trace: Trace) -> TracePage:
    """Return the page of a trace; one query."""
    whole = read_traces([trace]).get(trace.pk) or WholeTrace((), {}, ())
    turns = [*whole.question]
    if text := whole.output.get("output"):
        turns.append({"role": "assistant", "content": text})
    shown = tuple(map(cut_step, whole.steps[:MAX_STEPS_SHOWN]))
    return TracePage(cut_turns(turns), shown, trace.span_count)

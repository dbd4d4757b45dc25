"""Spans that agents send become the outputs of a run, with what is below them as the trace."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from google.protobuf.json_format import MessageToDict

from runs.execution.run_worker import work_on_run
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.traces import Trace, TraceState
from runs.running.retrying import retry_results, stop_run
from tests.running.test_pushing import figures, open_run
from tests.support.factories import again, make_user
from tests.support.members import make_client
from tests.traces.sent import Exporter
from tests.traces.wire import request, span

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def exporter(editor: User) -> Exporter:
    return Exporter(editor)


def run_name(run: Run) -> str:
    return f"{run.suite.slug}:{run.number}"


def agent(run: Run | str, case: str = "C-0", *, number: int = 1, **options: Any) -> Any:
    """Return the span of an agent that answers a case."""
    word = run if isinstance(run, str) else run_name(run)
    marks = {"evalsite__run": word, "evalsite__case": case}
    output = options.pop("output", "You get a refund.")
    options = {"name": "agent", "ms": 900, **marks, **options}
    return span(number, output__value=output, **options)


def model(number: int, parent: int, **options: Any) -> Any:
    usage = {"gen_ai__usage__input_tokens": 100, "gen_ai__usage__output_tokens": 20}
    about = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "juno-1", **usage}
    return span(number, parent, **{**about, **options})


def test_spans_in_any_order_and_twice_are_one_execution_with_its_tree(exporter: Exporter) -> None:
    run = open_run(1)
    search = span(
        3,
        2,
        start_ms=150,
        ms=30,
        error="no such order",
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="find_order",
        gen_ai__tool__call__arguments='{"id": "A-7"}',
        gen_ai__tool__call__result="none",
    )
    planner = span(2, 1, name="plan", start_ms=100, ms=200, openinference__span__kind="CHAIN")
    cost = {"gen_ai__usage__cost": 0.0125, "start_ms": 300, "ms": 400}
    assert exporter.send(search, model(4, 1, **cost)) == (0, "")
    assert Trace.objects.get().span_count == 2
    assert exporter.send(model(5, 2, start_ms=110, ms=20), search, agent(run)) == (0, "")
    # It waits to be scored, so what is late still joins it.
    assert exporter.send(planner, agent(run)) == (0, "")
    trace = Trace.objects.get()
    assert (trace.state, trace.span_count) == (TraceState.RUN, 5)
    work_on_run(run.pk)

    assert figures(run) == ("completed", 1, 1, 0, 0)
    result = run.results.select_related("output").get()
    assert (result.latency_ms, result.input_tokens, result.output_tokens) == (900, 200, 40)
    assert result.run_cost_usd == Decimal("0.0125")
    assert result.output.text == "You get a refund."
    ids = {f"{number:016x}": number for number in range(1, 6)}
    shown = [
        (
            ids[step["id"]],
            ids.get(step.get("parent_id", "")),
            *(step[name] for name in ("type", "name", "started_ms", "duration_ms")),
            step.get("input_tokens"),
        )
        for step in result.output.trace or ()
    ]
    assert shown == [
        (1, None, "step", "agent", 0, 900, 200),
        (2, 1, "step", "plan", 100, 200, 100),
        (5, 2, "model", "juno-1", 110, 20, 100),
        (3, 2, "tool", "find_order", 150, 30, None),
        (4, 1, "model", "juno-1", 300, 400, 100),
    ]
    page = make_client(make_user(role="viewer")).get(
        f"/suites/{run_name(run).replace(':', '/runs/')}/C-0/1/"
    )
    drawn = re.findall(r'<li\s*(?:data-depth="(\d)")?', page.text.partition('<ol class="trace"')[2])
    assert drawn[:5] == ["", "1", "2", "2", "1"]
    tool = (result.output.trace or [])[3]
    assert (tool["input"], tool["output"], tool["error"]) == (
        {"id": "A-7"},
        "none",
        "no such order",
    )
    assert [step.get("cost_usd") for step in result.output.trace or ()] == [
        *("0.0125", None, None, None, "0.0125")
    ]


def test_what_comes_after_the_score_changes_nothing_and_is_told(exporter: Exporter) -> None:
    run = open_run(1)
    exporter.send(agent(run))
    work_on_run(run.pk)
    before = run.results.get()

    assert exporter.send(agent(run)) == (0, "")
    reason = "It has another output, which is scored already. Rerun the result first."
    late = exporter.send(span(2, 1, name="late"))
    assert late == (0, f"Run {run_name(run)}, case C-0: {reason}")
    again_answered = exporter.send(agent(run, number=9, trace=2, output="No."))
    assert again_answered == (0, f"Run {run_name(run)}, case C-0: {reason}")
    assert run.results.values().get() == Result.objects.filter(pk=before.pk).values().get()
    # The trace of the run has its late span; the second answer is in the inbox, with the reason.
    first, second = Trace.objects.order_by("pk")
    assert (first.state, first.span_count, first.problem) == (TraceState.RUN, 2, "")
    assert (second.state, second.problem) == (TraceState.WAITING, reason)

    retry_results(again(run), asked_by=None, which="all_missing", result_ids=[before.pk])
    assert exporter.send(agent(run, number=9, trace=2, output="No.")) == (0, "")
    assert [trace.state for trace in Trace.objects.all()] == [TraceState.RUN, TraceState.RUN]
    work_on_run(run.pk)
    assert run.results.get().verdict == "fail"


def test_one_trace_may_hold_several_executions_and_an_agent_may_fail(exporter: Exporter) -> None:
    run = open_run(4)
    spans = [
        span(1, name="pytest session", ms=5000),
        agent(run, "C-0", number=2),
        agent(run, "C-1", number=3, error="HTTP 502"),
        span(4, name="agent", evalsite__run=str(run.pk), evalsite__case="C-2"),
        model(5, 4, gen_ai__output__messages='[{"role": "assistant", "content": "A refund."}]'),
        agent(run, "C-3", number=6, output=""),
        # A processor that copies baggage marks every span below too.
        agent(run, "C-0", number=7, output="inner"),
    ]
    for number, parent in ((2, 1), (3, 1), (4, 1), (6, 1), (7, 2)):
        next(sent for sent in spans if sent.span_id[-1] == number).parent_span_id = parent.to_bytes(
            8, "big"
        )
    assert exporter.send(*spans) == (0, "")
    work_on_run(run.pk)
    results = list(run.results.select_related("output", "case"))
    assert [row.output.text if row.status == "scored" else row.error for row in results] == [
        "You get a refund.",
        "Target failed: HTTP 502",
        "A refund.",
        "Target failed: The trace has no answer. Set output.value or gen_ai.output.messages on the "
        "span of the agent.",
    ]
    assert [step["name"] for step in results[0].output.trace or ()] == ["agent", "agent"]


def test_a_process_that_answers_one_case_says_so_in_its_resource(exporter: Exporter) -> None:
    run = open_run(1, repetitions=2)
    about = {"evalsite.run": run_name(run), "evalsite.case": "C-0", "evalsite.repetition": 2}
    spans = [span(1, name="agent", output__value="A refund."), model(2, 1), span(3, 8, name="lost")]
    body = MessageToDict(request(*spans, resource=about))
    for written, sent in zip(
        body["resourceSpans"][0]["scopeSpans"][0]["spans"], spans, strict=True
    ):
        ids = ("traceId", "spanId", "parentSpanId")
        values = (sent.trace_id, sent.span_id, sent.parent_span_id)
        written |= {name: value.hex().upper() for name, value in zip(ids, values, strict=True)}
        written["startTimeUnixNano"] = int(written["startTimeUnixNano"])
    response = exporter.post(
        json.dumps(body).encode(), "application/json; charset=utf-8", packs=True
    )
    assert (response.status_code, response.json()) == (200, {})
    assert response["Content-Type"] == "application/json"
    work_on_run(run.pk)
    first, second = run.results.select_related("output")
    assert (first.status, second.status) == ("pending", "scored")
    # What lost its parent is below the only root.
    assert [step["name"] for step in second.output.trace or ()] == ["agent", "juno-1", "lost"]


def test_an_execution_that_no_run_takes_is_in_the_inbox_with_the_reason(exporter: Exporter) -> None:
    run, other, stopped = open_run(1), open_run(1), open_run(1)
    stop_run(stopped, stopped_by=None)
    Run.objects.filter(pk=other.pk).update(snapshot={**other.snapshot, "target": {"kind": "chat"}})
    sent = [
        (agent("nobody:9"), "There is no run 'nobody:9'. A run is named by its id, or as suite:"),
        (agent(str(10**30)), "There is no run"),
        (agent(run, "C-9"), f"Run {again(run)} has no case 'C-9'."),
        (agent(run, evalsite__repetition=-1), "has 1 repetition of case C-0, and no repetition 0."),
        (agent(stopped), f"Run {again(stopped)} is over, so it takes no new outputs. Resume it"),
        (agent(other), "asks its target"),
        (agent(run), ""),
    ]
    for number, (root, _) in enumerate(sent, start=1):
        root.trace_id = number.to_bytes(16, "big")
    rejected, message = exporter.send(*(root for root, _ in sent))
    assert rejected == 0
    for trace, (_, reason) in zip(Trace.objects.order_by("trace_id"), sent, strict=True):
        assert reason in trace.problem
        assert reason in message
        assert (trace.state == TraceState.RUN) is (reason == "")
    work_on_run(run.pk)
    assert figures(run) == ("completed", 1, 1, 0, 0)

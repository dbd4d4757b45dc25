"""The inbox: traces of no run, which people make cases and recorded outputs of, and how long they stay."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from evaluators.models import AuditEntry
from runs.models.database import database_now
from runs.models.suites import Suite, Target
from runs.models.traces import Trace, TraceSpan, TraceState
from tests.support.factories import again, make_case, make_suite, make_target
from tests.support.trees import CHECK, tree
from tests.traces.sent import Exporter
from tests.traces.wire import span

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    suite = make_suite(slug="support", title="Support", tree=tree(CHECK))
    make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is  my order?"}])
    return suite


@pytest.fixture
def exporter(editor: User) -> Exporter:
    return Exporter(editor)


def agent_span(trace: int, question: str, answer: str = "A refund.", **options: Any) -> Any:
    """Return the only span of an agent."""
    values = {"input__value": question, "output__value": answer, "name": "agent"}
    return span(1, trace=trace, **{**values, **options})


def use(client: Client, action: str, *traces: Trace, **fields: Any) -> str:
    """Do something with traces, and return the page behind it."""
    data = {"action": action, "trace": [trace.pk for trace in traces], "sure": "1", **fields}
    return client.post("/traces/use/", data, follow=True).text


def test_traces_without_a_run_wait_in_the_inbox_of_their_suite(
    suite: Suite,
    exporter: Exporter,
    viewer_client: Client,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    page = viewer_client.get("/traces/").text
    assert "No traces yet" in page
    assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://testserver/v1/traces" in page

    resource = {"evalsite.suite": "support", "service.name": "refunds"}
    assert exporter.send(agent_span(1, "Too <small>?"), span(2, 9, trace=2), resource=resource) == (
        0,
        "",
    )
    receipt = exporter.send(
        agent_span(3, "Why?", evalsite__suite="nothing"),
        *(agent_span(n, f"Q{n}") for n in range(10, 70)),
    )
    assert receipt == (
        0,
        "There is no suite 'nothing'; its traces are in the inbox without a suite.",
    )
    with django_assert_max_num_queries(12):
        page = viewer_client.get("/traces/").text
    assert "63 traces" in page
    assert "Q10" not in page
    assert 'name="trace"' not in page  # a viewer changes nothing
    assert "Show more traces" in page
    page = viewer_client.get("/traces/rows/?suite=support", headers={"HX-Request": "true"}).text
    assert ("Too &lt;small&gt;?" in page, "not complete" in page, "2 traces" in page) == (True,) * 3
    assert "1 trace matches" in viewer_client.get("/traces/?suite=-&q=why").text
    assert "No trace matches" in viewer_client.get("/traces/?q=nowhere").text
    assert "No traces wait" not in viewer_client.get("/traces/?state=used&q=x").text

    waiting = Trace.objects.get(root_id="", suite=suite)
    assert "This trace is not complete" in viewer_client.get(f"/traces/{waiting.pk}/").text
    whole = Trace.objects.get(question="Too <small>?")
    page = viewer_client.get(f"/traces/{whole.pk}/").text
    assert ("refunds" in page, "A refund." in page, "Create case" in page) == (True, True, False)


def test_traces_become_cases_once_and_say_so(
    suite: Suite, exporter: Exporter, editor_client: Client
) -> None:
    steps = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Too small?"}]
    model = span(2, 1, trace=1, gen_ai__operation__name="chat", gen_ai__input__messages=steps)
    exporter.send(agent_span(1, "", ms=70), model, agent_span(2, "My card?"), agent_span(3, ""))
    traces = list(Trace.objects.order_by("pk"))
    form = editor_client.post("/traces/use/", {"action": "cases", "everything": "1"}).text
    assert "Create cases from 3 traces" in form
    assert "This field is required" in use(editor_client, "cases", *traces)

    fields = {"into": "support", "keeps_answer": "on"}
    page = use(editor_client, "cases", *traces, **fields)
    assert "2 cases created. Left: 1 trace without a question." in page
    first, second = suite.cases.filter(key__startswith="trace-").order_by("position")
    assert [turn["content"] for turn in first.input] == ["Be kind.", "Too small?"]
    assert first.recorded_output is not None
    assert first.recorded_output["output"] == "A refund."
    assert [step["name"] for step in first.recorded_output["trace"]] == ["agent", "step"]
    assert (first.expected_output, second.metadata) == ("", {"from_trace": traces[1].trace_id})
    assert again(suite).version == suite.version + 1
    assert [again(trace).state for trace in traces] == [*(TraceState.USED,) * 2, "waiting"]
    assert "case trace-000000000001 of Support" in editor_client.get("/traces/?state=used").text

    # Used again, the same case changes.
    use(editor_client, "cases", traces[1], into="support", expects_answer="on")
    changed = suite.cases.get(key=second.key, is_current=True)
    assert (changed.expected_output, changed.recorded_output) == ("A refund.", None)


def test_answers_are_recorded_for_the_case_they_name_or_the_one_with_the_same_input(
    suite: Suite, exporter: Exporter, editor_client: Client
) -> None:
    make_case(suite=suite, key="C-2", position=2)
    exporter.send(
        agent_span(1, "Where is my  order?", "On its way."),
        agent_span(2, "Anything", "For two.", evalsite__case="C-2"),
        agent_span(3, "Where is my order?", "Again."),
        agent_span(4, "Unknown?"),
        agent_span(5, "Where is my order?", error="HTTP 502"),
    )
    traces = list(Trace.objects.order_by("pk"))
    fields = {"into": "support", "target": "recorded"}
    page = use(editor_client, "outputs", traces[3], **fields)
    assert "Nothing was changed." in page
    assert "1 trace without a case in Support." in page
    page = use(editor_client, "outputs", *traces, **fields)
    assert "2 outputs recorded in the target “recorded”." in page
    target = Target.objects.get(name="recorded")
    outputs = dict(target.recorded_outputs.values_list("case_key", "output"))
    assert {key: output["output"] for key, output in outputs.items()} == {
        "C-1": "On its way.",
        "C-2": "For two.",
    }
    # Others join them.
    use(editor_client, "outputs", traces[2], **fields)
    assert target.recorded_outputs.get(case_key="C-1").output["output"] == "Again."
    assert target.recorded_outputs.count() == 2
    make_target(name="http", kind="http")
    assert "is of kind http" in use(
        editor_client, "outputs", traces[2], into="support", target="http"
    )

    assert "2 traces deleted" in use(editor_client, "delete", traces[3], traces[4])
    entry = AuditEntry.objects.get(action="delete", object_type="traces")
    assert (entry.object_name, entry.before["traces"]) == ("2 traces", 2)
    assert TraceSpan.objects.count() == 3


def test_what_is_not_ticked_or_too_much_is_said(
    suite: Suite, exporter: Exporter, editor_client: Client
) -> None:
    exporter.send(*(agent_span(number, "Q") for number in range(1, 502)))
    pick = {"action": "cases", "everything": "1"}
    assert (
        "No trace is ticked"
        in editor_client.post("/traces/use/", {"action": "cases"}, follow=True).text
    )
    assert "more than 500" in editor_client.post("/traces/use/", pick, follow=True).text
    nothing = editor_client.post("/traces/use/", {**pick, "q": "nowhere"}, follow=True)
    assert "No trace matches the filter" in nothing.text


def test_traces_that_are_too_large_together_are_refused_but_can_be_deleted(
    suite: Suite, exporter: Exporter, editor_client: Client
) -> None:
    exporter.send(agent_span(1, "Q"), agent_span(2, "Q"))
    Trace.objects.update(size=30 * 1024**2)
    traces = list(Trace.objects.all())
    for action in ("cases", "outputs"):
        page = use(editor_client, action, *traces, into="support", target="recorded")
        assert "These traces have 60 MB together, and 50 MB is the limit. Choose fewer" in page
    assert suite.cases.count() == 1
    assert "2 traces deleted" in use(editor_client, "delete", *traces)


def test_old_left_out_and_excess_traces_are_removed(exporter: Exporter, settings: Settings) -> None:
    now = database_now()
    settings.TRACES_DAYS, settings.TRACES_MB = 3, 1
    exporter.send(*(agent_span(number, "x" * 400_000) for number in range(1, 4)))
    # More than a megabyte: the oldest went at once.
    assert [
        int(trace_id)
        for trace_id in Trace.objects.order_by("pk").values_list("trace_id", flat=True)
    ] == [2, 3]
    Trace.objects.filter(trace_id__endswith="2").update(
        changed_at=now - timedelta(days=3, minutes=1)
    )
    Trace.objects.forget_old(now=now)
    assert (Trace.objects.count(), TraceSpan.objects.count()) == (1, 1)

    settings.TRACES_SAMPLED_PCT = 50
    low, high = 2**40, 2**55
    exporter.send(agent_span(low, "kept"), agent_span(high, "left out"))
    assert set(Trace.objects.in_inbox().values_list("question", flat=True)) >= {"kept"}
    assert not Trace.objects.in_inbox().filter(question="left out").exists()
    Trace.objects.forget_old(now=now + timedelta(minutes=9))
    assert Trace.objects.filter(question="left out").exists()  # its run may still come
    Trace.objects.forget_old(now=now + timedelta(minutes=11))
    assert not Trace.objects.filter(question="left out").exists()

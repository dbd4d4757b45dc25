"""Requests that lie, are too large, or are not what they say: each has one answer, and loses nothing else."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pytest_django import DjangoAssertNumQueries, Settings

from evalsite.access.roles import Scope
from runs.models.traces import Trace, TraceSpan
from runs.traces import otlp, receiving
from tests.traces.sent import Exporter
from tests.traces.wire import BEGIN, PROTOBUF, any_value, request, span

pytestmark = pytest.mark.django_db
JSON = "application/json"
INVALID, DENIED, EXHAUSTED, UNAUTHENTICATED, UNIMPLEMENTED = 3, 7, 8, 16, 12


@pytest.fixture
def exporter(editor: User) -> Exporter:
    return Exporter(editor)


def field(number: int, content: bytes) -> bytes:
    """Return a field of protobuf with a length."""
    length, rest = bytearray(), len(content)
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + content


def in_request(spans: bytes) -> bytes:
    return field(1, field(2, spans))


def nested_value(depth: int) -> bytes:
    value = b""
    for _ in range(depth):
        value = field(5, field(1, value))
    return in_request(field(2, field(9, field(1, b"k") + field(2, value))))


WHOLE = request(span(1)).SerializeToString()
# A message of four bytes, which are fields that nothing reads.
TINY = b"\x0a\x04\x78\x05\x78\x05"
UNREADABLE = {
    "no protobuf": (b"\xff\xff\xff", {}, 400, "not an OTLP request"),
    "text": (b'{"resourceSpans": []}', {}, 400, "not an OTLP request"),
    "nested too deeply": (nested_value(2_000), {}, 400, "MaxDepth"),
    "no gzip": (WHOLE, {"content-encoding": "gzip"}, 400, "not gzip"),
    "cut gzip": (gzip.compress(WHOLE)[:-9], {"content-encoding": "gzip"}, 400, "not one whole"),
    "two in one": (gzip.compress(WHOLE) * 2, {"content-encoding": "gzip"}, 400, "not one whole"),
    "another packing": (WHOLE, {"content-encoding": "br"}, 400, "packed as 'br'"),
    "a gzip bomb": (
        gzip.compress(bytes(otlp.MAX_BYTES + 1)),
        {"content-encoding": "gzip"},
        413,
        "more than 20 MB",
    ),
    "many scopes": (
        field(1, b"\x12\x00" * 100_001),
        {},
        413,
        "100,000 resources, scopes and spans",
    ),
    "many resources": (TINY * 100_001, {}, 413, "100,000 resources, scopes and spans"),
    "many spans": (
        in_request((b"\x12" + TINY[1:]) * 100_001),
        {},
        413,
        "100,000 resources, scopes and spans",
    ),
    "a group": (b"\xfb\x01\xfc\x01" + WHOLE, {}, 400, "it has a group"),
    "a field that is cut": (b"\x0a\xff", {}, 400, "not an OTLP request"),
    "empty values": (
        in_request(field(2, field(9, field(2, field(5, b"\x0a\x00" * 1_000_001))))),
        {},
        413,
        "million values of a few bytes",
    ),
    "tiny values": (
        in_request(field(2, field(9, field(2, field(5, TINY * 1_000_001))))),
        {},
        413,
        "million values of a few bytes",
    ),
    "tiny values with longer lengths": (
        in_request(field(2, field(9, field(2, field(5, b"\x0a\x80\x00" * 1_000_001))))),
        {},
        413,
        "million values of a few bytes",
    ),
    "tiny values with longer tags": (
        in_request(field(2, field(9, field(2, field(5, b"\x8a\x00\x00" * 1_000_001))))),
        {},
        413,
        "million values of a few bytes",
    ),
    "too many spans": (in_request(field(2, b"*\x04name") * 10_001), {}, 413, "10,001 spans"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_request_that_cannot_be_read_is_refused_whole(exporter: Exporter, name: str) -> None:
    body, headers, status, message = UNREADABLE[name]
    response = exporter.client.post("/v1/traces", body, content_type=PROTOBUF, headers=headers)
    code, text = exporter.refusal(response, status)
    assert code == INVALID
    assert message in text
    assert not Trace.objects.exists()


def test_spans_may_have_many_attributes() -> None:
    attribute = field(9, field(1, b"a.name.of.it") + field(2, field(1, b"a value of it")))
    ids = field(1, b"\1" * 16) + field(2, b"\2" * 8)
    received = otlp.read_protobuf(in_request(field(2, ids + attribute * 21_000) * 10))
    assert len(received.spans) == 10


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "cannot be read as JSON"),
        (b"\xff", "cannot be read as JSON"),
        (b'{"resourceSpans": [], "resourceSpans": []}', "cannot be read as JSON"),
        (b"[]", "not an OTLP request"),
        (b'{"resourceSpans": {}}', "resourceSpans is not a list of objects"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [1]}]}]}', "spans is not a list"),
        (b'{"resourceSpans": ' + b"[" * 300 + b"]" * 300 + b"}", "nested too deeply"),
    ],
)
def test_json_that_is_no_request_is_refused_in_json(
    exporter: Exporter, body: bytes, message: str
) -> None:
    response = exporter.post(body, f"{JSON}; charset=utf-8")
    assert (response.status_code, response["Content-Type"]) == (400, JSON)
    assert response.json()["code"] == INVALID
    assert message in response.json()["message"]


def test_json_of_too_many_values_is_refused_whole(exporter: Exporter) -> None:
    values = ",".join(["1"] * 400_001)
    response = exporter.post(f'{{"resourceSpans": [{values}]}}'.encode(), JSON)
    assert response.status_code == 413
    assert "more than 400,000 values. Send fewer spans" in response.json()["message"]


def test_who_may_not_send_is_refused_in_the_form_of_the_request(
    exporter: Exporter, editor: User, viewer: User, settings: Settings
) -> None:
    for content_type in ("text/plain", "application/grpc", ""):
        assert exporter.post(WHOLE, content_type).status_code == 415
    reader = Exporter(editor, Scope.READ)
    code, text = reader.refusal(reader.post(WHOLE), 403)
    assert (code, "scopes of this token (read)" in text) == (DENIED, True)
    reader.client.defaults.clear()
    response = reader.client.post("/v1/traces", WHOLE, content_type=PROTOBUF)
    assert reader.refusal(response, 401)[0] == UNAUTHENTICATED
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert reader.refusal(
        exporter.client.get("/v1/traces", headers={"content-type": PROTOBUF}), 405
    )[0] == (UNIMPLEMENTED)
    # Other signals have no place here.
    assert exporter.client.post("/v1/metrics", WHOLE, content_type=PROTOBUF).status_code == 404
    settings.API_REQUESTS_PER_MINUTE = 1
    assert exporter.post(b"").status_code == 200
    response = exporter.post(WHOLE)
    assert exporter.refusal(response, 429)[0] == EXHAUSTED
    assert response["Retry-After"]
    assert not Trace.objects.exists()


def test_spans_that_lie_are_taken_without_what_cannot_be(exporter: Exporter) -> None:
    assert exporter.post(b"").status_code == 200
    late, backward, unset = span(2, 1), span(3, 1), span(4, 1)
    late.start_time_unix_nano = 2**64 - 1
    backward.end_time_unix_nano = BEGIN - 1
    unset.start_time_unix_nano = unset.end_time_unix_nano = 0
    own = span(5, 5, name="its own parent")
    strange = span(6, 1, name="a\0b" * 200, gen_ai__usage__input_tokens=-7, llm__cost__total=-1.0)
    strange.attributes.add(key="gen_ai.usage.output_tokens", value=any_value(2**62))
    strange.attributes.add(
        key="input.value", value=any_value([{"k": [1.5, float("nan"), b"\xff"]}])
    )
    strange.attributes.add(key="nothing")
    nameless = Span(trace_id=bytes(16), span_id=b"12345678", name="nobody")
    short = Span(trace_id=b"1", span_id=b"1", name="short")
    rejected, message = exporter.send(
        span(1, name="agent"), late, backward, unset, own, strange, nameless, short
    )
    assert rejected == 2
    assert "Span 'nobody' has no trace id of 16 bytes" in message
    spans = {int(row.span_id, 16): row for row in TraceSpan.objects.all()}
    assert {number: row.started_ns is None for number, row in spans.items()} == {
        **{1: False, 2: True, 3: False, 4: True, 5: False, 6: False}
    }
    assert [spans[number].step.get("duration_ms") for number in (1, 2, 3, 4)] == [100, *[None] * 3]
    assert spans[5].parent_id == ""
    step = spans[6].step
    assert (len(step["name"]), step["input"]) == (200, [{"k": [1.5, None, "/w=="]}])
    assert not step.keys() & {"input_tokens", "output_tokens", "cost_usd"}


def test_one_wrong_span_in_json_does_not_take_the_others_with_it(exporter: Exporter) -> None:
    def json_span(number: int, **changes: Any) -> dict[str, Any]:
        ids = {"traceId": f"{1:032x}", "spanId": f"{number:016X}"}
        times = {"startTimeUnixNano": str(BEGIN), "endTimeUnixNano": BEGIN + 10**7}
        return {**ids, **times, "name": "agent", "unknown": {"a": 1}, **changes}

    spans = [
        json_span(1),
        json_span(2, startTimeUnixNano="-5"),
        json_span(3, traceId="not hexadecimal"),
        json_span(4, attributes=[{"key": "k", "value": {"intValue": "much"}}]),
        json_span(5, links=[{"traceId": "zz"}], parentSpanId=f"{1:016x}", kind=3),
        json_span(6, startTimeUnixNano="32503680000000000000"),
    ]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}, {"resource": {"attributes": 5}}]}
    response = exporter.post(json.dumps(body).encode(), JSON)
    partial = response.json()["partialSuccess"]
    assert (response.status_code, partial["rejectedSpans"]) == (200, "4")
    assert "startTimeUnixNano" in partial["errorMessage"]
    assert {int(row.span_id, 16) for row in TraceSpan.objects.all()} == {1, 5}


@pytest.mark.parametrize("resource", [0.5, "x", [1], True])
def test_spans_of_a_resource_that_is_no_object_are_refused_by_themselves(
    exporter: Exporter, resource: object
) -> None:
    def spans(trace: int) -> list[dict[str, Any]]:
        ids = {"traceId": f"{trace:032x}", "spanId": f"{1:016x}"}
        return [{"spans": [{**ids, "startTimeUnixNano": str(BEGIN), "name": "agent"}]}]

    of_both = [{"resource": resource, "scopeSpans": spans(1)}, {"scopeSpans": spans(2)}]
    response = exporter.post(json.dumps({"resourceSpans": of_both}).encode(), JSON)
    partial = response.json()["partialSuccess"]
    assert (response.status_code, partial["rejectedSpans"]) == (200, "1")
    assert "Its resource cannot be read" in partial["errorMessage"]
    assert "is not an object" in partial["errorMessage"]
    assert [int(row.trace_id, 16) for row in Trace.objects.all()] == [2]


def test_a_trace_without_end_keeps_a_place_for_its_first_span(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MAX_TRACE_SPANS", 10)
    many = [span(number, 1) for number in range(2, 22)]
    rejected, message = exporter.send(*many[:12])
    assert (rejected, "may have 10 spans and 20 MB; more are left out" in message) == (3, True)
    assert exporter.send(*many[:9]) == (0, "")  # the same again
    assert exporter.send(*many[12:])[0] == 8
    assert exporter.send(span(1, name="agent", output__value="Yes."), span(30, 1))[0] == 1
    trace = Trace.objects.get()
    assert (trace.span_count, trace.answer) == (10, "Yes.")


def test_a_trace_has_a_size_that_leaves_room_for_its_first_span(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MAX_TRACE_SIZE", 10_000)
    monkeypatch.setattr(receiving, "LAST_SIZE", 2_000)
    text = "x" * 3_000
    assert exporter.send(span(2, 1, input__value=text), span(3, 1, input__value=text)) == (0, "")
    rejected, message = exporter.send(span(4, 1, input__value=text))
    assert (rejected, "more are left out" in message) == (1, True)
    assert exporter.send(span(2, 1, input__value=text)) == (0, "")  # the same again
    assert exporter.send(span(5, 1, input__value="y" * 11_000))[0] == 1
    assert exporter.send(span(1, input__value=text, output__value="Yes.")) == (0, "")
    trace = Trace.objects.get()
    assert (trace.span_count, trace.answer) == (3, "Yes.")


def test_a_trace_of_many_small_values_is_larger_than_its_text(exporter: Exporter) -> None:
    values = json.dumps([{"a": 1}] * 100_000)
    assert len(values) < 1024**2
    assert [exporter.send(span(number, input__value=values))[0] for number in (1, 2, 3)] == [
        0,
        0,
        1,
    ]


def test_a_request_has_only_so_many_values_in_its_texts(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MAX_VALUES", 1_000)
    dense = json.dumps([0] * 700)
    spans = [span(number, trace=number, input__value=dense) for number in range(1, 4)]
    rejected, message = exporter.send(*spans)
    assert rejected == 2
    assert message == (
        "A request may have 1,000 values in its spans, and a span 250,000; more are left out. "
        "Send fewer spans at a time."
    )
    assert Trace.objects.get().span_count == 1
    assert exporter.send(*spans[1:2]) == (0, ""), "in a request of its own it has room"


def test_texts_in_the_texts_of_a_span_count_too(exporter: Exporter) -> None:
    call = {"name": "search", "arguments": json.dumps([0] * 90_000)}
    asked = [{"role": "assistant", "content": "", "tool_calls": [call] * 3}]
    rejected, message = exporter.send(span(1, input__value=json.dumps(asked)), span(2, trace=2))
    assert rejected == 1
    assert "a span 250,000" in message
    assert Trace.objects.get().name == "step"


def test_a_request_names_only_so_many_runs(
    exporter: Exporter, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    marks = {"evalsite__case": "C-0", "output__value": "Yes."}
    many = [span(1, trace=n, evalsite__run=f"none:{n}", **marks) for n in range(1, 601)]
    with django_assert_max_num_queries(200):
        rejected, message = exporter.send(*many)
    assert (rejected, "There is no run 'none:1'" in message) == (0, True)
    problems = Trace.objects.values_list("problem", flat=True)
    assert sum("names at most 100 runs. Send this trace again" in text for text in problems) == 500


def test_a_run_that_was_named_before_is_none_too_many(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "BATCH", 1)
    monkeypatch.setattr(receiving, "MAX_RUNS", 1)
    marks = {"evalsite__case": "C-0", "output__value": "Yes."}
    exporter.send(*(span(1, trace=n, evalsite__run=f"none:{n % 2}", **marks) for n in (1, 2, 3)))
    problems = Trace.objects.order_by("trace_id").values_list("problem", flat=True)
    assert ["no run 'none:1'" in text for text in problems] == [True, False, True]


def test_a_request_of_many_traces_is_taken_in_parts(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "BATCH", 2)
    of_one = [span(1, trace=1), *(span(number, 1, trace=1) for number in (2, 3))]
    others = [span(1, trace=trace, evalsite__suite="none") for trace in range(2, 7)]
    rejected, message = exporter.send(*others[:3], *of_one, *others[3:])
    assert (rejected, message.count("There is no suite 'none'")) == (0, 1)
    counts = Trace.objects.order_by("trace_id").values_list("span_count", flat=True)
    assert list(counts) == [3, 1, 1, 1, 1, 1]


def test_spans_are_not_sent_as_arrays_whose_quotes_are_escaped_one_by_one(
    exporter: Exporter,
) -> None:
    first, second = span(1, input__value='A "quote" \\ and é'), span(2, 1)
    with CaptureQueriesContext(connection) as made:
        assert exporter.send(first, first, second) == (0, "")
        assert exporter.send(second, span(3, 1)) == (0, "")
    sent = [query["sql"] for query in made.captured_queries if "runs_tracespan" in query["sql"]]
    assert not [sql for sql in sent if "UNNEST" in sql]
    assert TraceSpan.objects.count() == 3


def test_a_refusal_is_a_status_of_google_rpc() -> None:
    content = otlp.write_status(3, "Über", PROTOBUF)
    assert RpcStatus.FromString(content) == RpcStatus(code=3, message="Über")
    assert json.loads(otlp.write_status(3, "Über", JSON)) == {"code": 3, "message": "Über"}

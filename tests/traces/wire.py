"""Spans as exporters send them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

PROTOBUF = "application/x-protobuf"
# 1 July 2026 in nanoseconds.
BEGIN = 1_782_864_000 * 10**9
MS = 10**6


def any_value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value={"values": [any_value(part) for part in value]})
        case dict():
            return AnyValue(kvlist_value={"values": pairs(value)})
    return AnyValue()


def pairs(attributes: Mapping[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def span(
    number: int,
    parent: int = 0,
    *,
    trace: int = 1,
    name: str = "step",
    start_ms: int = 0,
    ms: int = 100,
    error: str = "",
    **attributes: Any,
) -> Span:
    """Return a span; `__` in the name of an attribute is a dot."""
    return Span(
        trace_id=trace.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name,
        start_time_unix_nano=BEGIN + start_ms * MS,
        end_time_unix_nano=BEGIN + (start_ms + ms) * MS,
        attributes=pairs({key.replace("__", "."): value for key, value in attributes.items()}),
        status=Status(code=Status.STATUS_CODE_ERROR, message=error) if error else None,
    )


def request(*spans: Span, resource: Mapping[str, Any] | None = None) -> ExportTraceServiceRequest:
    about = Resource(attributes=pairs(resource or {}))
    scope = ScopeSpans(spans=spans)
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=about, scope_spans=[scope])]
    )

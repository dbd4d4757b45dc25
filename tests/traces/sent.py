"""Spans as exporters send them, made by hand, and a program that sends them to the site."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from evalsite.access.roles import Scope
from tests.api.site import token_of

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
            return AnyValue(array_value={"values": [any_value(one) for one in value]})
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


class Exporter:
    """What sends spans with a token of a member."""

    def __init__(self, owner: User, *scopes: Scope) -> None:
        """Make the token, by default one that may push into runs."""
        secret = token_of(owner, scopes=scopes or [Scope.RUN])
        self.client = Client(headers={"authorization": f"Bearer {secret}"})

    def post(
        self, body: bytes, content_type: str = PROTOBUF, *, packs: bool = False
    ) -> HttpResponse:
        """Post a body as it is, or packed."""
        headers = {"content-encoding": "gzip"} if packs else {}
        content = gzip.compress(body) if packs else body
        return self.client.post("/v1/traces", content, content_type=content_type, headers=headers)

    def send(self, *spans: Span, resource: Mapping[str, Any] | None = None) -> tuple[int, str]:
        """Send spans; return how many were rejected, and the message of the answer."""
        response = self.post(request(*spans, resource=resource).SerializeToString())
        assert response.status_code == 200, response.content
        assert response["Content-Type"] == PROTOBUF
        answer = ExportTraceServiceResponse.FromString(response.content)
        said = answer.partial_success
        return said.rejected_spans, said.error_message

    def refused(self, response: HttpResponse, status: int) -> tuple[int, str]:
        """Return the code and the message of a refusal in protobuf."""
        assert response.status_code == status, response.content
        assert response["Content-Type"] == PROTOBUF
        told = RpcStatus.FromString(response.content)
        return told.code, told.message

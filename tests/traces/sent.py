"""A program that sends spans to the site."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from evalsite.access.roles import Scope
from tests.api.site import token_of
from tests.traces.wire import PROTOBUF, request


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
        partial = answer.partial_success
        return partial.rejected_spans, partial.error_message

    def refusal(self, response: HttpResponse, status: int) -> tuple[int, str]:
        """Return the code and the message of a refusal in protobuf."""
        assert response.status_code == status, response.content
        assert response["Content-Type"] == PROTOBUF
        answer = RpcStatus.FromString(response.content)
        return answer.code, answer.message

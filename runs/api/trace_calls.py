"""The call that takes traces: OTLP over HTTP, with answers and refusals as OpenTelemetry's exporters expect them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import IO, Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.views import APIView, exception_handler

from runs.api.bodies import BodyTooLarge, read_stream
from runs.api.run_calls import MAY_START
from runs.api.schema import check_permission
from runs.traces.receiving import receive_spans
from runs.traces.spans import (
    JSON,
    PROTOBUF,
    ReceivedSpans,
    TooLargeRequestError,
    UnreadableRequestError,
)

# The codes of google.rpc for statuses of HTTP; any other is an invalid argument.
INVALID_ARGUMENT = 3
CODES: Mapping[int, int] = {401: 16, 403: 7, 405: 12, 429: 8, 503: 14}


def _otlp() -> ModuleType:
    # Protocol buffers take a tenth of a second to load, and most processes do not need them.
    from runs.traces import otlp

    return otlp


class OtlpParser(BaseParser):
    """Reads the spans of a request, unpacked if need be."""

    reader: ClassVar[str]

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None
    ) -> Any:
        """Return the spans; raises BodyTooLarge and ParseError."""
        encoding = parser_context["request"].headers.get("Content-Encoding", "")
        otlp = _otlp()
        try:
            content = otlp.unpack(read_stream(stream), encoding)
            return getattr(otlp, self.reader)(content)
        except UnreadableRequestError as error:
            raise ParseError(str(error)) from None
        except TooLargeRequestError as error:
            raise BodyTooLarge(str(error)) from None


class ProtobufParser(OtlpParser):
    """Reads protobuf."""

    media_type = PROTOBUF
    reader = "read_protobuf"


class JsonParser(OtlpParser):
    """Reads JSON."""

    media_type = JSON
    reader = "read_json_request"


class TraceReceiver(APIView):
    """Takes spans at the address where exporters of OpenTelemetry send them."""

    parser_classes = (ProtobufParser, JsonParser)

    @extend_schema(
        operation_id="send_traces",
        summary="Send traces",
        request={PROTOBUF: OpenApiTypes.BINARY, JSON: OpenApiTypes.OBJECT},
        responses={
            (200, PROTOBUF): OpenApiResponse(OpenApiTypes.BINARY, description="Taken."),
            (200, JSON): OpenApiResponse(OpenApiTypes.OBJECT, description="Taken."),
        },
        tags=["traces"],
    )
    def post(self, request: Request) -> HttpResponse:
        """Send spans by OTLP over HTTP (OpenTelemetry), packed by gzip or not.

        A span with the attributes evalsite.run and evalsite.case becomes the output of that case, with what is below it
        as its trace. Any other trace comes into the inbox. The answer is an ExportTraceServiceResponse; its
        partial_success says which spans were refused, and which executions were not taken. A refusal is a
        google.rpc.Status in the form of the request.
        """
        check_permission(request, MAY_START)
        received: Any = request.data
        # A body of no bytes is not parsed; it is a request without spans.
        receipt = receive_spans(
            received if isinstance(received, ReceivedSpans) else ReceivedSpans()
        )
        media_type = _media_type(request)
        content = _otlp().write_response(
            rejected=receipt.rejected, message=receipt.message, media_type=media_type
        )
        return HttpResponse(content, content_type=media_type)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Answer in the form of the request, whatever else a client would accept."""
        return self.get_renderers()[0], JSON

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Any]:
        """Return what answers an error."""
        return _status_response


def _media_type(request: Any) -> str:
    named = request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    return PROTOBUF if named == PROTOBUF else JSON


def _status_response(error: Exception, context: dict[str, Any]) -> HttpResponse | None:
    response = exception_handler(error, context)
    if response is None:
        return None
    code = CODES.get(response.status_code, INVALID_ARGUMENT)
    media_type = _media_type(context["request"])
    content = _otlp().write_status(code, str(response.data["detail"]), media_type)
    headers = {
        name: response[name] for name in ("WWW-Authenticate", "Retry-After") if name in response
    }
    return HttpResponse(
        content, status=response.status_code, headers=headers, content_type=media_type
    )

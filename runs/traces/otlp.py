"""Read what OpenTelemetry exporters send (OTLP over HTTP) into spans, within limits, and write the answer.

A span that cannot be read is refused by itself; the others of its request are taken.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from evaluators.reading.json import TooManyValuesError, read_json, storable
from runs.traces.spans import (
    JSON,
    MAX_NAME_LENGTH,
    ReceivedSpans,
    Span,
    TooLargeRequestError,
    UnreadableRequestError,
)

# Unpacked. Exporters send 512 spans at a time, collectors 8,192.
MAX_BYTES = 20 * 1024**2
MAX_SPANS = 10_000
# A message of two bytes takes 180 in memory, so a request of nothing but these would take gigabytes.
MAX_TINY_VALUES = 1_000_000
# A tag with a short length, or a number written longer than it is, as only an attacker writes lengths.
TINY_VALUE = re.compile(
    rb"[\x0a\x12\x1a\x22\x2a\x32\x3a\x42\x4a\x52\x5a\x62\x6a\x72\x7a][\x00-\x07]|[\x80-\xff]\x00"
)
# Resources, scopes and spans take even more; each has few fields beside those below it.
MAX_FIELDS = 10 * MAX_SPANS
# An attribute in JSON has four, and takes a hundred times as long to read as one in protobuf.
MAX_JSON_VALUES = 400_000
BELOW = (1, 2)
TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
# Nanoseconds since 1970: from the year 2000 to 2200. Clocks outside are not set.
EARLIEST_NS, LATEST_NS = 946_684_800 * 10**9, 7_258_118_400 * 10**9
GZIP = 31


def unpack(content: bytes, encoding: str) -> bytes:
    """Return the content of a body; raises UnreadableRequestError and TooLargeRequestError."""
    match encoding.strip().lower():
        case "" | "identity":
            unpacked = content
        case "gzip":
            inflater = zlib.decompressobj(GZIP)
            try:
                unpacked = inflater.decompress(content, MAX_BYTES + 1)
            except zlib.error as error:
                raise UnreadableRequestError(f"The body is not gzip: {error}.") from None
            if len(unpacked) <= MAX_BYTES and (not inflater.eof or inflater.unused_data):
                raise UnreadableRequestError("The body is not one whole gzip file.")
        case _:
            raise UnreadableRequestError(
                f"The body is packed as {encoding[:40]!r}. Send it as gzip, or not packed."
            )
    if len(unpacked) > MAX_BYTES:
        raise TooLargeRequestError(
            f"The request has more than {MAX_BYTES // 1024**2} MB unpacked. Send fewer spans at a time."
        )
    return unpacked


def read_protobuf(content: bytes) -> ReceivedSpans:
    """Read a request in protobuf; raises UnreadableRequestError and TooLargeRequestError."""
    if next(islice(TINY_VALUE.finditer(content), MAX_TINY_VALUES, None), None):
        raise TooLargeRequestError("The request has more than a million values of a few bytes.")
    fields = _fields(content, 0, len(content), BELOW)
    if next(islice(fields, MAX_FIELDS, None), None) is not None:
        raise TooLargeRequestError(
            f"The request has more than {MAX_FIELDS:,} resources, scopes and spans. Send fewer at a time."
        )
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(content)
    except DecodeError as error:
        reason = str(error).rpartition(": ")[2]
        raise UnreadableRequestError(f"The body is not an OTLP request: {reason}.") from None
    scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
    _check_count(sum(len(scope.spans) for scope in scopes))
    received = ReceivedSpans()
    for resource in request.resource_spans:
        about = read_attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                _take(span, about, received)
    return received


def _fields(content: bytes, at: int, end: int, below: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of all fields down to the spans, without reading them; ends where they are cut."""
    while at < end:
        tag, at = _varint(content, at)
        number, length = tag >> 3, 0
        yield number
        match tag & 7:
            case 0:
                _, at = _varint(content, at)
            case 1:
                length = 8
            case 2:
                length, at = _varint(content, at)
                if below and number == below[0]:
                    yield from _fields(content, at, min(at + length, end), below[1:])
            case 5:
                length = 4
            case _:
                raise UnreadableRequestError("The body is not an OTLP request: it has a group.")
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of protobuf and where it ends."""
    number = 0
    for place, byte in enumerate(content[at : at + 10]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, at + place + 1
    return number, len(content)


def read_json_request(content: bytes) -> ReceivedSpans:
    """Read a request in JSON, with ids in hexadecimal digits; raises UnreadableRequestError and TooLargeRequestError."""
    try:
        value = read_json(content.decode(), unstorable="replace", max_values=MAX_JSON_VALUES)
    except TooManyValuesError as error:
        raise TooLargeRequestError(
            f"The request is too large: {error}. Send fewer spans at a time, or protobuf."
        ) from None
    except ValueError as error:
        raise UnreadableRequestError(f"The body cannot be read as JSON: {error}.") from None
    if not isinstance(value, dict):
        raise UnreadableRequestError(
            'The body is not an OTLP request: write {"resourceSpans": […]}.'
        )
    written = [
        (resource, list(_objects(scope, "spans")))
        for resource in _objects(value, "resourceSpans", "resource_spans")
        for scope in _objects(resource, "scopeSpans", "scope_spans")
    ]
    _check_count(sum(len(spans) for _, spans in written))
    received = ReceivedSpans()
    for resource, spans in written:
        try:
            about = _parse(resource.get("resource") or {}, Resource())
        except ParseError as error:
            received.refusals += [f"Its resource cannot be read: {error}."] * len(spans)
            continue
        attributes = read_attributes(about.attributes)
        for span in spans:
            try:
                message = _parse(_with_bytes(span), WireSpan())
            except (ParseError, ValueError) as error:
                received.refusals.append(f"It cannot be read: {error}.")
            else:
                _take(message, attributes, received)
    return received


def _parse(written: Any, message: Any) -> Any:
    if not isinstance(written, Mapping):
        raise ParseError(f"{str(written)[:60]!r} is not an object")
    return ParseDict(dict(written), message, ignore_unknown_fields=True)


def _objects(holder: Mapping[str, Any], *names: str) -> Iterator[Mapping[str, Any]]:
    values: Any = next((holder[name] for name in names if holder.get(name) is not None), [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise UnreadableRequestError(
            f"The body is not an OTLP request: {names[0]} is not a list of objects."
        )
    yield from values


ID_NAMES = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")


def _with_bytes(span: Mapping[str, Any]) -> dict[str, Any]:
    """Return a span in the JSON of protobuf, whose bytes are base64; links, which nothing reads, are left out."""
    ids = {
        name: base64.b64encode(bytes.fromhex(str(span[name]))).decode()
        for name in ID_NAMES
        if span.get(name)
    }
    return {**{name: value for name, value in span.items() if name != "links"}, **ids}


def _check_count(count: int) -> None:
    if count > MAX_SPANS:
        raise TooLargeRequestError(
            f"The request has {count:,} spans, and {MAX_SPANS:,} is the limit. Send fewer at a time."
        )


def _take(span: WireSpan, resource: Mapping[str, Any], received: ReceivedSpans) -> None:
    is_whole = len(span.trace_id) == TRACE_ID_BYTES and len(span.span_id) == SPAN_ID_BYTES
    if not is_whole or not any(span.trace_id) or not any(span.span_id):
        received.refusals.append(
            f"Span {span.name[:60]!r} has no trace id of {TRACE_ID_BYTES} bytes and span id of {SPAN_ID_BYTES}."
        )
        return
    parent = bytes(span.parent_span_id).hex() if any(span.parent_span_id) else ""
    span_id = bytes(span.span_id).hex()
    started, ended = _read_times(span.start_time_unix_nano, span.end_time_unix_nano)
    received.spans.append(
        Span(
            trace_id=bytes(span.trace_id).hex(),
            span_id=span_id,
            # A span that names itself, or something that is no id, has no parent.
            parent_id=parent if len(parent) == 2 * SPAN_ID_BYTES and parent != span_id else "",
            name=storable(span.name)[:MAX_NAME_LENGTH],
            started_ns=started,
            ended_ns=ended,
            attributes=read_attributes(span.attributes),
            resource=resource,
            error=_read_error(span),
        )
    )


def _read_times(started: int, ended: int) -> tuple[int | None, int | None]:
    """Return start and end; None for a time that cannot be, and for an end before the start."""
    if not EARLIEST_NS <= started <= LATEST_NS:
        return None, None
    return started, ended if started <= ended <= LATEST_NS else None


def _read_error(span: WireSpan) -> str:
    if span.status.code != Status.STATUS_CODE_ERROR:
        return ""
    for event in span.events:
        if event.name == "exception":
            about = read_attributes(event.attributes)
            parts = (about.get("exception.type"), about.get("exception.message"))
            if text := ": ".join(str(part) for part in parts if part):
                return text
    return storable(span.status.message) or "The span ended with an error."


def read_attributes(attributes: Sequence[Any]) -> dict[str, Any]:
    """Return attributes by name, as JSON values that a database stores."""
    return {storable(pair.key): _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    """Return a value; protobuf refuses what is nested deeper than Python can follow."""
    match kind := value.WhichOneof("value"):
        case None:
            return None
        case "string_value":
            return storable(value.string_value)
        case "array_value":
            return [_value(part) for part in value.array_value.values]
        case "kvlist_value":
            return read_attributes(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else None
        case _:
            return getattr(value, kind)


def write_response(*, rejected: int, message: str, media_type: str) -> bytes:
    """Return the answer to a request that was taken, perhaps without some of its spans."""
    response = ExportTraceServiceResponse()
    if rejected or message:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    return _write(response, media_type)


def write_status(code: int, message: str, media_type: str) -> bytes:
    """Return a refusal as google.rpc.Status."""
    return _write(RpcStatus(code=code, message=message), media_type)


def _write(message: Message, media_type: str) -> bytes:
    if media_type == JSON:
        return MessageToJson(message, indent=None).encode()
    return message.SerializeToString()

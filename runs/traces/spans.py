"""A span as it arrived, in whatever form, and what a request of spans can be refused for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MAX_NAME_LENGTH = 200


class UnreadableRequestError(ValueError):
    """A request that cannot be read at all; nothing of it is taken."""


class TooLargeRequestError(ValueError):
    """A request that has too much in it; nothing of it is taken."""


@dataclass(frozen=True, slots=True)
class Span:
    """One span; `error` is "" unless it failed, and a time is None where its clock was not set."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    started_ns: int | None
    ended_ns: int | None
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class ReceivedSpans:
    """The spans of a request, and why others of it were refused."""

    spans: list[Span] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

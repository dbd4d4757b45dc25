"""What a call of a model is made of: its key in the ledger, its record, its reply and its failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from evaluators.scoring.types import Usage

NO_USAGE = Usage()


class CallStatus(StrEnum):
    """How one try of a call ended; the words of the ledger."""

    OK = "ok"
    UNREADABLE = "unreadable"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    SERVER_ERROR = "server_error"
    CONNECTION = "connection"


@dataclass(frozen=True, slots=True)
class CallKey:
    """Which call of a result this is; with result and generation the key of its reply.

    `purpose` is target or evaluation. `evaluator_path` is the path in the tree, "@outcomes" for
    the call beside it, "" for the target.
    """

    purpose: str
    evaluator_path: str = ""
    sample: int = 0
    round: int = 0
    repair: int = 0


@dataclass(frozen=True, slots=True)
class TraceHeaders:
    """Which execution a call belongs to, told to servers that want to know."""

    target: str
    case: str
    evaluator: str = ""

    def as_headers(self) -> dict[str, str]:
        """Return the HTTP headers, percent-encoded; a target's own call names no evaluator."""
        facts = {"Target": self.target, "Case": self.case, "Evaluator": self.evaluator}
        return {f"X-Evalsite-{name}": quote(value) for name, value in facts.items() if value}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One try of a call, as the ledger keeps it.

    `request` is the body sent, `reply` the body received (an error's too); neither holds the key.
    Tokens and cost are None when the server reported none or the price is not known.
    """

    key: CallKey
    model: str
    status: CallStatus
    request_hash: str
    request: Mapping[str, Any]
    created_at: datetime
    http_status: int | None = None
    error: str = ""
    reply: Any = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: Decimal | None = None
    price_version: str = ""
    latency_ms: int | None = None
    is_cached: bool = False
    try_number: int = 1

    @property
    def usage(self) -> Usage:
        """Return what this one try consumed."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
            latency_ms=self.latency_ms,
            calls=1,
        )


Recall = Callable[[CallKey, str], CallRecord | None]
Record = Callable[[CallRecord], None]
Admit = Callable[[], Awaitable[None]]
Begin = Callable[[], None]


def _recall_nothing(key: CallKey, request_hash: str) -> CallRecord | None:
    return None


def _record_nowhere(record: CallRecord) -> None:
    return None


async def _admit_always() -> None:
    return None


def _begin_unseen() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the calls of one result are looked up and written down.

    `recall` takes key and request hash and returns an earlier record of the same result and
    generation whose status is ok or unreadable and that has a reply; it is not recorded again.
    `record` is handed every try once, failed ones included. Neither may block. `admit` is awaited
    before every try, inside its slot; what it raises ends the call, and nothing is sent or recorded.
    `begin` is told when a try is sent; `record` follows it without fail.
    """

    recall: Recall = _recall_nothing
    record: Record = _record_nowhere
    admit: Admit = _admit_always
    begin: Begin = _begin_unseen


@dataclass(frozen=True, slots=True)
class ChatCall:
    """One question to a model.

    `messages` are role and content as the chat protocol has them. With a `schema` the reply is
    asked for in the best mode the server accepts. `request_hash` replaces the hash of the messages
    where they hold something random. `problem_of` reads a reply's text and returns what is
    wrong with it, or ""; such a reply is recorded as unreadable and returned with its problem.
    With `is_mode_fixed` a refused reply mode is a refusal, not a reason to try the next one.
    """

    messages: Sequence[Mapping[str, Any]]
    key: CallKey
    schema: Mapping[str, Any] | None = None
    trace: TraceHeaders | None = None
    request_hash: str = ""
    problem_of: Callable[[str], str] | None = None
    is_mode_fixed: bool = False


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What the model answered.

    `usage` sums tokens and cost over every try, failed ones too; its latency is that of the try
    that answered. `problem` is "" when the text satisfied `problem_of`.
    """

    text: str
    usage: Usage
    model: str
    finish_reason: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)
    cached_tokens: int | None = None
    problem: str = ""
    is_recalled: bool = False
    reply_mode: str = ""


class ModelCallError(Exception):
    """No answer could be had. `status` is a CallStatus; `usage` is what the tries cost all the same."""

    def __init__(
        self,
        status: CallStatus,
        reason: str,
        *,
        http_status: int | None = None,
        usage: Usage = NO_USAGE,
    ) -> None:
        """Keep the reason in words a user can act on."""
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.http_status = http_status
        self.usage = usage

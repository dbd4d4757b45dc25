"""One call of a model: the request, its record in the ledger, and the answer, which may have any form."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from evaluators.model_calls.models import REPLY_MODES, ModelSpec
from evaluators.reading.json import MAX_REPLY_VALUES, TooManyValuesError, read_json, storable
from evaluators.scoring.types import Usage

NO_USAGE = Usage()


class CallOutcome(StrEnum):
    """How one try of a call ended, as the ledger records it."""

    OK = "ok"
    UNREADABLE = "unreadable"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    SERVER_ERROR = "server_error"
    CONNECTION = "connection"


@dataclass(frozen=True, slots=True)
class CallKey:
    """Identifies one call of a result; together with result and generation it is the key of the reply.

    `purpose` is target or evaluation. `evaluator_path` is the path in the tree, "@outcomes" for the call that
    judges expected outcomes, "" for the target.
    """

    purpose: str
    evaluator_path: str = ""
    sample: int = 0
    round: int = 0
    repair: int = 0


OWN_CALL = CallKey("target")


@dataclass(frozen=True, slots=True)
class TraceHeaders:
    """The execution that a call belongs to, for servers that want to trace it."""

    target: str
    case: str
    evaluator: str = ""

    def as_headers(self) -> dict[str, str]:
        """Return the HTTP headers, percent-encoded; a call of the target has no evaluator."""
        facts = {"Target": self.target, "Case": self.case, "Evaluator": self.evaluator}
        return {f"X-Evalsite-{name}": quote(value) for name, value in facts.items() if value}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One try of a call, as the ledger keeps it.

    `request` is the body sent, `reply` the body received, also of an error; neither contains the key.
    Tokens and cost are None if the server reported none or the price is unknown.
    """

    key: CallKey
    model: str
    status: CallOutcome
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
        """Return the usage of this try."""
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
TakeRoom = Callable[[int], Awaitable[None]]


def _recall_nothing(key: CallKey, request_hash: str) -> CallRecord | None:
    return None


def _record_nowhere(record: CallRecord) -> None:
    return None


async def _admit_always() -> None:
    return None


def _begin_unseen() -> None:
    return None


async def take_room_at_once(size: int) -> None:
    """Let any answer be read, where few are read at once."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Looks up and records the calls of one result.

    `recall` takes key and request hash and returns an earlier record of the same result and generation with a
    reply and the status ok or unreadable; it is not recorded again. `record` gets every try once, also failed
    ones. Neither may block. `admit` is awaited before every try, inside its slot; if it raises, the call ends
    and nothing is sent or recorded. `begin` is called when a try is sent; `record` always follows. `take_room` is
    awaited before an answer of so many bytes is read into memory.
    """

    recall: Recall = _recall_nothing
    record: Record = _record_nowhere
    admit: Admit = _admit_always
    begin: Begin = _begin_unseen
    take_room: TakeRoom = take_room_at_once


@dataclass(frozen=True, slots=True)
class ChatCall:
    """One question to a model.

    `messages` have role and content, as in the chat protocol. With a `schema` the call uses the best reply
    mode that the server accepts. `request_hash` replaces the hash of messages that contain random parts.
    `find_problem` returns what is wrong with the text of a reply, or ""; such a reply is recorded as unreadable
    and returned with its problem. With `is_mode_fixed` a refused reply mode is an error, and no other is tried.
    With `texts` the call asks for their embeddings instead, and has no messages.
    """

    messages: Sequence[Mapping[str, Any]]
    key: CallKey
    schema: Mapping[str, Any] | None = None
    trace: TraceHeaders | None = None
    request_hash: str = ""
    find_problem: Callable[[str], str] | None = None
    is_mode_fixed: bool = False
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The answer of a model; `vectors` are the embeddings of the texts of the call.

    `usage` sums tokens and cost over all tries, also failed ones; its latency is that of the last try.
    `problem` is "" if the text satisfied `find_problem`.
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
    vectors: Sequence[Sequence[float]] = ()


class ModelCallError(Exception):
    """There is no answer. `status` is a CallOutcome; `usage` is that of all tries."""

    def __init__(
        self,
        status: CallOutcome,
        reason: str,
        *,
        http_status: int | None = None,
        usage: Usage = NO_USAGE,
    ) -> None:
        """Keep the reason, in words that help a user fix it."""
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.http_status = http_status
        self.usage = usage


FLOAT_BYTES = 4
MAX_TEXT = 20_000
MAX_REASON = 500
MAX_TOKENS = 2**31 - 1
HTTP_BAD = 400
HTTP_TOO_MANY = 429
HTTP_SERVER = 500
HTTP_PASSING = (408, 409, 425)
QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached")


@dataclass(frozen=True, slots=True)
class Answer:
    """A chat completion, or embeddings. Tokens are None if the server did not report them."""

    text: str
    finish_reason: str = ""
    refusal: str = ""
    model: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    vectors: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a try had no answer, and whether it may be repeated."""

    status: CallOutcome
    reason: str
    http_status: int | None = None
    is_final: bool = False
    retry_after_s: float | None = None
    message: str = ""


class UnreadableAnswerError(Exception):
    """The body is not what the call asked for, or too long to be read."""


def parse_body(text: str) -> Any:
    """Return the JSON value of a body, else its beginning as text.

    All its texts can be stored (see `storable`). Raises UnreadableAnswerError for JSON of too many values.
    """
    try:
        return read_json(text, keeps_last=True, unstorable="replace", max_values=MAX_REPLY_VALUES)
    except TooManyValuesError as error:
        raise UnreadableAnswerError(f"the answer is too large: {error}") from None
    except ValueError:
        return {"text": storable(text[:MAX_TEXT])}


def read_answer(body: Any) -> Answer:
    """Return the first choice of a completion; raises UnreadableAnswerError if there is none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise UnreadableAnswerError("the answer of the server is not a chat completion")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise UnreadableAnswerError("the answer of the server has no message")
    usage = _mapping(body.get("usage"))
    return Answer(
        text=_content(message.get("content")),
        finish_reason=str(choices[0].get("finish_reason") or ""),
        refusal=str(message.get("refusal") or ""),
        model=str(body.get("model") or ""),
        message=message,
        input_tokens=_tokens(usage.get("prompt_tokens")),
        output_tokens=_tokens(usage.get("completion_tokens")),
        cached_tokens=_tokens(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def reply_version(reply: Any) -> str:
    """Return which version of a model gave a reply, as far as the server tells: its model and system_fingerprint.

    A name such as gpt-4.1 stays while the model behind it changes.
    """
    body = _mapping(reply)
    parts = (body.get("model"), body.get("system_fingerprint"))
    return str(storable(" ".join(part for part in parts if isinstance(part, str) and part)))


def read_embeddings(body: Any, count: int) -> Answer:
    """Return the embeddings of `count` texts in their order; raises UnreadableAnswerError if they are not there.

    Each is a list of numbers, or their bytes in base64 as 32-bit floats, which is a third as long.
    """
    rows = body.get("data") if isinstance(body, Mapping) else None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UnreadableAnswerError("the answer of the server has no embeddings")
    # As text, for an index may be anything.
    by_index = {str(row.get("index", n)): row.get("embedding") for n, row in enumerate(rows)}
    if len(rows) != count or by_index.keys() != {str(n) for n in range(count)}:
        raise UnreadableAnswerError(
            f"the answer of the server has not one embedding for each of {count} texts"
        )
    vectors = [_vector(by_index[str(n)]) for n in range(count)]
    if len({len(vector) for vector in vectors}) > 1:
        raise UnreadableAnswerError("the embeddings of the server differ in length")
    usage = _mapping(body.get("usage"))
    return Answer(
        text="",
        model=str(body.get("model") or ""),
        input_tokens=_tokens(usage.get("prompt_tokens")),
        output_tokens=0,
        vectors=vectors,
    )


def _vector(embedding: Any) -> Sequence[float]:
    try:
        if isinstance(embedding, str):
            content = b64decode(embedding, validate=True)
            embedding = struct.unpack(f"<{len(content) // FLOAT_BYTES}f", content)
        vector = [float(value) for value in embedding if isinstance(value, int | float | Decimal)]
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise UnreadableAnswerError(
            "an embedding of the server is not a list of numbers"
        ) from error
    if not vector or len(vector) != len(embedding) or not all(map(math.isfinite, vector)):
        raise UnreadableAnswerError("an embedding of the server is not a list of numbers")
    return vector


def read_failure(http_status: int, headers: Mapping[str, str], text: str) -> Failure:
    """Return the failure of an answer with an error status."""
    message, code = _error_message(parse_body(text))
    suffix = f": {message[:MAX_REASON]}" if message else ""
    if http_status == HTTP_TOO_MANY and code not in QUOTA_CODES:
        after = retry_after_s(headers, now=datetime.now(UTC))
        reason = f"Rate limited by the server (429){suffix}"
        return Failure(CallOutcome.RATE_LIMITED, reason, http_status, False, after, message)
    if http_status >= HTTP_SERVER or http_status in HTTP_PASSING:
        after = retry_after_s(headers, now=datetime.now(UTC))
        reason = f"Server error ({http_status}){suffix}"
        return Failure(CallOutcome.SERVER_ERROR, reason, http_status, False, after, message)
    reason = f"{_refusal_words(http_status)} ({http_status}){suffix}"
    return Failure(CallOutcome.REFUSED, reason, http_status, True, None, message)


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds that a server asks to wait, from a number or a date; None if it does not ask."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        until = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _refusal_words(http_status: int) -> str:
    words = {
        401: "The server does not accept the key",
        402: "The server asks for payment",
        403: "The server forbids it",
        404: "The server knows no such model or address",
        HTTP_TOO_MANY: "The quota of the key is used up",
    }
    if http_status < HTTP_BAD:
        return "The server redirects elsewhere; redirects are not followed"
    return words.get(http_status, "The server refused the request")


def _error_message(body: Any) -> tuple[str, str]:
    """Return message and code of an error body in any common form."""
    error = _mapping(body).get("error", body)
    if isinstance(error, str):
        return error, ""
    facts = _mapping(error)
    message = facts.get("message") or facts.get("detail") or facts.get("text") or ""
    message = message if isinstance(message, str) else json.dumps(message)
    return " ".join(message.split()), str(facts.get("code") or facts.get("type") or "")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(_mapping(part).get("text") or "") for part in parts)


def _tokens(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return int(value) if is_count else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# Parameters that users may not set, because the client uses them.
RESERVED_PARAMETERS = (
    "model", "messages", "stream", "stream_options", "response_format", "n", "tools", "functions",
    "input", "encoding_format",
)  # fmt: skip
MODE_REFUSALS = (400, 422)
# These usually mean something else, such as an unknown model; they count only if they name the parameter.
PARAMETER_REFUSALS = (404, 415, 501)
MODE_PARAMETER = "response_format"
MODE_WORDS = (MODE_PARAMETER, "json_schema", "json_object", "json mode", "structured", "schema")
SCHEMA_NAME = "reply"
CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of a value; equal values have the same."""
    return CANONICAL.encode(value)


def sha256_hex(value: Any) -> str:
    """Return the hash of a JSON value, the same for equal values."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def request_hash(spec: ModelSpec, call: ChatCall) -> str:
    """Return the hash of a call: of endpoint, model, parameters, messages, schema and texts."""
    messages = call.request_hash or [dict(message) for message in call.messages]
    parts = [spec.base_url, spec.model_id, dict(spec.parameters), messages, call.schema]
    return sha256_hex([*parts, list(call.texts)] if call.texts else parts)


def chat_body(spec: ModelSpec, call: ChatCall, mode: str) -> dict[str, Any]:
    """Return the body to send; parameters never override what the client sets."""
    own = {
        name: value for name, value in spec.parameters.items() if name not in RESERVED_PARAMETERS
    }
    if call.texts:
        texts = storable(list(call.texts))
        return {"model": spec.model_id, "input": texts, "encoding_format": "base64", **own}
    body: dict[str, Any] = {"model": spec.model_id, "messages": storable(call.messages), **own}
    if call.schema is not None and mode != "text":
        body["response_format"] = response_format(call.schema, mode)
    return body


def response_format(schema: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Return the `response_format` for a JSON object in this mode."""
    if mode == "json_object":
        return {"type": "json_object"}
    is_strict = set(schema.get("required", ())) == set(schema.get("properties", {}))
    named = {"name": SCHEMA_NAME, "schema": dict(schema), "strict": is_strict}
    return {"type": "json_schema", "json_schema": named}


def weaker_mode(mode: str) -> str | None:
    """Return the next mode to try, None after the last."""
    place = REPLY_MODES.index(mode)
    return REPLY_MODES[place + 1] if place + 1 < len(REPLY_MODES) else None


def refuses_mode(http_status: int | None, message: str) -> bool:
    """Tell whether an answer refuses the reply mode.

    That is a 400 or 422 that mentions the mode or has no message, and a 404, 415 or 501 that names the
    parameter.
    """
    text = message.lower()
    if http_status in PARAMETER_REFUSALS:
        return MODE_PARAMETER in text
    if http_status not in MODE_REFUSALS:
        return False
    return not text.strip() or any(word in text for word in MODE_WORDS)

"""What comes back: a server's answer or refusal, read without trusting its form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from evaluators.judging.calls import CallStatus

MOST_TEXT = 20_000
MOST_REASON = 500
MOST_TOKENS = 2**31 - 1
HTTP_BAD = 400
HTTP_TOO_MANY = 429
HTTP_SERVER = 500
HTTP_PASSING = (408, 409, 425)
UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
UNSTORABLE_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached")


@dataclass(frozen=True, slots=True)
class Answer:
    """A chat completion. Tokens are None when the server did not report them."""

    text: str
    finish_reason: str = ""
    refusal: str = ""
    model: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a try gave no answer, and whether another may."""

    status: CallStatus
    reason: str
    http_status: int | None = None
    is_final: bool = False
    retry_after_s: float | None = None
    said: str = ""


class UnreadableAnswerError(Exception):
    """The body is not a chat completion."""


def parse_body(text: str) -> Any:
    """Return the JSON value of a body, else its beginning as text; never raises.

    Every text in it can be stored (see `storable`).
    """
    try:
        body = DECODE(text)
    except (ValueError, RecursionError):
        body = {"text": text[:MOST_TEXT]}
    is_suspect = "\x00" in text or UNSTORABLE_ESCAPE.search(text) is not None
    return storable(body) if is_suspect or not _is_encodable(text) else body


def storable(value: Any) -> Any:
    """Return a JSON value without the characters no database keeps: NUL and halves of surrogate pairs."""
    if isinstance(value, str):
        if "\x00" not in value and _is_encodable(value):
            return value
        return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {storable(name): storable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [storable(part) for part in value]
    return value


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_answer(body: Any) -> Answer:
    """Return the completion's first choice; raises UnreadableAnswerError when there is none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise UnreadableAnswerError("the answer of the server is not a chat completion")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise UnreadableAnswerError("the answer of the server holds no message")
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


def read_failure(http_status: int, headers: Mapping[str, str], text: str) -> Failure:
    """Return what an answer other than 200 means."""
    said, code = _error_of(parse_body(text))
    suffix = f": {said[:MOST_REASON]}" if said else ""
    if http_status == HTTP_TOO_MANY and code not in QUOTA_CODES:
        after = retry_after_s(headers, now=datetime.now(UTC))
        reason = f"Rate limited by the server (429){suffix}"
        return Failure(CallStatus.RATE_LIMITED, reason, http_status, False, after, said)
    if http_status >= HTTP_SERVER or http_status in HTTP_PASSING:
        after = retry_after_s(headers, now=datetime.now(UTC))
        reason = f"Server error ({http_status}){suffix}"
        return Failure(CallStatus.SERVER_ERROR, reason, http_status, False, after, said)
    reason = f"{_refusal_words(http_status)} ({http_status}){suffix}"
    return Failure(CallStatus.REFUSED, reason, http_status, True, None, said)


def retry_after_s(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """Return the seconds a server asks to wait, given in seconds or as a date; None when it does not say."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        until = parsedate_to_datetime(value)
    except (TypeError, ValueError):
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


def _error_of(body: Any) -> tuple[str, str]:
    """Return message and code of an error body in any of the forms servers use."""
    error = _mapping(body).get("error", body)
    if isinstance(error, str):
        return error, ""
    facts = _mapping(error)
    said = facts.get("message") or facts.get("detail") or facts.get("text") or ""
    said = said if isinstance(said, str) else json.dumps(said)
    return " ".join(said.split()), str(facts.get("code") or facts.get("type") or "")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(_mapping(part).get("text") or "") for part in parts)


def _tokens(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return int(value) if is_count else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


DECODE = json.JSONDecoder(parse_constant=_refuse_constant).decode

"""One try of a call: what came of it, as a record for the ledger with an answer or a failure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from evaluators.judging.answers import (
    Answer,
    Failure,
    UnreadableAnswerError,
    parse_body,
    read_answer,
    read_failure,
)
from evaluators.judging.blotting import blotted, blotted_json
from evaluators.judging.calls import (
    NO_USAGE,
    CallRecord,
    CallStatus,
    ChatCall,
    ChatReply,
    ModelCallError,
)
from evaluators.judging.specs import ModelSpec
from evaluators.scoring.types import Usage

HIDDEN_KEY = "[key]"
HTTP_GOOD = 200
HTTP_REDIRECT = 300
STOPPED = Failure(CallStatus.CONNECTION, "Stopped before the answer came")


@dataclass(slots=True)
class Progress:
    """What a call has come to over its tries; `pause_s` is None when its last 429 ends it."""

    mode: str
    digest: str
    usage: Usage = NO_USAGE
    tries: int = 0
    failed: Counter[CallStatus] = field(default_factory=Counter)
    pause_s: float | None = None
    refused_at: float = float("-inf")
    refused_in_a_row: int = 0

    def refused(self, *, started_at: float, answered_at: float) -> int:
        """Count a 429; return how many this call has met since the model last answered any call.

        While the model answers others, a call that is refused has only come too early.
        """
        is_alive = answered_at > self.refused_at
        self.refused_in_a_row = 1 if is_alive else self.refused_in_a_row + 1
        self.refused_at = started_at
        return self.refused_in_a_row

    def error(self, failure: Failure) -> ModelCallError:
        """Return why no more tries are made, in words for a page, with what all of them cost."""
        tries = f", after {self.tries} tries" if self.tries > 1 else ""
        return ModelCallError(
            failure.status,
            f"{failure.reason}{tries}",
            http_status=failure.http_status,
            usage=self.usage,
        )


@dataclass(slots=True)
class Try:
    """One try of a call, and how it ended: with an answer or with a failure.

    Until it ends it counts as stopped on the way.
    """

    spec: ModelSpec
    call: ChatCall
    request: Mapping[str, Any]
    number: int
    digest: str
    created_at: datetime = field(default_factory=partial(datetime.now, UTC))
    began_s: float = field(default_factory=time.perf_counter)
    answer: Answer | None = None
    failure: Failure | None = STOPPED
    http_status: int | None = None
    reply: Any = None

    def answered(self, http_status: int, headers: Mapping[str, str], text: str) -> None:
        """Take in what the server sent: a completion, or what it has instead of one."""
        text = without_key(text, self.spec)
        self.http_status, self.reply = http_status, _body_without_key(text, self.spec)
        if http_status not in range(HTTP_GOOD, HTTP_REDIRECT):
            self.failure = read_failure(http_status, headers, text)
            return
        try:
            self.answer, self.failure = read_answer(self.reply), None
        except UnreadableAnswerError as error:
            reason = f"Not readable: {error}"
            self.failure = Failure(CallStatus.UNREADABLE, reason, http_status)

    def timed_out(self) -> None:
        """Note that no answer came in time."""
        reason = f"No answer within {self.spec.timeout_s:g} s"
        self.failure = Failure(CallStatus.TIMEOUT, reason)

    def unreachable(self, error: BaseException) -> None:
        """Note that no server was reached, or lost; a time-out below is told as one."""
        cause: BaseException | None = error
        last = error
        while cause is not None:
            if isinstance(cause, TimeoutError):
                return self.timed_out()
            last, cause = cause, cause.__cause__ or cause.__context__
        said = without_key(str(last), self.spec) or type(last).__name__
        reason = f"The server could not be reached: {said[:300]}"
        self.failure = Failure(CallStatus.CONNECTION, reason)
        return None

    def record(self) -> CallRecord:
        """Return the try as the ledger keeps it, now that it has ended."""
        latency_ms = round((time.perf_counter() - self.began_s) * 1000)
        status, error, answer = CallStatus.OK, "", self.answer
        if self.failure is not None:
            status, error = self.failure.status, self.failure.reason
        elif answer is not None:
            error = problem_of(answer, self.call)
            status = CallStatus.UNREADABLE if error else CallStatus.OK
        return CallRecord(
            key=self.call.key,
            model=self.spec.slug,
            status=status,
            request_hash=self.digest,
            request=self.request,
            created_at=self.created_at,
            http_status=self.http_status,
            error=error,
            reply=self.reply,
            input_tokens=answer.input_tokens if answer else None,
            output_tokens=answer.output_tokens if answer else None,
            cached_tokens=answer.cached_tokens if answer else None,
            cost_usd=cost_of(answer, self.spec) if answer else None,
            price_version=self.spec.price_version,
            latency_ms=latency_ms,
            try_number=self.number,
        )


def problem_of(answer: Answer, call: ChatCall) -> str:
    """Return what is wrong with the text for this call, "" when nothing is."""
    if call.problem_of is None:
        return ""
    if answer.refusal:
        return f"the model refused: {answer.refusal[:300]}"
    problem = call.problem_of(answer.text)
    if problem and answer.finish_reason == "length":
        return f"cut off at the model's limit of output tokens; {problem}"
    return problem


def reply_of(answer: Answer, record: CallRecord, progress: Progress) -> ChatReply:
    """Return the answer as the caller of chat gets it."""
    usage = progress.usage
    if usage.latency_ms != record.latency_ms:
        usage = replace(usage, latency_ms=record.latency_ms)
    return ChatReply(
        text=answer.text,
        usage=usage,
        model=answer.model or str(record.request.get("model", "")),
        finish_reason=answer.finish_reason,
        message=answer.message,
        cached_tokens=answer.cached_tokens,
        problem=record.error,
        reply_mode=progress.mode,
    )


def recalled(record: CallRecord, call: ChatCall) -> ChatReply | None:
    """Return an earlier answer from the ledger; None when the record holds none."""
    try:
        answer = read_answer(record.reply)
    except UnreadableAnswerError:
        return None
    return ChatReply(
        text=answer.text,
        usage=record.usage,
        model=answer.model or record.model,
        finish_reason=answer.finish_reason,
        message=answer.message,
        cached_tokens=answer.cached_tokens,
        problem=problem_of(answer, call),
        is_recalled=True,
    )


def without_key(text: str, spec: ModelSpec) -> str:
    """Return the text with the key of the model blotted out, should a server echo it."""
    if not spec.api_key:
        return text
    return blotted(text, (spec.api_key,), HIDDEN_KEY)


def _body_without_key(text: str, spec: ModelSpec) -> Any:
    """Return the value of a body, in which a key may stand again once its JSON is read."""
    body = parse_body(text)
    try:
        return blotted_json(body, (spec.api_key,), HIDDEN_KEY) if spec.api_key else body
    except RecursionError:
        return parse_body("")


def cost_of(answer: Answer, spec: ModelSpec) -> Decimal | None:
    """Return what an answer cost, None where price or tokens are not known."""
    if spec.prices is None:
        return None
    return spec.prices.cost_usd(
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
    )

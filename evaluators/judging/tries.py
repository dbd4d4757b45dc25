"""What one try of a call came to: a record for the ledger, with an answer or a failure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace

from evaluators.judging.answers import (
    Answer,
    Failure,
    UnreadableAnswerError,
    parse_body,
    read_answer,
)
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


@dataclass(slots=True)
class Try:
    """How one try ended: with an answer or with a failure."""

    record: CallRecord
    answer: Answer | None = None
    failure: Failure | None = None
    started_at: float = 0.0


@dataclass(slots=True)
class Progress:
    """What a call has come to over its tries."""

    mode: str
    digest: str
    usage: Usage = NO_USAGE
    tries: int = 0
    failed: Counter[CallStatus] = field(default_factory=Counter)

    def error(self, failure: Failure) -> ModelCallError:
        """Return why no more tries are made, in words for a page, with what all of them cost."""
        tries = f", after {self.tries} tries" if self.tries > 1 else ""
        return ModelCallError(
            failure.status,
            f"{failure.reason}{tries}",
            http_status=failure.http_status,
            usage=self.usage,
        )


def answered(http_status: int, text: str, draft: CallRecord, spec: ModelSpec) -> Try:
    """Return the try that a completion, or what should have been one, ends."""
    body = parse_body(text)
    record = replace(draft, http_status=http_status, reply=body)
    try:
        answer = read_answer(body)
    except UnreadableAnswerError as error:
        reason = f"Not readable: {error}"
        return Try(record, failure=Failure(CallStatus.UNREADABLE, reason, http_status))
    return Try(_with_tokens(record, answer, spec), answer)


def timed_out(draft: CallRecord, spec: ModelSpec) -> Try:
    """Return a try whose answer did not come in time."""
    reason = f"No answer within {spec.timeout_s:g} s"
    return Try(draft, failure=Failure(CallStatus.TIMEOUT, reason))


def unreachable(draft: CallRecord, error: BaseException, spec: ModelSpec) -> Try:
    """Return a try that reached no server, or lost it; a time-out below is told as one."""
    cause: BaseException | None = error
    last = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return timed_out(draft, spec)
        last, cause = cause, cause.__cause__ or cause.__context__
    said = without_key(str(last), spec) or type(last).__name__
    return Try(
        draft,
        failure=Failure(CallStatus.CONNECTION, f"The server could not be reached: {said[:300]}"),
    )


def finished(ended: Try, call: ChatCall, latency_ms: int) -> CallRecord:
    """Return the record with status, error and latency as the ledger keeps them."""
    if ended.failure is not None:
        return replace(
            ended.record,
            status=ended.failure.status,
            error=ended.failure.reason,
            http_status=ended.failure.http_status,
            latency_ms=latency_ms,
        )
    problem = problem_of(ended.answer, call) if ended.answer is not None else ""
    status = CallStatus.UNREADABLE if problem else CallStatus.OK
    return replace(ended.record, status=status, error=problem, latency_ms=latency_ms)


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
    return ChatReply(
        text=answer.text,
        usage=replace(progress.usage, latency_ms=record.latency_ms),
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
    escaped = json.dumps(spec.api_key)[1:-1]
    # JSON may spell a slash as \\/, which reads back as the slash.
    for spelling in (spec.api_key, escaped, escaped.replace("/", "\\/")):
        text = text.replace(spelling, HIDDEN_KEY)
    return text


def _with_tokens(record: CallRecord, answer: Answer, spec: ModelSpec) -> CallRecord:
    cost_usd = None
    if spec.prices is not None:
        cost_usd = spec.prices.cost_usd(
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            cached_tokens=answer.cached_tokens,
        )
    return replace(
        record,
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
        cost_usd=cost_usd,
    )

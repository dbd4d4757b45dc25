"""Chat calls of language models: slots, tries, pauses, and a record of every try."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from evaluators.model_calls.bodies import MAX_JUDGE_REPLY_BYTES, MAX_MODEL_REPLY_BYTES
from evaluators.model_calls.calls import (
    MAX_TEXT,
    NO_USAGE,
    OWN_CALL,
    Answer,
    CallOutcome,
    CallRecord,
    ChatCall,
    ChatReply,
    Failure,
    Ledger,
    ModelCallError,
    UnreadableAnswerError,
    chat_body,
    parse_body,
    read_answer,
    read_embeddings,
    read_failure,
    refuses_mode,
    request_hash,
    weaker_mode,
)
from evaluators.model_calls.limit_policy import PASSING, Retries
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.rate_limits import Limiter
from evaluators.model_calls.redaction import redact, redact_json
from evaluators.scoring.types import Usage, add_usage

if TYPE_CHECKING:
    from evaluators.model_calls.endpoint import Endpoint, Received

HIDDEN_KEY = "[key]"
HTTP_GOOD = 200
HTTP_REDIRECT = 300
NUMBERS = count(1)
STOPPED = Failure(CallOutcome.CONNECTION, "Stopped before the answer came")


@dataclass(slots=True)
class CallProgress:
    """The state of a call over its tries; `number` is its own in this process.

    `failed` counts how it failed, but not while its model answered nobody.
    """

    mode: str
    digest: str
    usage: Usage = NO_USAGE
    tries: int = 0
    failed: Counter[CallOutcome] = field(default_factory=Counter)
    number: int = field(default_factory=partial(next, NUMBERS))

    def error(self, failure: Failure) -> ModelCallError:
        """Return the error of a call that is given up, with the usage of all tries."""
        tries = f", after {self.tries} tries" if self.tries > 1 else ""
        return ModelCallError(
            failure.status,
            f"{failure.reason}{tries}",
            http_status=failure.http_status,
            usage=self.usage,
        )


@dataclass(slots=True)
class Try:
    """One try of a call, which ends with an answer or a failure.

    Until it ends it counts as stopped.
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
    latency_ms: int | None = None

    def answered(self, http_status: int, headers: Mapping[str, str], text: str) -> None:
        """Read what the server sent: a completion or an error."""
        text = redact_key(text, self.spec)
        self.http_status = http_status
        if http_status not in range(HTTP_GOOD, HTTP_REDIRECT):
            text = text[:MAX_TEXT]
            self.reply = _body_without_key(text, self.spec)
            self.failure = read_failure(http_status, headers, text)
            return
        try:
            self.reply = _body_without_key(text, self.spec)
        except UnreadableAnswerError as error:
            self.cut_off(error)
            return
        try:
            self.answer, self.failure = answer_to(self.call, self.reply), None
        except UnreadableAnswerError as error:
            reason = f"Not readable: {error}"
            self.failure = Failure(CallOutcome.UNREADABLE, reason, http_status)

    def cut_off(self, error: UnreadableAnswerError) -> None:
        """Note that the answer was too long; asking again would pay for another one of that kind."""
        self.failure = Failure(CallOutcome.UNREADABLE, f"Not readable: {error}", is_final=True)

    def timed_out(self) -> None:
        """Note that no answer came in time."""
        reason = f"No answer within {self.spec.timeout_s:g} s"
        self.failure = Failure(CallOutcome.TIMEOUT, reason)

    def unreachable(self, error: BaseException) -> None:
        """Note that the server was not reached or the connection broke; a timeout as the cause is reported as one."""
        cause: BaseException | None = error
        last = error
        while cause is not None:
            if isinstance(cause, TimeoutError):
                return self.timed_out()
            last, cause = cause, cause.__cause__ or cause.__context__
        message = redact_key(str(last), self.spec) or type(last).__name__
        reason = f"The server could not be reached: {message[:300]}"
        self.failure = Failure(CallOutcome.CONNECTION, reason)
        return None

    def record(self) -> CallRecord:
        """Return the record of the ended try for the ledger."""
        status, error, answer = CallOutcome.OK, "", self.answer
        if self.failure is not None:
            status, error = self.failure.status, self.failure.reason
        elif answer is not None:
            error = find_problem(answer, self.call)
            status = CallOutcome.UNREADABLE if error else CallOutcome.OK
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
            cost_usd=call_cost(answer, self.spec) if answer else None,
            price_version=self.spec.price_version,
            latency_ms=self.latency_ms,
            try_number=self.number,
        )


def answer_to(call: ChatCall, body: Any) -> Answer:
    """Return what a body answers a call; raises UnreadableAnswerError."""
    return read_embeddings(body, len(call.texts)) if call.texts else read_answer(body)


def find_problem(answer: Answer, call: ChatCall) -> str:
    """Return what is wrong with the text for this call, "" for nothing."""
    if call.find_problem is None:
        return ""
    if answer.refusal:
        return f"the model refused: {answer.refusal[:300]}"
    problem = call.find_problem(answer.text)
    if problem and answer.finish_reason == "length":
        return f"cut off at the model's limit of output tokens; {problem}"
    return problem


def read_chat_reply(answer: Answer, record: CallRecord, progress: CallProgress) -> ChatReply:
    """Return the answer in the form that `chat` returns."""
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
        vectors=answer.vectors,
    )


def recall_reply(record: CallRecord, call: ChatCall) -> ChatReply | None:
    """Return an earlier answer from the ledger, None if the record has none."""
    try:
        answer = answer_to(call, record.reply)
    except UnreadableAnswerError:
        return None
    return ChatReply(
        text=answer.text,
        usage=record.usage,
        model=answer.model or record.model,
        finish_reason=answer.finish_reason,
        message=answer.message,
        cached_tokens=answer.cached_tokens,
        problem=find_problem(answer, call),
        is_recalled=True,
        vectors=answer.vectors,
    )


def redact_key(text: str, spec: ModelSpec) -> str:
    """Return the text with the key of the model redacted, in case a server echoes it."""
    if not spec.api_key:
        return text
    return redact(text, (spec.api_key,), HIDDEN_KEY)


def _body_without_key(text: str, spec: ModelSpec) -> Any:
    """Return the value of a body with the key redacted, which may reappear when the JSON is parsed."""
    body = parse_body(text)
    try:
        return redact_json(body, (spec.api_key,), HIDDEN_KEY) if spec.api_key else body
    except RecursionError:
        return parse_body("")


def call_cost(answer: Answer, spec: ModelSpec) -> Decimal | None:
    """Return the cost of an answer, None if price or tokens are unknown."""
    if spec.prices is None:
        return None
    return spec.prices.cost_usd(
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
    )


class ModelClient:
    """Calls models; one client serves one event loop and is closed with `aclose`.

    It remembers the reply mode that the server of each model accepts.
    """

    def __init__(self, limiter: Limiter | None = None, retries: Retries | None = None) -> None:
        """Prepare the client; the first call connects."""
        self.limiter = limiter or Limiter()
        self._retries = retries or Retries()
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._modes: dict[tuple[str, str, str], str] = {}

    async def chat(self, spec: ModelSpec, call: ChatCall, ledger: Ledger) -> ChatReply:
        """Return the model's answer, from the ledger if it was given before.

        Waits for a slot, repeats temporary failures (429 after its Retry-After, 5xx, no connection,
        timeouts) and records every try. 429s, 5xx and lost connections use up a try only while the model
        answers others.

        Raises:
            ModelCallError: no try had an answer. Exceptions of the ledger's `admit` pass through.

        """
        digest = request_hash(spec, call)
        earlier = ledger.recall(call.key, digest)
        reply = recall_reply(earlier, call) if earlier is not None else None
        if reply is not None:
            return reply
        if spec.key_problem:
            raise ModelCallError(CallOutcome.REFUSED, spec.key_problem)
        place = (spec.base_url, spec.model_id, spec.reply_mode)
        progress = CallProgress(self._modes.get(place, spec.reply_mode), digest)
        while True:
            try:
                ended, record = await self._try(spec, call, ledger, progress)
            except ModelCallError as error:
                # Nobody waits for a silent model any longer; earlier tries were paid for.
                raise progress.error(
                    Failure(error.status, error.reason, error.http_status)
                ) from error
            if ended.answer is not None:
                if call.schema is not None:
                    self._modes[place] = progress.mode
                return read_chat_reply(ended.answer, record, progress)
            if ended.failure is not None:
                await self._after(ended.failure, spec, call, progress)

    async def model_ids(self, spec: ModelSpec) -> list[str]:
        """Return the sorted ids of the server's models, [] if it does not list them."""
        try:
            async with asyncio.timeout(spec.timeout_s):
                text = await self._endpoint(spec).get_models()
            body = parse_body(text)
        except (ConnectionError, TimeoutError, UnreadableAnswerError):
            return []
        rows = body.get("data") if isinstance(body, Mapping) else None
        rows = rows if isinstance(rows, list) else []
        return sorted({str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id")})

    async def aclose(self) -> None:
        """Close every connection."""
        for endpoint in self._endpoints.values():
            await endpoint.close()
        self._endpoints.clear()

    async def _try(
        self, spec: ModelSpec, call: ChatCall, ledger: Ledger, progress: CallProgress
    ) -> tuple[Try, CallRecord]:
        body = chat_body(spec, call, progress.mode)
        self._prepare(spec)
        async with self.limiter.slot(spec) as started_at:
            await ledger.admit()
            if self.limiter.is_late(spec, started_at=started_at):
                started_at = await self.limiter.start_again(
                    spec, started_at=started_at, admit=ledger.admit
                )
            progress.tries += 1
            ledger.begin()
            ended = Try(spec, call, body, progress.tries, progress.digest)
            received = None
            try:
                received = await self._send(ended)
            finally:
                ended.latency_ms = round((time.perf_counter() - ended.began_s) * 1000)
                record = ended.record()
                if received is None:
                    ledger.record(record)
            # Do this before the slot is free, or the next call would start during a pause.
            failure = ended.failure if received is None else None
            self._note_end(failure, spec, started_at, progress)
        if received is not None:
            # Without a slot, which those may need who have the room.
            try:
                with received.body:
                    await ledger.take_room(received.body.tell())
                    ended.answered(received.status, received.headers, received.text())
            finally:
                record = ended.record()
                ledger.record(record)
        is_first = progress.tries == 1
        progress.usage = record.usage if is_first else add_usage(progress.usage, record.usage)
        return ended, record

    def _prepare(self, spec: ModelSpec) -> None:
        """Load what sending takes before a start is granted: it may take longer than the start is valid."""
        self._endpoint(spec)

    async def _send(self, ended: Try) -> Received | None:
        """Return an answer that is not read yet; None where the try has ended without one."""
        spec, call = ended.spec, ended.call
        trace = call.trace if spec.send_trace_headers else None
        longest = MAX_MODEL_REPLY_BYTES if call.key == OWN_CALL else MAX_JUDGE_REPLY_BYTES
        try:
            async with asyncio.timeout(spec.timeout_s):
                received = await self._endpoint(spec).post_chat(
                    ended.request, trace.as_headers() if trace else {}, longest=longest
                )
        except TimeoutError:
            ended.timed_out()
        except ConnectionError as error:
            ended.unreachable(error)
        except UnreadableAnswerError as error:
            ended.cut_off(error)
        else:
            if received.status in range(HTTP_GOOD, HTTP_REDIRECT):
                return received
            with received.body:
                ended.answered(received.status, received.headers, received.text())
        return None

    def _note_end(
        self, failure: Failure | None, spec: ModelSpec, started_at: float, progress: CallProgress
    ) -> None:
        """Tell the limiter how a try ended; a timeout says nothing about the model."""
        if failure is not None and failure.status in PASSING:
            self.limiter.failed(spec, failure, call=progress.number, started_at=started_at)
        elif failure is None or failure.status is not CallOutcome.TIMEOUT:
            self.limiter.answered(spec, started_at=started_at)

    async def _after(
        self, failure: Failure, spec: ModelSpec, call: ChatCall, progress: CallProgress
    ) -> None:
        """Wait until the call may be repeated; raises ModelCallError if it may not."""
        weaker = weaker_mode(progress.mode) if call.schema is not None else None
        is_mode_refused = refuses_mode(failure.http_status, failure.message)
        if weaker is not None and is_mode_refused and not call.is_mode_fixed:
            progress.mode = weaker
            return
        is_outage = failure.status in PASSING and self.limiter.is_silent(spec)
        if not is_outage:
            progress.failed[failure.status] += 1
        # While nobody is answered, the limiter decides which call tries it next.
        wait_s = self._retries.wait_s(failure, 1 if is_outage else progress.failed[failure.status])
        if wait_s is None or self.limiter.has_given_up(spec):
            raise progress.error(failure)
        await self.limiter.sleep(wait_s)

    def _endpoint(self, spec: ModelSpec) -> Endpoint:
        place = (spec.base_url, spec.api_key)
        if place not in self._endpoints:
            # Imported here: it takes longer to load than everything else, and many runs call no model.
            from evaluators.model_calls.endpoint import Endpoint

            self._endpoints[place] = Endpoint(spec)
        return self._endpoints[place]

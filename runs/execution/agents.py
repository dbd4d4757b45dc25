"""Ask agents at their endpoints: slots, tries within one timeout, and a record of every try."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any

import aiohttp
from aiohttp.abc import AbstractResolver
from django.conf import settings
from yarl import URL

from evaluators.kinds._base import Output
from evaluators.model_calls.bodies import (
    BEGINNING,
    CHUNK,
    MAX_JUDGE_REPLY_BYTES,
    MAX_REPLY_BYTES,
    UnreadableBodyError,
    is_known_charset,
    read_content_type,
    receive_body,
    take_beginning,
)
from evaluators.model_calls.calls import (
    OWN_CALL,
    CallKey,
    CallOutcome,
    CallRecord,
    Ledger,
    read_failure,
)
from evaluators.model_calls.resolver import CheckedResolver, RefusedAddressError, check_host
from evaluators.reading.json import MAX_REPLY_VALUES, TooManyValuesError, read_json, storable
from evaluators.scoring.types import Usage
from runs.engine.plan import content_hash
from runs.engine.ports import Cause
from runs.execution.target_secrets import CAUSES, TargetSecrets
from runs.target_kinds._base import AgentFailure, AgentReading, AgentReply, AgentRequest


def decode_text(content: bytes, charset: str) -> str:
    """Return the content as text; raises UnreadableBodyError at the first invalid byte."""
    name = charset or "utf-8"
    if not is_known_charset(name):
        raise UnreadableBodyError(f"the agent says it writes in {name[:40]!r}", content[:BEGINNING])
    try:
        return content.decode("utf-8-sig" if name in ("utf-8", "utf8") else name)
    except UnicodeDecodeError as error:
        reason = f"the agent's answer is not {name}: byte {error.start + 1} cannot be read"
        raise UnreadableBodyError(reason, content[:BEGINNING]) from None


def parse_reply(text: str, content_type: str) -> AgentReply:
    """Return an answer with its JSON, if it is JSON; every text in it can be stored.

    Raises UnreadableBodyError for JSON of too many values.
    """
    try:
        value = read_json(text, keeps_last=True, unstorable="replace", max_values=MAX_REPLY_VALUES)
        is_json = True
    except TooManyValuesError as error:
        raise UnreadableBodyError(f"the agent's answer is too large: {error}", b"") from None
    except ValueError:
        value, is_json = None, False
    return AgentReply(storable(text), value, is_json, content_type)


# Text that is cut before redaction loses its end too, which may hold half a secret.
MAX_TEXT, MAX_READ = 20_000, 160_000
MAX_SAID = 300
HTTP_GOOD, HTTP_REDIRECT, HTTP_BAD = 200, 300, 400
WORDS = {
    401: "The agent does not accept the credentials",
    402: "The agent asks for payment",
    403: "The agent forbids it",
    404: "There is nothing at this address",
    405: "The agent does not accept this method",
    413: "The request is too large for the agent",
    422: "The agent does not accept this body",
}


@dataclass(slots=True)
class AgentTry:
    """One request and how it ended: with a reading of the reply or with a failure.

    `body` is a whole answer that has not been read yet.
    """

    request: AgentRequest
    secrets: TargetSecrets
    target: str
    key: CallKey
    digest: str
    created_at: datetime = field(default_factory=partial(datetime.now, UTC))
    began_s: float = field(default_factory=time.perf_counter)
    status: CallOutcome = CallOutcome.CONNECTION
    reason: str = "Stopped before the answer came"
    http_status: int | None = None
    retry_after_s: float | None = None
    may_repeat: bool = False
    reading: AgentReading = field(default_factory=AgentReading)
    reply: Any = None
    latency_ms: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: IO[bytes] | None = None

    def note_answer(self, http_status: int, headers: Mapping[str, str], body: IO[bytes]) -> None:
        """Record that the agent has answered, and why if it refused."""
        self.http_status, self.headers = http_status, headers
        if http_status in range(HTTP_GOOD, HTTP_REDIRECT):
            self.body = body
            return
        text = take_beginning(body)[:MAX_READ].decode(errors="replace")
        content_type, _ = read_content_type(headers)
        self._note_refusal(http_status, headers, text, content_type)

    def read_answer(self, body: IO[bytes]) -> None:
        """Read the body of the agent's answer, and close it."""
        content_type, charset = read_content_type(self.headers)
        with body:
            body.seek(0)
            content = body.read()
        try:
            reply = self._reply(decode_text(content, charset), content_type)
        except UnreadableBodyError as error:
            self.note_unreadable(error)
            return
        self.reading = self._without_secrets(self.request.read(reply))
        output = self.reading.output
        self._keep(reply, as_json=output is None or output.text != reply.text)
        self.reason = self.reading.problem
        self.status = CallOutcome.UNREADABLE if self.reason else CallOutcome.OK

    def _note_refusal(
        self, http_status: int, headers: Mapping[str, str], text: str, content_type: str
    ) -> None:
        reply = self._reply(text, content_type)
        reply = replace(reply, text=reply.text[:MAX_TEXT])
        self._keep(reply, as_json=len(text) <= MAX_TEXT)
        failure = read_failure(http_status, headers, reply.text)
        self.status, self.retry_after_s = failure.status, failure.retry_after_s
        self.may_repeat = not failure.is_final
        words = WORDS.get(http_status, "The agent refused the request")
        if http_status < HTTP_BAD:
            words = "The agent redirects elsewhere; redirects are not followed"
        elif failure.status is CallOutcome.RATE_LIMITED:
            words = "The agent asks for a pause"
        elif failure.status is CallOutcome.SERVER_ERROR:
            words = "The agent failed"
        detail = self.secrets.redact(failure.message)[:MAX_SAID]
        detail = f": {detail}" if detail else ""
        self.reason = f"{words} ({http_status}){detail}"

    def _reply(self, text: str, content_type: str) -> AgentReply:
        """Return a reply without secrets, plain or escaped as in JSON."""
        reply = parse_reply(text, content_type)
        try:
            value, is_json = self.secrets.redact_json(reply.json), reply.is_json
        except RecursionError:
            value, is_json = None, False
        return replace(reply, text=self.secrets.redact(reply.text), json=value, is_json=is_json)

    def _without_secrets(self, reading: AgentReading) -> AgentReading:
        try:
            output = reading.output and self.secrets.redact_output(reading.output)
        except RecursionError:
            return AgentReading(problem="the reply is nested too deeply", usage=reading.usage)
        return replace(reading, output=output, problem=self.secrets.redact(reading.problem))

    def _keep(self, reply: AgentReply, *, as_json: bool = True) -> None:
        """Store the reply so that it reads the same again: as text where the text is the answer."""
        form = {"json": reply.json} if reply.is_json and as_json else {"text": reply.text}
        self.reply = {"content_type": reply.content_type} | form

    def note_unreadable(self, error: UnreadableBodyError, http_status: int | None = None) -> None:
        """Record that the content could not be read, with its beginning."""
        self.http_status = http_status or self.http_status
        self.status, self.reason = CallOutcome.UNREADABLE, str(error)
        beginning = self._reply(error.beginning[:MAX_READ].decode(errors="replace"), "")
        self.reply = {"cut": True, "text": beginning.text[:MAX_TEXT]}

    def note_timeout(self) -> None:
        """Record that no answer came in time."""
        self.status = CallOutcome.TIMEOUT
        self.reason = f"No answer within {self.request.timeout_s:g} s"

    def note_unreachable(self, error: Exception) -> None:
        """Record that no connection was made, or that it broke; only the former may be repeated."""
        refused = next(
            (cause for cause in _causes(error) if isinstance(cause, RefusedAddressError)), None
        )
        if refused is not None:
            self.status, self.reason = CallOutcome.REFUSED, str(refused)
            return
        detail = self.secrets.redact(str(error) or type(error).__name__)[:MAX_SAID]
        if isinstance(error, aiohttp.ClientResponseError):
            self.status, self.reason = CallOutcome.UNREADABLE, f"the answer is not HTTP: {detail}"
            return
        if isinstance(error, aiohttp.InvalidURL):
            self.status, self.reason = (
                CallOutcome.REFUSED,
                f"The address cannot be called: {detail}",
            )
            return
        self.status = CallOutcome.CONNECTION
        is_unmade = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError)
        is_distrusted = isinstance(error, aiohttp.ClientSSLError)
        self.may_repeat = is_unmade and not is_distrusted
        did = "could not be reached" if is_unmade or is_distrusted else "broke the connection"
        self.reason = f"The agent {did}: {detail}"

    def note_end(self) -> None:
        """Record how long the agent took."""
        self.latency_ms = round((time.perf_counter() - self.began_s) * 1000)

    def record(self) -> CallRecord:
        """Return the record of the ended request for the ledger, without secrets."""
        usage: Usage = self.reading.usage
        return CallRecord(
            key=self.key,
            model=self.target,
            status=self.status,
            request_hash=self.digest,
            request=shown_request(self.request, self.secrets),
            created_at=self.created_at,
            http_status=self.http_status,
            error=self.reason,
            reply=self.reply,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            latency_ms=self.latency_ms,
        )


def shown_request(request: AgentRequest, secrets: TargetSecrets) -> dict[str, Any]:
    """Return a request as it may be stored and shown."""
    shown = {
        "method": request.method,
        "url": request.url,
        "headers": secrets.shown(request.headers),
        "body": request.body,
    }
    return {name: value for name, value in shown.items() if value not in (None, {})}


def request_body(request: AgentRequest) -> bytes | None:
    """Return the body as it is sent."""
    return None if request.body is None else json.dumps(request.body).encode()


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        inner = getattr(error, "os_error", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
    return causes


CONNECT_S = 10.0
FIRST_WAIT_S = 0.5
SENT = {
    "User-Agent": "Evalsite",
    "Accept": "application/json, text/plain;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


class AgentClient:
    """Asks the endpoints of targets, each with its own slots; serves one event loop, closed with `aclose`.

    It follows no redirects, keeps no cookies, and takes no proxy or password from the machine. Every
    request has its own connection: agents close idle ones just when the next request is sent, and a
    request that may have arrived is not repeated.
    """

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        """Open nothing yet."""
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def ask(
        self,
        request: AgentRequest,
        secrets: TargetSecrets,
        ledger: Ledger,
        *,
        target: str,
        key: CallKey = OWN_CALL,
        digest: str = "",
    ) -> Output:
        """Return the output, from the ledger if the agent gave it before.

        `digest` replaces the request's hash where the request holds something random.

        Raises:
            AgentFailure: no try returned one. Errors of the ledger's `admit` pass through.

        """
        digest = digest or content_hash(shown_request(request, secrets))
        earlier = ledger.recall(key, digest)
        if earlier is not None:
            return secrets.redact_output(recall_output(earlier, request))
        if secrets.problem:
            raise AgentFailure(secrets.problem, Cause.REFUSED)
        slots = self._slots.setdefault(target, asyncio.Semaphore(request.most_at_once))
        async with slots:
            ended, tries = await self._try_again(request, secrets, ledger, (target, key, digest))
        if ended.body is not None:
            # Without a slot, which those may need who have the room.
            try:
                await ledger.take_room(ended.body.tell())
                ended.read_answer(ended.body)
            finally:
                ledger.record(ended.record())
        output = ended.reading.output
        if output is None:
            more = f", after {tries} tries" if tries > 1 else ""
            raise AgentFailure(f"{ended.reason}{more}", CAUSES[ended.status])
        return replace(output, usage=replace(output.usage, latency_ms=ended.latency_ms))

    async def _try_again(
        self,
        request: AgentRequest,
        secrets: TargetSecrets,
        ledger: Ledger,
        facts: tuple[str, CallKey, str],
    ) -> tuple[AgentTry, int]:
        """Return the last try, and how many there were within the timeout; a whole answer is neither read nor recorded."""
        left_s, tries = request.timeout_s, 0
        clock = asyncio.get_running_loop().time
        while True:
            # Waiting here, for instance for a database, is not the agent's fault.
            await ledger.admit()
            began = clock()
            tries += 1
            ended = await self._try(request, secrets, ledger, facts, left_s)
            left_s -= clock() - began
            wait_s = max(ended.retry_after_s or 0.0, FIRST_WAIT_S * 2 ** (tries - 1) * _jitter())
            if not ended.may_repeat or tries >= request.tries or wait_s >= left_s:
                return ended, tries
            left_s -= wait_s
            await asyncio.sleep(wait_s)

    async def _try(
        self,
        request: AgentRequest,
        secrets: TargetSecrets,
        ledger: Ledger,
        facts: tuple[str, CallKey, str],
        left_s: float,
    ) -> AgentTry:
        ended, is_whole = AgentTry(request, secrets, *facts), False
        ledger.begin()
        try:
            async with asyncio.timeout(left_s):
                await self._send(ended)
        except aiohttp.ServerTimeoutError as error:
            ended.note_unreachable(error)
        except TimeoutError:
            ended.note_timeout()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            ended.note_unreachable(error)
        else:
            is_whole = ended.body is not None
        finally:
            ended.note_end()
            if not is_whole:
                ended.body = None
                ledger.record(ended.record())
        return ended

    async def _send(self, ended: AgentTry) -> None:
        request = ended.request
        url = URL(request.url)
        check_host(url.host or "", settings.TARGET_NETWORKS)
        content_type = {} if request.body is None else {"Content-Type": "application/json"}
        headers = {**content_type, **ended.secrets.sent(request.headers)}
        longest = MAX_REPLY_BYTES if ended.key == OWN_CALL else MAX_JUDGE_REPLY_BYTES
        async with self._open_session().request(
            request.method, url, data=request_body(request), headers=headers, allow_redirects=False
        ) as response:
            try:
                body = await receive_body(
                    response.content.iter_chunked(CHUNK), response.headers, longest=longest
                )
            except UnreadableBodyError as error:
                ended.note_unreadable(error, response.status)
            else:
                ended.note_answer(response.status, response.headers, body)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=CheckedResolver(self._resolver, settings.TARGET_NETWORKS),
                    use_dns_cache=False,
                    force_close=True,
                    limit=0,
                ),
                headers=SENT,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def recall_output(record: CallRecord, request: AgentRequest) -> Output:
    """Return the output of an answer in the ledger; raises AgentFailure as it did then."""
    stored = record.reply if isinstance(record.reply, dict) else {}
    reply = AgentReply(
        text=str(stored.get("text") or ""),
        json=stored.get("json"),
        is_json="json" in stored,
        content_type=str(stored.get("content_type") or ""),
    )
    reading = AgentReading(problem=record.error) if stored.get("cut") else request.read(reply)
    if reading.output is None:
        raise AgentFailure(reading.problem, Cause.BAD_REPLY)
    return replace(
        reading.output, usage=replace(reading.output.usage, latency_ms=record.latency_ms)
    )


def _jitter() -> float:
    return 0.5 + random.random() / 2  # noqa: S311 - spreads retries; not for secrets

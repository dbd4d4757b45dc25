"""One request to an agent: what came of it, as a record for the ledger, and whether another may follow."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp

from evaluators.judging.answers import read_failure
from evaluators.judging.calls import CallKey, CallRecord, CallStatus
from evaluators.scoring.types import Usage
from runs.execution.agent_addresses import RefusedAddressError
from runs.execution.agent_bodies import UnreadableBodyError, kind_of, reply_of, text_of
from runs.execution.target_secrets import TargetSecrets
from runs.targets._base import AgentReading, AgentReply, AgentRequest

# Of what is cut off before it can be read, the end goes too: half a secret may stand there.
MOST_TEXT, MOST_READ = 20_000, 160_000
MOST_SAID = 300
HTTP_GOOD, HTTP_REDIRECT, HTTP_BAD = 200, 300, 400
WORDS = {
    401: "The agent does not accept the credentials",
    402: "The agent asks for payment",
    403: "The agent forbids it",
    404: "There is nothing at this address",
    405: "The agent does not take this method",
    413: "The request is too large for the agent",
    422: "The agent does not take this body",
}


@dataclass(slots=True)
class AgentTry:
    """One request and how it ended: with a reading of the reply or with a failure."""

    request: AgentRequest
    secrets: TargetSecrets
    target: str
    key: CallKey
    digest: str
    created_at: datetime = field(default_factory=partial(datetime.now, UTC))
    began_s: float = field(default_factory=time.perf_counter)
    status: CallStatus = CallStatus.CONNECTION
    reason: str = "Stopped before the answer came"
    http_status: int | None = None
    retry_after_s: float | None = None
    may_repeat: bool = False
    reading: AgentReading = field(default_factory=AgentReading)
    reply: Any = None
    latency_ms: int = 0

    def answered(self, http_status: int, headers: Mapping[str, str], content: bytes) -> None:
        """Take in what the agent sent."""
        self.http_status = http_status
        content_type, charset = kind_of(headers)
        if http_status not in range(HTTP_GOOD, HTTP_REDIRECT):
            text = content[:MOST_READ].decode(errors="replace")
            self._refused(http_status, headers, text, content_type)
            return
        try:
            text = text_of(content, charset)
        except UnreadableBodyError as error:
            self.unreadable(error)
            return
        reply = self._reply(text, content_type)
        self.reading = self._without_secrets(self.request.read(reply))
        output = self.reading.output
        self._keep(reply, as_json=output is None or output.text != reply.text)
        self.reason = self.reading.problem
        self.status = CallStatus.UNREADABLE if self.reason else CallStatus.OK

    def _refused(
        self, http_status: int, headers: Mapping[str, str], text: str, content_type: str
    ) -> None:
        reply = self._reply(text, content_type)
        reply = replace(reply, text=reply.text[:MOST_TEXT])
        self._keep(reply, as_json=len(text) <= MOST_TEXT)
        failure = read_failure(http_status, headers, reply.text)
        self.status, self.retry_after_s = failure.status, failure.retry_after_s
        self.may_repeat = not failure.is_final
        words = WORDS.get(http_status, "The agent refused the request")
        if http_status < HTTP_BAD:
            words = "The agent redirects elsewhere; redirects are not followed"
        elif failure.status is CallStatus.RATE_LIMITED:
            words = "The agent wants a pause"
        elif failure.status is CallStatus.SERVER_ERROR:
            words = "The agent failed"
        said = self.secrets.without(failure.said)[:MOST_SAID]
        said = f": {said}" if said else ""
        self.reason = f"{words} ({http_status}){said}"

    def _reply(self, text: str, content_type: str) -> AgentReply:
        """Return a reply without secrets, whether they stand in it as they are or as JSON spells them."""
        reply = reply_of(text, content_type)
        try:
            value, is_json = self.secrets.without_in(reply.json), reply.is_json
        except RecursionError:
            value, is_json = None, False
        return replace(reply, text=self.secrets.without(reply.text), json=value, is_json=is_json)

    def _without_secrets(self, reading: AgentReading) -> AgentReading:
        try:
            output = reading.output and self.secrets.without_in_output(reading.output)
        except RecursionError:
            return AgentReading(problem="the reply nests too deeply", usage=reading.usage)
        return replace(reading, output=output, problem=self.secrets.without(reading.problem))

    def _keep(self, reply: AgentReply, *, as_json: bool = True) -> None:
        """Keep what came back so that it reads the same again: an answer that is the whole text, as text."""
        form = {"json": reply.json} if reply.is_json and as_json else {"text": reply.text}
        self.reply = {"content_type": reply.content_type} | form

    def unreadable(self, error: UnreadableBodyError, http_status: int | None = None) -> None:
        """Note that the content could not be read, with the beginning of it."""
        self.http_status = http_status or self.http_status
        self.status, self.reason = CallStatus.UNREADABLE, str(error)
        beginning = self._reply(error.beginning[:MOST_READ].decode(errors="replace"), "")
        self.reply = {"cut": True, "text": beginning.text[:MOST_TEXT]}

    def timed_out(self) -> None:
        """Note that no answer came in time."""
        self.status = CallStatus.TIMEOUT
        self.reason = f"No answer within {self.request.timeout_s:g} s"

    def unreachable(self, error: Exception) -> None:
        """Note that no connection was made, or that it broke; only the first may be tried again."""
        refused = next(
            (one for one in _causes(error) if isinstance(one, RefusedAddressError)), None
        )
        if refused is not None:
            self.status, self.reason = CallStatus.REFUSED, str(refused)
            return
        said = self.secrets.without(str(error) or type(error).__name__)[:MOST_SAID]
        if isinstance(error, aiohttp.ClientResponseError):
            self.status, self.reason = CallStatus.UNREADABLE, f"the answer is not HTTP: {said}"
            return
        if isinstance(error, aiohttp.InvalidURL):
            self.status, self.reason = CallStatus.REFUSED, f"The address cannot be called: {said}"
            return
        self.status = CallStatus.CONNECTION
        is_unmade = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError)
        is_distrusted = isinstance(error, aiohttp.ClientSSLError)
        self.may_repeat = is_unmade and not is_distrusted
        did = "could not be reached" if is_unmade or is_distrusted else "broke the connection"
        self.reason = f"The agent {did}: {said}"

    def record(self) -> CallRecord:
        """Return the request as the ledger keeps it, now that it has ended; secrets stay out."""
        self.latency_ms = round((time.perf_counter() - self.began_s) * 1000)
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
    """Return a request as it may be kept and shown."""
    shown = {
        "method": request.method,
        "url": request.url,
        "headers": secrets.shown(request.headers),
        "body": request.body,
    }
    return {name: value for name, value in shown.items() if value not in (None, {})}


def body_of(request: AgentRequest) -> bytes | None:
    """Return the body as it travels."""
    return None if request.body is None else json.dumps(request.body).encode()


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        inner = getattr(error, "os_error", None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
    return found

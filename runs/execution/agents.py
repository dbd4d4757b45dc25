"""Ask agents at their endpoints: slots, tries within one time-out, and every try written down."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from evaluators.judging.calls import CallKey, CallRecord, Ledger
from evaluators.kinds._base import Output
from runs.execution.agent_addresses import CheckedResolver, check_host
from runs.execution.agent_bodies import UnreadableBodyError, read_body
from runs.execution.agent_tries import AgentTry, body_of, shown_request
from runs.execution.causes import CAUSES
from runs.execution.target_secrets import TargetSecrets
from runs.plan import Cause, content_hash
from runs.targets._base import AgentFailure, AgentReading, AgentReply, AgentRequest

CONNECT_S = 10.0
OWN_CALL = CallKey("target")
FIRST_WAIT_S = 0.5
SENT = {
    "User-Agent": "Evalsite",
    "Accept": "application/json, text/plain;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


class AgentClient:
    """Asks the endpoints of targets, each with slots of its own; serves one event loop, closed with `aclose`.

    No redirect is followed, no cookie kept, no proxy or password taken from the machine. Every
    request has a connection of its own: agents close idle ones just when the next request is sent,
    and a request that may have arrived is not repeated.
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
        """Return the output, from the ledger when the agent gave it before.

        `digest` takes the place of the request's hash where the request holds something random.

        Raises:
            AgentFailure: no try gave one. What the ledger's `admit` raises passes through.

        """
        digest = digest or content_hash(shown_request(request, secrets))
        earlier = ledger.recall(key, digest)
        if earlier is not None:
            return secrets.without_in_output(recalled(earlier, request))
        if secrets.problem:
            raise AgentFailure(secrets.problem, Cause.REFUSED)
        slots = self._slots.setdefault(target, asyncio.Semaphore(request.most_at_once))
        async with slots:
            ended, tries = await self._try_again(request, secrets, ledger, (target, key, digest))
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
        """Return how the last try ended, and how many there were within the time-out."""
        left_s, tries = request.timeout_s, 0
        clock = asyncio.get_running_loop().time
        while True:
            # How long that takes, while a database is away for instance, is not the agent's fault.
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
        ended = AgentTry(request, secrets, *facts)
        ledger.begin()
        try:
            async with asyncio.timeout(left_s):
                await self._send(ended)
        except aiohttp.ServerTimeoutError as error:
            ended.unreachable(error)
        except TimeoutError:
            ended.timed_out()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            ended.unreachable(error)
        finally:
            ledger.record(ended.record())
        return ended

    async def _send(self, ended: AgentTry) -> None:
        request = ended.request
        url = URL(request.url)
        check_host(url.host or "")
        content_type = {} if request.body is None else {"Content-Type": "application/json"}
        headers = {**content_type, **ended.secrets.sent(request.headers)}
        async with self._opened().request(
            request.method, url, data=body_of(request), headers=headers, allow_redirects=False
        ) as response:
            try:
                content = await read_body(response)
            except UnreadableBodyError as error:
                ended.unreadable(error, response.status)
            else:
                ended.answered(response.status, response.headers, content)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=CheckedResolver(self._resolver),
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


def recalled(record: CallRecord, request: AgentRequest) -> Output:
    """Return the output of an answer that the ledger holds; raises AgentFailure as it did then."""
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
    return 0.5 + random.random() / 2  # noqa: S311 - spreads retries; nothing secret hangs on it

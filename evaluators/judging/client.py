"""The transport: chat calls over HTTP, every try written down. The only importer of openai."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
from openai import APIConnectionError, APIStatusError, AsyncOpenAI, DefaultAioHttpClient

from evaluators.judging.answers import Failure, parse_body, read_failure
from evaluators.judging.calls import (
    CallRecord,
    CallStatus,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
    add_usage,
)
from evaluators.judging.limits import Limiter
from evaluators.judging.requests import chat_body, refuses_mode, request_hash, weaker_mode
from evaluators.judging.retries import Retries
from evaluators.judging.specs import ModelSpec
from evaluators.judging.tries import (
    Progress,
    Try,
    answered,
    finished,
    recalled,
    reply_of,
    timed_out,
    unreachable,
    without_key,
)

CONNECT_S = 10.0
MOST_CONNECTIONS = 1000
KEEP_ALIVE_S = 30.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Endpoint(AsyncOpenAI):
    """The library's client for one address and key, deaf to the library's own environment variables."""

    def __init__(self, **options: Any) -> None:
        """Open nothing yet."""
        super().__init__(**options)
        self._urls: dict[str, httpx2.URL] = {}

    @property
    def default_headers(self) -> dict[str, Any]:
        """Return what every request carries, and nothing that tells of this machine."""
        return {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": "Evalsite",
            **self.auth_headers,
        }

    def _validate_headers(self, headers: Any, custom_headers: Any) -> None:
        """Accept requests without a key: local servers need none."""

    def _build_request(self, options: Any, *, retries_taken: int = 0) -> httpx2.Request:
        # The library merges headers, parameters and URLs anew for every request, which is a
        # quarter of what a call costs; all of ours differ in body and trace headers alone.
        if options.url not in self._urls:
            self._urls[options.url] = self._prepare_url(options.url)
        timeout: httpx2.Timeout = options.timeout
        has_body = options.json_data is not None
        return httpx2.Request(
            options.method.upper(),
            self._urls[options.url],
            headers={**self.default_headers, **(options.headers or {})},
            content=json.dumps(options.json_data).encode() if has_body else None,
            extensions={"timeout": timeout.as_dict()},
        )


class ModelClient:
    """Calls models; one client serves one event loop and is closed with `aclose`.

    Remembers for each model which reply mode its server accepts.
    """

    def __init__(self, limiter: Limiter | None = None, retries: Retries | None = None) -> None:
        """Open nothing yet: connections are made by the first call."""
        self.limiter = limiter or Limiter()
        self._retries = retries or Retries()
        self._endpoints: dict[tuple[str, str], Endpoint] = {}
        self._modes: dict[tuple[str, str, str], str] = {}

    async def chat(self, spec: ModelSpec, call: ChatCall, ledger: Ledger) -> ChatReply:
        """Return the model's answer, from the ledger when it was given before.

        Waits for a slot, repeats what may pass (429 after its Retry-After, 5xx, no connection,
        time-outs) and records every try.

        Raises:
            ModelCallError: no try gave an answer. What the ledger's `admit` raises passes through.

        """
        digest = request_hash(spec, call)
        earlier = ledger.recall(call.key, digest)
        reply = recalled(earlier, call) if earlier is not None else None
        if reply is not None:
            return reply
        if spec.key_problem:
            raise ModelCallError(CallStatus.REFUSED, spec.key_problem)
        place = (spec.base_url, spec.model_id, spec.reply_mode)
        progress = Progress(self._modes.get(place, spec.reply_mode), digest)
        while True:
            ended = await self._try(spec, call, ledger, progress)
            if ended.answer is not None:
                if call.schema is not None:
                    self._modes[place] = progress.mode
                return reply_of(ended.answer, ended.record, progress)
            if ended.failure is not None:
                await self._after(ended.failure, spec, call, ended.started_at, progress)

    async def model_ids(self, spec: ModelSpec) -> list[str]:
        """Return the ids of the models the server offers, sorted; empty when it does not tell."""
        try:
            async with asyncio.timeout(spec.timeout_s):
                response = await self._endpoint(spec).get(
                    "/models",
                    cast_to=httpx2.Response,
                    options={"timeout": httpx2.Timeout(spec.timeout_s)},
                )
        except (APIConnectionError, APIStatusError, TimeoutError):
            return []
        body = parse_body(response.text)
        rows = body.get("data") if isinstance(body, Mapping) else None
        rows = rows if isinstance(rows, list) else []
        return sorted({str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id")})

    async def aclose(self) -> None:
        """Close every connection."""
        for endpoint in self._endpoints.values():
            await endpoint.close()
        self._endpoints.clear()

    async def _try(
        self, spec: ModelSpec, call: ChatCall, ledger: Ledger, progress: Progress
    ) -> Try:
        body = chat_body(spec, call, progress.mode)
        async with self.limiter.slot(spec) as started_at:
            await ledger.admit()
            progress.tries += 1
            draft = CallRecord(
                key=call.key,
                model=spec.slug,
                status=CallStatus.CONNECTION,
                request_hash=progress.digest,
                request=body,
                created_at=datetime.now(UTC),
                price_version=spec.price_version,
                try_number=progress.tries,
            )
            stopped = Failure(CallStatus.CONNECTION, "Stopped before the answer came")
            ended = Try(draft, failure=stopped)
            started = time.perf_counter()
            try:
                ended = await self._send(spec, call, draft)
            finally:
                latency_ms = round((time.perf_counter() - started) * 1000)
                ended.record = finished(ended, call, latency_ms)
                ended.started_at = started_at
                ledger.record(ended.record)
        if ended.answer is not None:
            self.limiter.succeeded(spec, started_at=ended.started_at)
        progress.usage = add_usage(progress.usage, ended.record.usage)
        return ended

    async def _send(self, spec: ModelSpec, call: ChatCall, draft: CallRecord) -> Try:
        timeout = httpx2.Timeout(spec.timeout_s, connect=min(CONNECT_S, spec.timeout_s))
        trace = call.trace if spec.send_trace_headers else None
        try:
            async with asyncio.timeout(spec.timeout_s):
                response = await self._endpoint(spec).post(
                    "/chat/completions",
                    body=draft.request,
                    cast_to=httpx2.Response,
                    options={"timeout": timeout, "headers": trace.as_headers() if trace else {}},
                )
        except APIStatusError as error:
            text = without_key(error.response.text, spec)
            failure = read_failure(error.status_code, error.response.headers, text)
            return Try(replace(draft, reply=parse_body(text)), failure=failure)
        except TimeoutError:
            return timed_out(draft, spec)
        except APIConnectionError as error:
            return unreachable(draft, error, spec)
        return answered(response.status_code, without_key(response.text, spec), draft, spec)

    async def _after(
        self,
        failure: Failure,
        spec: ModelSpec,
        call: ChatCall,
        started_at: float,
        progress: Progress,
    ) -> None:
        """Wait until the call may be tried again; raises ModelCallError when it may not."""
        weaker = weaker_mode(progress.mode) if call.schema is not None else None
        is_mode_refused = refuses_mode(failure.http_status, failure.said)
        if weaker is not None and is_mode_refused and not call.is_mode_fixed:
            progress.mode = weaker
            return
        progress.failed[failure.status] += 1
        times = in_all = progress.failed[failure.status]
        is_limited = failure.status is CallStatus.RATE_LIMITED
        if is_limited:
            # While the model answers others, a call that is refused has only come too early.
            times = self.limiter.refusals(spec, started_at=started_at)
        wait_s = self._retries.wait_s(failure, times, in_all=in_all)
        if is_limited:
            # The whole model pauses, this call with it: others would only be refused as well.
            self.limiter.rate_limited(spec, started_at=started_at, pause_s=wait_s or 0.0)
        if wait_s is None:
            raise progress.error(failure)
        if not is_limited:
            await asyncio.sleep(wait_s)

    def _endpoint(self, spec: ModelSpec) -> Endpoint:
        place = (spec.base_url, spec.api_key)
        if place not in self._endpoints:
            limits = httpx2.Limits(
                max_connections=MOST_CONNECTIONS,
                max_keepalive_connections=MOST_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
            )
            http = DefaultAioHttpClient(
                limits=limits,
                timeout=httpx2.Timeout(spec.timeout_s),
                # A redirect could lead a key, or a request from inside, where nobody meant it to go.
                follow_redirects=False,
                trust_env=urlsplit(spec.base_url).hostname not in LOOPBACK,
            )
            self._endpoints[place] = Endpoint(
                base_url=spec.base_url,
                api_key=spec.api_key,
                http_client=http,
                max_retries=0,
                _enforce_credentials=False,
            )
        return self._endpoints[place]

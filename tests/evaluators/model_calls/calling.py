"""Calls of the scriptable model server by a client, each on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from evaluators.model_calls.calls import (
    CallKey,
    CallRecord,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
)
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.limit_policy import Retries
from evaluators.model_calls.models import ModelSpec, Prices, TokenPrice
from evaluators.model_calls.rate_limits import Limiter
from tests.support.model_server import ModelServer

T = TypeVar("T")
KEY = CallKey("target")
SECRET = 'sk-very/secret"0123456789'
PRICES = Prices(
    TokenPrice(Decimal("2")), TokenPrice(Decimal("10")), TokenPrice(Decimal("1")), "own"
)
FAST = Retries(first_s=0.0, jitter=lambda: 0.0)


def make_spec(server: ModelServer, **changes: Any) -> ModelSpec:
    facts = {"slug": "mock", "base_url": server.base_url, "model_id": "mock", "prices": PRICES}
    return ModelSpec(**{**facts, "api_key": SECRET, "timeout_s": 20.0, **changes})


def call(text: str = "Hello", **changes: Any) -> ChatCall:
    return replace(ChatCall([{"role": "user", "content": text}], KEY), **changes)


def run(
    work: Callable[[ModelClient], Awaitable[T]],
    *,
    limiter: Limiter | None = None,
    retries: Retries = FAST,
) -> T:
    async def session() -> T:
        client = ModelClient(limiter, retries)
        try:
            return await work(client)
        finally:
            await client.aclose()

    return asyncio.run(session())


def ask(
    server: ModelServer, asked: ChatCall | None = None, **changes: Any
) -> tuple[ChatReply | ModelCallError, list[CallRecord]]:
    records: list[CallRecord] = []

    async def work(client: ModelClient) -> ChatReply | ModelCallError:
        try:
            spec = make_spec(server, **changes)
            return await client.chat(spec, asked or call(), Ledger(record=records.append))
        except ModelCallError as error:
            return error

    return run(work), records

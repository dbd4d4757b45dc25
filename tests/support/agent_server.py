"""A real HTTP server on loopback that answers like a team's agent and misbehaves on request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web


@dataclass(frozen=True)
class Asked:
    """What a client sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    raw: web.Request
    released: Callable[[], Awaitable[Any]]

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


Behaviour = Callable[[Asked], Awaitable[web.StreamResponse]]


def says(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answer with this JSON."""

    async def behave(asked: Asked) -> web.StreamResponse:
        return web.json_response(value, status=status, headers=headers)

    return behave


def sends(
    body: bytes,
    *,
    kind: str = "application/json",
    headers: Mapping[str, str] | None = None,
    status: int = 200,
) -> Behaviour:
    """Answer with these bytes."""

    async def behave(asked: Asked) -> web.StreamResponse:
        return web.Response(
            body=body, status=status, headers={"Content-Type": kind, **(headers or {})}
        )

    return behave


def refuses(status: int, *, retry_after: str | None = None) -> Behaviour:
    """Refuse with this HTTP status."""
    headers = {"Retry-After": retry_after} if retry_after is not None else None
    return says({"error": "no room"}, status=status, headers=headers)


def echoes() -> Behaviour:
    """Answer with what was sent, headers included."""

    async def behave(asked: Asked) -> web.StreamResponse:
        return web.json_response({"output": json.dumps(dict(asked.headers))})

    return behave


def hangs() -> Behaviour:
    """Never answer, until the server ends."""

    async def behave(asked: Asked) -> web.StreamResponse:
        await asked.released()
        return web.json_response({"output": "late"})

    return behave


def drops() -> Behaviour:
    """Close the connection without an answer."""

    async def behave(asked: Asked) -> web.StreamResponse:
        assert asked.raw.transport is not None
        asked.raw.transport.abort()
        return web.Response()

    return behave


def never_ends(packed: bytes = b"") -> Behaviour:
    """Send until the client disconnects, after a packed part if there is one."""

    async def behave(asked: Asked) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Encoding": "gzip"} if packed else None)
        await response.prepare(asked.raw)
        await response.write(packed)
        while True:
            await response.write(b"x" * 65536)

    return behave


@dataclass
class AgentServer:
    """The running server, seen from a test."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    _queue: deque[Behaviour] = field(default_factory=deque)
    _always: Behaviour = field(default_factory=lambda: says({"output": "Take it back."}))
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _loop: asyncio.AbstractEventLoop | None = None
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def behave(self, *queue: Behaviour, then: Behaviour | None = None) -> None:
        """Set the behaviour of the next requests, one each, and `then` of all later ones."""
        self._queue = deque(queue)
        if then is not None:
            self._always = then

    def wait_for(self, count: int, seconds: float = 10) -> None:
        """Block until this many requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.asked) >= count, seconds)

    def release(self) -> None:
        """Let hanging requests continue."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._released.set)

    async def answer(self, raw: web.Request) -> web.StreamResponse:
        """Answer one request with the set behaviour."""
        asked = Asked(
            raw.method, raw.path_qs, raw.headers.copy(), await raw.read(), raw, self._released.wait
        )
        with self._arrived:
            self.asked.append(asked)
            self._arrived.notify_all()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            behaviour = self._queue.popleft() if self._queue else self._always
            return await behaviour(asked)
        finally:
            self.in_flight -= 1

    async def serve(self, is_up: threading.Event, stop: asyncio.Event) -> None:
        """Serve on a free port until stopped."""
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/ask"
        is_up.set()
        await stop.wait()
        self._released.set()
        await runner.cleanup()

    def end(self, stop: asyncio.Event) -> None:
        """Stop serving."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(stop.set)


def serving() -> Iterator[AgentServer]:
    """Run a server in a thread of its own for as long as it is needed."""
    server, is_up, stop = AgentServer(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(is_up, stop)), daemon=True)
    thread.start()
    assert is_up.wait(10), "the agent server did not start"
    yield server
    server.end(stop)
    thread.join(10)


@pytest.fixture
def agent_server() -> Iterator[AgentServer]:
    """Give a fresh scriptable agent."""
    yield from serving()

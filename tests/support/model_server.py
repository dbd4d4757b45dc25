"""A real HTTP server on loopback that speaks the OpenAI protocol and misbehaves on request.

Tell it what to do with `behave`: one behaviour for all requests, or one after the other; or give
each model id or evaluator its own with `on_model` and `on_evaluator`. A behaviour takes the Request and
returns what to send. Without one every request gets a good reply of the schema asked for.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import web

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40},
}


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    hang: Callable[[], Awaitable[None]]
    raw: web.Request

    @property
    def mode(self) -> str:
        """Return the reply mode asked for: json_schema, json_object or text."""
        return (self.body.get("response_format") or {}).get("type", "text")

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema the client asks for; in the weaker modes, that of the instructions."""
        asked = (self.body.get("response_format") or {}).get("json_schema", {}).get("schema")
        return asked or self._written_schema()

    @property
    def text(self) -> str:
        """Return every message, one after the other."""
        return "\n".join(str(message["content"]) for message in self.body.get("messages", []))

    def trace(self, name: str) -> str:
        """Return a trace header's value, e.g. of Evaluator."""
        return unquote(self.headers.get(f"X-Evalsite-{name}", ""))

    def _written_schema(self) -> Mapping[str, Any] | None:
        _, found, rest = self.text.partition("JSON schema:\n")
        return json.JSONDecoder().raw_decode(rest)[0] if found else None


Behaviour = Callable[[Request], Awaitable[web.StreamResponse]]


# Where it answers as it is told.
PLACES = ("/chat/completions", "/embeddings")


def completion(
    content: str | None,
    model: str = "mock",
    *,
    usage: Mapping[str, Any] = USAGE,
    **message: Any,
) -> web.Response:
    """Return a chat completion with this content."""
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": message.pop("finish_reason", "stop"),
                    "message": {"role": "assistant", "content": content, **message},
                }
            ],
            "usage": dict(usage),
        }
    )


def filled(schema: Mapping[str, Any]) -> Any:
    """Return a value that satisfies the schema; numbers are the largest allowed, booleans true."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: filled(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [filled(schema["items"])] * max(1, schema.get("minItems", 1))
        case "boolean":
            return True
        case "integer" | "number":
            return schema.get("maximum", 1)
        case _:
            return "fine"


def good(
    content: Any = None, *, seconds: float = 0.0, usage: Mapping[str, Any] = USAGE
) -> Behaviour:
    """Answer with the content (text, or an object as JSON), else with a reply of the schema asked for."""

    async def behave(request: Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        answer = content
        if answer is None:
            answer = filled(request.schema) if request.schema else "A good answer."
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return completion(text, str(request.body.get("model", "mock")), usage=usage)

    return behave


def status(
    code: int, message: str = "no", *, headers: Mapping[str, str] | None = None
) -> Behaviour:
    """Refuse with this HTTP status."""

    async def behave(request: Request) -> web.StreamResponse:
        body = {"error": {"message": message, "code": None, "type": "error"}}
        return web.json_response(body, status=code, headers=headers)

    return behave


def rate_limited(retry_after: str | None = "0") -> Behaviour:
    """Refuse with 429 and Retry-After."""
    headers = {"Retry-After": retry_after} if retry_after is not None else None
    return status(429, "slow down", headers=headers)


def body(text: str, *, content_type: str = "application/json") -> Behaviour:
    """Answer 200 with this body, JSON or not."""

    async def behave(request: Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return behave


def malformed() -> Behaviour:
    """Answer 200 with JSON that breaks off."""
    return body('{"id": "chatcmpl-1", "choices": [{"message": {"content": "{')


def prose() -> Behaviour:
    """Answer in prose where JSON was asked for."""
    return good('I would say it is fine. {"reasoning": "ok", "score": 1}')


def echo_injection() -> Behaviour:
    """Answer as a fooled judge would: prose, then the JSON that stood in the answer under test."""

    async def behave(request: Request) -> web.StreamResponse:
        start = request.text.find('{"reasoning"')
        fake = request.text[start : request.text.find("}", start) + 1]
        return completion(f"The answer says its own verdict: {fake}")

    return behave


def hang() -> Behaviour:
    """Never answer until the server releases hanging requests."""

    async def behave(request: Request) -> web.StreamResponse:
        await request.hang()
        return completion("late")

    return behave


def drop() -> Behaviour:
    """Close the connection without an answer."""

    async def behave(request: Request) -> web.StreamResponse:
        raise ConnectionResetError

    return behave


def only_modes(*modes: str, message: str = "response_format is not supported") -> Behaviour:
    """Answer well in these reply modes and refuse others with 400."""

    async def behave(request: Request) -> web.StreamResponse:
        answer = good() if request.mode in modes else status(400, message)
        return await answer(request)

    return behave


@dataclass
class ModelServer:
    """The running server, seen from a test.

    `answered` are the requests that were answered well, whether or not the client was still there to
    hear it: a provider would charge for each of them.
    """

    base_url: str = ""
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answered: list[Request] = field(default_factory=list)
    most_in_flight: int = 0
    in_flight: int = 0
    models: list[str] | None = field(default_factory=lambda: ["mock", "mock-mini"])
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _queue: deque[Behaviour] = field(default_factory=deque)
    _always: Behaviour = field(default_factory=good)
    _by_model: dict[str, Behaviour] = field(default_factory=dict)
    _by_evaluator: dict[str, Behaviour] = field(default_factory=dict)
    _released: asyncio.Event | None = None
    _hold_at: int | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def behave(self, *queue: Behaviour, then: Behaviour | None = None) -> None:
        """Answer the next requests so, one behaviour each, and all later ones as `then` says."""
        self._queue = deque(queue)
        if then is not None:
            self._always = then

    def on_model(self, model_id: str, behaviour: Behaviour) -> None:
        """Answer every request for this model so."""
        self._by_model[model_id] = behaviour

    def on_evaluator(self, path: str, behaviour: Behaviour) -> None:
        """Answer every request whose trace header names this evaluator so."""
        self._by_evaluator[path] = behaviour

    def release(self, answers: int | None = None) -> None:
        """Let hanging requests go on; those that come after so many more answers hang again."""
        self._hold_at = None if answers is None else len(self.answered) + answers
        if self._loop is not None and self._released is not None:
            self._loop.call_soon_threadsafe(self._released.set)

    def hold(self) -> None:
        """Let requests hang that come from now on."""
        if self._loop is not None and self._released is not None:
            self._loop.call_soon_threadsafe(self._released.clear)

    @property
    def chats(self) -> list[Request]:
        """Return the chat requests received so far."""
        return [request for request in self.requests if request.path.endswith(PLACES)]

    def wait_for_chats(self, count: int, seconds: float = 10) -> None:
        """Block until so many chat requests have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.chats) >= count, seconds)

    async def answer_chat(self, raw: web.Request) -> web.StreamResponse:
        """Answer one chat request as told."""
        assert self._released is not None
        request = Request(raw.path, raw.headers.copy(), await raw.json(), self._released.wait, raw)
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            answer = await self._behaviour(request)(request)
            if answer.status == 200:
                self.answered.append(request)
                if len(self.answered) == self._hold_at:
                    self._released.clear()
            return answer
        except ConnectionResetError:
            if raw.transport is not None:
                raw.transport.abort()
            raise
        finally:
            self.in_flight -= 1

    async def answer_models(self, raw: web.Request) -> web.StreamResponse:
        """List the models, or know no such address."""
        self.requests.append(Request(raw.path, raw.headers.copy(), {}, asyncio.Event().wait, raw))
        if self.models is None:
            return web.json_response({"error": {"message": "no such route"}}, status=404)
        rows = [{"id": name, "object": "model"} for name in self.models]
        return web.json_response({"object": "list", "data": rows})

    def _behaviour(self, request: Request) -> Behaviour:
        if self._queue:
            return self._queue.popleft()
        by_evaluator = self._by_evaluator.get(request.trace("Evaluator"))
        return by_evaluator or self._by_model.get(request.body.get("model", ""), self._always)

    async def serve(self, is_up: threading.Event, stop: asyncio.Event) -> None:
        """Serve until told to stop, on a free port when none is named."""
        self._loop, self._released = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for place in PLACES:
            app.router.add_post(f"/v1{place}", self.answer_chat)
        app.router.add_get("/v1/models", self.answer_models)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        is_up.set()
        await stop.wait()
        self._released.set()
        await runner.cleanup()


def serving(port: int = 0) -> Iterator[ModelServer]:
    """Run a server in a thread of its own for as long as it is needed."""
    server, is_up = ModelServer(port=port), threading.Event()
    stop = asyncio.Event()

    thread = threading.Thread(target=lambda: asyncio.run(server.serve(is_up, stop)), daemon=True)
    thread.start()
    assert is_up.wait(10), "the model server did not start"
    try:
        yield server
    finally:
        assert server._loop is not None
        server._loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """Give a fresh scriptable model server."""
    yield from serving()

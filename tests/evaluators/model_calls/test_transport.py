"""How requests leave this machine: straight or by a proxy, and how answers are read whatever their form."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from evaluators.model_calls import client
from evaluators.model_calls.calls import (
    OWN_CALL,
    CallKey,
    ChatCall,
    ChatReply,
    Ledger,
    ModelCallError,
)
from evaluators.model_calls.client import ModelClient
from evaluators.model_calls.models import ModelSpec
from tests.services.processes import wait_until
from tests.support.model_server import ModelServer, Request, completion, good

KEY = "sk-of-ours"
ELSEWHERE = "http://models.example.invalid/v1"


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def ask(base_url: str, *, key: CallKey = OWN_CALL, **changes: Any) -> ChatReply:
    spec = ModelSpec("mock", base_url, "mock", **{"api_key": KEY, "timeout_s": 20.0, **changes})
    call = ChatCall([{"role": "user", "content": "Hello"}], key)

    async def session() -> ChatReply:
        client = ModelClient()
        try:
            return await client.chat(spec, call, Ledger())
        finally:
            await client.aclose()

    return asyncio.run(session())


def models(base_url: str, **changes: Any) -> list[str]:
    spec = ModelSpec("mock", base_url, "mock", **{"api_key": KEY, "timeout_s": 20.0, **changes})

    async def session() -> list[str]:
        client = ModelClient()
        try:
            return await client.model_ids(spec)
        finally:
            await client.aclose()

    return asyncio.run(session())


def said_in(
    encoding: str, *, headers: Mapping[str, str] | None = None, zipped: bool = False
) -> Any:
    async def behave(request: Request) -> web.StreamResponse:
        content = (completion("Grüße").text or "").replace("\\u00fc", "ü").replace("\\u00df", "ß")
        body = content.encode(encoding)
        kind = {"Content-Type": "application/json", **(headers or {})}
        return web.Response(body=gzip.compress(body) if zipped else body, headers=kind)

    return behave


@pytest.mark.parametrize(
    ("encoding", "content_type"),
    [
        ("utf-8", "application/json"),
        ("utf-8", "application/json; charset=UTF-8"),
        ("latin-1", 'application/json; charset="iso-8859-1"'),
        ("utf-8", "application/json; charset=nobody-knows"),
        ("utf-8", "application/json; charset=iso-8859-99"),
        ("utf-8", "application/json; charset=undefined"),
        ("utf-8", "application/json; charset=punycode"),
        ("utf-8", f"application/json; charset*{'9' * 5000}*=x"),
    ],
)
def test_an_answer_is_read_in_its_encoding(
    model_server: ModelServer, encoding: str, content_type: str
) -> None:
    model_server.behave(said_in(encoding, headers={"Content-Type": content_type}))

    assert ask(model_server.base_url).text == "Grüße"


def test_a_compressed_answer_is_read(model_server: ModelServer) -> None:
    model_server.behave(said_in("utf-8", headers={"Content-Encoding": "gzip"}, zipped=True))

    assert ask(model_server.base_url).text == "Grüße"
    assert "gzip" in model_server.chats[0].headers["Accept-Encoding"]


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_endless_answer_is_cut_off_and_not_asked_for_again(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, is_packed: bool, status: int
) -> None:
    monkeypatch.setattr(client, "MAX_MODEL_REPLY_BYTES", 1024 * 1024)
    packer = zlib.compressobj(wbits=31)

    def packed(piece: bytes) -> bytes:
        return packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH)

    async def never_end(request: Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=status)
        if is_packed:
            answer.headers["Content-Encoding"] = "gzip"
        await answer.prepare(request.raw)
        while True:
            piece = b" " * 64 * 1024
            await answer.write(packed(piece) if is_packed else piece)
            await asyncio.sleep(0)

    model_server.behave(then=never_end)
    with pytest.raises(ModelCallError, match="the answer has more than 1 MB and was cut off"):
        ask(model_server.base_url)
    assert len(model_server.chats) == 1
    wait_until(lambda: model_server.in_flight == 0)


def test_a_judge_may_reply_with_less_than_a_target(model_server: ModelServer) -> None:
    model_server.behave(then=good("x" * 3_000_000))
    assert len(ask(model_server.base_url).text) == 3_000_000
    with pytest.raises(ModelCallError, match="the answer has more than 2 MB and was cut off"):
        ask(model_server.base_url, key=CallKey("evaluation"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (200, r"the answer is too large: it contains more than 250,000 values$"),
        (401, r"does not accept the key \(401\)"),
    ],
)
def test_an_answer_of_too_many_values_is_not_read_and_not_asked_for_again(
    model_server: ModelServer, status: int, words: str
) -> None:
    async def answer(request: Request) -> web.StreamResponse:
        body = b'{"choices": [{"message": {"content": "Yes."}}], "more": [%b1]}' % (b"1," * 250_000)
        return web.Response(body=body, status=status, content_type="application/json")

    model_server.behave(then=answer)
    with pytest.raises(ModelCallError, match=words):
        ask(model_server.base_url)
    assert len(model_server.chats) == 1


@pytest.mark.parametrize("status", [200, 500])
def test_what_follows_a_packed_answer_without_end_is_not_read(
    model_server: ModelServer, status: int
) -> None:
    async def go_on(request: Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=status, headers={"Content-Encoding": "gzip"})
        await answer.prepare(request.raw)
        await answer.write(gzip.compress(b"{}"))
        while True:
            await answer.write(b"x" * 1024)
            await asyncio.sleep(0)

    model_server.behave(then=go_on)
    with pytest.raises(ModelCallError, match="it is not one whole file"):
        ask(model_server.base_url)
    assert len(model_server.chats) == 1
    wait_until(lambda: model_server.in_flight == 0)


@pytest.mark.parametrize(
    "head",
    [b"OK\r\nContent-Length: -5", b"OK\r\n" + b"X: 1\r\n" * 200, b"\xff\xfe"],
    ids=["length", "headers", "reason"],
)
def test_an_answer_that_is_not_http_is_recorded_and_not_asked_for_again(
    model_server: ModelServer, head: bytes
) -> None:
    async def answer(request: Request) -> web.StreamResponse:
        request.raw.transport.write(b"HTTP/1.1 200 " + head + b"\r\n\r\n")
        return web.Response()

    model_server.behave(then=answer)
    with pytest.raises(ModelCallError, match="the answer is not HTTP"):
        ask(model_server.base_url)
    assert len(model_server.chats) == 1


def test_requests_tell_nothing_of_this_machine(model_server: ModelServer) -> None:
    ask(model_server.base_url)
    models(model_server.base_url)

    for request in model_server.requests:
        assert request.headers["User-Agent"] == "Evalsite"
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        about_us = {f"X-Stainless-{what}" for what in ("OS", "Arch", "Runtime", "Package-Version")}
        assert not about_us & set(request.headers)


def test_the_models_of_a_server_without_keys_are_listed(model_server: ModelServer) -> None:
    assert models(model_server.base_url, api_key="") == ["mock", "mock-mini"]
    assert "Authorization" not in model_server.requests[0].headers


def test_a_proxy_of_the_environment_is_used(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", model_server.base_url.removesuffix("/v1"))

    assert ask(ELSEWHERE).text == "A good answer."
    assert models(ELSEWHERE) == ["mock", "mock-mini"]
    assert {request.headers["Host"] for request in model_server.requests} == {
        "models.example.invalid"
    }


@pytest.mark.parametrize("excepted", ["127.0.0.1", ""])
def test_this_machine_is_never_asked_through_a_proxy(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", excepted)

    assert ask(model_server.base_url).text == "A good answer."


def test_passwords_of_the_user_s_own_file_are_not_sent(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passwords = tmp_path / "netrc"
    passwords.write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(passwords))

    ask(model_server.base_url)

    assert model_server.chats[0].headers["Authorization"] == f"Bearer {KEY}"


def test_cookies_are_not_kept(model_server: ModelServer) -> None:
    async def behave(request: Request) -> web.StreamResponse:
        answer = completion("done")
        answer.set_cookie("session", "of-another-run")
        return answer

    model_server.behave(then=behave)
    spec = ModelSpec("mock", model_server.base_url, "mock", timeout_s=20.0)
    call = ChatCall([{"role": "user", "content": "Hello"}], OWN_CALL)

    async def twice() -> None:
        client = ModelClient()
        await client.chat(spec, call, Ledger())
        await client.chat(spec, call, Ledger())
        await client.aclose()

    asyncio.run(twice())

    assert not [request for request in model_server.chats if "Cookie" in request.headers]


def test_a_name_that_leads_to_a_metadata_service_is_not_called(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port_and_path = model_server.base_url.rsplit(":", 1)[1]
    addresses = ["127.0.0.1", "169.254.169.254"]

    class Names(ThreadedResolver):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
            found = await super().resolve("127.0.0.1", port, family)
            return [{**found[0], "host": addresses.pop(0)}]

    monkeypatch.setattr("evaluators.model_calls.resolver.ThreadedResolver", Names)

    assert models(f"http://models.example.invalid:{port_and_path}") == ["mock", "mock-mini"]
    assert models(f"http://models.example.invalid:{port_and_path}") == []
    assert addresses == []
    assert len(model_server.requests) == 1

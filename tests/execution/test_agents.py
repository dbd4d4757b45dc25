"""Agents behind an address: what is sent, what is tried again, and the class of every failure."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from evaluators.kinds._base import Output
from evaluators.model_calls.bodies import MAX_REPLY_BYTES
from evaluators.model_calls.calls import CallKey, Ledger
from runs.engine.ports import Cause, TargetFailure
from tests.support.agent_calls import SECRET, Asking
from tests.support.agent_server import (
    AgentServer,
    Behaviour,
    drops,
    hangs,
    never_ends,
    refuses,
    says,
    sends,
)


def test_the_case_travels_and_nothing_that_is_expected(agent_server: AgentServer) -> None:
    asking = Asking(
        agent_server.url,
        body={"q": "{{input}}", "turns": "{{messages}}"},
        headers=[{"name": "X-Team", "value": "blue"}, {"name": "Authorization", "secret": True}],
    )
    output = asking.once()
    assert output.text == "Take it back."
    assert output.usage.latency_ms >= 0
    (asked,) = agent_server.asked
    assert (asked.method, asked.path) == ("POST", "/ask")
    assert asked.json == {
        "q": "Where is it?",
        "turns": [{"role": "user", "content": "Where is it?"}],
    }
    assert asked.headers["Authorization"] == SECRET
    assert asked.headers["X-Team"] == "blue"
    assert asked.headers["User-Agent"] == "Evalsite"
    assert "HIDDEN" not in str(asked)


def test_get_sends_no_body(agent_server: AgentServer) -> None:
    asking = Asking(f"{agent_server.url}?q={{{{input}}}}", method="GET")
    assert asking.once().text == "Take it back."
    (asked,) = agent_server.asked
    assert (asked.method, asked.raw.path, asked.body) == ("GET", "/ask", b"")
    assert dict(asked.raw.query) == {"q": "Where is it?"}


BIG = "ü" * (5 * 1024 * 1024 // 2)
LATIN = "Grüße".encode("latin-1")


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (says({"output": BIG}), BIG),
        (sends(gzip.compress(b'{"output": "packed"}'), headers={"Content-Encoding": "gzip"}), "packed"),
        (sends(zlib.compress(b'{"output": "zip"}'), headers={"Content-Encoding": "deflate"}), "zip"),
        (
            sends(zlib.compress(b'{"output": "raw"}')[2:-4], headers={"Content-Encoding": "deflate"}),
            "raw",
        ),
        (sends(b'{"output": "' + LATIN + b'"}', kind="application/json; charset=latin-1"), "Grüße"),
        (sends(b'\xef\xbb\xbf{"output": "marked"}'), "marked"),
        (sends(b'{"output": "as html"}', kind="text/html"), "as html"),
        (sends(b'{"output": "a\\u0000b\\ud800"}'), "a\ufffdb\ufffd"),
    ],
    ids=["5 MB", "gzip", "zlib", "deflate", "latin-1", "marked", "wrong type", "unstorable"],
)  # fmt: skip
def test_odd_but_readable_replies_are_read(
    agent_server: AgentServer, behaviour: Behaviour, text: str
) -> None:
    agent_server.behave(then=behaviour)
    assert Asking(agent_server.url).once().text == text


FAILURES = (
    *(
        "hangs",
        "401",
        "404",
        "418",
        "302",
        "429",
        "429 for long",
        "503",
        "drops",
        "endless",
        "bomb",
        "packed for ever",
        "names for ever",
    ),
    *(
        "no gzip",
        "cut gzip",
        "two gzips",
        "br",
        "no UTF-8",
        "punycode",
        "no charset",
        "HTML",
        "nothing",
        "NaN",
        "infinite",
        "deep",
        "too many values",
        "astray",
    ),
)
CUT = gzip.compress(b'{"output": "Yes."}')[:-8]
BOMB = gzip.compress(b"0" * (MAX_REPLY_BYTES * 8))
# The beginning of a gzip file with the name of a file in it, which ends with a zero byte.
NAMED = b"\x1f\x8b\x08\x08" + bytes(6)
DEEP = b'{"output": ' + b"[" * 100_000
MANY = b'{"output": "Yes.", "more": [' + b"1," * 250_000 + b"1]}"


@pytest.mark.parametrize(
    ("behaviour", "cause", "words", "tries"),
    [
        (hangs(), Cause.TIMEOUT, "No answer within 1 s", 1),
        (refuses(401), Cause.REFUSED, "does not accept the credentials (401): no room", 1),
        (refuses(404), Cause.REFUSED, "nothing at this address (404)", 1),
        (refuses(418), Cause.REFUSED, "refused the request (418)", 1),
        (
            says({}, status=302, headers={"Location": "http://169.254.169.254/"}),
            *(Cause.REFUSED, "redirects are not followed (302)", 1),
        ),
        (refuses(429, retry_after="0"), Cause.RATE_LIMITED, "(429): no room, after 2 tries", 2),
        (refuses(429, retry_after="60"), Cause.RATE_LIMITED, "asks for a pause (429)", 1),
        (refuses(503, retry_after="0"), Cause.SERVER_ERROR, "failed (503): no room, after 2", 2),
        (drops(), Cause.CONNECTION, "broke the connection", 1),
        (never_ends(), Cause.BAD_REPLY, "more than 16 MB and was cut off", 1),
        (
            sends(BOMB, headers={"Content-Encoding": "gzip"}),
            *(Cause.BAD_REPLY, "more than 16 MB", 1),
        ),
        (never_ends(gzip.compress(b"{}")), Cause.BAD_REPLY, "it is not one whole file", 1),
        (never_ends(NAMED), Cause.BAD_REPLY, "more than 16 MB", 1),
        (
            sends(b"no gzip", headers={"Content-Encoding": "gzip"}),
            *(Cause.BAD_REPLY, "not packed well", 1),
        ),
        (
            sends(CUT, headers={"Content-Encoding": "gzip"}),
            *(Cause.BAD_REPLY, "it is not one whole file", 1),
        ),
        (
            sends(
                gzip.compress(b'{"output": 1}') + gzip.compress(b"}"),
                headers={"Content-Encoding": "gzip"},
            ),
            *(Cause.BAD_REPLY, "it is not one whole file", 1),
        ),
        (
            sends(b"x", headers={"Content-Encoding": "br"}),
            *(Cause.BAD_REPLY, "compressed as 'br'", 1),
        ),
        (sends(b'{"output": "\xff\xfe"}'), Cause.BAD_REPLY, "byte 13 cannot be read", 1),
        (sends(b"x", kind="text/plain; charset=punycode"), Cause.BAD_REPLY, "writes in 'puny", 1),
        (
            sends(b"x", kind="text/plain; charset=iso-8859-99"),
            *(Cause.BAD_REPLY, "writes in 'iso", 1),
        ),
        (sends(b"<h1>Hi</h1>", kind="text/html"), Cause.BAD_REPLY, "sent text/html, not JSON", 1),
        (sends(b""), Cause.BAD_REPLY, "not JSON", 1),
        (sends(b'{"output": NaN}'), Cause.BAD_REPLY, "not JSON", 1),
        (sends(b'{"output": 1e999}'), Cause.BAD_REPLY, "not JSON", 1),
        (sends(DEEP), Cause.BAD_REPLY, "not JSON", 1),
        (sends(MANY), Cause.BAD_REPLY, "too large: it contains more than 250,000 values", 1),
        (says({"text": "Hi"}), Cause.BAD_REPLY, "output, path output: the reply is an object", 1),
    ],
    ids=FAILURES,
)
def test_every_failure_has_a_class_and_is_kept(
    agent_server: AgentServer, behaviour: Behaviour, cause: Cause, words: str, tries: int
) -> None:
    agent_server.behave(then=behaviour)
    seconds = 1 if cause is Cause.TIMEOUT else 5
    asking = Asking(agent_server.url, timeout_s=seconds, tries=2)
    failure = asking.once()
    assert isinstance(failure, TargetFailure)
    assert failure.cause is cause
    assert words in failure.reason
    assert len(asking.records) == len(agent_server.asked) == tries
    json.dumps(asking.records[-1].reply, allow_nan=False).encode()
    answered = cause not in (Cause.TIMEOUT, Cause.CONNECTION)
    assert (asking.records[-1].reply is not None) == answered


def test_as_a_judge_it_may_reply_with_less(agent_server: AgentServer) -> None:
    agent_server.behave(then=says({"output": "x" * 3_000_000}))
    assert len(Asking(agent_server.url).once().text) == 3_000_000
    failure = Asking(agent_server.url, key=CallKey("evaluation")).once()
    assert "more than 2 MB and was cut off" in failure.reason


def test_a_server_that_recovers_is_asked_again_after_its_pause(agent_server: AgentServer) -> None:
    agent_server.behave(refuses(429, retry_after="0.01"), refuses(500), says({"output": "Back."}))
    asking = Asking(agent_server.url)
    assert asking.once().text == "Back."
    assert [record.status for record in asking.records] == ["rate_limited", "server_error", "ok"]


def test_what_may_have_arrived_is_not_sent_twice(agent_server: AgentServer) -> None:
    agent_server.behave(drops())
    assert Asking(agent_server.url).once().cause is Cause.CONNECTION
    assert len(agent_server.asked) == 1


def test_a_port_without_a_server_is_no_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        asking = Asking(url, tries=2)
        failure = asking.once()
    assert failure.cause is Cause.CONNECTION
    assert "could not be reached" in failure.reason
    assert len(asking.records) == 2


def test_no_more_requests_are_in_flight_than_the_target_allows(agent_server: AgentServer) -> None:
    two = asyncio.Barrier(2)

    async def in_pairs(request: Any) -> Any:
        await two.wait()
        return await says({"output": "ok"})(request)

    agent_server.behave(then=in_pairs)
    outputs = Asking(agent_server.url, concurrency=2).ask(8)
    assert [output.text for output in outputs if isinstance(output, Output)] == ["ok"] * 8
    assert agent_server.most_in_flight == 2


@pytest.mark.parametrize(
    "behaviour",
    [
        says({"output": "Once.", "cost": 0.5}),
        says({"nothing": 1}),
        sends(b'{"output": "\xff"}'),
    ],
    ids=["answer", "astray", "no UTF-8"],
)
def test_a_recorded_answer_is_not_asked_for_again(
    agent_server: AgentServer, behaviour: Behaviour
) -> None:
    agent_server.behave(then=behaviour)
    asking = Asking(agent_server.url, cost_path="cost")
    first = asking.once()
    asking.earlier = asking.records[0]
    asking.begun, asking.records = 0, []
    again = asking.once()
    assert again == first
    assert len(agent_server.asked) == 1
    assert asking.records == []


def test_a_plain_text_answer_reads_the_same_from_the_ledger(agent_server: AgentServer) -> None:
    agent_server.behave(then=sends(b'{ "a":  1 }'))
    asking = Asking(agent_server.url, output_path="")
    first = asking.once()
    asking.earlier = asking.records[0]
    asking.begun, asking.records = 0, []
    assert asking.once().text == first.text == '{ "a":  1 }'


def test_what_admission_raises_passes_through_and_nothing_is_sent(
    agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedError(Exception):
        pass

    async def refuse() -> None:
        raise StoppedError

    asking = Asking(agent_server.url)
    original: Callable[..., Ledger] = Ledger
    monkeypatch.setattr(
        "tests.support.agent_calls.Ledger",
        lambda **ports: original(**ports, admit=refuse),
    )
    with pytest.raises(ExceptionGroup) as raised:
        asking.once()
    assert raised.group_contains(StoppedError)
    assert agent_server.asked == []

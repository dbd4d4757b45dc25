"""Requests on their way from the event loop to the threads that answer them, and back."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client

from evalsite import serving
from evalsite.serving import (
    MAX_ANSWERED,
    MAX_STREAMS,
    MAX_STREAMS_EACH,
    MEMBER,
    Connection,
    RequestCounter,
    WholeRequests,
)
from runs.waiting import ASKED_AGAIN, HEADER
from tests.api.site import token_of
from tests.services.disk import full_disk
from tests.support.factories import make_user

FILE, STORED, PAGE, FORM, ERROR = "/results.jsonl", "/plotly.js", "/", "/form", "/error"
IMPORT, SLOW = "/import", "/slow"
UNCHANGED = "/app.css"
LARGE = serving.SMALL_BODY_BYTES + 1


class Download:
    """An answer that is made while it is sent, and takes as long as the test wants."""

    streaming = True

    def __init__(self, is_made: threading.Event) -> None:
        self.is_made, self.is_closed = is_made, threading.Event()
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(2):
            self.threads.add(threading.get_ident())
            self.is_made.wait()
            yield b"r" * serving.PIECE_BYTES

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed.set()


class Disk:
    """A file on a disk that answers when the test wants, and how many pieces are being read."""

    def __init__(self, is_ready: threading.Event) -> None:
        self.is_ready = is_ready
        self.reads: list[int] = []
        self.left = [b"f" * serving.PIECE_BYTES]

    def read(self, size: int) -> bytes:
        self.reads.append(size)
        self.is_ready.wait()
        return self.left.pop() if self.left else b""

    def close(self) -> None:
        self.left = []


class BrokenError(Exception):
    """An error of the application."""


class Site:
    """An application with a page, a form and files, and what it was asked."""

    def __init__(self) -> None:
        self.is_made = threading.Event()
        self.downloads: list[Download] = []
        self.disks: list[Disk] = []
        self.environ: dict[str, Any] = {}
        self.body = b""
        self.imports = self.slow = 0
        self.may_end = threading.Semaphore(0)
        self.requests = RequestCounter()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        is_unchanged = environ["PATH_INFO"] == UNCHANGED
        status = "304 Not Modified" if is_unchanged else "200 OK"
        start_response(status, [("Content-Type", "text/plain")])
        self.environ = environ
        environ[MEMBER] = dict(parse_qsl(environ["QUERY_STRING"])).get("as")
        if environ["PATH_INFO"] == IMPORT:
            self.imports += 1
            self.is_made.wait()
        if environ["PATH_INFO"] == SLOW:
            self.slow += 1
            self.may_end.acquire()
            return [b"a slow page"]
        if environ["PATH_INFO"] == ERROR:
            raise BrokenError
        if environ["PATH_INFO"] == FILE or is_unchanged:
            self.downloads.append(Download(self.is_made))
            return self.downloads[-1]
        if environ["PATH_INFO"] == STORED:
            self.disks.append(Disk(self.is_made))
            return environ["wsgi.file_wrapper"](self.disks[-1])
        self.body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        return [b"a page"]


class Waiting:
    """An application that has something new to say at its n-th answer, and asks to wait until then."""

    def __init__(self, ready_at: int) -> None:
        self.ready_at, self.asked = ready_at, list[bool]()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["PATH_INFO"] == PAGE:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"a page"]
        self.asked.append(bool(environ.get(ASKED_AGAIN)))
        waits = [(HEADER, "5")] if len(self.asked) < self.ready_at else []
        start_response("200 OK", [("Content-Type", "text/plain"), *waits])
        return [b"answer %d" % len(self.asked)]


@dataclass
class Visit:
    """One request, and what was answered; without `takes` nobody takes the answer."""

    path: str = PAGE
    method: str = "GET"
    headers: Sequence[tuple[bytes, bytes]] = ()
    pieces: Sequence[bytes] = ()
    is_whole: bool = True
    takes: bool = True
    member: str = ""
    status: int = 0
    content: bytes = b""
    is_gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def to(self, serve: WholeRequests) -> Visit:
        """Ask, and return once everything is answered."""
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "raw_path": self.path.encode(),
            "query_string": urlencode({"as": self.member}).encode(),
            "headers": self.headers,
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50000),
        }
        messages = self._messages()

        async def receive() -> dict[str, Any]:
            if message := next(messages, None):
                return message
            try:
                await self.is_gone.wait()
            finally:
                # As in gunicorn, a call that was cancelled counts as the end of the connection.
                self.is_gone.set()
            return {"type": "http.disconnect"}

        await serve(scope, receive, self._send)
        return self

    def _messages(self) -> Iterator[dict[str, Any]]:
        for piece in self.pieces:
            yield {"type": "http.request", "body": piece, "more_body": True}
        if self.is_whole:
            yield {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.content += message.get("body", b"")
        if not self.takes:
            await self.is_gone.wait()


def run(test: Callable[[Site, WholeRequests], Coroutine[Any, Any, None]]) -> None:
    """Run a test in an event loop."""
    site = Site()

    async def within_time() -> None:
        async with asyncio.timeout(60):
            await test(site, WholeRequests(site, site.requests))

    try:
        asyncio.run(within_time())
    finally:
        site.is_made.set()
        site.may_end.release(100)


@asynccontextmanager
async def asked(serve: WholeRequests, visits: Sequence[Visit]) -> AsyncIterator[None]:
    """Ask for something at the same time as everything else."""
    async with asyncio.TaskGroup() as tasks:
        for visit in visits:
            tasks.create_task(visit.to(serve))
        yield


def downloads_of_many(*, takes: bool = True) -> list[Visit]:
    """Return as many downloads as there may be, of different members."""
    return [
        Visit(FILE, member=str(number // MAX_STREAMS_EACH), takes=takes)
        for number in range(MAX_STREAMS)
    ]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - of another thread
        await asyncio.sleep(0.001)


def test_pages_are_answered_while_many_files_are_made() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        files = downloads_of_many()
        async with asked(serve, files):
            await until(lambda: len(site.downloads) == MAX_STREAMS)
            pages = [await Visit().to(serve) for _ in range(3)]
            assert [page.content for page in pages] == [b"a page"] * 3
            site.is_made.set()
        assert {len(file.content) for file in files} == {2 * serving.PIECE_BYTES}

    run(test)


def test_pages_are_answered_while_nobody_takes_many_others() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        slow = [Visit(takes=False) for _ in range(10 * MAX_ANSWERED)]
        async with asked(serve, slow):
            await until(lambda: all(visit.status for visit in slow))
            assert (await Visit().to(serve)).content == b"a page"
            for visit in slow:
                visit.is_gone.set()

    run(test)


def test_a_download_too_many_is_refused_and_pages_go_on() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        site.is_made.set()
        slow = downloads_of_many(takes=False)
        async with asked(serve, slow):
            await until(lambda: all(visit.status for visit in slow))
            refused = await Visit(FILE, member="one more").to(serve)
            assert (refused.status, refused.content) == (503, serving.TOO_MANY_STREAMS.encode())
            assert site.downloads[-1].is_closed.is_set()
            assert (await Visit().to(serve)).content == b"a page"
            slow[0].is_gone.set()
            await until(lambda: sum(each.is_closed.is_set() for each in site.downloads) == 2)
            assert (await Visit(FILE, member="one more").to(serve)).status == 200
            for visit in slow:
                visit.is_gone.set()

    run(test)


@pytest.mark.parametrize("member", ["ada", ""], ids=["a member", "everybody without an account"])
def test_nobody_keeps_others_from_downloading(member: str) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        site.is_made.set()
        slow = [Visit(FILE, member=member, takes=False) for _ in range(MAX_STREAMS_EACH)]
        async with asked(serve, slow):
            await until(lambda: all(visit.status for visit in slow))
            refused = await Visit(FILE, member=member).to(serve)
            assert (refused.status, refused.content) == (429, serving.TOO_MANY_OF_ONE.encode())
            assert (await Visit(FILE, member="grace").to(serve)).status == 200
            slow[0].is_gone.set()
            await until(lambda: sum(each.is_closed.is_set() for each in site.downloads) == 3)
            assert (await Visit(FILE, member=member).to(serve)).status == 200
            for visit in slow:
                visit.is_gone.set()

    run(test)


def test_a_browser_that_asks_whether_files_have_changed_downloads_nothing() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        site.is_made.set()
        slow = [Visit(FILE, takes=False) for _ in range(MAX_STREAMS_EACH)]
        async with asked(serve, slow):
            await until(lambda: all(visit.status for visit in slow))
            asked_again = await Visit(UNCHANGED).to(serve)
            assert (asked_again.status, asked_again.content) == (304, b"")
            assert site.downloads[-1].is_closed.is_set()
            for visit in slow:
                visit.is_gone.set()

    run(test)


def count_reads(site: Site) -> int:
    return sum(len(disk.reads) for disk in site.disks)


def test_few_pieces_of_files_are_read_at_once_and_pages_go_on() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        files = [Visit(STORED) for _ in range(10 * MAX_ANSWERED)]
        async with asked(serve, files):
            await until(lambda: len(site.disks) == len(files))
            await until(lambda: count_reads(site) == serving.MAX_PIECES_READ)
            assert (await Visit().to(serve)).content == b"a page"
            assert count_reads(site) == serving.MAX_PIECES_READ
            site.is_made.set()
        assert {len(file.content) for file in files} == {serving.PIECE_BYTES}

    run(test)


def test_a_download_is_made_and_closed_by_one_thread_and_ends_with_its_client() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        visit = Visit(FILE, takes=False)
        site.is_made.set()
        async with asked(serve, [visit]):
            await until(lambda: bool(visit.status))
            visit.is_gone.set()
        [download] = site.downloads
        assert download.is_closed.is_set()
        assert len(download.threads) == 1
        assert len(visit.content) < 2 * serving.PIECE_BYTES

    run(test)


def test_only_the_head_is_sent_where_only_that_is_asked_for() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        page, file = await Visit(method="HEAD").to(serve), await Visit(FILE, "HEAD").to(serve)
        assert (page.status, page.content) == (file.status, file.content) == (200, b"")
        assert site.downloads[0].is_closed.is_set()

    run(test)


@pytest.mark.parametrize("host", ["", "http://localhost"])
def test_the_application_sees_path_and_headers_as_they_were_sent(host: str) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        headers = [(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-forwarded-for", b"1.1.1.1")]
        await Visit(f"{host}/caf%C3%A9%252F/", headers=[*headers, (b"x-forwarded-for", b"2.2")]).to(
            serve
        )
        assert site.environ["PATH_INFO"] == "/café%2F/".encode().decode("latin-1")
        assert site.environ["HTTP_COOKIE"] == "a=1; b=2"
        assert site.environ["HTTP_X_FORWARDED_FOR"] == "1.1.1.1,2.2"

    run(test)


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("http://site.example/s/a", "/s/a"),
        ("http://site.example", "/"),
        ("http://[::1/form", "/form"),
        ("*", "/"),
    ],
)
def test_an_address_in_the_form_for_proxies_leads_to_its_path(asked: str, path: str) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        assert (await Visit(asked).to(serve)).status == 200
        assert site.environ["PATH_INFO"] == path

    run(test)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_program", [False, True], ids=["session", "token"])
def test_a_body_without_a_length_arrives_whole_from_a_member(is_program: bool) -> None:
    user, member = make_user(role="editor"), Client()
    member.force_login(user)
    login = (b"cookie", member.cookies.output(header="", sep=";").encode())
    headers = [
        (b"transfer-encoding", b"chunked"),
        (b"authorization", f"Bearer {token_of(user)}".encode()) if is_program else login,
    ]
    pieces = [b"a" * LARGE, b"b"]

    async def test(site: Site, serve: WholeRequests) -> None:
        await Visit(FORM, "POST", headers, pieces).to(serve)
        assert site.body == b"".join(pieces)
        assert site.environ["CONTENT_LENGTH"] == str(LARGE + 1)

    run(test)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "header",
    [(b"content-length", str(LARGE).encode()), (b"transfer-encoding", b"chunked")],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize(
    "login",
    [(b"cookie", b"evalsite_session=invented"), (b"authorization", b"Bearer invented")],
    ids=["session", "token"],
)
def test_only_members_send_large_bodies(
    header: tuple[bytes, bytes], login: tuple[bytes, bytes]
) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        headers = [header, login]
        visit = await Visit(FORM, "POST", headers, [b"a" * LARGE], is_whole=False).to(serve)
        assert (visit.status, visit.content) == (403, serving.FOR_MEMBERS.encode())
        assert not site.environ

    run(test)


@pytest.mark.django_db(transaction=True)
def test_a_large_body_during_an_outage_is_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OperationalError("no route") from psycopg.OperationalError("no route")

    monkeypatch.setattr("evalsite.access.models.ApiTokenQuerySet.working", fail)

    async def test(site: Site, serve: WholeRequests) -> None:
        headers = [(b"content-length", str(LARGE).encode()), (b"authorization", b"Bearer evs_x")]
        visit = await Visit(FORM, "POST", headers, [b"a" * LARGE], is_whole=False).to(serve)
        assert visit.status == 503
        assert visit.content.startswith(b"The database does not answer. ")
        assert not site.environ

    run(test)


def test_a_body_that_a_full_disk_does_not_take_is_to_be_sent_again() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        with full_disk(os.getpid()):
            visit = await Visit(FORM, "POST", [], [b"a" * (LARGE - 1)]).to(serve)
        assert visit.status == 503
        assert visit.content.startswith(b"The disk of the server is full. ")
        assert not site.environ
        assert (await Visit(FORM, "POST", [], [b"a-99"]).to(serve)).status == 200

    run(test)


def test_a_body_that_is_longer_than_any_may_be_is_refused_before_it_is_sent() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        length = str(serving.MAX_BODY_BYTES + 1).encode()
        visit = await Visit(FORM, "POST", [(b"content-length", length)], is_whole=False).to(serve)
        assert (visit.status, visit.content) == (413, serving.TOO_LARGE.encode())

    run(test)


@pytest.mark.parametrize(
    "content_type",
    [
        *("multipart/form-data; boundary=B; charset=punycode", "application/json; charset=rot13"),
        *("text/plain; charset=iso-8859-1", "text/plain; charset=unheard-of"),
        "text/plain; title*=unheard-of''a",
    ],
)
def test_a_request_in_another_encoding_than_utf_8_is_refused_unread(content_type: str) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        headers = [(b"content-type", content_type.encode())]
        visit = await Visit(FORM, "POST", headers, [b"a-99"], is_whole=False).to(serve)
        assert (visit.status, visit.content) == (415, serving.NOT_UTF_8.encode())
        assert not site.environ

    run(test)


@pytest.mark.parametrize(
    "content_type", ["text/plain; charset=UTF8", 'text/plain; charset="us-ascii"', "", "odd"]
)
def test_a_request_in_utf_8_is_answered(content_type: str) -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        headers = [(b"content-type", content_type.encode())]
        visit = await Visit(FORM, "POST", headers, [b"a-99"]).to(serve)
        assert (visit.status, site.body) == (200, b"a-99")

    run(test)


@pytest.mark.django_db(transaction=True)
def test_a_large_upload_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_LARGE_BODIES", 0)
    monkeypatch.setattr(serving, "RECEIVE_PIECE_S", -1)
    monkeypatch.setattr(serving, "is_member", lambda environ: True)

    async def test(site: Site, serve: WholeRequests) -> None:
        length = (b"content-length", str(LARGE).encode())
        visit = await Visit(FORM, "POST", [length], is_whole=False).to(serve)
        assert (visit.status, visit.content) == (503, serving.TOO_MANY_UPLOADS.encode())

    run(test)


@pytest.mark.parametrize(
    ("is_packed", "largest", "at_once"),
    [
        (False, LARGE, serving.MAX_LARGE_ANSWERED),
        (True, LARGE, serving.MAX_LARGE_ANSWERED),
        (False, LARGE - 1, 1),
    ],
    ids=["large", "packed", "largest"],
)
def test_pages_are_answered_while_many_large_bodies_are(
    monkeypatch: pytest.MonkeyPatch, is_packed: bool, largest: int, at_once: int
) -> None:
    monkeypatch.setattr(serving, "is_member", lambda environ: True)
    monkeypatch.setattr(serving, "LARGEST_BODY_BYTES", largest)
    body = b"a" * (9 if is_packed else LARGE)
    headers = [(b"content-length", str(len(body)).encode())]
    headers += [(b"content-encoding", b"gzip")] if is_packed else []

    async def test(site: Site, serve: WholeRequests) -> None:
        count = 10 * MAX_ANSWERED if is_packed else serving.MAX_LARGE_BODIES
        imports = [Visit(IMPORT, "POST", headers, [body]) for _ in range(count)]
        async with asked(serve, imports):
            await until(lambda: site.imports == at_once)
            for _ in range(2):
                assert (await Visit().to(serve)).content == b"a page"
            assert site.imports == at_once
            site.is_made.set()
        assert {visit.status for visit in imports} == {200}

    run(test)


@pytest.mark.parametrize(
    ("sender", "other"),
    [
        ({"cookie": "n={n}; session=ann"}, {"cookie": "session=bob"}),
        ({"authorization": "Bearer  ann", "cookie": "n={n}"}, {"authorization": "bearer bob"}),
        ({"authorization": "Bearer ann"}, {"cookie": "session=ann"}),
        ({"cookie": "n={n}"}, {"cookie": "session=ann"}),
    ],
    ids=["sessions", "tokens", "token-and-session", "nobody"],
)
def test_one_sender_of_many_requests_keeps_nobody_waiting_for_all_of_them(
    settings: Any, sender: dict[str, str], other: dict[str, str]
) -> None:
    settings.SESSION_COOKIE_NAME = "session"

    def visit(path: str, headers: dict[str, str], n: int = 0) -> Visit:
        encoded = [(name.encode(), value.format(n=n).encode()) for name, value in headers.items()]
        return Visit(path, headers=encoded)

    async def test(site: Site, serve: WholeRequests) -> None:
        many = [visit(SLOW, sender, n) for n in range(10 * MAX_ANSWERED)]
        async with asked(serve, many):
            await until(lambda: site.slow == MAX_ANSWERED)
            async with asked(serve, [page := visit(PAGE, other)]):
                await until(lambda: len(serve._turns._waiting) == 2)
                site.may_end.release(2)
            slow = site.slow
            site.may_end.release(len(many))
        assert page.content == b"a page"
        assert slow <= MAX_ANSWERED + 2
        assert {visit.status for visit in many} == {200}

    run(test)


def test_a_request_whose_client_has_gone_passes_its_turn_on() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        async with asked(serve, [Visit(SLOW) for _ in range(MAX_ANSWERED)]):
            await until(lambda: site.slow == MAX_ANSWERED)
            gone = [asyncio.create_task(Visit().to(serve)) for _ in range(3)]
            await until(lambda: [*map(len, serve._turns._waiting.values())] == [3])
            gone[0].cancel()
            site.may_end.release()
            await until(lambda: site.environ["PATH_INFO"] == PAGE)
            gone[1].cancel()
            await asyncio.wait(gone)
            site.may_end.release(MAX_ANSWERED)
        for _ in range(2 * MAX_ANSWERED):
            assert (await Visit().to(serve)).content == b"a page"

    run(test)


def test_a_body_that_comes_too_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "RECEIVE_PIECE_S", -1)

    async def test(site: Site, serve: WholeRequests) -> None:
        visit = await Visit(FORM, "POST", [(b"content-length", b"9")], is_whole=False).to(serve)
        assert (visit.status, visit.content) == (408, serving.TOO_SLOW.encode())
        assert not site.environ

    run(test)


def test_runs_yield_while_a_whole_request_waits_for_a_thread() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        async with AsyncExitStack() as threads:
            while not serve._idle.empty():
                await threads.enter_async_context(serve._thread())
            async with asked(serve, [Visit()]):
                await until(site.requests.is_busy)
                assert not site.environ
                await threads.aclose()
        assert not site.requests.is_busy()

    run(test)


def test_runs_do_not_yield_to_half_a_request_nor_to_an_answer_nobody_takes() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        half = Visit(FORM, "POST", [(b"content-length", b"9")], [b"half"], is_whole=False)
        slow = Visit(takes=False)
        async with asked(serve, [half, slow]):
            await until(lambda: bool(slow.status))
            assert not site.requests.is_busy()
            for visit in (half, slow):
                visit.is_gone.set()

    run(test)


def test_runs_no_longer_yield_to_a_request_that_failed() -> None:
    async def test(site: Site, serve: WholeRequests) -> None:
        with pytest.raises(BrokenError):
            await Visit(ERROR).to(serve)
        assert not site.requests.is_busy()

    run(test)


async def let_timers_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Transport(asyncio.Transport):
    """A connection that notes whether it was ended."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize(
    ("happens", "is_ended"),
    [
        (lambda connection: None, True),
        (lambda connection: connection.data_received(b"GET / HTTP/1.1\r\n\r"), True),
        (lambda connection: [connection.data_received(b) for b in (b"GET /\r\n\r", b"\n")], False),
        (lambda connection: connection.connection_lost(None), False),
    ],
    ids=["nothing", "half a head", "a head", "lost"],
)
def test_a_connection_without_a_whole_head_is_ended_in_time(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[Connection], Any], is_ended: bool
) -> None:
    monkeypatch.setattr(serving, "HEAD_S", -1)

    async def test() -> None:
        transport, connection = Transport(), Connection(asyncio.Protocol())
        connection.connection_made(transport)
        happens(connection)
        await let_timers_run()
        assert transport.is_aborted == is_ended
        connection.connection_lost(None)

    asyncio.run(test())


@pytest.mark.parametrize("takes_it", [False, True])
def test_a_connection_whose_client_takes_nothing_is_ended(
    monkeypatch: pytest.MonkeyPatch, takes_it: bool
) -> None:
    monkeypatch.setattr(serving, "SEND_PIECE_S", -1)

    async def test() -> None:
        transport, connection = Transport(), Connection(asyncio.Protocol())
        connection.connection_made(transport)
        connection.pause_writing()
        if takes_it:
            connection.resume_writing()
        await let_timers_run()
        assert transport.is_aborted != takes_it
        connection.connection_lost(None)

    asyncio.run(test())


class Flood(asyncio.Protocol):
    """Sends as much as the system takes for its client at once."""

    def __init__(self) -> None:
        self.sent, self.is_full = 0, asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        while not self.is_full.is_set():
            transport.write(bytes(serving.PIECE_BYTES))
            self.sent += serving.PIECE_BYTES

    def pause_writing(self) -> None:
        self.is_full.set()


def test_little_is_taken_from_the_site_for_a_client_that_takes_nothing() -> None:
    async def test() -> None:
        flood = Flood()
        listen = asyncio.get_running_loop().create_server
        async with await listen(lambda: Connection(flood), "127.0.0.1", 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1)
            await flood.is_full.wait()
            writer.close()
        assert flood.sent < 8 * serving.PIECE_BYTES

    asyncio.run(test())


@pytest.mark.parametrize(("ready_at", "content", "waited"), [(1, 1, 0), (4, 4, 3), (99, 6, 5)])
def test_an_answer_that_waits_is_asked_for_again_without_holding_a_thread(
    ready_at: int, content: int, waited: int
) -> None:
    site, waits = Waiting(ready_at), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        # While it waits, more others than there are threads are answered.
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(Visit().to(serve)) for _ in range(20)]
        assert {other.result().content for other in others} == {b"a page"}

    serve = WholeRequests(site, RequestCounter(), sleep=sleep, clock=lambda: sum(waits))
    heads: list[Any] = []

    class Heard(Visit):
        async def _send(self, message: dict[str, Any]) -> None:
            heads.extend(name for name, _ in message.get("headers", ()))
            await super()._send(message)

    visit = asyncio.run(Heard("/wait").to(serve))

    assert (visit.status, visit.content) == (200, b"answer %d" % content)
    assert (len(waits), site.asked) == (waited, [False, *[True] * waited])
    assert HEADER.lower().encode() not in {name.lower() for name in heads}


def test_many_that_wait_are_asked_for_less_often_and_none_once_its_client_has_gone() -> None:
    site, pauses = Waiting(ready_at=999), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.Event().wait()

    serve = WholeRequests(site, RequestCounter(), sleep=sleep, clock=lambda: 0.0)

    async def test() -> None:
        visits = [Visit("/wait") for _ in range(60)]
        async with asyncio.timeout(60), asked(serve, visits):
            await until(lambda: len(pauses) == len(visits))
            for visit in visits:
                visit.is_gone.set()

    asyncio.run(test())

    # Ten in a second at most, and nobody beyond the five seconds that the client waits.
    assert pauses == [max(1, min(count / 10, 5)) for count in range(1, 61)]
    assert site.asked == [False] * 60

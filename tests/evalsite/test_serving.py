"""Turns of requests: large files that are made while they are sent leave turns for pages."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.util import FileWrapper

import pytest

from evalsite import serving
from evalsite.serving import DEADLINES, MAX_ANSWERED, MAX_OPEN_STREAMS, WholeRequests


class Download:
    """An answer that is made while it is sent, and takes as long as the test wants."""

    streaming = True

    def __init__(self, is_made: threading.Event) -> None:
        self._is_made = is_made

    def __iter__(self) -> Iterator[bytes]:
        self._is_made.wait()
        yield b"a result"


def test_pages_are_answered_while_many_files_are_made() -> None:
    is_made = threading.Event()

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return Download(is_made) if environ["PATH_INFO"] == "/results.jsonl" else [b"a page"]

    serve = WholeRequests(application)

    def get(path: str) -> bytes:
        with socket.socket() as connection:
            environ = {
                "PATH_INFO": path,
                "gunicorn.socket": connection,
                "wsgi.file_wrapper": FileWrapper,
            }
            return b"".join(serve(environ, lambda *_: None))

    with ThreadPoolExecutor(MAX_ANSWERED + 1) as clients:
        files = [clients.submit(get, "/results.jsonl") for _ in range(MAX_ANSWERED)]
        try:
            # Every file has its first turn before the page is asked for.
            pages = [clients.submit(get, "/") for _ in range(3)]
            assert [page.result(timeout=60) for page in pages] == [b"a page"] * 3
        finally:
            is_made.set()
        assert [file.result() for file in files] == [b"a result"] * MAX_ANSWERED


def test_a_client_is_not_late_while_the_next_piece_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "SEND_PIECE_S", -1)
    monkeypatch.setattr(serving, "PIECE_BYTES", 1)

    class SlowFile(Download):
        def __iter__(self) -> Iterator[bytes]:
            yield b"a"
            DEADLINES.enforce()
            yield b"b"

    here, there = socket.socketpair()
    with here, there:
        environ = {"gunicorn.socket": here, "wsgi.file_wrapper": FileWrapper}
        for piece in WholeRequests(lambda *_: SlowFile(threading.Event()))(
            environ, lambda *_: None
        ):
            here.sendall(piece)
        assert there.recv(2) == b"ab"


def test_a_download_too_many_is_refused_and_pages_go_on() -> None:
    is_made = threading.Event()
    is_made.set()
    statuses: list[str] = []

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [])
        return Download(is_made) if environ["PATH_INFO"] == "/results.jsonl" else [b"a page"]

    serve = WholeRequests(application)
    with socket.socket() as connection:

        def ask(path: str) -> Any:
            environ = {
                "PATH_INFO": path,
                "gunicorn.socket": connection,
                "wsgi.file_wrapper": FileWrapper,
            }
            return serve(environ, lambda status, headers: statuses.append(status))

        # Nobody takes these.
        first, *_ = (ask("/results.jsonl") for _ in range(MAX_OPEN_STREAMS))
        assert b"Too many downloads" in b"".join(ask("/results.jsonl"))
        assert b"".join(ask("/")) == b"a page"
        assert statuses[-2:] == ["503 Service Unavailable", "200 OK"]
        first.close()
        assert b"".join(ask("/results.jsonl")) == b"a result"

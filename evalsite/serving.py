"""Keep slow clients from stopping the site: a request is answered once it has arrived, by one of a few threads."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from selectors import EVENT_READ
from typing import IO, Any

from gunicorn.workers.gthread import ThreadWorker

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# Requests answered at once. More would only wait for the interpreter.
MAX_ANSWERED = 4
# Of these, answers that are made while they are sent: large files, which must not keep pages waiting.
MAX_STREAMED = 2
# Each keeps a connection to the database until its client has taken all of it.
MAX_OPEN_STREAMS = 8
TOO_MANY_STREAMS = "Too many downloads at once. Try again when others have ended.\n"
# Seconds until a new connection must have sent its first byte, and then its whole request head.
FIRST_BYTE_S, HEAD_S = 5, 10
# A body must arrive, and an answer be taken, piece by piece in these times.
PIECE_BYTES, RECEIVE_PIECE_S, SEND_PIECE_S = 256 * 1024, 15, 60
SEND_FILE_S = 600
# The largest upload, and how many large ones are stored at once while they arrive.
MAX_BODY_BYTES, LARGE_BODY_BYTES, MAX_LARGE_BODIES = 210 * 1024 * 1024, 1024 * 1024, 8


class Deadlines:
    """The times by which connections must have sent or taken something; late ones are shut down.

    Shutting a socket down wakes the thread that waits for it, however slowly bytes still trickle in.
    """

    def __init__(self) -> None:
        """Wait for nothing."""
        self._lock = threading.Lock()
        self._by_connection: dict[socket.socket, tuple[float, int]] = {}

    def receive_within(self, connection: socket.socket, seconds: float) -> None:
        """Set when the client must have sent something; afterwards it can still be answered."""
        self._set(connection, seconds, socket.SHUT_RD)

    def send_within(self, connection: socket.socket, seconds: float) -> None:
        """Set when the client must have taken something."""
        self._set(connection, seconds, socket.SHUT_RDWR)

    def clear(self, connection: socket.socket) -> None:
        """Wait for the connection no longer."""
        with self._lock:
            self._by_connection.pop(connection, None)

    def enforce(self) -> None:
        """Shut down the connections that are late."""
        now = time.monotonic()
        with self._lock:
            late = [(each, end) for each, end in self._by_connection.items() if end[0] < now]
            for connection, (_, direction) in late:
                del self._by_connection[connection]
                with suppress(OSError):
                    connection.shutdown(direction)

    def _set(self, connection: socket.socket, seconds: float, direction: int) -> None:
        with self._lock:
            self._by_connection[connection] = (time.monotonic() + seconds, direction)


DEADLINES = Deadlines()


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker with threads, where an idle connection takes no thread and a slow one has deadlines."""

    def enqueue_req(self, conn: Any) -> None:
        """Give a thread to a connection that has sent something; let the others wait without one."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)
            return
        conn.sock.setblocking(False)
        conn.timeout = time.monotonic() + FIRST_BYTE_S
        self.pending_conns.append(conn)
        self.poller.register(conn.sock, EVENT_READ, partial(self.on_pending_socket_readable, conn))

    def handle(self, conn: Any) -> Any:
        """Read a request head before its deadline, and answer it."""
        DEADLINES.receive_within(conn.sock, HEAD_S)
        try:
            return super().handle(conn)
        finally:
            DEADLINES.clear(conn.sock)

    def handle_request(self, req: Any, conn: Any) -> Any:
        """Answer a request whose head has arrived."""
        DEADLINES.clear(conn.sock)
        return super().handle_request(req, conn)

    def notify(self) -> None:
        """Show the arbiter a sign of life, every second, and shut down late connections."""
        super().notify()
        DEADLINES.enforce()


class WholeRequests:
    """Passes requests on that have arrived whole, four at a time, and sends their answers without a turn."""

    def __init__(self, application: Application) -> None:
        """Take the application that answers."""
        self._application = application
        self._turns = threading.BoundedSemaphore(MAX_ANSWERED)
        self._streams = threading.BoundedSemaphore(MAX_STREAMED)
        self._open_streams = threading.BoundedSemaphore(MAX_OPEN_STREAMS)
        self._large_bodies = threading.BoundedSemaphore(MAX_LARGE_BODIES)

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Receive the body, wait for a turn, answer."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length > MAX_BODY_BYTES:
            return _refuse(start_response, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if length <= LARGE_BODY_BYTES:
            return self._receive_and_answer(environ, start_response, length)
        if not self._large_bodies.acquire(timeout=RECEIVE_PIECE_S):
            return _refuse(start_response, HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            return self._receive_and_answer(environ, start_response, length)
        finally:
            self._large_bodies.release()

    def _receive_and_answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any], length: int
    ) -> Iterable[bytes]:
        if not length:
            return self._answer(environ, start_response)
        with tempfile.SpooledTemporaryFile(max_size=LARGE_BODY_BYTES) as body:
            if not _receive(environ, length, into=body):
                return _refuse(start_response, HTTPStatus.REQUEST_TIMEOUT)
            environ["wsgi.input"] = body
            return self._answer(environ, start_response)

    def _answer(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        connection: socket.socket = environ["gunicorn.socket"]
        file_class: type = environ["wsgi.file_wrapper"]
        head: list[Any] = []
        with self._turns:
            # The head is sent once it is known that there is room for the answer.
            answer = self._application(environ, lambda *parts: head.extend(parts))
            is_stream = getattr(answer, "streaming", False) and not isinstance(answer, file_class)
            if is_stream and not self._open_streams.acquire(blocking=False):
                _close(answer)
                return _refuse(start_response, HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY_STREAMS)
            start_response(*head)
            if is_stream:
                return Stream(self._pieces_of(answer, connection), partial(self._end, answer))
            if isinstance(answer, file_class):
                DEADLINES.send_within(connection, SEND_FILE_S)
                return answer
            content = b"".join(answer)
            _close(answer)
        return _pieces(content, connection)

    def _pieces_of(self, answer: Iterable[bytes], connection: socket.socket) -> Iterator[bytes]:
        """Yield an answer that is made while it is sent; a turn lasts until the next piece is made."""
        chunks = iter(answer)
        while True:
            with self._streams, self._turns:
                piece = _next_piece(chunks)
            if not piece:
                return
            yield from _pieces(piece, connection)
            # From here on the client waits for us.
            DEADLINES.clear(connection)

    def _end(self, answer: Iterable[bytes]) -> None:
        self._open_streams.release()
        _close(answer)


class Stream:
    """An answer that is made while it is sent; the server closes it in any case, once."""

    def __init__(self, pieces: Iterator[bytes], end: Callable[[], None]) -> None:
        """Take the pieces, and what is to be done at the end."""
        self._pieces, self._end = pieces, end

    def __iter__(self) -> Iterator[bytes]:
        """Return the pieces."""
        return self._pieces

    def close(self) -> None:
        """Make room for another."""
        self._end()


def _receive(environ: dict[str, Any], length: int, *, into: IO[bytes]) -> bool:
    """Receive the body; False if the client was too slow or is gone."""
    connection, source = environ["gunicorn.socket"], environ["wsgi.input"]
    missing = length
    try:
        while missing:
            DEADLINES.receive_within(connection, RECEIVE_PIECE_S)
            piece = source.read(min(missing, PIECE_BYTES))
            if not piece:
                return False
            into.write(piece)
            missing -= len(piece)
    finally:
        DEADLINES.clear(connection)
    into.seek(0)
    return True


def _next_piece(chunks: Iterator[bytes]) -> bytes:
    gathered, size = [], 0
    for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= PIECE_BYTES:
            break
    return b"".join(gathered)


def _pieces(content: bytes, connection: socket.socket) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        DEADLINES.send_within(connection, SEND_PIECE_S)
        yield content[start : start + PIECE_BYTES]


def _refuse(
    start_response: Callable[..., Any], status: HTTPStatus, text: str = ""
) -> Iterable[bytes]:
    content = text.encode()
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(content)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return (content,)


def _close(answer: Iterable[bytes]) -> None:
    if close := getattr(answer, "close", None):
        close()

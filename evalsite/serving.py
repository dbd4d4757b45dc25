"""Between the event loop, which waits for clients, and Django, whose threads answer requests that have arrived whole.

So a slow client costs a connection, and nobody else's time.
"""

from __future__ import annotations

import asyncio
import codecs
import logging
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    MutableMapping,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from http import HTTPStatus
from importlib import import_module
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from urllib.parse import unquote_to_bytes
from wsgiref.util import FileWrapper

from django.conf import settings
from django.contrib.auth import get_user
from django.core.handlers.wsgi import WSGIRequest
from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.http import parse_cookie
from django.utils import timezone
from django.utils.http import parse_header_parameters

from runs import waiting

logger = logging.getLogger(__name__)

Environ = dict[str, Any]
Head = tuple[str, list[tuple[str, str]]]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Run = Callable[..., Awaitable[Any]]
# Done once the client has closed the connection.
Gone = asyncio.Future[Message]

# Requests answered at once. More would only wait for the interpreter.
MAX_ANSWERED = 4
# Answers that are made while they are sent: each keeps a thread, and a connection to the database, until its
# client has taken all of it. So many are made at once as leave the interpreter to pages.
MAX_STREAMS, MAX_STREAMS_MADE = 8, 2
# So many of them for one member, and for all who have no account together.
MAX_STREAMS_EACH = 3
# How often views are asked in a second for all clients that wait. Each time costs as much as the page of a run.
MAX_ASKED_EACH_S = 10
# Pieces of files that are read at once, so that pages need not wait behind those of all clients.
MAX_PIECES_READ = 2
# Where a request's environment names the member.
MEMBER = "evalsite.member"
# Anybody may send a small body. Larger ones are for members, wait on disk, and so many of them at once.
SMALL_BODY_BYTES, MAX_BODY_BYTES, MAX_LARGE_BODIES = 256 * 1024, 210 * 1024 * 1024, 8
# So many requests with a large body, or one that is packed, are answered at once: each takes memory and time, and the
# other turns are for pages.
MAX_LARGE_ANSWERED = 2
# One alone with more than this: as a text it takes up to four bytes a letter, several times.
LARGEST_BODY_BYTES = 4 * 1024 * 1024
IN_MEMORY_BYTES = 64 * 1024
# Seconds for a request head, for each piece of a body to arrive, and for each piece of an answer to be taken.
HEAD_S, RECEIVE_PIECE_S, SEND_PIECE_S = 10, 15, 60
PIECE_BYTES = 64 * 1024
# How much of an answer the system buffers for a client that is slow to read it. By default it buffers megabytes for
# each connection, and while it fills hundreds of such buffers, pages wait.
UNSENT_BYTES = 2 * PIECE_BYTES
END_OF_HEAD = b"\r\n\r\n"

TOO_MANY_STREAMS = "Too many downloads at once. Try again when others have ended.\n"
TOO_MANY_OF_ONE = (
    f"You have {MAX_STREAMS_EACH} downloads in progress, as many as one member may have. "
    "Try again when one of them has ended.\n"
)
TOO_MANY_UPLOADS = "Too many uploads at once. Try again when others have ended.\n"
NOT_UTF_8 = "Send the request in UTF-8, and say so in its Content-Type or leave the charset out.\n"
TOO_LARGE = f"A request may have {MAX_BODY_BYTES // 1024**2} MB.\n"
FOR_MEMBERS = f"Log in to send more than {SMALL_BODY_BYTES // 1024} KB.\n"
CANNOT_RECEIVE = (
    "The server cannot store what it receives. Its administrator finds the reason in its log."
)
TOO_SLOW = f"Each {PIECE_BYTES // 1024} KB must arrive within {RECEIVE_PIECE_S} seconds.\n"


class Connection(asyncio.Protocol):
    """A connection of the server, which ends if its client is late with its first head or with taking an answer."""

    open: set[Connection] = set()

    def __init__(self, server: asyncio.Protocol) -> None:
        """Take the server's own protocol."""
        self._server = server
        self._head: bytes | None = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request head. The server times those that follow it."""
        self._transport = transport
        self.open.add(self)
        client, option = transport.get_extra_info("socket"), getattr(socket, "TCP_NOTSENT_LOWAT", 0)
        if client is not None and option:
            client.setsockopt(socket.IPPROTO_TCP, option, UNSENT_BYTES)
        self._expect(HEAD_S)
        self._server.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Look for the end of the head."""
        if self._head is not None:
            self._head = self._head[1 - len(END_OF_HEAD) :] + data
            if END_OF_HEAD in self._head:
                self._head = None
                self._expect_nothing()
        self._server.data_received(data)

    def eof_received(self) -> bool | None:
        """Leave it to the server whether the connection stays half open."""
        return self._server.eof_received()

    def pause_writing(self) -> None:
        """Expect that the client takes what waits for it."""
        self._expect(SEND_PIECE_S)
        self._server.pause_writing()

    def resume_writing(self) -> None:
        """Note that it did."""
        self._expect_nothing()
        self._server.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._expect_nothing()
        self.open.discard(self)
        self._server.connection_lost(exc)

    def abort(self) -> None:
        """End the connection, whatever has not been sent yet."""
        self._transport.abort()  # type: ignore[attr-defined]  # of a stream

    def _expect(self, seconds: float) -> None:
        self._expect_nothing()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class RefusedError(Exception):
    """A request that is not passed on."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        """Take the answer."""
        super().__init__(text)
        self.status, self.text = status, text


class ClientGoneError(Exception):
    """The client has closed the connection."""


class RequestCounter:
    """Counts the requests that have arrived whole and are not answered yet."""

    def __init__(self) -> None:
        """Start at zero."""
        self._count = 0

    def is_busy(self) -> bool:
        """Tell whether any request waits for its answer."""
        return self._count > 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request; all of them are counted by the event loop, so no lock is needed."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


REQUESTS = RequestCounter()


class FairTurns:
    """Limits how many requests are answered at once, and gives each sender who waits the next turn in rotation.

    So a sender with many requests delays those of others by one turn, not by all of its own.
    """

    def __init__(self, count: int) -> None:
        """Allow this many at once."""
        self._free = count
        # By sender, in the order in which they come next.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def taken(self, sender: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        if self._free:
            self._free -= 1
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(sender, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            sender = next(iter(self._waiting))
            turns = self._waiting.pop(sender)
            turn = turns.popleft()
            if turns:
                self._waiting[sender] = turns
            # Who was cancelled while waiting needs none.
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class WholeRequests:
    """An ASGI application that passes requests on to a WSGI application once they have arrived whole."""

    def __init__(
        self,
        application: Application,
        requests: RequestCounter,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the application that answers, and what counts the requests for it."""
        self._sleep, self._clock = sleep, clock
        self._application = application
        self._requests = requests
        self._turns, self._large_turns = FairTurns(MAX_ANSWERED), FairTurns(MAX_LARGE_ANSWERED)
        self._largest_turn = FairTurns(1)
        self._large_bodies = asyncio.Semaphore(MAX_LARGE_BODIES)
        self._stream_turns = asyncio.Semaphore(MAX_STREAMS_MADE)
        self._read_turns = asyncio.Semaphore(MAX_PIECES_READ)
        self._streams: Counter[object] = Counter()
        self._waiting = 0
        # Each is one thread: a connection to the database belongs to the thread that opened it.
        self._idle: asyncio.LifoQueue[ThreadPoolExecutor] = asyncio.LifoQueue()
        for _ in range(MAX_ANSWERED + MAX_STREAMS):
            self._idle.put_nowait(ThreadPoolExecutor(1, thread_name_prefix="answer"))

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Receive the request, then answer it."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        environ = wsgi_environ(scope)
        is_gone: Gone = asyncio.get_running_loop().create_future()
        try:
            async with AsyncExitStack() as until_answered:
                await self._receive(environ, receive, until_answered)
                # Once for all: the server takes a call that was cancelled for the end of the connection.
                is_gone = asyncio.ensure_future(receive())
                until = 0.0
                while wait_s := await self._answer(environ, is_gone, send, until_answered, until):
                    until = until or self._clock() + min(wait_s, waiting.MAX_WAIT_S)
                    environ[waiting.ASKED_AGAIN] = True
                    await self._wait(is_gone, until)
        except RefusedError as refusal:
            head = str(refusal.status.value), [("Content-Type", "text/plain; charset=utf-8")]
            with suppress(ClientGoneError):
                await _send(head, _cut(refusal.text.encode()), is_gone, send)
        except ClientGoneError:
            return
        finally:
            is_gone.cancel()

    async def _wait(self, is_gone: Gone, until: float) -> None:
        """Wait before the view is asked again, longer while many wait; raises ClientGoneError once the client has gone."""
        self._waiting += 1
        seconds = max(waiting.EVERY_S, self._waiting / MAX_ASKED_EACH_S)
        pause = asyncio.ensure_future(self._sleep(min(seconds, until - self._clock())))
        try:
            await asyncio.wait((pause, is_gone), return_when=asyncio.FIRST_COMPLETED)
            if is_gone.done():
                raise ClientGoneError
            await pause
        finally:
            self._waiting -= 1
            pause.cancel()

    async def _receive(
        self, environ: Environ, receive: Receive, until_answered: AsyncExitStack
    ) -> None:
        """Put the whole body into the environment."""
        if not _is_utf_8(environ.get("CONTENT_TYPE", "")):
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, NOT_UTF_8)
        length, longest = int(environ.get("CONTENT_LENGTH", 0)), SMALL_BODY_BYTES
        has_unknown_length = environ.pop("HTTP_TRANSFER_ENCODING", None) is not None
        if has_unknown_length or SMALL_BODY_BYTES < length <= MAX_BODY_BYTES:
            async with self._turns.taken(_sender(environ)), self._thread() as run:
                if await run(is_member, environ):
                    longest = MAX_BODY_BYTES
        if length > longest:
            raise _too_large(length, longest)
        if longest > SMALL_BODY_BYTES:
            await self._wait_for_room(until_answered)
        body = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - it is closed below
        until_answered.enter_context(body)
        try:
            await _store(receive, body, longest=longest)
            environ["wsgi.input"], environ["CONTENT_LENGTH"] = body, str(body.tell())
            body.seek(0)
        except OSError as error:
            # Closing a file writes what it still holds.
            with suppress(OSError):
                body.close()
            raise _unstorable(error) from error

    async def _wait_for_room(self, until_answered: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(RECEIVE_PIECE_S):
                await until_answered.enter_async_context(self._large_bodies)
        except TimeoutError:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY_UPLOADS) from None

    async def _answer(
        self,
        environ: Environ,
        is_gone: Gone,
        send: Send,
        until_answered: AsyncExitStack,
        until: float,
    ) -> float:
        """Send the answer and return 0, or the seconds to wait for another one; none is sent then (`runs.waiting`).

        `until` is the moment until which was waited before, 0 for none.
        """
        async with AsyncExitStack() as until_made:
            # Runs in this process yield from here on: while a thread takes the request over, too.
            with self._requests.counted():
                sender, is_large = _sender(environ), _is_large(environ)
                is_largest = int(environ["CONTENT_LENGTH"]) > LARGEST_BODY_BYTES
                async with (
                    self._largest_turn.taken(sender) if is_largest else nullcontext(),
                    self._large_turns.taken(sender) if is_large else nullcontext(),
                    self._turns.taken(sender),
                ):
                    run = await until_made.enter_async_context(self._thread())
                    head, content = await run(self._begin, environ)
                    if is_large and isinstance(content, bytes):
                        # SQLite keeps the values of each statement until it has others.
                        await run(connections.close_all)
            wait_s, head = _take_wait(head)
            if wait_s and (not until or self._clock() < until):
                return wait_s
            await until_answered.aclose()
            if not isinstance(content, bytes | FileWrapper):
                taker = environ.get(MEMBER)
                await self._send_stream(head, content, run, is_gone, send, taker=taker)
                return 0.0
        if isinstance(content, bytes):
            await _send(head, _cut(content), is_gone, send)
            return 0.0
        try:
            await _send(head, self._read(content), is_gone, send)
        finally:
            content.close()
        return 0.0

    @asynccontextmanager
    async def _thread(self) -> AsyncIterator[Run]:
        """Give a function that runs others in one and the same thread."""
        thread = await self._idle.get()
        try:
            yield partial(_run_in, thread)
        finally:
            self._idle.put_nowait(thread)

    def _begin(self, environ: Environ) -> tuple[Head, Any]:
        """Return head and content: bytes, a file, or an answer that is made while it is sent."""
        heads: list[Head] = []
        environ["wsgi.file_wrapper"] = FileWrapper
        answer = self._application(environ, lambda *head: heads.append((head[0], head[1])))
        is_file = isinstance(answer, FileWrapper)
        # A file that has not changed is answered without a body: that is no download, and counts as none.
        has_body = environ["REQUEST_METHOD"] != "HEAD" and not heads[0][0].startswith("304")
        if has_body and (is_file or getattr(answer, "streaming", False)):
            if is_file:
                # From now on it needs no thread.
                close_old_connections()
            return heads[0], answer
        try:
            content = b"".join(answer) if has_body else b""
        finally:
            _close(answer)
        return heads[0], content

    async def _read(self, file: FileWrapper) -> AsyncGenerator[bytes, None]:
        while True:
            async with self._read_turns:
                piece = await asyncio.to_thread(file.filelike.read, PIECE_BYTES)
            if not piece:
                return
            yield piece

    async def _send_stream(
        self,
        head: Head,
        answer: Iterable[bytes],
        run: Run,
        is_gone: Gone,
        send: Send,
        *,
        taker: object,
    ) -> None:
        """Send an answer while it is made; `taker` is the member who asked, None if anonymous."""
        if self._streams[taker] == MAX_STREAMS_EACH:
            await run(_close, answer)
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, TOO_MANY_OF_ONE)
        if self._streams.total() == MAX_STREAMS:
            await run(_close, answer)
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY_STREAMS)

        async def pieces() -> AsyncGenerator[bytes, None]:
            chunks = iter(answer)
            while True:
                async with self._stream_turns:
                    piece = await run(_next_piece, chunks)
                if not piece:
                    return
                yield piece

        self._streams[taker] += 1
        try:
            await _send(head, pieces(), is_gone, send)
        finally:
            self._streams[taker] -= 1
            await run(_close, answer)


def _is_large(environ: Environ) -> bool:
    return int(environ["CONTENT_LENGTH"]) > SMALL_BODY_BYTES or "HTTP_CONTENT_ENCODING" in environ


def _sender(environ: Environ) -> str:
    """Return what a request says of who sends it: its token, its session, or for nobody its address."""
    secret = environ.get("HTTP_AUTHORIZATION", "").strip().partition(" ")[2].strip()
    if secret:
        return f"token {secret}"
    session = parse_cookie(environ.get("HTTP_COOKIE", "")).get(settings.SESSION_COOKIE_NAME)
    return f"session {session}" if session else f"address {environ['REMOTE_ADDR']}"


def _take_wait(head: Head) -> tuple[float, Head]:
    """Return for how many seconds a client waits for another answer, and the head without the header for it."""
    status, headers = head
    waits = [value for name, value in headers if name == waiting.HEADER]
    rest = [(name, value) for name, value in headers if name != waiting.HEADER]
    return float(waits[0]) if waits else 0.0, (status, rest)


def wsgi_environ(scope: Message) -> Environ:
    """Return the environment of a request, without its body."""
    path = scope["raw_path"]
    if not path.startswith(b"/"):
        # The form in which requests reach a proxy.
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    server, client = scope.get("server") or ("localhost", 80), scope.get("client") or ("", 0)
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = (
            raw_name.decode("latin-1").upper().replace("-", "_"),
            raw_value.decode("latin-1"),
        )
        key = name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
        separator = "; " if name == "COOKIE" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value
    return environ


def is_member(environ: Environ) -> bool:
    """Tell whether a request comes from somebody who is logged in, or from a program with a token.

    Raises RefusedError while the database does not say.
    """
    # Models can only be imported once Django is set up.
    from evalsite.access.models import ApiToken
    from evalsite.access.tokens import bearer_secret
    from evalsite.health import find_outage

    request = WSGIRequest({**environ, "wsgi.input": BytesIO()})
    sessions = import_module(settings.SESSION_ENGINE)
    request.session = sessions.SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    try:
        if (secret := bearer_secret(request)) is not None:
            return ApiToken.objects.working(secret, now=timezone.now()) is not None
        return bool(get_user(request).is_authenticated)
    except (DatabaseError, InterfaceError) as error:
        if (outage := find_outage(error)) is None:
            raise
        text = f"{outage.title}. {outage.meaning}"
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error
    finally:
        close_old_connections()


async def _run_in(thread: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a thread; a caller that is cancelled meanwhile waits until the thread is free."""
    job = asyncio.get_running_loop().run_in_executor(thread, function, *arguments)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        raise


def _is_utf_8(content_type: str) -> bool:
    """Tell whether a request is said to be in UTF-8, or in no encoding.

    Some of Python's codecs take minutes for what anybody may send, and others raise errors.
    """
    try:
        _, parameters = parse_header_parameters(content_type)
        return codecs.lookup(parameters.get("charset", "utf-8")).name in {"utf-8", "ascii"}
    except (LookupError, ValueError):
        return False


def _unstorable(error: OSError) -> RefusedError:
    # Imported here: it needs Django's models, which are loaded after this module.
    from evalsite.health import find_outage

    logger.warning("A request could not be received: %s", error)
    outage = find_outage(error)
    text = f"{outage.title}. {outage.meaning}" if outage else CANNOT_RECEIVE
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{text}\n")


def _too_large(length: int, longest: int) -> RefusedError:
    if longest == SMALL_BODY_BYTES and length <= MAX_BODY_BYTES:
        return RefusedError(HTTPStatus.FORBIDDEN, FOR_MEMBERS)
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)


async def _store(receive: Receive, body: IO[bytes], *, longest: int) -> None:
    missing, has_more = PIECE_BYTES, True
    try:
        async with asyncio.timeout(RECEIVE_PIECE_S) as deadline:
            while has_more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGoneError
                body.write(message["body"])
                if body.tell() > longest:
                    raise _too_large(body.tell(), longest)
                has_more, missing = message["more_body"], missing - len(message["body"])
                if missing <= 0:
                    missing = PIECE_BYTES
                    deadline.reschedule(asyncio.get_running_loop().time() + RECEIVE_PIECE_S)
    except TimeoutError:
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, TOO_SLOW) from None


async def _send(head: Head, pieces: AsyncGenerator[bytes, None], is_gone: Gone, send: Send) -> None:
    """Send an answer, as fast as the client takes it."""
    status, headers = head
    raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": int(status[:3]), "headers": raw_headers})
    async with aclosing(pieces):
        async for piece in pieces:
            if is_gone.done():
                raise ClientGoneError
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def _cut(content: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


def _next_piece(chunks: Iterator[bytes]) -> bytes:
    gathered, size = [], 0
    for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= PIECE_BYTES:
            break
    return b"".join(gathered)


def _close(answer: Iterable[bytes]) -> None:
    if close := getattr(answer, "close", None):
        close()

"""Clients that send and take slowly, against the real server: nobody else waits for them."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services.processes import running, scratch_folder, wait_until
from tests.services.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# More than are ever answered at once.
MANY = 12
LATE_S = 2
PAGE = b"GET /login/ HTTP/1.1\r\nHost: localhost\r\n"
DEADLINES = """
from evalsite import serving
serving.HEAD_S = serving.FIRST_BYTE_S = serving.RECEIVE_PIECE_S = serving.SEND_PIECE_S = {seconds}
from evalsite.gunicorn import *
"""


@contextmanager
def served(folder: Path, *, deadline_s: int) -> Iterator[Site]:
    """Serve a site whose clients must send everything within `deadline_s` seconds."""
    config = folder / "deadlines.py"
    config.write_text(DEADLINES.format(seconds=deadline_s))
    site = Site(folder, config=str(config))
    site.migrate()
    with running(site.web):
        yield site


@pytest.fixture(scope="module")
def patient() -> Iterator[Site]:
    """Give a site that waits so long for slow clients that only its threads can save it."""
    with scratch_folder("slow") as folder, served(folder, deadline_s=1000) as site:
        yield site


@pytest.fixture(scope="module")
def strict() -> Iterator[Site]:
    """Give a site that soon ends the connections of slow clients."""
    with scratch_folder("strict") as folder, served(folder, deadline_s=LATE_S) as site:
        yield site


def connect(site: Site, sent: bytes) -> socket.socket:
    """Open a connection that sends only this."""
    parts = urlsplit(site.url)
    assert parts.hostname
    connection = socket.create_connection((parts.hostname, parts.port or 80), timeout=60)
    connection.sendall(sent)
    return connection


def post(length: int) -> bytes:
    # With the cookie, the login page reads the form.
    return (
        b"POST /login/ HTTP/1.1\r\nHost: localhost\r\nCookie: evalsite_csrf=%b\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n"
        % (b"a" * 32, length)
    )


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /login/ HT", PAGE, post(100_000) + b"username=", post(2_000_000) + b"username="],
    ids=["nothing", "a line", "half a head", "half a form", "half an upload"],
)
def test_a_page_is_served_while_many_clients_have_sent_half(patient: Site, sent: bytes) -> None:
    with ExitStack() as open_connections:
        for _ in range(MANY):
            open_connections.enter_context(connect(patient, sent))
        with urllib.request.urlopen(f"{patient.url}/login/", timeout=30) as page:
            assert page.status == 200


def test_a_page_is_served_while_many_clients_do_not_take_theirs(patient: Site) -> None:
    with ExitStack() as open_connections:
        for _ in range(MANY):
            # Requests one after the other, none of whose answers is taken.
            client = open_connections.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            parts = urlsplit(patient.url)
            client.connect((parts.hostname, parts.port))
            client.sendall(
                (b"GET /static/plotly/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n") * 20
            )
        with urllib.request.urlopen(f"{patient.url}/login/", timeout=30) as page:
            assert page.status == 200


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (PAGE, b""), (post(9) + b"user", b"HTTP/1.1 408 Request Timeout\r\n")],
    ids=["nothing", "half a head", "half a form"],
)
def test_the_connection_of_a_slow_client_is_ended(strict: Site, sent: bytes, answer: bytes) -> None:
    with connect(strict, sent) as connection:
        assert connection.recv(len(answer) or 1) == answer


def is_closed_after(connection: socket.socket, sent: bytes) -> bool:
    """Send something and tell whether the other side has closed the connection."""
    try:
        connection.sendall(sent)
        return not connection.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_bytes_that_trickle_in_do_not_prolong_the_time(strict: Site) -> None:
    with connect(strict, PAGE) as connection:
        connection.settimeout(LATE_S / 10)
        wait_until(lambda: is_closed_after(connection, b"X"))


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(patient: Site) -> None:
    with connect(patient, post(300_000_000)) as connection:
        assert connection.recv(16) == b"HTTP/1.1 413 Req"


def test_no_header_moves_pages_to_where_share_links_are(patient: Site) -> None:
    connection = HTTPConnection(urlsplit(patient.url).netloc, timeout=30)
    for name in ("SCRIPT_NAME", "Script-Name"):
        connection.request("GET", "/s/login/", headers={name: "/s"})
        answer = connection.getresponse()
        assert answer.status == 404
        assert b"csrfmiddlewaretoken" not in answer.read()
    connection.request("GET", "/s/login/", headers={"PATH_INFO": "/login/"})
    assert connection.getresponse().status == 404
    connection.close()

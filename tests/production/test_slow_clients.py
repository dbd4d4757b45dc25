"""Clients that send and take slowly, against the real server: nobody else waits for them."""

from __future__ import annotations

import signal
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
from tests.services.slow_clients import (
    HALF_A_HEAD,
    LARGE_FILE,
    clients_of,
    connect,
    get,
    half_a_form,
    slow_clients,
)
from tests.services.visitor import Visitor

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# More than the site has threads, and than waited for it when each had one.
MANY = 150
LATE_S = 2
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "c2FtcGxlIG9mIGEga2V5IQ==",
}
DEADLINES = """
from evalsite import serving
serving.HEAD_S = serving.RECEIVE_PIECE_S = serving.SEND_PIECE_S = {seconds}
from evalsite.gunicorn import *
keepalive = {seconds}
"""


@contextmanager
def served(folder: Path, *, deadline_s: int, **env: str) -> Iterator[Site]:
    """Serve a site whose clients must send everything within `deadline_s` seconds."""
    config = folder / "deadlines.py"
    config.write_text(DEADLINES.format(seconds=deadline_s))
    site = Site(folder, config=str(config), **env)
    site.migrate()
    with running(site.web):
        yield site


@pytest.fixture(scope="module")
def patient() -> Iterator[Site]:
    """Give a site that waits so long for slow clients that only its event loop can save it."""
    with scratch_folder("slow") as folder, served(folder, deadline_s=1000) as site:
        yield site


@pytest.fixture(scope="module")
def strict() -> Iterator[Site]:
    """Give a site that soon ends the connections of slow clients."""
    with scratch_folder("strict") as folder, served(folder, deadline_s=LATE_S) as site:
        yield site


@pytest.fixture(scope="module")
def session(patient: Site) -> str:
    """Give the cookie of a member."""
    visitor = Visitor(patient.url)
    visitor.log_in(patient.login_link())
    return visitor.cookies


def see_that_pages_are_served(site: Site) -> None:
    for path in ("/login/", "/healthz?parts=database", LARGE_FILE):
        with urllib.request.urlopen(f"{site.url}{path}", timeout=60) as answer:
            assert answer.status == 200
            assert answer.read()


@pytest.mark.parametrize(
    "sent",
    ["", "GET /login/ HT", HALF_A_HEAD, half_a_form(100_000), get("/healthz?parts=broker")],
    ids=["nothing", "a line", "half a head", "half a form", "a request and no more"],
)
def test_pages_are_served_while_many_clients_have_sent_half(patient: Site, sent: str) -> None:
    with slow_clients(patient, MANY, sent):
        see_that_pages_are_served(patient)


def test_pages_are_served_while_members_have_sent_half_of_large_uploads(
    patient: Site, session: str
) -> None:
    with slow_clients(patient, MANY, half_a_form(5_000_000, session)):
        see_that_pages_are_served(patient)


@pytest.mark.parametrize("path", ["/login/", LARGE_FILE])
def test_pages_are_served_while_many_clients_do_not_take_theirs(patient: Site, path: str) -> None:
    with slow_clients(patient, MANY, get(path)):
        see_that_pages_are_served(patient)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [("", b""), (HALF_A_HEAD, b""), (half_a_form(100), b"HTTP/1.1 408 Request Timeout\r\n")],
    ids=["nothing", "half a head", "half a form"],
)
def test_the_connection_of_a_slow_client_is_ended(strict: Site, sent: str, answer: bytes) -> None:
    with connect(strict.url, sent) as connection:
        assert connection.recv(len(answer) or 1) == answer


def test_the_connection_of_a_client_that_takes_nothing_is_ended(strict: Site) -> None:
    with connect(strict.url, get(LARGE_FILE) * 5) as connection:
        port = connection.getsockname()[1]
        wait_until(lambda: port in clients_of(strict))
        wait_until(lambda: port not in clients_of(strict))


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
    with connect(strict.url, HALF_A_HEAD) as connection:
        connection.settimeout(LATE_S / 10)
        wait_until(lambda: is_closed_after(connection, b"X"))


def test_slow_clients_do_not_keep_a_site_from_stopping() -> None:
    with scratch_folder("stopping") as folder, served(folder, deadline_s=1000) as site:
        clients = (HALF_A_HEAD, half_a_form(100), get(LARGE_FILE) * 5)
        with ExitStack() as stack:
            opened = [stack.enter_context(connect(site.url, sent)) for sent in clients]
            ports = {connection.getsockname()[1] for connection in opened}
            wait_until(lambda: ports <= clients_of(site))
            site.web.signal(signal.SIGTERM)
            assert site.web.wait() == 0
        # One that is killed does not say so.
        assert "Worker exiting" in site.log()


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(patient: Site) -> None:
    with connect(patient.url, half_a_form(300_000_000)) as connection:
        assert connection.recv(16) == b"HTTP/1.1 413 Pay"


def test_a_stranger_sends_no_large_upload(patient: Site) -> None:
    with connect(patient.url, half_a_form(5_000_000)) as connection:
        assert connection.recv(16) == b"HTTP/1.1 403 For"


@pytest.mark.parametrize(
    ("fields", "body", "status"),
    [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "0\r\n\r\n", 400),
        ("Content-Length: 3\r\nContent-Length: 4", "abc", 400),
        ("Content-Length: +3", "abc", 400),
        ("Transfer-Encoding: chunked, identity", "0\r\n\r\n", 400),
        ("Transfer-Encoding : chunked", "0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", "3\nabc\r\n0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n", 403),
    ],
)
def test_a_body_whose_end_can_be_read_in_two_ways_is_refused(
    patient: Site, fields: str, body: str, status: int
) -> None:
    request = f"POST /login/ HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}"
    with connect(patient.url, request + get("/healthz?parts=broker")) as connection:
        head = connection.recv(12)
        assert head == b"HTTP/1.1 %d" % status


def test_who_waits_for_leave_to_send_a_body_gets_it(patient: Site) -> None:
    head, _, _ = half_a_form(9).partition("\r\n\r\n")
    with connect(patient.url, f"{head}\r\nExpect: 100-continue\r\n\r\n") as connection:
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"username=")
        assert connection.recv(12) == b"HTTP/1.1 403"


@pytest.mark.parametrize(
    ("method", "fields", "status", "length"),
    [
        ("HEAD", {}, 200, None),
        ("GET", {"Range": "bytes=10-19"}, 206, 10),
        ("GET", WEBSOCKET, 403, None),
        ("GET", {"Upgrade": "h2c", "Connection": "Upgrade"}, 200, None),
    ],
)
def test_what_http_offers_besides_is_answered(
    patient: Site, method: str, fields: dict[str, str], status: int, length: int | None
) -> None:
    connection = HTTPConnection(urlsplit(patient.url).netloc, timeout=60)
    connection.request(method, LARGE_FILE, headers=fields)
    answer = connection.getresponse()
    assert answer.status == status
    assert length is None or len(answer.read()) == length
    connection.close()


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

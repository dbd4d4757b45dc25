"""Clients that send and take slowly, against the real server: nobody else waits for them."""

from __future__ import annotations

import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services.processes import running, scratch_folder, wait_until
from tests.services.site import Site
from tests.services.visitor import Visitor

pytestmark = [pytest.mark.slow, pytest.mark.processes]

# More than the site has threads, and than waited for it when each had one.
MANY = 150
LATE_S = 2
HEAD = "GET /static/plotly/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n"
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


def connect(site: Site, sent: str) -> socket.socket:
    """Open a connection that takes little at a time, and send only this."""
    parts = urlsplit(site.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(sent.encode())
    return connection


def get(path: str, cookies: str = "") -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\n\r\n"


def post(length: int, cookies: str = "") -> str:
    # With its cookie, the login page reads the form.
    return (
        f"POST /login/ HTTP/1.1\r\nHost: localhost\r\nCookie: evalsite_csrf={'a' * 32}; {cookies}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\nusername="
    )


def held_by(site: Site) -> set[int]:
    """Return the ports of clients whose connections the site's web processes have open."""
    ours = f"{urlsplit(site.url).port:04X}"
    inodes = set()
    for process in site.web_workers():
        for file in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                inodes.add(str(file.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(row[2].rpartition(":")[2], 16)
        for row in rows
        if row[1].endswith(f":{ours}") and f"socket:[{row[9]}]" in inodes
    }


@contextmanager
def many_connections(site: Site, sent: str) -> Iterator[None]:
    """Hold many connections that send only this, and see that the site has them open all the time."""
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(site, sent)) for _ in range(MANY)]
        ports = {connection.getsockname()[1] for connection in opened}
        wait_until(lambda: ports <= held_by(site))
        yield
        assert ports <= held_by(site)
    wait_until(lambda: not ports & held_by(site))


def see_that_pages_are_served(site: Site) -> None:
    for path in ("/login/", "/healthz?parts=database", "/static/plotly/plotly.min.js"):
        with urllib.request.urlopen(f"{site.url}{path}", timeout=60) as answer:
            assert answer.status == 200
            assert answer.read()


@pytest.mark.parametrize(
    "sent",
    ["", "GET /login/ HT", HEAD, post(100_000), get("/healthz?parts=broker")],
    ids=["nothing", "a line", "half a head", "half a form", "a request and no more"],
)
def test_pages_are_served_while_many_clients_have_sent_half(patient: Site, sent: str) -> None:
    with many_connections(patient, sent):
        see_that_pages_are_served(patient)


def test_pages_are_served_while_members_have_sent_half_of_large_uploads(
    patient: Site, session: str
) -> None:
    with many_connections(patient, post(5_000_000, session)):
        see_that_pages_are_served(patient)


@pytest.mark.parametrize("path", ["/login/", "/static/plotly/plotly.min.js"])
def test_pages_are_served_while_many_clients_do_not_take_theirs(patient: Site, path: str) -> None:
    with many_connections(patient, get(path)):
        see_that_pages_are_served(patient)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [("", b""), (HEAD, b""), (post(100), b"HTTP/1.1 408 Request Timeout\r\n")],
    ids=["nothing", "half a head", "half a form"],
)
def test_the_connection_of_a_slow_client_is_ended(strict: Site, sent: str, answer: bytes) -> None:
    with connect(strict, sent) as connection:
        assert connection.recv(len(answer) or 1) == answer


def test_the_connection_of_a_client_that_takes_nothing_is_ended(strict: Site) -> None:
    with connect(strict, get("/static/plotly/plotly.min.js") * 5) as connection:
        port = connection.getsockname()[1]
        wait_until(lambda: port in held_by(strict))
        wait_until(lambda: port not in held_by(strict))


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
    with connect(strict, HEAD) as connection:
        connection.settimeout(LATE_S / 10)
        wait_until(lambda: is_closed_after(connection, b"X"))


def test_slow_clients_do_not_keep_a_site_from_stopping() -> None:
    with scratch_folder("stopping") as folder, served(folder, deadline_s=1000) as site:
        clients = (HEAD, post(100), get("/static/plotly/plotly.min.js") * 5)
        with ExitStack() as stack:
            opened = [stack.enter_context(connect(site, sent)) for sent in clients]
            ports = {connection.getsockname()[1] for connection in opened}
            wait_until(lambda: ports <= held_by(site))
            site.web.signal(signal.SIGTERM)
            assert site.web.wait() == 0
        assert "SIGKILL" not in site.log()


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(patient: Site) -> None:
    with connect(patient, post(300_000_000)) as connection:
        assert connection.recv(16) == b"HTTP/1.1 413 Pay"


def test_a_stranger_sends_no_large_upload(patient: Site) -> None:
    with connect(patient, post(5_000_000)) as connection:
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
    with connect(patient, request + get("/healthz?parts=broker")) as connection:
        head = connection.recv(12)
        assert head == b"HTTP/1.1 %d" % status


def test_who_waits_for_leave_to_send_a_body_gets_it(patient: Site) -> None:
    head, _, _ = post(9).partition("\r\n\r\n")
    with connect(patient, f"{head}\r\nExpect: 100-continue\r\n\r\n") as connection:
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
    connection.request(method, "/static/plotly/plotly.min.js", headers=fields)
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

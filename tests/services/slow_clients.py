"""Clients that keep connections to a site open without sending or taking more."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.processes import wait_until
from tests.services.site import Site

LARGE_FILE = "/static/plotly/plotly.min.js"
HALF_A_HEAD = f"GET {LARGE_FILE} HTTP/1.1\r\nHost: localhost\r\n"


def get(path: str, cookies: str = "") -> str:
    """Return a request for a page."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\n\r\n"


def half_a_form(length: int, cookies: str = "") -> str:
    """Return the beginning of a form that the login page would read."""
    return (
        f"POST /login/ HTTP/1.1\r\nHost: localhost\r\nCookie: evalsite_csrf={'a' * 32}; {cookies}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\nusername="
    )


def connect(url: str, sent: str) -> socket.socket:
    """Open a connection that takes little at a time, and send only this."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(sent.encode())
    return connection


@contextmanager
def slow_clients(site: Site, number: int, sent: str) -> Iterator[None]:
    """Hold connections that send only this; raises AssertionError unless the site keeps all of them open."""
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(site.url, sent)) for _ in range(number)]
        ports = {connection.getsockname()[1] for connection in opened}
        wait_until(lambda: ports <= clients_of(site))
        yield
        assert ports <= clients_of(site)
    wait_until(lambda: not ports & clients_of(site))


def clients_of(site: Site) -> set[int]:
    """Return the ports of the clients whose connections the web processes of a site have open."""
    ours = f":{urlsplit(site.url).port:04X}"
    files = set()
    for process in site.web_workers():
        # Files are closed and processes end meanwhile.
        with suppress(FileNotFoundError):
            for file in Path(f"/proc/{process}/fd").iterdir():
                with suppress(FileNotFoundError):
                    files.add(str(file.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {
        int(remote.rpartition(":")[2], 16)
        for _, local, remote, *_, inode in (row[:10] for row in rows)
        if local.endswith(ours) and f"socket:[{inode}]" in files
    }

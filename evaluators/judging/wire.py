"""The wire: how requests of the library's client leave this machine, each answered whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2

CONNECT_S = 10.0
CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
MOST_CONNECTIONS = 1000
KEEP_ALIVE_S = 30.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# What aiohttp has undone, and what no longer says how long the content is.
OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Received:
    """What a server answered, decompressed."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """Return the content as text; what is not in its encoding is replaced."""
        kind = self.headers.get("Content-Type", "")
        # Nearly always UTF-8: other encodings are worth a look at the header only when it names one.
        named = CHARSET.search(kind)
        try:
            return self.content.decode(named[1] if named else "utf-8", errors="replace")
        except LookupError:
            return self.content.decode(errors="replace")


class Wire(httpx2.AsyncBaseTransport):
    """Carries requests over aiohttp, for the library's client and for those who skip its ceremony.

    Follows no redirect, keeps no cookie and sets no time limit but that for connecting: whoever
    sends limits the rest.
    """

    def __init__(self, base_url: str) -> None:
        """Open nothing yet; everything sent goes below `base_url`."""
        self._base_url = base_url
        self._session: aiohttp.ClientSession | None = None

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> Received:
        """Return what the server answers, whole; raises httpx2.TransportError when nothing came."""
        session = self._session or self._open()
        try:
            async with session.request(
                method,
                url,
                headers=headers,
                data=content or None,
                allow_redirects=False,
            ) as answer:
                return Received(answer.status, answer.headers, await answer.read())
        except (aiohttp.ClientError, OSError) as error:
            raise httpx2.TransportError(str(error)) from error

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Carry a request of the library's client."""
        received = await self.exchange(
            request.method, str(request.url), dict(request.headers), request.content
        )
        kept = {
            name: value
            for name, value in received.headers.items()
            if name.lower() not in OF_THE_WIRE
        }
        return httpx2.Response(
            received.status, headers=kept, content=received.content, request=request
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        parts = urlsplit(self._base_url)
        is_here = parts.hostname in LOOPBACK
        connector = aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_S,
            ssl=httpx2.create_ssl_context(trust_env=not is_here)
            if parts.scheme == "https"
            else True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            # The session would also read passwords from a file of the user's, were it to trust the
            # environment.
            trust_env=False,
            proxy=None if is_here else proxy_for(self._base_url),
        )
        return self._session


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for an address; None to go straight there."""
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")

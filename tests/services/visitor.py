"""Somebody at a browser without a screen: follows links, sends forms, keeps cookies."""

from __future__ import annotations

import re
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
TIMEOUT_S = 30


class Visitor:
    """A visitor of one site, with cookies of their own."""

    def __init__(self, url: str) -> None:
        """Have no cookies yet."""
        self._url = url
        self._jar = CookieJar()
        cookies = urllib.request.HTTPCookieProcessor(self._jar)
        self._opener = urllib.request.build_opener(cookies)

    @property
    def cookies(self) -> str:
        """Return the cookies as a header."""
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self._jar)

    def log_in(self, link: str) -> None:
        """Log in by a link that works once."""
        self.send(link, page=link)

    def get(self, address: str) -> str:
        """Return a page; raises urllib.error.HTTPError when there is none."""
        return self._open(urllib.request.Request(urllib.parse.urljoin(self._url, address)))

    def send(self, address: str, *, page: str, **fields: str) -> str:
        """Send a form that stands on a page, and return the page it leads to."""
        found = TOKEN.search(self.get(page))
        assert found is not None, f"no form stands on {page}"
        fields["csrfmiddlewaretoken"] = found[1]
        request = urllib.request.Request(
            urllib.parse.urljoin(self._url, address),
            data=urllib.parse.urlencode(fields).encode(),
            headers={"Referer": urllib.parse.urljoin(self._url, page)},
        )
        return self._open(request)

    def _open(self, request: urllib.request.Request) -> str:
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())

"""The transport to one address: chat calls and embeddings over HTTP. Only this module imports openai."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import IO, Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient

from evaluators.model_calls.bodies import (
    MAX_MODEL_REPLY_BYTES,
    UnreadableBodyError,
    is_known_charset,
    read_content_type,
    receive_body,
)
from evaluators.model_calls.calls import UnreadableAnswerError
from evaluators.model_calls.models import ModelSpec
from evaluators.model_calls.resolver import CheckedResolver

CONNECT_S = 10.0
MAX_CONNECTIONS = 1000
KEEP_ALIVE_S = 30.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@cache
def tls_context(*, trust_env: bool) -> ssl.SSLContext:
    """Return the context that checks certificates; cached, as loading takes longer than many calls."""
    return httpx2.create_ssl_context(trust_env=trust_env)


def _open_session(context: ssl.SSLContext) -> aiohttp.ClientSession:
    """Open a session that connects to the addresses of a name only after they have been checked."""
    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(),
        limit=MAX_CONNECTIONS,
        keepalive_timeout=KEEP_ALIVE_S,
        ssl=context,
    )
    return aiohttp.ClientSession(connector=connector)


@dataclass(frozen=True, slots=True)
class Received:
    """The answer of a server, its body on disk if it is long."""

    status: int
    headers: Mapping[str, str]
    body: IO[bytes]

    def text(self) -> str:
        """Read the body, as UTF-8 where the headers name no charset that is read."""
        _, charset = read_content_type(self.headers)
        self.body.seek(0)
        encoding = charset if is_known_charset(charset) else "utf-8"
        return self.body.read().decode(encoding, errors="replace")


class Endpoint(AsyncOpenAI):
    """The library's client for one address and key, which ignores the library's environment variables."""

    def __init__(self, spec: ModelSpec) -> None:
        """Prepare the client without connecting."""
        is_elsewhere = urlsplit(spec.base_url).hostname not in LOOPBACK
        context = tls_context(trust_env=is_elsewhere)
        # Each call has its own timeout for everything else.
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        http = DefaultAioHttpClient(
            limits=httpx2.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=MAX_CONNECTIONS,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            timeout=timeout,
            # A redirect could send the key, or a request from the internal network, to another place.
            follow_redirects=False,
            trust_env=is_elsewhere,
            verify=context,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )
        # The session of the library would connect to any address that a name leads to.
        http._transport.client = partial(_open_session, context)  # type: ignore[attr-defined]  # of its aiohttp transport
        super().__init__(
            base_url=spec.base_url,
            api_key=spec.api_key,
            http_client=http,
            timeout=timeout,
            max_retries=0,
            _enforce_credentials=False,
        )
        self._http = http
        self._chat_url = self.base_url.join("chat/completions")
        self._embeddings_url = self.base_url.join("embeddings")
        self._models_url = self.base_url.join("models")
        self._sent_headers = httpx2.Headers(self.default_headers)

    @property
    def default_headers(self) -> dict[str, Any]:
        """Return the headers of every request, without any about this machine."""
        return {
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "Content-Type": "application/json",
            "User-Agent": "Evalsite",
            **self.auth_headers,
        }

    async def post_chat(
        self, body: Mapping[str, Any], more_headers: Mapping[str, str], *, longest: int
    ) -> Received:
        """Return the server's answer, which the caller closes; a body without messages asks for embeddings.

        The library's `post` costs as much as sending: for every call it validates, copies and merges what
        never changes here, for retries and redirects that we do not use.

        Raises:
            ConnectionError: there is no answer.
            UnreadableAnswerError: it is too long, badly packed, or not HTTP.

        """
        headers = self._sent_headers
        if more_headers:
            headers = httpx2.Headers({**headers, **more_headers})
        content = json.dumps(body).encode()
        url = self._chat_url if "messages" in body else self._embeddings_url
        request = httpx2.Request("POST", url, headers=headers, content=content)
        return await self._exchange(request, longest=longest)

    async def get_models(self) -> str:
        """Return the text of the server's list of models; raises ConnectionError if it gives none."""
        request = httpx2.Request("GET", self._models_url, headers=self._sent_headers)
        try:
            received = await self._exchange(request, longest=MAX_MODEL_REPLY_BYTES)
        except UnreadableAnswerError as error:
            raise ConnectionError("no list of models") from error
        with received.body:
            if received.status != HTTPStatus.OK:
                raise ConnectionError("no list of models")
            return received.text()

    async def _exchange(self, request: httpx2.Request, *, longest: int) -> Received:
        try:
            response = await self._http.send(request, stream=True)
            async with aclosing(response):
                body = await receive_body(response.aiter_raw(), response.headers, longest=longest)
        except httpx2.RequestError as error:
            raise ConnectionError("no answer") from error
        except UnreadableBodyError as error:
            raise UnreadableAnswerError(str(error)) from error
        except aiohttp.ClientResponseError as error:
            # The only error of aiohttp that its transport does not translate.
            raise UnreadableAnswerError(f"the answer is not HTTP: {error.message}") from error
        except UnicodeEncodeError as error:
            # The transport encodes the words after the status, which were no UTF-8.
            raise UnreadableAnswerError(
                "the answer is not HTTP: odd bytes after its status"
            ) from error
        return Received(response.status_code, response.headers, body)

"""The content of an agent's answer: read up to a limit, unpacked up to the same, and made text."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientResponse

from evaluators.judging.answers import storable
from runs.targets._base import AgentReply

LARGEST_REPLY = 16 * 1024 * 1024
CHUNK = 64 * 1024
BEGINNING = 4 * CHUNK
GZIP_OR_ZLIB, RAW_DEFLATE = 47, -15
PLAIN = ("", "identity")
PACKED = ("gzip", "x-gzip", "deflate")
CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d+|windows-125\d|cp125\d"
    r"|shift_jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5"
)


class UnreadableBodyError(ValueError):
    """The content cannot be read; `beginning` is what came of it."""

    def __init__(self, reason: str, beginning: bytes = b"") -> None:
        """Keep the beginning for whoever looks for the reason."""
        super().__init__(reason)
        self.beginning = beginning


async def read_body(response: ClientResponse) -> bytes:
    """Return the content, unpacked; raises UnreadableBodyError for too much and unknown packing."""
    unpack = _unpacker(response.headers.get("Content-Encoding", "").strip().lower())
    content = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK):
        content += unpack(chunk, LARGEST_REPLY - len(content) + 1)
        if len(content) > LARGEST_REPLY:
            most = LARGEST_REPLY // 1024 // 1024
            reason = f"the agent sent more than {most} MB and was cut off"
            raise UnreadableBodyError(reason, bytes(content[:BEGINNING]))
    return bytes(content)


def _unpacker(packing: str) -> Any:
    if packing in PLAIN:
        return lambda chunk, most: chunk
    if packing not in PACKED:
        raise UnreadableBodyError(f"the agent packed its answer as {packing!r}, not asked for")
    return _Inflater().unpack


class _Inflater:
    """Unpacks gzip and deflate, never more at once than is wanted."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(GZIP_OR_ZLIB)
        self._has_begun = False

    def unpack(self, chunk: bytes, most: int) -> bytes:
        """Return what a chunk holds, up to one byte more than there is room for."""
        try:
            found = self._inner.decompress(chunk, most)
        except zlib.error as error:
            if self._has_begun:
                raise UnreadableBodyError(
                    f"the agent's answer is not packed well: {error}"
                ) from None
            return self._unpack_raw(chunk, most)
        self._has_begun = True
        return found

    def _unpack_raw(self, chunk: bytes, most: int) -> bytes:
        """Unpack deflate without its head, as some servers send it."""
        self._inner, self._has_begun = zlib.decompressobj(RAW_DEFLATE), True
        try:
            return self._inner.decompress(chunk, most)
        except zlib.error as error:
            raise UnreadableBodyError(f"the agent's answer is not packed well: {error}") from None


def kind_of(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """Return what kind of content the headers announce, and in which charset if they say so."""
    kind, _, rest = headers.get("Content-Type", "").partition(";")
    _, _, charset = rest.partition("charset=")
    return kind.strip().lower()[:100], charset.partition(";")[0].strip().strip("\"'") or None


def text_of(content: bytes, charset: str | None) -> str:
    """Return the content as text; raises UnreadableBodyError at the first byte that is none."""
    name = (charset or "utf-8").strip().lower()
    if not CHARSETS.fullmatch(name):
        raise UnreadableBodyError(f"the agent says it writes in {name[:40]!r}", content[:BEGINNING])
    try:
        return content.decode("utf-8-sig" if name in ("utf-8", "utf8") else name)
    except UnicodeDecodeError as error:
        reason = f"the agent's answer is not {name}: byte {error.start + 1} cannot be read"
        raise UnreadableBodyError(reason, content[:BEGINNING]) from None


def reply_of(text: str, content_type: str) -> AgentReply:
    """Return an answer with its JSON, if it is any; every text in it can be stored."""
    try:
        value, is_json = storable(DECODE(text)), True
    except (ValueError, RecursionError):
        value, is_json = None, False
    return AgentReply(storable(text), value, is_json, content_type)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


DECODE = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode

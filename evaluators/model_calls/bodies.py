"""Read the bodies of answers over HTTP: unpacked within limits, whatever a server packs into them."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO

# The longest replies that are read; the connection of a longer one is closed. That of an agent may hold files. That of
# a model is kept whole beside the text in it, and a million tokens have some 4 MB. For one result many judges are asked
# at once, and no more than 200,000 characters of each reply are used.
MAX_REPLY_BYTES = 16 * 1024 * 1024
MAX_MODEL_REPLY_BYTES = 8 * 1024 * 1024
MAX_JUDGE_REPLY_BYTES = 2 * 1024 * 1024
CHUNK = IN_MEMORY_BYTES = 64 * 1024
BEGINNING = 4 * CHUNK
GZIP_OR_ZLIB, RAW_DEFLATE = 47, -15
PLAIN = ("", "identity")
PACKED = ("gzip", "x-gzip", "deflate")
# Others are no text, or take time that grows with the square of their length.
CHARSETS = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|latin-?1|iso-8859-\d+|windows-125\d|cp125\d"
    r"|shift_jis|euc-(jp|kr)|gb2312|gbk|gb18030|big5"
)


class UnreadableBodyError(ValueError):
    """The content cannot be read; `beginning` is its first part."""

    def __init__(self, reason: str, beginning: bytes = b"") -> None:
        """Keep the beginning to show it with the reason."""
        super().__init__(reason)
        self.beginning = beginning


async def receive_body(
    chunks: AsyncIterable[bytes], headers: Mapping[str, str], *, longest: int
) -> IO[bytes]:
    """Return the unpacked content, on disk if it is long, at its end; raises UnreadableBodyError.

    That is when it has more than `longest` bytes or is badly packed. What is sent is limited too: a packed answer without end can unpack
    to nothing.
    """
    inflater = _inflater(headers.get("Content-Encoding", "").strip().lower())
    content, sent = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES), 0  # noqa: SIM115 - the caller closes it
    try:
        async for chunk in chunks:
            sent += len(chunk)
            room = longest - content.tell() + 1
            _add(content, inflater.unpack(chunk, room) if inflater else chunk)
            if max(sent, content.tell()) > longest:
                limit = f"{longest / 1024**2:g} MB"
                raise UnreadableBodyError(f"the answer has more than {limit} and was cut off")
            if inflater and inflater.has_more:
                break
        if inflater and sent and not inflater.is_whole:
            raise UnreadableBodyError("the answer is not packed well: it is not one whole file")
    except UnreadableBodyError as error:
        raise UnreadableBodyError(str(error), take_beginning(content)) from None
    return content


def _add(content: IO[bytes], piece: bytes) -> None:
    try:
        content.write(piece)
        # Otherwise a full disk would show when the content is read.
        content.flush()
    except OSError as error:
        reason = f"the answer is long, and the disk does not take it: {error.strerror}"
        raise UnreadableBodyError(reason) from None


def take_beginning(content: IO[bytes]) -> bytes:
    """Return the first part of a body and close it; nothing when the disk does not give it."""
    with suppress(OSError), content:
        content.seek(0)
        return content.read(BEGINNING)
    return b""


def _inflater(packing: str) -> _Inflater | None:
    if packing in PLAIN:
        return None
    if packing not in PACKED:
        raise UnreadableBodyError(
            f"the answer is compressed as {packing[:40]!r}, which was not requested"
        )
    return _Inflater()


class _Inflater:
    """Unpacks gzip and deflate, at most a given amount at once."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(GZIP_OR_ZLIB)
        self._has_begun = False

    @property
    def has_more(self) -> bool:
        """Tell whether something follows the end of the file; every chunk after it would copy all before."""
        return bool(self._inner.unused_data)

    @property
    def is_whole(self) -> bool:
        """Tell whether the content has ended where its file says, and nothing follows."""
        return self._inner.eof and not self.has_more

    def unpack(self, chunk: bytes, most: int) -> bytes:
        """Return the content of a chunk, at most `most` bytes."""
        try:
            content = self._inner.decompress(chunk, most)
        except zlib.error as error:
            if self._has_begun:
                raise UnreadableBodyError(f"the answer is not packed well: {error}") from None
            return self._unpack_raw(chunk, most)
        self._has_begun = True
        return content

    def _unpack_raw(self, chunk: bytes, most: int) -> bytes:
        """Unpack deflate without its header, which some servers leave out."""
        self._inner, self._has_begun = zlib.decompressobj(RAW_DEFLATE), True
        try:
            return self._inner.decompress(chunk, most)
        except zlib.error as error:
            raise UnreadableBodyError(f"the answer is not packed well: {error}") from None


def read_content_type(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the content type of the headers, and the charset, "" without one."""
    kind, _, rest = headers.get("Content-Type", "").partition(";")
    _, _, charset = rest.partition("charset=")
    charset = charset.partition(";")[0].strip().strip("\"'").strip().lower()
    return kind.strip().lower()[:100], charset


def is_known_charset(name: str) -> bool:
    """Tell whether texts in this charset are read."""
    try:
        return bool(CHARSETS.fullmatch(name) and codecs.lookup(name))
    except LookupError:
        return False

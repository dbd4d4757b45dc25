"""Zips taken apart into contents by path, without trusting what they say of themselves."""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO

from runs.formats._ignoring import LeftOut, checked_path
from runs.formats._problems import Problem, UnreadableFileError

SUFFIX = ".zip"
WRITTEN_BY = "Evalsite suite: "
MOST_BYTES = 50 * 1024 * 1024
MOST_FILES = 2_000
# Everything that taking a damaged zip apart can end in.
DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError,
    LookupError, ValueError, RuntimeError, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unzipped:
    """The contents of a zip by path. `suite` names the one suite among them in a zip we wrote."""

    files: dict[str, bytes]
    suite: str = ""


def comment_for(suite: str) -> bytes:
    """Return the comment of a zip that holds this suite and its files, be they suites themselves."""
    return f"{WRITTEN_BY}{suite}".encode()


def unzipped(stream: IO[bytes], name: str, left_out: LeftOut) -> Unzipped:
    """Return the contents of a zip by path; hidden files, caches and links are noted as left out.

    Raises UnreadableFileError for a broken or locked zip, a path that leads out of it or stands twice,
    and too much of anything.
    """
    try:
        with zipfile.ZipFile(stream) as packed:
            files = _contents(packed, name, left_out)
            said = packed.comment.decode(errors="replace")
            suite = said.removeprefix(WRITTEN_BY) if said.startswith(WRITTEN_BY) else ""
            return Unzipped(files, suite if suite in files else "")
    except UnreadableFileError:
        raise
    except DAMAGE as error:
        raise UnreadableFileError([Problem(f"cannot be unpacked: {error}", name)]) from None


def _contents(packed: zipfile.ZipFile, name: str, left_out: LeftOut) -> dict[str, bytes]:
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in packed.infolist():
        if member.is_dir():
            continue
        path = checked_path(member.filename, name)
        if left_out.takes(path, is_link=stat.S_ISLNK(member.external_attr >> 16)):
            continue
        if path in wanted:
            raise UnreadableFileError([Problem(f"holds {path} twice", name)])
        wanted[path] = member
    _refuse_much(wanted, name)
    return {path: _read(packed, member) for path, member in wanted.items()}


def _refuse_much(wanted: dict[str, zipfile.ZipInfo], name: str) -> None:
    """Refuse what the zip claims to hold; that it holds no more is seen to as it is read."""
    if len(wanted) > MOST_FILES or sum(part.file_size for part in wanted.values()) > MOST_BYTES:
        said = f"holds more than {MOST_FILES} files or {MOST_BYTES // 1024**2} MB"
        raise UnreadableFileError([Problem(said, name)])


def _read(packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with packed.open(member) as stream:
        return stream.read(member.file_size + 1)

"""A suite written out whole: one file, or a zip with the files it names beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from runs.formats import suite_files
from runs.formats.bundles import comment_for
from runs.specs.suites import SuiteWithCases

# The same suite is the same zip whenever it is written.
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)
READABLE = 0o644 << 16


@dataclass(frozen=True, slots=True)
class Packed:
    """A file on its way out: its name, what browsers are told it is, and its content part by part."""

    name: str
    media_type: str
    parts: Iterator[bytes]


def packed(content: SuiteWithCases, name: str, *, always_zip: bool = False) -> Packed:
    """Return the suite as `<name>.yaml`, or as `<name>.zip` when it names files or one is wanted.

    Its first part is written at once: what cannot be written at all is raised here.
    """
    is_zip = bool(content.files) or always_zip
    parts = _zip_parts(content) if is_zip else suite_files.write_suite_parts(content)
    begun = chain([next(parts)], parts)
    if is_zip:
        return Packed(f"{name}.zip", "application/zip", begun)
    return Packed(f"{name}.yaml", "application/yaml", begun)


def _zip_parts(content: SuiteWithCases) -> Iterator[bytes]:
    """Yield the parts of a zip as they are written, the suite file first."""
    written = _Parts()
    with ZipFile(written, "w", ZIP_DEFLATED) as zipped:
        zipped.comment = comment_for(suite_file_name(content))
        with zipped.open(_member(suite_file_name(content)), "w") as stream:
            for part in suite_files.write_suite_parts(content):
                stream.write(part)
                yield written.taken()
        for path, part in content.files.items():
            zipped.writestr(_member(path), part)
            yield written.taken()
    yield written.taken()


def suite_file_name(content: SuiteWithCases) -> str:
    """Return a name for the suite file that no file beside it has, and no other suite in that folder."""
    names = (f"{content.slug}{n or ''}.yaml" for n in range(len(content.files) + 1))
    return next(name for name in names if name not in content.files)


def _member(path: str) -> ZipInfo:
    member = ZipInfo(path, WRITTEN_AT)
    member.compress_type = ZIP_DEFLATED
    member.external_attr = READABLE
    return member


class _Parts:
    """A file that is handed on while it is written; nobody can go back in it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, part: bytes) -> int:
        """Keep a part until it is taken."""
        self._parts.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Do nothing: whoever takes the parts decides when."""

    def close(self) -> None:
        """Do nothing: what was not taken yet still can be."""

    def taken(self) -> bytes:
        """Return what was written since the last time."""
        parts, self._parts = self._parts, []
        return b"".join(parts)

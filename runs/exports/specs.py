"""What can be downloaded: for each kind of file, one function describes it to pages, the API and workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evaluators.scoring.types import DomainError
from runs.formats.tables import ROWS_A_PART
from runs.requests import VIEW

# By the ending of a file's name.
MEDIA_TYPES = {
    "jsonl": "application/jsonl; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "zip": "application/zip",
}

# What is made while the client waits: a few megabytes, and rows that take no more than a second or two.
MAX_BYTES_AT_ONCE, MAX_ROWS_AT_ONCE = 4 * 1024 * 1024, 2_000


class NothingToExportError(DomainError):
    """What the file would contain no longer exists."""

    code = "nothing_to_export"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec:
    """A file that can be made, described without making it.

    The ending of its `name` decides its format. `write` returns its parts; an error that the call itself raises
    is why there is no such file. A row takes about `row_bytes`. `fingerprint` changes whenever the content would.
    `suites` are the ids of the suites whose data are in the file, none if it may have data of any. A member needs
    all `permissions` to get it. Calling the kind of file `kind` with `params` gives the same description again.
    """

    name: str
    rows: int
    row_bytes: int
    write: Callable[[], Iterable[str | bytes]]
    fingerprint: Sequence[Any]
    suites: Sequence[int] = ()
    permissions: Sequence[str] = (VIEW,)
    kind: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def media_type(self) -> str:
        """Return the value of Content-Type."""
        return MEDIA_TYPES[self._ending]

    @property
    def rows_a_part(self) -> int:
        """Return how many rows are written with each part."""
        return ROWS_A_PART if self._ending == "csv" else 1

    @property
    def _ending(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def is_small(self) -> bool:
        """Tell whether it is made while the client waits."""
        is_short = self.rows <= MAX_ROWS_AT_ONCE
        return is_short and self.rows * self.row_bytes <= MAX_BYTES_AT_ONCE

    @property
    def digest(self) -> str:
        """Return what is equal for files of the same content."""
        facts = (self.kind, self.params, self.fingerprint, self.suites, self.permissions)
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    def parts(self) -> Iterator[bytes]:
        """Return the parts of the file; raises at once what keeps it from being made."""
        written = self.write()
        return (part.encode() if isinstance(part, str) else part for part in written)


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file; called with values of JSON by name, it describes one."""

    name: str
    describe: Callable[..., ExportSpec]

    def __call__(self, **params: Any) -> ExportSpec:
        """Describe a file so that a worker can do it again."""
        return replace(self.describe(**params), kind=self.name, params=params)


def file_kind(name: str) -> Callable[[Callable[..., ExportSpec]], FileKind]:
    """Turn a function that describes files into a kind of file; `runs/tasks.py` lists all of them for workers."""
    return partial(FileKind, name)

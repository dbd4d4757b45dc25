"""What can be downloaded: one function for each kind of file describes it, for pages, API and workers alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from evaluators.scoring.types import DomainError
from runs.requests import VIEW

# What is answered at once: a few megabytes, and a second or two of work, which short rows take too.
MAX_BYTES_AT_ONCE, MAX_ROWS_AT_ONCE = 4 * 1024 * 1024, 2_000


class NothingToExportError(DomainError):
    """What the file would contain no longer exists."""

    code = "nothing_to_export"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSpec:
    """A file before it is made.

    `write` makes it part by part, `rows_a_part` rows each; what it raises at once is the reason why there is
    no such file. A row takes about `row_bytes`. Whenever the content would change, so does `truth`. `suites`
    are the ids of those whose data are in the file, none for those of any. `permissions` are what a member
    needs to get it. `kind` and `params` lead to the same description again.
    """

    name: str
    media_type: str
    rows: int
    row_bytes: int
    write: Callable[[], Iterable[str | bytes]]
    truth: Sequence[Any]
    suites: Sequence[int] = ()
    permissions: Sequence[str] = (VIEW,)
    rows_a_part: int = 1
    kind: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_small(self) -> bool:
        """Tell whether it is made while the client waits."""
        is_short = self.rows <= MAX_ROWS_AT_ONCE
        return is_short and self.rows * self.row_bytes <= MAX_BYTES_AT_ONCE

    @property
    def digest(self) -> str:
        """Return what is equal for files of the same content."""
        facts = (self.kind, self.params, self.truth, self.suites, self.permissions)
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()

    def parts(self) -> Iterator[bytes]:
        """Begin to make the file, and return its parts; raises what keeps it from being made at once."""
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


def exported(name: str) -> Callable[[Callable[..., ExportSpec]], FileKind]:
    """Make a function that describes files a kind of file; `runs/tasks.py` lists all for the workers."""
    return partial(FileKind, name)

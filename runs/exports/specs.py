"""What can be downloaded: one function for each kind of file describes it, for pages, API and workers alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from evaluators.scoring.types import DomainError
from runs.requests import VIEW

# What is answered at once: a few megabytes, and few seconds of work, which short rows take too.
MAX_BYTES_AT_ONCE, MAX_ROWS_AT_ONCE = 4 * 1024 * 1024, 5_000


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


Describe = Callable[..., ExportSpec]
KINDS: dict[str, Describe] = {}


def exported(kind: str) -> Callable[[Describe], Describe]:
    """Make a function the description of a kind of file; its arguments are values of JSON, passed by name."""

    def register(describe: Describe) -> Describe:
        @wraps(describe)
        def spec(**params: Any) -> ExportSpec:
            return replace(describe(**params), kind=kind, params=params)

        KINDS[kind] = spec
        return spec

    return register

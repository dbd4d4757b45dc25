"""A disk that is full, as one process sees it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

# More than a young log needs, and less than any database.
MAX_BYTES = 64 * 1024


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """Let writing beyond the first bytes of a file fail for a process while the block runs.

    It needs no disk of its own and no rights: the process meets errors where a write would not fit.
    """
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)

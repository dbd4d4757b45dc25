"""What a user's program may take, and under which terms the administrator lets it run."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

MEGABYTE = 1024 * 1024
# What is kept of the files that a program left: they are stored with every result.
KEPT_BYTES = 20_000_000
KEPT_FILES = 500
# What programs say on their way out when a limit refused them something.
OUT_OF_MEMORY = re.compile(
    r"MemoryError|[Cc]annot allocate memory|bad_alloc|OutOfMemoryError|heap out of memory"
    r"|runtime: out of memory"
)
OUT_OF_PROCESSES = re.compile(
    r"Resource temporarily unavailable|[Cc]annot fork|can't start new thread|unable to create thread"
)
OUT_OF_DISK = re.compile(r"File too large|File size limit exceeded")


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """What one program may take, all its processes together where not said otherwise.

    `output_kb` holds for standard output and for errors, each. `disk_mb` and `files` are what it may
    write; `processes` counts threads too.
    """

    seconds: float = 60.0
    memory_mb: int = 1024
    processes: int = 64
    output_kb: int = 8192
    disk_mb: int = 256
    files: int = 1000

    @property
    def time_words(self) -> str:
        """Name the limit on time."""
        return f"the time limit of {self.seconds:g} s"

    @property
    def memory_words(self) -> str:
        """Name the limit on memory."""
        return f"the memory limit of {self.memory_mb} MB"

    @property
    def process_words(self) -> str:
        """Name the limit on processes."""
        return f"the limit of {self.processes} processes and threads"

    @property
    def output_words(self) -> str:
        """Name the limit on output."""
        return f"the output limit of {self.output_kb} KB"

    @property
    def disk_words(self) -> str:
        """Name the limit on what is written."""
        return f"the limit of {self.disk_mb} MB and {self.files} files written"

    def hit_by(self, exit_code: int, stderr: str) -> str:
        """Return the limit in which a program that failed by itself says it ran, "" for none."""
        if exit_code == 0:
            return ""
        end = stderr[-2000:]
        if OUT_OF_MEMORY.search(end):
            return self.memory_words
        if OUT_OF_PROCESSES.search(end):
            return self.process_words
        if OUT_OF_DISK.search(end) or exit_code == FILE_SIZE_EXIT:
            return self.disk_words
        return self.time_words if exit_code == PROCESSOR_TIME_EXIT else ""


# Shells count deaths by signal from 128: SIGXFSZ is 25, SIGXCPU is 24.
FILE_SIZE_EXIT = 128 + 25
PROCESSOR_TIME_EXIT = 128 + 24


@dataclass(frozen=True, slots=True)
class Terms:
    """What the administrator allows. `python` and the folders are absolute paths, "" for none.

    `hidden` are folders that no program sees, wherever they lie.
    """

    limits: ProgramLimits = field(default_factory=ProgramLimits)
    allows_network: bool = False
    concurrency: int = 0
    python: str = ""
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    agents_dir: str = ""

    @property
    def at_once(self) -> int:
        """Return how many programs run at once in one process."""
        return self.concurrency or 2 * (os.cpu_count() or 1)

"""A process gives the memory of large texts back to the system."""

from __future__ import annotations

import subprocess
import sys

# Between two large texts lies a small one that stays.
CODE = """
from pathlib import Path

from evalsite import load


def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 1024**2


load()
before = megabytes()
size = 16_000_000
"x" * size
held = [("x" * (size // 2), "x" * 100_000) for _ in range(20)]
small = [text for _, text in held]
while_held = megabytes() - before
del held
print(while_held, megabytes() - before)
"""


def test_freed_texts_of_megabytes_take_no_memory_though_small_ones_lie_between() -> None:
    run = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    while_held, afterwards = map(int, run.stdout.split())
    assert while_held > 150
    assert afterwards < 20

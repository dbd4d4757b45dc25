"""Measure how fast runs are, in fresh processes and several rounds, and print the medians as a table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """One piece of work: `limit_s` is the least time its model calls take, the goals are ours."""

    name: str
    cases: int
    concurrency: int
    goal_wall_s: float
    goal_cpu_s: float
    limit_s: float | None = None
    calls_models: bool = False


ROWS = (
    Row(
        "500 cases, target and judge of 100 ms each, 50 at once",
        *(500, 50, 2.3, 1.5),
        limit_s=2.0,
        calls_models=True,
    ),
    Row("2,000 cases, one deterministic check", 2000, 8, 2.5, 2.0),
    Row("20,000 cases, one deterministic check", 20000, 8, 25.0, 20.0),
)
HEADERS = ("work", "limit", "goal", "wall", "÷ goal", "CPU", "CPU a case", "whole process", "peak")


@contextmanager
def model_server() -> Iterator[str]:
    """Run the mock model in a process of its own and give its address."""
    command = [sys.executable, "-m", "tests.benchmarks.model_server"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if process.stdout is None:
        raise RuntimeError("the model server has no output to read its address from")
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def measure(row: Row, base_url: str) -> dict[str, float]:
    """Do the work once in a fresh process on a fresh SQLite database."""
    with tempfile.TemporaryDirectory(prefix="evalsite-bench-") as folder:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.benchmarks.work"),
                *(str(row.cases), str(row.concurrency)),
                *([base_url] if row.calls_models else []),
            ],
            cwd=ROOT,
            env={**kept, "EVALSITE_DATA_DIR": folder, "EVALSITE_LOG_LEVEL": "WARNING"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def cells(row: Row, rounds: list[dict[str, float]]) -> tuple[str, ...]:
    """Return the medians of the rounds as a line of the table."""
    middle = {name: median(figures[name] for figures in rounds) for name in rounds[0]}
    return (
        row.name,
        f"{row.limit_s:.1f} s" if row.limit_s else "–",
        f"≤ {row.goal_wall_s:g} s, ≤ {row.goal_cpu_s:g} s CPU",
        f"{middle['wall_s']:.2f} s",
        f"{middle['wall_s'] / row.goal_wall_s:.2f}",
        f"{middle['cpu_s']:.2f} s",
        f"{middle['cpu_s'] / row.cases * 1000:.2f} ms",
        f"{middle['process_cpu_s']:.2f} s CPU",
        f"{middle['peak_mb']:.0f} MB",
    )


def table(lines: list[tuple[str, ...]]) -> str:
    """Return the lines as a Markdown table."""
    rule = tuple("---" for _ in HEADERS)
    return "\n".join("| " + " | ".join(line) + " |" for line in (HEADERS, rule, *lines))


def main() -> None:
    """Measure the rows asked for, all by default, and print the table."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each row")
    parser.add_argument("--rows", type=int, nargs="*", help="numbers of rows, from 1")
    chosen = parser.parse_args()
    rows = [ROWS[number - 1] for number in chosen.rows] if chosen.rows else list(ROWS)
    lines = []
    with model_server() as base_url:
        for row in rows:
            sys.stderr.write(f"{row.name}: {chosen.rounds} rounds\n")
            lines.append(cells(row, [measure(row, base_url) for _ in range(chosen.rounds)]))
    sys.stdout.write(
        f"{os.cpu_count()} cores, SQLite, medians of {chosen.rounds} rounds. Wall and CPU are of the "
        "run, from its start to its finish, in a warm worker; the whole process counts from its start."
        f"\n\n{table(lines)}\n"
    )


if __name__ == "__main__":
    main()

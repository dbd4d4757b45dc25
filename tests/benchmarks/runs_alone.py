"""Rows 1 to 3, 14 and 15: one run in one warm process, from its start to its finish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.figures import Line, middle
from tests.benchmarks.servers import DATABASES, Servers
from tests.services.processes import ROOT


@dataclass(frozen=True)
class Work:
    """One piece of work; `limit_s` is the least time its model calls take, the goals are ours."""

    name: str
    cases: int
    at_once: int
    goal_s: float
    goal_cpu_s: float
    latency_s: float | None = None
    limit_s: float | None = None
    is_again: bool = False


JUDGED = Work(
    "500 cases, target and judge of 100 ms each, 50 at once",
    *(500, 50, 2.3, 1.5),
    latency_s=0.1,
    limit_s=2.0,
)
CHECKED = Work("2,000 cases, one deterministic check", 2_000, 8, 2.5, 2.0)
MANY = Work("20,000 cases, one deterministic check", 20_000, 8, 25.0, 20.0)
# The goals are 15 percent over what the calls take. A judge of a second, 20 at once, is a usual one; at a tenth of that
# and 50 at once the calls wait for this process: its CPU is the limit, not the judge.
AGAIN = Work(
    "1,000 stored outputs judged again, judge of 1 s, 20 at once",
    *(1_000, 20, 57.5, 2.0),
    latency_s=1.0,
    limit_s=50.0,
    is_again=True,
)
AGAIN_AT_ONCE = Work(
    "1,000 stored outputs judged again, judge of 100 ms, 50 at once",
    *(1_000, 50, 2.3, 2.0),
    latency_s=0.1,
    limit_s=2.0,
    is_again=True,
)


def lines(work: Work, servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure the work on each database."""
    for kind in DATABASES:
        found = middle([measure(work, servers, kind) for _ in range(rounds)])
        yield Line(
            f"{work.name}, {kind}",
            found["wall_s"],
            limit=work.limit_s,
            goal=work.goal_s,
            cpu_s=found["cpu_s"],
            goal_cpu_s=work.goal_cpu_s,
            cases=work.cases,
            peak_mb=found["peak_mb"],
        )


def measure(work: Work, servers: Servers, kind: str) -> dict[str, float]:
    """Do the work once in a fresh process on a fresh database."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    arguments = [str(work.cases), str(work.at_once)]
    if work.latency_s is not None:
        arguments.append(servers.model(latency_s=work.latency_s))
    if work.is_again:
        arguments.append("--again")
    with (
        tempfile.TemporaryDirectory(prefix="evalsite-bench-") as folder,
        servers.database(kind) as database,
    ):
        own = {"EVALSITE_DATA_DIR": folder, "EVALSITE_LOG_LEVEL": "WARNING"}
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.work", *arguments],
            cwd=ROOT,
            env={**kept, **own, **database},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


judged = partial(lines, JUDGED)
checked = partial(lines, CHECKED)
many = partial(lines, MANY)
again = partial(lines, AGAIN)
again_at_once = partial(lines, AGAIN_AT_ONCE)

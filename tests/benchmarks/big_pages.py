"""Rows 7 and 18: server time and queries of pages that show runs of 20,000 results, and of a site with a million."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.benchmarks.figures import Line
from tests.benchmarks.look import PAGES, PAGES_OF_MANY_RUNS, RESULTS, RUNS
from tests.benchmarks.servers import DATABASES, POSTGRESQL, Servers
from tests.services.processes import ROOT

GOAL_MS = 300.0
# Resampling the cases of two runs is allowed more, and the API lists all of them.
GOALS_MS = {"comparison": 800.0, "comparison in the API": 2000.0}
ALL_RESULTS = 1_000_000
LOOK = ("-W", "ignore", "-m", "tests.benchmarks.look")


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure the pages on each database; each is requested several times in every round."""
    for kind in DATABASES:
        found = measure(servers, kind)
        site = f"runs of {RESULTS:,} results, {kind}"
        yield from (_line(name, site, found) for name in PAGES)


def among_a_million(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure more pages on PostgreSQL where these runs are two of fifty."""
    found = measure(servers, POSTGRESQL, copies=ALL_RESULTS // RESULTS - RUNS)
    site = f"{ALL_RESULTS:,} results, {POSTGRESQL}"
    yield from (_line(name, site, found) for name in PAGES_OF_MANY_RUNS)


def _line(name: str, site: str, found: dict[str, tuple[float, int]]) -> Line:
    seconds, queries = found[name]
    return Line(
        f"{name}, {site}: server time",
        seconds * 1000,
        "ms",
        goal=GOALS_MS.get(name, GOAL_MS),
        remark=f"{queries} queries",
    )


def measure(servers: Servers, kind: str, *, copies: int = 0) -> dict[str, tuple[float, int]]:
    """Return seconds and number of queries of each page."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with (
        tempfile.TemporaryDirectory(prefix="evalsite-bench-") as folder,
        servers.database(kind) as database,
    ):
        own = {"EVALSITE_DATA_DIR": folder, "EVALSITE_LOG_LEVEL": "ERROR"}
        done = subprocess.run(
            [sys.executable, *LOOK, "--copies", str(copies)],
            cwd=ROOT,
            env={**kept, **own, **database},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, tuple[float, int]] = json.loads(done.stdout.splitlines()[-1])
    return found

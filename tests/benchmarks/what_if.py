"""Row 8: what-if on finished runs of ten leaves, its database reads included, and a new run made of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.benchmarks.figures import Line
from tests.benchmarks.servers import DATABASES, Servers
from tests.services.processes import ROOT

GOALS_MS = {1_000: 250.0, 10_000: 1000.0}


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure both sizes on each database; each is measured several times in every round."""
    for kind in DATABASES:
        for count, goal in GOALS_MS.items():
            found = measure(servers, kind, count)
            what = f"what-if on {count:,} results of ten leaves, {kind}"
            yield Line(
                what,
                found["later_s"] * 1000,
                "ms",
                goal=goal,
                cpu_s=found["later_cpu_s"],
                cases=count,
                peak_mb=found["peak_mb"],
                remark=f"{found['first_s'] * 1000:.0f} ms the first time",
            )
            yield Line(
                f"the panel of what-if on {count:,} results, {kind}",
                found["panel_s"] * 1000,
                "ms",
                goal=goal,
                cpu_s=found["panel_cpu_s"],
                cases=count,
                remark="the whole answer of the server, with its page",
            )
            yield Line(
                f"a new run of the scores of {count:,} results, {kind}",
                found["made_s"],
                cpu_s=found["made_cpu_s"],
                cases=count,
            )


def measure(servers: Servers, kind: str, count: int) -> dict[str, float]:
    """Return seconds, CPU seconds and memory of asking and of making."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with (
        tempfile.TemporaryDirectory(prefix="evalsite-bench-") as folder,
        servers.database(kind) as database,
    ):
        own = {"EVALSITE_DATA_DIR": folder, "EVALSITE_LOG_LEVEL": "ERROR"}
        command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.ask_what_if", str(count)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**kept, **own, **database},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found

"""Row 11: commands as whole processes, from their start to their exit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Line, middle
from tests.benchmarks.servers import Servers
from tests.services.processes import ROOT, scratch_folder

SUITE = """name: {name}
evaluators:
  - {{name: refund, type: contains, value: refund}}
tests:
"""
CASE = "  - {{id: C-{n}, input: 'Where is my parcel {n}?', output: 'Your refund {n} is on its way.'}}\n"
MANY, JUDGED, LATENCY_S, AT_ONCE = 20_000, 500, 0.1, 50
STORE = (
    "from tests.benchmarks.suites import store; "
    "store('judged', cases={cases}, at_once={at_once}, base_url={url!r})"
)
COMPLETED = re.compile(r"Completed after ([\d.]+) s")


@dataclass(frozen=True)
class Command:
    """A command with its goals for the whole process; `cases` are those it evaluates."""

    name: str
    arguments: Sequence[str]
    goal_cpu_s: float | None = None
    goal_s: float | None = None
    goal_mb: float | None = None
    cases: int | None = None


ONE_CASE = ("evaluate", "one.yaml", "--target", "recorded")
# One second for the tables of the site.
NEW_SITE = Command("evaluate, 1 case, in a new data folder", ONE_CASE, goal_cpu_s=2.2)
SUMMARY, GOAL_OF_SUMMARY_KB = "many-summary.json", 100.0
ON_A_SITE = (
    Command("--help", ("--help",), goal_cpu_s=0.15),
    Command("check", ("check",), goal_cpu_s=0.6),
    Command("evaluate, 1 case", ONE_CASE, goal_cpu_s=1.2),
    Command(
        f"evaluate, {MANY:,} cases from file to results",
        (
            "evaluate",
            "many.yaml",
            "--target",
            "recorded",
            "--out",
            "many.json",
            "--summary",
            SUMMARY,
        ),
        goal_s=12.0,
        goal_mb=250.0,
        cases=MANY,
    ),
)
# What can be done once, after all rounds.
AT_LAST = (
    Command(
        f"export, the suite file of {MANY:,} cases",
        ("export", "many", "--out", "exported.yaml"),
        goal_s=8.0,
        cases=MANY,
    ),
    Command(
        f"delete, a run of {MANY:,} results",
        ("delete", "run", "many#1", "--yes", "--undecided"),
        goal_s=5.0,
        cases=MANY,
    ),
)
# Each result with two assertions, as promptfoo writes them.
ASSERTION = {"pass": True, "score": 1, "reason": "It says so."}
PROMPTFOO = Command(
    f"import_results, {MANY:,} results of promptfoo",
    ("import_results", "promptfoo.json", "--slug", "from-promptfoo"),
    goal_s=30.0,
    goal_mb=450.0,
    cases=MANY,
)
# The run in it is the least; goal: 1.4 times as long.
WITH_CALLS = Command(
    f"evaluate, {JUDGED} cases, target and judge of {LATENCY_S * 1000:.0f} ms each, {AT_ONCE} at once",
    ("evaluate", "judged", "--target", "judged", "--concurrency", str(AT_ONCE)),
    cases=JUDGED,
)
GOAL_OF_RUN = 1.4


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure each command on SQLite, in a new data folder and in one that is in use."""
    with scratch_folder("bench") as name:
        folder = Path(name)
        for suite, cases in (("one", 1), ("many", MANY)):
            text = SUITE.format(name=suite) + "".join(CASE.format(n=n) for n in range(cases))
            (folder / f"{suite}.yaml").write_text(text)
        found = [_measure(NEW_SITE, folder, site=f"new-{number}") for number in range(rounds)]
        yield _line(NEW_SITE, middle(found))
        _measure(Command("", ("migrate", "--verbosity", "0")), folder)
        script = STORE.format(cases=JUDGED, at_once=AT_ONCE, url=servers.model(latency_s=LATENCY_S))
        _measure(Command("", ("shell", "--verbosity", "0", "-c", script)), folder)
        (folder / "promptfoo.json").write_text(_promptfoo_results())
        # Once: another time would find the suite.
        yield _line(PROMPTFOO, _measure(PROMPTFOO, folder))
        for command in ON_A_SITE:
            yield _line(command, middle([_measure(command, folder) for _ in range(rounds)]))
        size_kb = (folder / SUMMARY).stat().st_size / 1024
        yield Line(f"summary of {MANY:,} cases: size", size_kb, "KB", goal=GOAL_OF_SUMMARY_KB)
        figures = middle([_measure(WITH_CALLS, folder) for _ in range(rounds)])
        yield _line(WITH_CALLS, figures, limit_s=figures["run_s"])
        for command in AT_LAST:
            yield _line(command, _measure(command, folder))


def _promptfoo_results() -> str:
    assertions = [
        {**ASSERTION, "assertion": {"type": kind, "value": "refund"}}
        for kind in ("contains", "icontains")
    ]
    rows = [
        {
            "testIdx": number,
            "promptIdx": 0,
            "success": True,
            "score": 1,
            "latencyMs": 40,
            "cost": 0.001,
            "provider": {"id": "openai:x"},
            "prompt": {"raw": f"Where is my parcel {number}?", "label": "{{question}}"},
            "vars": {"question": f"Where is my parcel {number}?"},
            "response": {"output": f"Your refund {number} is on its way."},
            "tokenUsage": {"prompt": 70, "completion": 30},
            "gradingResult": {"pass": True, "score": 1, "componentResults": assertions},
            "testCase": {"description": f"Parcel {number}"},
        }
        for number in range(MANY)
    ]
    results = {"version": 3, "results": rows, "stats": {}}
    return json.dumps({"results": results, "config": {"description": "Parcels"}})


def _line(command: Command, figures: dict[str, float], *, limit_s: float | None = None) -> Line:
    goal_mb = command.goal_mb
    return Line(
        command.name,
        figures["wall_s"],
        limit=limit_s,
        goal=GOAL_OF_RUN * limit_s if limit_s else command.goal_s,
        cpu_s=figures["cpu_s"],
        goal_cpu_s=command.goal_cpu_s,
        cases=command.cases,
        peak_mb=figures["peak_mb"],
        remark=f"goal of the peak ≤ {goal_mb:.0f} MB" if goal_mb else "",
    )


def _measure(command: Command, folder: Path, *, site: str = "site") -> dict[str, float]:
    """Execute a command in a folder with suites, on a site in it; return its figures and, if it tells, its run's."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    own = {"EVALSITE_DATA_DIR": str(folder / site), "EVALSITE_LOG_LEVEL": "ERROR"}
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), *command.arguments],
        cwd=folder,
        env={**kept, **own, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(command.arguments)} ends with {process.returncode}:\n{text}")
    took = COMPLETED.search(text)
    return {
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        "run_s": float(took[1]) if took else 0.0,
    }

"""Row 9: whole command lines against a model that fails, and four workers that share a limit a minute."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Line
from tests.benchmarks.model_server import OK, Faults, Model, model_server
from tests.benchmarks.servers import POSTGRESQL, Servers
from tests.services.database import Database
from tests.services.processes import ROOT, scratch_folder, wait_until
from tests.services.site import Site

LATENCY_S = 0.1
CASES, AT_ONCE = 500, 50
AWAY = Faults(away_from_s=1.0, away_s=20.0)
RANDOM = Faults(refused=0.05, broken=0.05, hanging=0.01)
LONE = Faults(refused=0.05)
# What a provider's limit leaves of the minutes, at best, and the share of it that we want to use.
BUCKET = Faults(per_minute=600, burst=60, retry_after="1")
BUCKET_S = (2 * CASES - BUCKET.burst) / BUCKET.per_minute * 60
GOAL_OF_BUCKET = 0.95
GOAL_OF_RANDOM_S, GOAL_AFTER_S, GOAL_OF_LONE = 50.0, 6.0, 1.3
PER_MINUTE, WORKERS, FIRST_S = 300, 4, 5.0
MINUTE_CASES = 450
STORE = (
    "from evaluators.models import LanguageModel; from tests.benchmarks.suites import store; "
    "store('faults', cases={cases}, at_once={at_once}, base_url={url!r}, asks_target={asks_target}); "
    "LanguageModel.objects.update(requests_per_minute={per_minute})"
)
START = "from tests.benchmarks.suites import start; print(start('faults', at_once={at_once}))"
OVER = "SELECT status NOT IN ('queued', 'running') FROM runs_run WHERE id = {run}"
ALIVE = f"SELECT count(*) = {WORKERS} FROM runs_workerprocess"


@dataclass(frozen=True)
class Ended:
    """One command line: how long it took, its errors, and the calls that the model received."""

    wall_s: float
    errors: int
    calls: list[tuple[float, int]]

    @property
    def remark(self) -> str:
        """Return errors and requests in words."""
        refused = sum(status != OK for _, status in self.calls)
        return f"{self.errors} errors, {len(self.calls)} requests of which {refused} failed"


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure each fault, and the limit a minute."""
    work = f"evaluate {CASES} cases x 2 calls of 100 ms, {AT_ONCE} at once"
    calm = _middle([_evaluate(Faults()) for _ in range(rounds)])
    yield Line(f"{work}: no faults", calm.wall_s, remark=calm.remark)
    lone = _middle([_evaluate(LONE) for _ in range(rounds)])
    yield Line(f"{work}: 5 % 429", lone.wall_s, goal=GOAL_OF_LONE * calm.wall_s, remark=lone.remark)
    mixed = _middle([_evaluate(RANDOM) for _ in range(rounds)])
    yield Line(
        f"{work}: 5 % 429, 5 % 500, 1 % hang 30 s",
        mixed.wall_s,
        goal=GOAL_OF_RANDOM_S,
        remark=mixed.remark,
    )
    away = _middle([_evaluate(AWAY) for _ in range(rounds)])
    outside_s = _seconds_outside(calm)
    ended_s = AWAY.away_from_s + AWAY.away_s
    first_s = min(
        (at for at, status in away.calls if status == OK and at > ended_s), default=ended_s
    )
    yield Line(
        f"{work}: 503 for 20 s, from its end",
        away.wall_s - outside_s - ended_s,
        goal=GOAL_AFTER_S,
        remark=f"first answer after {first_s - ended_s:.1f} s; {away.remark}",
    )
    bucket = _middle([_evaluate(BUCKET) for _ in range(rounds)])
    last_s = max(at for at, _ in bucket.calls)
    yield Line(
        f"{work}: 600 calls a minute, then 429, share used",
        100 * BUCKET_S / last_s,
        unit="%",
        limit=100,
        remark=f"at least {100 * GOAL_OF_BUCKET:.0f} % wanted; {bucket.remark}",
    )
    yield from _minute(servers, rounds)


def _seconds_outside(calm: Ended) -> float:
    """Return what a command line takes outside its run: starting and printing, the same with and without faults."""
    return max(0.0, calm.wall_s - max(at for at, _ in calm.calls) - LATENCY_S)


def _middle(rounds: list[Ended]) -> Ended:
    return sorted(rounds, key=lambda ended: ended.wall_s)[len(rounds) // 2]


def _evaluate(faults: Faults) -> Ended:
    """Evaluate a suite by a fresh process on a fresh site, against a model of its own."""
    with (
        scratch_folder("bench") as folder,
        model_server(latency_s=LATENCY_S, faults=faults) as model,
    ):
        site = Site(Path(folder), EVALSITE_LOG_LEVEL="WARNING")
        site.migrate()
        _store(site, model, cases=CASES, at_once=AT_ONCE, asks_target=True)
        summary = Path(folder) / "summary.json"
        command = ("evaluate", "faults", "--target", "faults", "--concurrency", str(AT_ONCE))
        began_at = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "manage.py", *command, "--summary", str(summary)],
            cwd=ROOT,
            env=site.env,
            capture_output=True,
            text=True,
        )
        wall_s = time.perf_counter() - began_at
        if not summary.exists():
            raise SystemExit(f"evaluate ended with {done.returncode}:\n{done.stderr}")
        errors = json.loads(summary.read_text())["counts"]["error"]
        return Ended(wall_s, errors, model.calls())


def _minute(servers: Servers, rounds: int) -> Iterator[Line]:
    """Let four workers work on one run of a model with a limit a minute."""
    with (
        scratch_folder("bench") as folder,
        servers.database(POSTGRESQL) as variables,
        model_server(latency_s=LATENCY_S) as model,
    ):
        servers.redis.empty()
        site = Site(
            Path(folder),
            **variables,
            CELERY_BROKER_URL=servers.redis.url,
            EVALSITE_LOG_LEVEL="WARNING",
        )
        site.migrate()
        _store(
            site,
            model,
            cases=MINUTE_CASES,
            at_once=AT_ONCE,
            asks_target=False,
            per_minute=PER_MINUTE,
        )
        database = Database(variables["DATABASE_URL"])
        try:
            for _ in range(WORKERS):
                site.begin_worker()
            wait_until(lambda: database.says(ALIVE), what="four workers")
            run = int(_shell(site, START.format(at_once=AT_ONCE)).splitlines()[-1])
            wait_until(lambda: database.says(OVER.format(run=run)), what="the run over")
        finally:
            site.kill()
            database.close()
        times = [at for at, _ in model.calls()]
    work = f"{MINUTE_CASES} calls by {WORKERS} workers, {PER_MINUTE} a minute"
    yield Line(
        f"{work}: most in 60 s",
        max(sum(begin <= at <= begin + 60 for at in times) for begin in times),
        unit="calls",
        limit=PER_MINUTE,
    )
    yield Line(
        f"{work}: in the first 5 s",
        sum(at <= FIRST_S for at in times),
        unit="calls",
        goal=PER_MINUTE / 3,
    )
    in_first = sum(at <= 60 for at in times)
    yield Line(f"{work}: in the first 60 s", in_first, unit="calls", limit=PER_MINUTE)


def _store(
    site: Site,
    model: Model,
    *,
    cases: int,
    at_once: int,
    asks_target: bool,
    per_minute: int | None = None,
) -> None:
    facts = {"url": model.url, "cases": cases, "at_once": at_once, "per_minute": per_minute}
    _shell(site, STORE.format(**facts, asks_target=asks_target))


def _shell(site: Site, command: str) -> str:
    return site.manage("shell", "--verbosity", "0", "-c", command)

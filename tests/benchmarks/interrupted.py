"""Row 16: calls that are sent again after a kill or a restart, to a model that counts them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.figures import Line
from tests.benchmarks.model_server import Model, model_server
from tests.benchmarks.servers import POSTGRESQL, Servers
from tests.services.database import Database
from tests.services.processes import scratch_folder, wait_until
from tests.services.site import Site

NAME, AT_ONCE = "interrupted", 50
CASES, LATENCY_S, GOAL_OF_RESUME = 500, 0.1, 60
SHARED_CASES, SHARED_LATENCY_S, WORKERS = 800, 0.3, 4
# Those in flight in one worker, and what it may not have stored of a quarter of a second.
GOAL_OF_KILL = AT_ONCE / WORKERS * (1 + 0.25 / SHARED_LATENCY_S)
# As long as a unit of systemd in the README lets a worker end.
LONG_CALLS, LONG_LATENCY_S = 20, 20.0
MINUTES_S = 180.0
STORE = (
    "from tests.benchmarks.suites import store; "
    "store({name!r}, cases={cases}, at_once={at_once}, base_url={url!r}, asks_target={asks_target})"
)
START = "from tests.benchmarks.suites import start; print(start({name!r}, at_once={at_once}))"
OVER = "SELECT status NOT IN ('queued', 'running') FROM runs_run WHERE id = {run}"
PASSED = (
    "SELECT status = 'completed' AND pass_count = execution_count FROM runs_run WHERE id = {run}"
)
ALIVE = "SELECT count(*) = {number} FROM runs_workerprocess"


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure each once: only the number of calls counts, not how long they take."""
    yield _killed_command()
    yield _killed_worker(servers)
    yield _stopped_worker(servers)


def _killed_command() -> Line:
    with scratch_folder("bench") as folder, model_server(latency_s=LATENCY_S) as model:
        site = Site(Path(folder), EVALSITE_LOG_LEVEL="WARNING")
        site.migrate()
        _store(site, model, cases=CASES, at_once=AT_ONCE)
        try:
            command = site.begin_command(
                "evaluate", NAME, "--target", NAME, "--concurrency", str(AT_ONCE)
            )
            wait_until(lambda: len(model.calls()) >= CASES, what="half of the calls")
            command.kill()
            site.manage("resume", f"{NAME}#1")
        finally:
            site.kill()
        sent = len(model.calls())
    return Line(
        f"evaluate {CASES} cases x 2 calls, killed after {CASES}, then resumed: calls sent again",
        sent - 2 * CASES,
        "calls",
        goal=GOAL_OF_RESUME,
    )


def _killed_worker(servers: Servers) -> Line:
    with _shared_site(servers, SHARED_LATENCY_S, SHARED_CASES, AT_ONCE) as (site, database, model):
        run = _start(site, database, AT_ONCE, workers=WORKERS)
        wait_until(lambda: len(model.calls()) >= SHARED_CASES, what="half of the calls")
        site.workers[0].kill()
        _wait_for(database, run)
        sent = len(model.calls())
    return Line(
        f"{SHARED_CASES} cases x 2 calls by {WORKERS} workers, one killed: calls sent again",
        sent - 2 * SHARED_CASES,
        "calls",
        goal=GOAL_OF_KILL,
        remark="those in flight among them",
    )


def _stopped_worker(servers: Servers) -> Line:
    with _shared_site(servers, LONG_LATENCY_S, LONG_CALLS, LONG_CALLS, asks_target=False) as (
        site,
        database,
        model,
    ):
        run = _start(site, database, LONG_CALLS, workers=1)
        wait_until(lambda: len(model.calls()) == LONG_CALLS, what="all calls in flight")
        site.workers[0].signal(signal.SIGTERM)
        site.workers[0].wait(MINUTES_S)
        site.begin_worker()
        _wait_for(database, run)
        sent = len(model.calls())
    return Line(
        f"{LONG_CALLS} calls of {LONG_LATENCY_S:g} s in flight in a worker that is stopped: calls sent again",
        sent - LONG_CALLS,
        "calls",
        limit=0,
    )


@contextmanager
def _shared_site(
    servers: Servers, latency_s: float, cases: int, at_once: int, *, asks_target: bool = True
) -> Iterator[tuple[Site, Database, Model]]:
    """Give a site on PostgreSQL and Redis without workers, and a model whose calls are counted."""
    with (
        scratch_folder("bench") as folder,
        servers.database(POSTGRESQL) as variables,
        model_server(latency_s=latency_s) as model,
    ):
        servers.redis.empty()
        own = {"CELERY_BROKER_URL": servers.redis.url, "EVALSITE_LOG_LEVEL": "WARNING"}
        site = Site(Path(folder), **variables, **own)
        site.migrate()
        _store(site, model, cases=cases, at_once=at_once, asks_target=asks_target)
        database = Database(variables["DATABASE_URL"])
        try:
            yield site, database, model
        finally:
            site.kill()
            database.close()


def _start(site: Site, database: Database, at_once: int, *, workers: int) -> int:
    for _ in range(workers):
        site.begin_worker()
    wait_until(lambda: database.says(ALIVE.format(number=workers)), what="workers")
    return int(_shell(site, START.format(name=NAME, at_once=at_once)).splitlines()[-1])


def _wait_for(database: Database, run: int) -> None:
    over = OVER.format(run=run)
    wait_until(lambda: database.says(over), what="the run over", timeout_s=MINUTES_S)
    if not database.says(PASSED.format(run=run)):
        raise SystemExit(f"run {run} did not pass")


def _store(site: Site, model: Model, *, cases: int, at_once: int, asks_target: bool = True) -> None:
    facts = {"name": NAME, "url": model.url, "cases": cases, "at_once": at_once}
    _shell(site, STORE.format(**facts, asks_target=asks_target))


def _shell(site: Site, command: str) -> str:
    return site.manage("shell", "--verbosity", "0", "-c", command)

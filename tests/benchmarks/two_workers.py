"""Row 4: real worker processes on PostgreSQL and Redis share a run that waits for its judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.benchmarks.figures import Line
from tests.benchmarks.processes import cpu_s, peak_mb
from tests.benchmarks.servers import POSTGRESQL, Servers
from tests.services.database import Database
from tests.services.processes import scratch_folder, wait_until
from tests.services.site import Site

CASES = 300
LATENCY_S = 0.5
# What the run keeps in flight, however many workers execute it.
AT_ONCE = 40
LEAST_S = CASES / AT_ONCE * LATENCY_S
# Two workers that share the concurrency of a run lose little by it.
GOAL_OF_TWO = 1.15
WIDE, NARROW = "wide", "narrow"
STORE = (
    "from tests.benchmarks.suites import store; "
    "store({name!r}, cases={cases}, at_once={at_once}, base_url={url!r}, "
    "asks_target=False, model_at_once={model_at_once})"
)
START = "from tests.benchmarks.suites import start; print(start({name!r}, at_once={at_once}))"
OVER = "SELECT status NOT IN ('queued', 'running') FROM runs_run WHERE id = {run}"
TOOK = "SELECT extract(epoch FROM finished_at - started_at) FROM runs_run WHERE id = {run}"
PASSED = (
    "SELECT status = 'completed' AND pass_count = execution_count FROM runs_run WHERE id = {run}"
)
ALIVE = "SELECT count(*) = {number} FROM runs_workerprocess"


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure one worker against two, where the model allows as many calls as the run and where it does not."""
    with scratch_folder("bench") as folder, servers.database(POSTGRESQL) as variables:
        site = _site(Path(folder), servers, variables)
        database = Database(variables["DATABASE_URL"])
        try:
            yield from _lines(site, database, rounds)
        finally:
            site.kill()
            database.close()


def _lines(site: Site, database: Database, rounds: int) -> Iterator[Line]:
    alone_s, alone = _measure(site, database, WIDE, rounds, workers=1)
    together_s, together = _measure(site, database, WIDE, rounds, workers=2)
    narrow_s, narrow = _measure(site, database, NARROW, rounds, workers=2)
    work = f"{CASES} recorded outputs, judge of {LATENCY_S:g} s, {AT_ONCE} at once"
    shared = {"cases": CASES}
    yield Line(f"{work}: one worker", alone_s, limit=LEAST_S, **alone, **shared)
    yield Line(
        f"{work}: two workers",
        together_s,
        limit=LEAST_S,
        goal=GOAL_OF_TWO * alone_s,
        remark=f"{together_s / alone_s:.2f} of one worker's time",
        **together,
        **shared,
    )
    yield Line(
        f"{work}: two workers, a model that allows {AT_ONCE // 2} calls at once",
        narrow_s,
        limit=2 * LEAST_S,
        remark=f"{narrow_s / alone_s:.2f}: the model is as busy as it allows",
        **narrow,
        **shared,
    )


def _site(folder: Path, servers: Servers, variables: dict[str, str]) -> Site:
    servers.redis.empty()
    site = Site(
        folder,
        **variables,
        CELERY_BROKER_URL=servers.redis.url,
        EVALSITE_LOG_LEVEL="WARNING",
    )
    site.migrate()
    url = servers.model(latency_s=LATENCY_S)
    for name, model_at_once in ((WIDE, AT_ONCE), (NARROW, AT_ONCE // 2)):
        facts = {"name": name, "url": url, "cases": CASES, "at_once": AT_ONCE}
        _shell(site, STORE.format(**facts, model_at_once=model_at_once))
    return site


def _measure(
    site: Site, database: Database, name: str, rounds: int, *, workers: int
) -> tuple[float, dict[str, float]]:
    """Return the seconds a run takes, and what it costs the workers together."""
    while len(site.workers) < workers:
        site.begin_worker()
    wait_until(lambda: database.says(ALIVE.format(number=workers)), what=f"{workers} workers")
    pids = [worker.pid for worker in site.workers]
    # The first run of a worker loads what the later ones need.
    _run(site, database, name)
    before = sum(map(cpu_s, pids))
    took = [_run(site, database, name) for _ in range(rounds)]
    spent = sum(map(cpu_s, pids)) - before
    return median(took), {"cpu_s": spent / rounds, "peak_mb": max(map(peak_mb, pids))}


def _run(site: Site, database: Database, name: str) -> float:
    run = int(_shell(site, START.format(name=name, at_once=AT_ONCE)).splitlines()[-1])
    wait_until(lambda: database.says(OVER.format(run=run)), what=f"run {run} over")
    if not database.says(PASSED.format(run=run)):
        raise SystemExit(f"run {run} did not pass")
    return float(database.value(TOOK.format(run=run)))


def _shell(site: Site, command: str) -> str:
    return site.manage("shell", "--verbosity", "0", "-c", command)

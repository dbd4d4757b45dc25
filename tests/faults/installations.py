"""Installations on which a run of 100 waits: several processes on PostgreSQL and Redis, or one on SQLite."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.faults import suite
from tests.services.database import SQLITE, Database
from tests.services.postgresql import PostgreSQL, postgresql
from tests.services.processes import (
    Process,
    are_alive,
    descendants,
    free_port,
    scratch_folder,
    wait_until,
)
from tests.services.redis import RedisServer, redis_process
from tests.services.site import SQLITE_FILE, Site
from tests.support.model_server import ModelServer, serving

LEASE_S = 3
ENV = {"EVALSITE_LEASE_S": str(LEASE_S), "EVALSITE_LOG_LEVEL": "INFO"}
TEMPLATE = "waiting"
STORE = "from tests.faults import suite; suite.store({base_url!r})"
CLAIMED = (
    "SELECT result.id, position, attempt FROM runs_result result JOIN runs_runworker worker ON token = lease_token"
    " WHERE status = 'running' AND ({workers})"
)
OVER = "SELECT status NOT IN ('queued', 'running') FROM runs_run"


@dataclass(slots=True)
class Installation:
    """A site with one run, the models it calls, and its database seen from outside.

    `killed` counts the processes that were killed in the middle of work, `lost_leases` those that lived
    on while others took over what they held: each of either may cost calls that are made again.
    `cut_off` tells for each of the killed which results, at which attempt, it had claimed and not written.
    """

    site: Site
    database: Database
    models: ModelServer
    postgresql: PostgreSQL | None = None
    redis: RedisServer | None = None
    cut_off: list[dict[int, int]] = field(default_factory=list)
    lost_leases: int = 0

    @property
    def killed(self) -> int:
        """Return how many processes were killed in the middle of work."""
        return len(self.cut_off)

    def wait_for(self, condition: str) -> None:
        """Wait until a query's only value is true."""
        wait_until(lambda: self.database.says(condition), what=condition)

    def answer_calls(self, number: int) -> None:
        """Let the models answer so many calls more; then the run stands still until they answer again.

        What is done meanwhile is done in the middle of the run, however slow the machine is.
        """
        wanted = len(self.models.answered) + number
        self.models.release(number)
        wait_until(lambda: len(self.models.answered) >= wanted, what=f"{number} calls answered")
        assert not self.database.says(OVER), "the run was over before the fault"

    def wait_for_the_end(self) -> None:
        """Let the models answer, and wait until the run is over."""
        self.models.release()
        self.wait_for(OVER)

    def begin_workers(
        self, number: int = 2, *, clocks_off_by_s: Sequence[int] = ()
    ) -> list[Process]:
        """Start workers, and wait until each works on the run, whose calls are not answered yet."""
        off = clocks_off_by_s or [0] * number
        workers = [self.site.begin_worker(clock_off_by_s=seconds) for seconds in off]
        self.wait_for(f"SELECT count(DISTINCT worker) = {len(workers)} FROM runs_runworker")
        return workers

    def begin_web(self) -> None:
        """Start the web process that also works; the calls of the run are not answered yet."""
        self.site.web.start()

    def start_a_run(self) -> None:
        """Start a run as the browser does, in a process of its own."""
        self._call("suite.start()")

    def resume_the_run(self) -> None:
        """Go on with the run, in a process of its own."""
        self._call("suite.resume()")

    def forget_the_run(self) -> None:
        """Leave nothing but the suite."""
        self.database.execute("DELETE FROM runs_runcase")
        self.database.execute("DELETE FROM runs_result")
        self.database.execute("DELETE FROM runs_run")

    def claimed_by(self, *pids: int) -> list[tuple[int, int, int]]:
        """Return id, position and attempt of each result that processes have claimed and not written."""
        workers = " OR ".join(f"worker LIKE '%/{pid}/%'" for pid in pids)
        return self.database.rows(CLAIMED.format(workers=workers))

    def kill_run_workers(self, *pids: int) -> None:
        """Kill processes that execute the run, and all they started, between a claim and its write.

        What they hold is read while they stand still; at least one of them holds something.
        """

        def families() -> list[list[int]]:
            return [[pid, *descendants(pid)] for pid in pids]

        wait_until(lambda: any(self.claimed_by(*family) for family in families()))
        every = (self.site.web, *self.site.workers, *self.site.commands)
        killed = [process for process in every if process.is_running and process.pid in pids]
        # Stopped, they start no others.
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        stopped = families()
        for family in stopped:
            for each in family:
                os.kill(each, signal.SIGSTOP)
        for family in stopped:
            if claimed := self.claimed_by(*family):
                self.cut_off.append({result_id: attempt for result_id, _, attempt in claimed})
        everybody = [each for family in stopped for each in family]
        for each in everybody:
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: not are_alive(everybody))
        # What looks dead counts as running until the last of its threads is gone.
        for process in killed:
            process.wait()

    def logs(self) -> str:
        """Return the end of every log."""
        processes = (self.site.web, *self.site.workers, *self.site.commands)
        return "\n\n".join(f"{process.log.name}\n{process.tail(6000)}" for process in processes)

    def _call(self, call: str) -> None:
        self.site.manage(
            "shell", "--verbosity", "0", "-c", f"from tests.faults import suite; {call}"
        )


@dataclass(slots=True)
class Workshop:
    """Makes installations quickly: each is a copy of one that was laid out once.

    All call their models on one port: a run may only go to the address it was started with.
    """

    folder: Path
    postgresql: PostgreSQL
    redis: RedisServer
    port: int
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @contextmanager
    def cluster(self) -> Iterator[Installation]:
        """Give a site on PostgreSQL and Redis none of whose processes has been started yet."""
        for server in (self.postgresql.process, self.redis.process):
            if not server.is_running:
                server.start()
        self.redis.empty()
        name = f"fault-{next(self.numbers)}"
        url = self.postgresql.create(name, template=TEMPLATE)
        env = {"DATABASE_URL": url, "CELERY_BROKER_URL": self.redis.url}
        try:
            with self._installation(url, env) as made:
                made.postgresql, made.redis = self.postgresql, self.redis
                yield made
        finally:
            if self.postgresql.process.is_running:
                self.postgresql.drop(name)

    @contextmanager
    def single(self) -> Iterator[Installation]:
        """Give a site on SQLite that works in its web process, which has not been started yet."""
        with self._installation("", {}) as made:
            yield made

    @contextmanager
    def _installation(self, url: str, env: dict[str, str]) -> Iterator[Installation]:
        with contextmanager(serving)(self.port) as models, scratch_folder("faults") as folder:
            suite.serve(models)
            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
            database = Database(url or f"{SQLITE}{folder / SQLITE_FILE}")
            site = Site(folder, **ENV, **env)
            try:
                yield Installation(site, database, models)
            finally:
                site.kill()
                database.close()


@contextmanager
def workshop() -> Iterator[Workshop]:
    """Run the servers that installations share, and lay out what they are copied from."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("workshop"))
        server = stack.enter_context(postgresql())
        broker = stack.enter_context(redis_process())
        url, port = server.create(TEMPLATE), free_port()
        store = STORE.format(base_url=f"http://127.0.0.1:{port}/v1")
        for env in ({}, {"DATABASE_URL": url}):
            site = Site(folder, **env)
            site.migrate()
            site.manage("shell", "--verbosity", "0", "-c", store)
        yield Workshop(folder, server, broker, port)

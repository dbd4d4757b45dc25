"""Let a site work for minutes under models that fail now and then and clients that read, and watch what grows."""

from __future__ import annotations

import random
import re
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median

from aiohttp import web

from tests.faults.installations import Installation, workshop
from tests.faults.suite import AGENT, JUDGE, SUITE, answer, judge
from tests.services.processes import Process, descendants, wait_until
from tests.services.visitor import Visitor
from tests.support.model_server import Behaviour, Request, rate_limited, status

CLIENTS, CLIENT_PAUSE_S, SAMPLE_S = 20, 1.0, 15.0
CASES, REPETITIONS, RUNS_AT_ONCE = 30, 2, 3
FAILING_SHARE = 0.01
NO_MORE = "no-more-runs"
START = "from tests.faults import suite; suite.start_runs_until({path!r}, cases={cases}, repetitions={repetitions}, most={most})"
PAGES = ("/", "/runs/", f"/suites/{SUITE}/", f"/suites/{SUITE}/charts/", "/review/", "/workers/")
LAST_RUN = f"/suites/{SUITE}/runs/{{number}}/"
RUNS = "SELECT count(*), count(*) FILTER (WHERE status IN ('queued', 'running')) FROM runs_run"
UNLIKE = f"""
    SELECT number, status, status_reason, error_count FROM runs_run
    WHERE status <> 'completed' OR error_count > 0 OR done_count <> {CASES * REPETITIONS}
"""
HELD = """
    SELECT (SELECT count(*) FROM runs_runworker) + (SELECT count(*) FROM evaluators_slotlease)
"""
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
COLUMNS = (
    "minute",
    "runs",
    "web MB",
    "workers MB",
    "files open",
    "connections",
    "page s",
    "slowest s",
)
ERROR_IN_LOG = re.compile(r"\b(ERROR|CRITICAL|Traceback)\b")


@dataclass(slots=True)
class Readers:
    """Clients that read pages one after the other, and what that took or said."""

    url: str
    visitors: list[Visitor]
    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    newest_run: int = 1
    _are_told_to_end: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self) -> None:
        """Start all clients."""
        for number, visitor in enumerate(self.visitors):
            self._threads.append(threading.Thread(target=self._read, args=(visitor, number)))
            self._threads[-1].start()

    def end(self) -> None:
        """Let every client finish its page."""
        self._are_told_to_end.set()
        for thread in self._threads:
            thread.join()

    def taken(self) -> list[float]:
        """Return how long the pages since the last call took."""
        seconds, self.seconds = self.seconds, []
        return seconds

    def _read(self, visitor: Visitor, number: int) -> None:
        pages = cycle((*PAGES[number % len(PAGES) :], *PAGES[: number % len(PAGES)], LAST_RUN))
        while not self._are_told_to_end.wait(CLIENT_PAUSE_S):
            address = next(pages).format(number=self.newest_run)
            begun = time.perf_counter()
            try:
                visitor.get(address)
            except (urllib.error.URLError, OSError) as error:
                self.errors.append(f"{address}: {error}")
            self.seconds.append(time.perf_counter() - begun)


def soak(minutes: float, *, read_on: float) -> Iterator[str]:
    """Yield a line of figures each quarter of a minute, then what was wrong; raises AssertionError if anything was.

    After the minutes with runs, the clients read on for `read_on` minutes without new ones.
    """
    yield "  ".join(COLUMNS)
    with workshop() as shop, shop.cluster() as site:
        site.forget_the_run()
        for name, behaviour in ((AGENT, answer), (JUDGE, judge)):
            site.models.on_model(name, failing_sometimes(behaviour))
        site.models.release()
        workers = [site.site.begin_worker() for _ in range(2)]
        site.site.web.start()
        no_more = site.site.data_dir / NO_MORE
        starter = site.site.begin_command(
            "shell", "--verbosity", "0", "-c", _start_command(no_more)
        )
        visitor = Visitor(site.site.url)
        visitor.log_in(site.site.login_link())
        readers = Readers(site.site.url, [visitor] * CLIENTS)
        readers.begin()
        begun = time.monotonic()
        try:
            yield from _lines(begun, minutes, site, workers, readers)
            no_more.touch()
            starter.wait()
            wait_until(
                lambda: not site.database.row(RUNS)[1], timeout_s=300, what="the last run over"
            )
            yield "without new runs"
            now = (time.monotonic() - begun) / 60
            yield from _lines(begun, now + read_on, site, workers, readers)
        finally:
            readers.end()
        wait_until(lambda: not site.database.value(HELD), what="everything given back")
        yield _line((time.monotonic() - begun) / 60, site, workers, readers)
        _assert_right(site, readers)
        runs, _ = site.database.row(RUNS)
        yield f"{runs} runs of {CASES} x {REPETITIONS} completed; no error in any answer or log"


def failing_sometimes(behaviour: Behaviour) -> Behaviour:
    """Answer as the behaviour does, but one call of 100 with 429 and one with 500."""
    chance = random.Random(AGENT)

    async def behave(request: Request) -> web.StreamResponse:
        drawn = chance.random()
        if drawn < FAILING_SHARE:
            return await rate_limited()(request)
        if drawn < 2 * FAILING_SHARE:
            return await status(500)(request)
        return await behaviour(request)

    return behave


def _start_command(no_more: Path) -> str:
    return START.format(path=str(no_more), cases=CASES, repetitions=REPETITIONS, most=RUNS_AT_ONCE)


def _lines(
    begun: float, until: float, site: Installation, workers: list[Process], readers: Readers
) -> Iterator[str]:
    """Yield a line of figures each quarter of a minute until the minute."""
    while (now := (time.monotonic() - begun) / 60) < until:
        yield _line(now, site, workers, readers)
        time.sleep(SAMPLE_S)


def _line(minute: float, site: Installation, workers: list[Process], readers: Readers) -> str:
    runs, _ = site.database.row(RUNS)
    readers.newest_run = max(runs, 1)
    web = _family(site.site.web)
    of_workers = [_family(worker) for worker in workers]
    seconds = readers.taken() or [0.0]
    cells = (
        f"{minute:.2f}",
        str(runs),
        str(_megabytes(web)),
        "/".join(str(_megabytes(family)) for family in of_workers),
        "/".join(str(_open_files(family)) for family in (web, *of_workers)),
        str(site.database.value(CONNECTIONS)),
        f"{median(seconds):.2f}",
        f"{max(seconds):.2f}",
    )
    return "  ".join(f"{cell:<{len(head)}}" for cell, head in zip(cells, COLUMNS, strict=True))


def _family(process: Process) -> list[int]:
    return [process.pid, *descendants(process.pid)]


def _megabytes(pids: list[int]) -> int:
    """Return the memory of processes, shared pages counted in parts."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[0])
    return total // 1024


def _open_files(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return total


def _assert_right(site: Installation, readers: Readers) -> None:
    wrong = [f"run {row}" for row in site.database.rows(UNLIKE)]
    wrong += readers.errors
    for process in (site.site.web, *site.site.workers, *site.site.commands):
        lines = process.log.read_text(errors="replace").splitlines()
        wrong += [f"{process.log.name}: {line}" for line in lines if ERROR_IN_LOG.search(line)]
    assert not wrong, "\n".join(wrong)

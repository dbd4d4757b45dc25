"""Row 5: the response time of pages while the web process executes a run."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.figures import Line, p95
from tests.benchmarks.processes import peak_mb
from tests.benchmarks.servers import Servers
from tests.services.database import SQLITE, Database
from tests.services.processes import running, scratch_folder
from tests.services.site import Site
from tests.services.visitor import Visitor

GOAL_MS = 100.0
LATENCY_S = 0.1
QUIET_TIMES = 40
# A few readers: some ten requests a second.
PAUSE_S = 0.05
EARLIER = "earlier"
STORE_EARLIER = (
    "from tests.benchmarks.suites import execute_run, store; "
    f"execute_run(store({EARLIER!r}, cases=1000, at_once=8))"
)
STORE = (
    "from tests.benchmarks.suites import store; "
    "order = store({name!r}, cases={cases}, at_once={at_once}, base_url={url!r}); "
    "print(order['target'].pk, order['suite'].judge_id or '')"
)
IS_OVER = (
    "SELECT count(*) = {number} FROM runs_run JOIN runs_suite ON runs_suite.id = suite_id "
    "WHERE slug = '{name}' AND status NOT IN ('queued', 'running')"
)

Waits = defaultdict[str, list[float]]


@dataclass(frozen=True)
class Work:
    """A run that is active while pages are requested."""

    name: str
    title: str
    cases: int
    at_once: int
    calls_model: bool


WORKS = (
    Work("judged", "1,500 cases, target and judge of 100 ms, 50 at once", 1500, 50, True),
    Work("checked", "20,000 cases, one deterministic check", 20_000, 8, False),
)


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure each page with and without each kind of run; the longest added wait is the line's."""
    with scratch_folder("bench") as folder:
        site = Site(Path(folder), EVALSITE_LOG_LEVEL="WARNING")
        database = Database(f"{SQLITE}{Path(folder) / 'evalsite.sqlite3'}")
        site.migrate()
        _shell(site, STORE_EARLIER)
        with running(site.web):
            visitor = Visitor(site.url)
            visitor.log_in(site.login_link())
            for work in WORKS:
                yield _line(_Pages(site, visitor, database), work, servers, rounds)
        database.close()


@dataclass(frozen=True)
class _Pages:
    site: Site
    visitor: Visitor
    database: Database

    def start(self, work: Work, target: str, judge: str) -> None:
        """Start a run as a person does: it is queued for the worker of the web process."""
        page = f"/suites/{work.name}/runs/new/"
        fields = {"target": target, "judge": judge, "concurrency": str(work.at_once)}
        self.visitor.send(page, page=page, cases="all", repetitions="1", **fields)

    def wait_for(self, run: str, waits: Waits, *, until: Callable[[int], bool]) -> None:
        """Request one page after the other and record the milliseconds, until stopped."""
        pages = {
            "run": run,
            "its live part": f"{run}live/",
            "run list": "/runs/",
            "result": f"/suites/{EARLIER}/runs/1/C-00007/1/",
        }
        times = 0
        while not until(times):
            for name, address in pages.items():
                started = time.perf_counter()
                self.visitor.get(address)
                waits[name].append((time.perf_counter() - started) * 1000)
                time.sleep(PAUSE_S)
            times += 1

    def is_over(self, work: Work, number: int) -> bool:
        """Tell whether this many runs are finished."""
        return self.database.says(IS_OVER.format(name=work.name, number=number))


def _line(pages: _Pages, work: Work, servers: Servers, rounds: int) -> Line:
    url = servers.model(latency_s=LATENCY_S) if work.calls_model else ""
    facts = {"name": work.name, "cases": work.cases, "at_once": work.at_once, "url": url}
    target, _, judge = _shell(pages.site, STORE.format(**facts)).splitlines()[-1].partition(" ")
    [web] = pages.site.web_workers()
    quiet, busy = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number in range(1, rounds + 1):
        run = f"/suites/{work.name}/runs/{number}/"
        pages.start(work, target, judge)
        pages.wait_for(run, busy, until=lambda times, n=number: pages.is_over(work, n))
        pages.wait_for(run, quiet, until=lambda times: times == QUIET_TIMES)
    added = {name: p95(busy[name]) - p95(quiet[name]) for name in busy}
    told = ", ".join(f"{name} {p95(quiet[name]):.0f} → {p95(busy[name]):.0f}" for name in added)
    return Line(
        f"pages while a run is on: {work.title}",
        max(added.values()),
        "ms",
        goal=GOAL_MS,
        peak_mb=peak_mb(web),
        remark=f"longest added p95; without → with: {told}",
    )


def _shell(site: Site, command: str) -> str:
    return site.manage("shell", "--verbosity", "0", "-c", command)

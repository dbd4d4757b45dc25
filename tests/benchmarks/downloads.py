"""Row 17: pages while five files of 20,000 results are asked for, made and downloaded at once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.benchmarks.figures import Line, p95
from tests.benchmarks.processes import peak_mb
from tests.benchmarks.servers import Servers
from tests.services.processes import running, scratch_folder, wait_until
from tests.services.site import Site
from tests.services.visitor import Visitor

RESULTS, FILES, GOAL_MS = 20_000, 5, 1_000.0
STORE = (
    "from tests.benchmarks.suites import execute_run, store; "
    f"execute_run(store('many', cases={RESULTS}, at_once=8))"
)
# Without one case each, for equal requests share a file.
FILE = "/suites/many/runs/1/results.jsonl?q=-case+%3D+C-{number:05}"
EXPORT = re.compile(r"/exports/[0-9a-f-]{36}/")
PAGES = ("/healthz", "/runs/", "/suites/many/runs/1/")
LOOK_EVERY_S, MAX_WAIT_S = 0.5, 600.0


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure once; the longest wait for a page is the line's."""
    with scratch_folder("bench") as folder:
        site = Site(Path(folder), EVALSITE_LOG_LEVEL="WARNING")
        site.migrate()
        site.manage("shell", "--verbosity", "0", "-c", STORE)
        with running(site.web), ThreadPoolExecutor(FILES) as threads:
            visitor = Visitor(site.url)
            visitor.log_in(site.login_link())
            started = time.perf_counter()
            files = [threads.submit(partial(_download, visitor, n)) for n in range(FILES)]
            waits = []
            while not all(file.done() for file in files):
                waits += [_wait_ms(visitor, page) for page in PAGES]
            took_s = time.perf_counter() - started
            sizes = [file.result() for file in files]
            [web] = site.web_workers()
            peak = peak_mb(web)
    yield Line(
        f"longest wait for a page while {FILES} files of {RESULTS:,} results are made and downloaded",
        max(waits),
        "ms",
        goal=GOAL_MS,
        peak_mb=peak,
        remark=f"p95 of {len(waits)} pages {p95(waits):.0f}; all {sum(sizes) / 1e6:.0f} MB after {took_s:.0f} s",
    )


def _download(visitor: Visitor, number: int) -> int:
    """Ask for a file, wait until it is offered, and return its size."""
    page = visitor.get(FILE.format(number=number))
    found = EXPORT.search(page)
    if found is None:
        raise SystemExit("the file was not made by a worker")
    export = found[0]
    wait_until(
        lambda: f"{export}file/" in visitor.get(f"{export}state/"),
        timeout_s=MAX_WAIT_S,
        poll_s=LOOK_EVERY_S,
        what=f"{export} is ready",
    )
    return len(visitor.get(f"{export}file/"))


def _wait_ms(visitor: Visitor, page: str) -> float:
    started = time.perf_counter()
    visitor.get(page)
    return (time.perf_counter() - started) * 1000

"""Row 6: a run of 20,000 results and charts opened in a browser, from navigation to a table that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tests.benchmarks.figures import Line
from tests.benchmarks.processes import peak_mb
from tests.benchmarks.servers import Servers
from tests.services.chromium import installed_chromium
from tests.services.processes import running, scratch_folder
from tests.services.site import Site

RESULTS = 20_000
GOAL_S = 0.7
# Of a machine that has much else to do.
TIMEOUT_MS = 120_000
STORE = (
    "from tests.benchmarks.suites import execute_run, store; "
    f"execute_run(store('many', cases={RESULTS}, at_once=8))"
)


class Opened(NamedTuple):
    """A page, its rows, how many of them make it readable, and the goal for its bytes."""

    address: str
    rows: str
    least: int
    goal_kb: float | None = None


PAGES = {
    f"{RESULTS:,} results": Opened("/suites/many/runs/1/", "#rows tr", 20, 150.0),
    f"charts of {RESULTS:,} results": Opened("/suites/many/charts/", "main table tbody tr", 1),
}
# Two frames: the rows are there, and have been painted.
PAINTED_MS = (
    "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
    "() => done(performance.now()))))"
)
SHIFTS = (
    "() => new Promise(done => { let sum = 0; new PerformanceObserver(list => "
    "list.getEntries().forEach(entry => { sum += entry.hadRecentInput ? 0 : entry.value; }))"
    ".observe({type: 'layout-shift', buffered: true}); "
    "requestAnimationFrame(() => requestAnimationFrame(() => done(sum))); })"
)


class Visit(NamedTuple):
    """When a page could be read, how many bytes it took, and by how much its layout shifted."""

    seconds: float
    size: int
    shift: float


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure a first visit, with nothing kept in the browser, and the one after it."""
    with scratch_folder("bench") as folder:
        site = Site(Path(folder), EVALSITE_LOG_LEVEL="WARNING")
        site.migrate()
        site.manage("shell", "--verbosity", "0", "-c", STORE)
        with running(site.web), sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=installed_chromium(), args=["--no-sandbox"]
            )
            found = {
                name: list(
                    zip(*(_visit(site, browser, opened) for _ in range(rounds + 1)), strict=True)
                )
                for name, opened in PAGES.items()
            }
            [web] = site.web_workers()
            peak = peak_mb(web)
            browser.close()
    for name, sorts in found.items():
        for words, all_visits in zip(("first visit", "next visit"), sorts, strict=True):
            # The very first also waits for a server that has not shown the page yet.
            visits = all_visits[1:]
            work = f"{name} opened in the browser, {words}"
            yield Line(
                work,
                median(visit.seconds for visit in visits),
                goal=GOAL_S,
                peak_mb=peak,
                remark=f"layout shift {max(visit.shift for visit in visits):.3f}",
            )
            size_kb = median(visit.size for visit in visits) / 1024
            yield Line(f"{work}: bytes sent", size_kb, "KB", goal=PAGES[name].goal_kb)


def _visit(site: Site, browser: Browser, opened: Opened) -> tuple[Visit, Visit]:
    """Visit a page twice as somebody who is logged in."""
    login = browser.new_context()
    page = login.new_page()
    page.goto(site.login_link())
    page.get_by_role("button", name="Log in as").click()
    page.wait_for_load_state()
    state = login.storage_state()
    login.close()
    # A context of its own has an empty cache.
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    session = context.new_cdp_session(page)
    sizes: list[float] = []
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    found = []
    for _ in range(2):
        sizes.clear()
        page.goto(f"{site.url}{opened.address}", wait_until="commit")
        page.locator(opened.rows).nth(opened.least - 1).wait_for()
        # On the page's own clock, which begins with the navigation.
        seconds = page.evaluate(PAINTED_MS) / 1000
        page.wait_for_load_state("networkidle")
        found.append(Visit(seconds, int(sum(sizes)), page.evaluate(SHIFTS)))
    context.close()
    return found[0], found[1]

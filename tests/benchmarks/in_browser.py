"""Row 6: a run of 20,000 results opened in a browser, from navigation to a table that can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from tests.benchmarks.figures import Line
from tests.benchmarks.processes import peak_mb
from tests.benchmarks.servers import Servers
from tests.services.chromium import installed_chromium
from tests.services.processes import running, scratch_folder
from tests.services.site import Site

RESULTS = 20_000
GOAL_S, GOAL_KB = 0.7, 150.0
STORE = (
    "from tests.benchmarks.suites import execute_run, store; "
    f"execute_run(store('many', cases={RESULTS}, at_once=8))"
)
PAGE = "/suites/many/runs/1/"
ROWS = "#rows tr"
# Two frames: the rows are there, and have been painted.
PAINTED_MS = (
    "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
    "() => done(performance.now()))))"
)


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
            first, again = zip(*(_visit(site, browser) for _ in range(rounds + 1)), strict=True)
            [web] = site.web_workers()
            peak = peak_mb(web)
            browser.close()
    # The very first visit also waits for a server that has not shown a page yet.
    for words, visits in (("first visit", first[1:]), ("next visit", again[1:])):
        seconds = median(seconds for seconds, _ in visits)
        size_kb = median(size for _, size in visits) / 1024
        work = f"{RESULTS:,} results opened in the browser, {words}"
        yield Line(work, seconds, goal=GOAL_S, peak_mb=peak)
        yield Line(f"{work}: bytes sent", size_kb, "KB", goal=GOAL_KB)


def _visit(site: Site, browser: Browser) -> tuple[tuple[float, int], tuple[float, int]]:
    """Return seconds and bytes of the first time and of the second, as somebody who is logged in."""
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
    session = context.new_cdp_session(page)
    sizes: list[float] = []
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    found = []
    for _ in range(2):
        sizes.clear()
        page.goto(f"{site.url}{PAGE}", wait_until="commit")
        page.locator(ROWS).nth(20).wait_for()
        # On the page's own clock, which begins with the navigation.
        seconds = page.evaluate(PAINTED_MS) / 1000
        page.wait_for_load_state("networkidle")
        found.append((seconds, int(sum(sizes))))
    context.close()
    return found[0], found[1]

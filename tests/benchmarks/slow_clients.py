"""Row 10: a page, a file and a check while 200 slow clients of each kind hold connections."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.benchmarks.figures import Line, p95
from tests.benchmarks.processes import peak_mb
from tests.benchmarks.servers import Servers
from tests.services.site import running_site
from tests.services.slow_clients import HALF_A_HEAD, LARGE_FILE, get, half_a_form, slow_clients
from tests.services.visitor import Visitor

GOAL_MS = 100.0
CLIENTS, TIMES = 200, 30
PAGES = ("/runs/", "/static/css/app.css")


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure pages without and with slow clients; the longest added wait is the line's."""
    with running_site(EVALSITE_LOG_LEVEL="WARNING") as site:
        visitor = Visitor(site.url)
        visitor.log_in(site.login_link())
        [web] = site.web_workers()
        kinds = {
            "half a head": HALF_A_HEAD,
            "half a form": half_a_form(100_000),
            "half an upload of a member": half_a_form(5_000_000, visitor.cookies),
            "a file nobody takes": get(LARGE_FILE),
        }
        for name, sent in kinds.items():
            quiet, busy = [], []
            for _ in range(rounds):
                quiet += _waits_ms(visitor)
                with slow_clients(site, CLIENTS, sent):
                    # It waits for its turn behind the requests that arrived whole.
                    visitor.get(PAGES[0])
                    busy += _waits_ms(visitor)
            yield Line(
                f"pages while {CLIENTS} clients hold connections: {name}",
                p95(busy) - p95(quiet),
                "ms",
                goal=GOAL_MS,
                peak_mb=peak_mb(web),
                remark=f"added p95; without → with: {p95(quiet):.0f} → {p95(busy):.0f}, "
                f"worst {max(quiet):.0f} → {max(busy):.0f}",
            )


def _waits_ms(visitor: Visitor) -> list[float]:
    waits = []
    for _ in range(TIMES):
        for page in PAGES:
            started = time.perf_counter()
            visitor.get(page)
            waits.append((time.perf_counter() - started) * 1000)
    return waits

"""Row 13: an agent asked by the Python client, and its outputs pushed, until the site has scored them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from evalsite.client import Evalsite
from tests.benchmarks.figures import Line, middle
from tests.benchmarks.processes import cpu_s, peak_mb
from tests.benchmarks.servers import Servers
from tests.services.site import running_site

CASES = 10_000
# A minute is what an issue asks for; the CPU is that of the client, 1 ms a case.
GOAL_S, GOAL_SITE_CPU_S, GOAL_CLIENT_CPU_S = 60.0, 25.0, 10.0
PREPARE = """
from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from tests.support.factories import make_user

print(make_token(owner=make_user(role="editor"), name="t", scopes=[Scope.RUN, Scope.EDIT], expires_at=None)[1])
"""


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure the site until the run is completed, and what the client itself takes."""
    figures = middle([_measure() for _ in range(rounds)])
    yield Line(
        f"{CASES:,} outputs pushed, until all are scored",
        figures["wall_s"],
        goal=GOAL_S,
        cpu_s=figures["site_cpu_s"],
        goal_cpu_s=GOAL_SITE_CPU_S,
        cases=CASES,
        peak_mb=figures["peak_mb"],
    )
    yield Line(
        f"{CASES:,} outputs pushed: the client itself",
        figures["answered_s"],
        cpu_s=figures["client_cpu_s"],
        goal_cpu_s=GOAL_CLIENT_CPU_S,
        cases=CASES,
    )


def _measure() -> dict[str, float]:
    check = {"name": "check", "type": "contains", "value": "refund"}
    cases = [{"id": f"C-{n}", "input": f"Where is my parcel {n}?"} for n in range(CASES)]
    suite = json.dumps({"name": "support", "evaluators": [check], "tests": cases}).encode()
    with running_site(EVALSITE_LOG_LEVEL="WARNING") as server:
        token = server.manage("shell", "--verbosity", "0", "-c", PREPARE)
        with Evalsite(server.url, token=token) as site:
            site.put_file("suites/support", suite, "application/json")
            site.add_target("python")
            run = site.start("support", "python")
            [web] = server.web_workers()
            before, started, own = cpu_s(web), time.perf_counter(), time.process_time()
            site.answer(run, lambda case: f"Your refund is on its way: {case.text}")
            answered_s, client_cpu_s = time.perf_counter() - started, time.process_time() - own
            report = site.wait(run)
            wall_s = time.perf_counter() - started
        if report.document["counts"]["pass"] != CASES:
            raise SystemExit(f"The run ended with {report.document['counts']}.")
        return {
            "wall_s": wall_s,
            "answered_s": answered_s,
            "client_cpu_s": client_cpu_s,
            "site_cpu_s": cpu_s(web) - before,
            "peak_mb": peak_mb(web),
        }

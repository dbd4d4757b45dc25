"""Row 12: the spans of many agents, sent as OpenTelemetry's exporter sends them, until the run has scored them."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

from tests.benchmarks.figures import Line, middle
from tests.benchmarks.processes import cpu_s, peak_mb
from tests.benchmarks.servers import Servers
from tests.services.site import Site, running_site
from tests.traces.wire import PROTOBUF, request, span

CASES, SPANS_EACH, BATCH = 500, 20, 512
SPANS = CASES * SPANS_EACH
GOAL_S, GOAL_CPU_S = 5.0, 4.0
PREPARE = f"""
from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from runs.running.services import start_run
from tests.support.factories import make_case, make_suite, make_target, make_user
from tests.support.trees import CHECK, tree

suite = make_suite(slug="support", tree=tree(CHECK))
for number in range({CASES}):
    make_case(suite=suite, key=f"C-{{number}}", position=number)
start_run(suite=suite, target=make_target(name="agent", kind="pushed"), started_by=None)
print(make_token(owner=make_user(role="editor"), name="t", scopes=[Scope.RUN], expires_at=None)[1])
"""


def lines(servers: Servers, rounds: int) -> Iterator[Line]:
    """Measure the requests alone, then until the run is completed."""
    figures = middle([_measure() for _ in range(rounds)])
    rate = SPANS / figures["sent_s"]
    yield Line(
        f"{SPANS:,} spans into a run of {CASES} cases, until all are scored",
        figures["wall_s"],
        goal=GOAL_S,
        cpu_s=figures["cpu_s"],
        goal_cpu_s=GOAL_CPU_S,
        cases=SPANS,
        peak_mb=figures["peak_mb"],
        remark=f"requests alone {figures['sent_s']:.1f} s, {rate:,.0f} spans/s",
    )


def _measure() -> dict[str, float]:
    with running_site(EVALSITE_LOG_LEVEL="WARNING") as site:
        token = site.manage("shell", "--verbosity", "0", "-c", PREPARE)
        bodies = list(_bodies())
        [web] = site.web_workers()
        before, started = cpu_s(web), time.perf_counter()
        for body in bodies:
            _ask(site, token, "/v1/traces", body)
        sent_s = time.perf_counter() - started
        run = json.loads(_ask(site, token, "/api/runs/support:1?wait=60"))
        wall_s = time.perf_counter() - started
        if run["counts"]["pass"] != CASES:
            raise SystemExit(f"The run ended as {run['status']} with {run['counts']}.")
        return {
            "wall_s": wall_s,
            "sent_s": sent_s,
            "cpu_s": cpu_s(web) - before,
            "peak_mb": peak_mb(web),
        }


def _bodies() -> Iterator[bytes]:
    """Yield requests of 512 spans: of each agent first the calls of models and tools, at last its own span."""
    spans = []
    for number in range(CASES):
        trace = number + 1
        for place in range(2, SPANS_EACH + 1):
            kind = {"gen_ai__operation__name": "chat", "gen_ai__usage__input_tokens": 100}
            question = {"gen_ai__input__messages": '[{"role": "user", "content": "Where is it?"}]'}
            spans.append(span(place, max(1, place // 2), trace=trace, **kind, **question))
        marks = {"evalsite__run": "support:1", "evalsite__case": f"C-{number}"}
        spans.append(span(1, trace=trace, output__value="You get a refund.", **marks))
    for begin in range(0, len(spans), BATCH):
        yield request(*spans[begin : begin + BATCH]).SerializeToString()


def _ask(site: Site, token: str, path: str, body: bytes | None = None) -> bytes:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": PROTOBUF}
    call = urllib.request.Request(f"{site.url}{path}", data=body, headers=headers)
    with urllib.request.urlopen(call) as answer:
        content: bytes = answer.read()
        return content

"""OpenTelemetry's own SDK and exporter against a real site: what the README shows."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.services.site import Site, running_site

pytestmark = pytest.mark.processes
PREPARE = """
from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from runs.running.services import start_run
from tests.support.factories import make_case, make_suite, make_target, make_user
from tests.support.trees import CHECK, tree

suite = make_suite(slug="support", tree=tree(CHECK))
for number in range(3):
    make_case(suite=suite, key=f"C-{number}", position=number)
start_run(suite=suite, target=make_target(name="agent", kind="pushed"), started_by=None)
print(make_token(owner=make_user(role="editor"), name="t", scopes=[Scope.RUN], expires_at=None)[1])
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Run a site with a run that waits for the outputs of three cases."""
    with running_site() as site:
        site.env["EVALSITE_TOKEN"] = site.manage("shell", "--verbosity", "0", "-c", PREPARE)
        yield site


def read(site: Site, path: str) -> Any:
    headers = {"Authorization": f"Bearer {site.env['EVALSITE_TOKEN']}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{site.url}/api/{path}", headers=headers)
    ) as answer:
        return json.load(answer)


def test_an_agent_with_opentelemetry_is_scored_with_its_trace(site: Site) -> None:
    provider = TracerProvider(resource=Resource.create({"service.name": "refunds"}))
    exporter = OTLPSpanExporter(
        endpoint=f"{site.url}/v1/traces",
        headers={"Authorization": f"Bearer {site.env['EVALSITE_TOKEN']}"},
        compression=Compression.Gzip,
    )
    # Batches of two: the spans of one agent come in several requests.
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=2))
    tracer = provider.get_tracer("agent")

    def answer(case: str) -> None:
        with tracer.start_as_current_span("agent") as agent:
            agent.set_attributes({"evalsite.run": "support:1", "evalsite.case": case})
            with tracer.start_as_current_span("chat") as chat:
                chat.set_attributes(
                    {
                        "gen_ai.operation.name": "chat",
                        "gen_ai.request.model": "juno-1",
                        "gen_ai.usage.input_tokens": 12,
                        "gen_ai.usage.output_tokens": 3,
                    }
                )
                with tracer.start_as_current_span("find_order") as tool:
                    tool.set_attribute("openinference.span.kind", "TOOL")
                    tool.set_attribute("tool.name", "find_order")
            if case == "C-2":
                raise ValueError("no such order")
            agent.set_attribute("output.value", "You get a refund.")

    answer("C-0")
    answer("C-1")
    with pytest.raises(ValueError, match="no such order"):
        answer("C-2")
    assert provider.force_flush()
    provider.shutdown()

    run = read(site, "runs/support:1?wait=60")
    assert (run["status"], run["counts"]["pass"], run["counts"]["error"]) == ("completed", 2, 1)
    results = read(site, "runs/support:1/results")["results"]
    assert [row["input_tokens"] for row in results] == [12, 12, None]
    assert results[2]["error"] == "Target failed: ValueError: no such order"
    steps = read(site, f"results/{results[0]['id']}")["steps"]
    assert [(step["type"], step["name"]) for step in steps] == [
        ("step", "agent"),
        ("model", "juno-1"),
        ("tool", "find_order"),
    ]
    assert [step.get("parent_id") for step in steps] == [None, steps[0]["id"], steps[1]["id"]]

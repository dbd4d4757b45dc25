"""A client that a generator made of the schema, on the main journey: the schema describes what programs need."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.wsgi import get_wsgi_application

from evalsite.access.roles import Scope
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from tests.api.site import get, token_of
from tests.support.factories import make_user
from tests.support.members import make_client

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.one_database]
SUITE = {
    "name": "support",
    "profile": "tasks",
    "assertions": [{"type": "contains", "value": "refund"}],
    "tests": [
        {"id": "A", "input": "Broken on arrival.", "expected_output": "A refund."},
        {"id": "B", "input": "Too small.", "expected_output": "A refund."},
    ],
}
Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Generate the client and return a function that calls one of its functions by name."""
    member = make_user(role="editor")
    schema, package = tmp_path / "schema.json", tmp_path / "generated"
    schema.write_text(json.dumps(get(make_client(member), "/api/schema")))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    done = subprocess.run(
        [
            *(
                str(Path(sys.executable).with_name("openapi-python-client")),
                "generate",
                "--meta=none",
            ),
            *(
                f"--path={schema}",
                f"--output-path={package}",
                f"--config={tmp_path / 'config.yaml'}",
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    # Files are taken from their address; everything else of the schema can be generated.
    assert "Unable to process schema" not in done.stdout + done.stderr
    monkeypatch.syspath_prepend(tmp_path)
    client = importlib.import_module("generated.client").AuthenticatedClient(
        base_url="http://testserver",
        token=token_of(member, scopes=[Scope.RUN, Scope.EDIT]),
        httpx_args={"transport": httpx.WSGITransport(app=get_wsgi_application())},
        raise_on_unexpected_status=True,
    )

    def perform(name: str, *place: Any, **params: Any) -> Any:
        return importlib.import_module(f"generated.api.{name}").sync(
            *place, client=client, **params
        )

    return perform


def test_the_main_journey(call: Call) -> None:
    models = importlib.import_module("generated.models")
    call("suites.create_suite", body=models.CreateSuiteJsonBody.from_dict(SUITE))
    call("targets.add_target", body=models.TargetBody(name="agent", kind="pushed"))
    choices = {"suite": "support", "targets": ["agent"]}
    started = call("runs.start_runs", body=models.StartRunsBody.from_dict(choices))
    name = started.runs[0].name
    outputs = [{"case": "A", "output": "You get a refund."}, {"case": "B", "output": "No."}]
    call("runs.outputs", name, body=models.PushOutputsBody.from_dict({"outputs": outputs}))
    work_on_run(Run.objects.get().pk)
    ended = call("runs.run", name, wait=60)
    assert (ended.status.value, ended.exit_code) == ("completed", 1)
    results = call("results.run_results", name)
    assert {row.case: row.verdict for row in results.results} == {"A": "pass", "B": "fail"}
    assert call("suites.put_baseline", "support", body=models.BaselineBody(run=name)).run == name

"""The Python client against the site: agents of every form, refusals, and a run that goes on where it was left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from django.core.wsgi import get_wsgi_application
from django.db import connection

from evalsite import client
from evalsite.access.roles import Scope
from evalsite.client import Case, Evalsite, EvalsiteError, Output
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.models.suites import Target
from runs.running.retrying import stop_run
from tests.api.site import token_of
from tests.production.readme import readme_block
from tests.support.factories import again, make_case, make_suite, make_user
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)
ADDRESS = "http://testserver"


class Site(httpx2.BaseTransport):
    """Carries requests to the application of this process; `answers` come first, in place of its own."""

    def __init__(self) -> None:
        """Serve the tests' site."""
        self.answers: list[int | Exception | httpx2.Response] = []
        self.hosts: set[str] = set()
        self._site = httpx2.WSGITransport(app=get_wsgi_application())

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer in the thread of the caller, whose connection is closed like that of a server's thread."""
        self.hosts.add(request.url.host)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, httpx2.Response):
                answer.request = request
                return answer
            if isinstance(answer, Exception):
                raise answer
            return httpx2.Response(answer, headers={"Retry-After": "7"}, request=request)
        try:
            response = self._site.handle_request(request)
            response.read()
            return response
        finally:
            connection.close()


@pytest.fixture
def transport() -> Site:
    return Site()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def site(transport: Site, waits: list[float]) -> Iterator[Evalsite]:
    """Return the client; workers score while it waits."""
    suite = make_suite(slug="support", tree=tree(CHECK))
    for number in range(5):
        make_case(suite=suite, key=f"C-{number}", position=number, metadata={"number": number})
    token = token_of(make_user(role="editor"), scopes=[Scope.RUN, Scope.EDIT])

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        for run in Run.objects.filter(results__awaits_output=False).distinct():
            work_on_run(run.pk)

    with Evalsite(ADDRESS, token=token, transport=transport, sleep=sleep) as client:
        yield client


def test_an_agent_is_asked_about_every_case_and_the_report_says_how_it_did(site: Evalsite) -> None:
    seen: list[tuple[int, int]] = []

    def agent(case: Case) -> str:
        assert "What now?" in case.text
        return "You get a refund." if case.metadata["number"] else "No."

    report = site.evaluate("support", agent, on_progress=lambda *at: seen.append(at), note="mine")

    assert (report.name, report.passed, report.exit_code) == ("support:1", False, 1)
    assert report.conclusion.startswith("Failed: ")
    assert report.url == f"{ADDRESS}/suites/support/runs/1/"
    assert report.document["counts"]["pass"] == 4
    assert sorted(seen) == [(number, 5) for number in range(1, 6)]
    assert (Target.objects.get().name, Run.objects.get().note) == ("python", "mine")


def test_the_examples_of_the_readme_run(
    site: Evalsite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = make_suite(slug="support-agent", tree=tree(CHECK))
    for number, tags in enumerate((["refunds"], ["refunds"], []), 1):
        make_case(suite=suite, key=f"CS-00{number}", position=number, tags=tags)

    async def ask(text: str) -> SimpleNamespace:
        steps = [{"type": "tool", "name": "find_order"}]
        return SimpleNamespace(text="No idea.", steps=steps, tokens=5, cost=0.02)

    monkeypatch.setattr(client, "Evalsite", lambda *_, **__: site)
    names: dict[str, Any] = {"my_agent": lambda text: "You get a refund.", "ask": ask}
    beginnings = ("from evalsite.client", "async def agent", "def show", "site.add_", "for row in")
    reports = []
    for beginning in beginnings:
        with suppress(SystemExit):
            exec(readme_block("python", beginning), names)
        reports.append(names["report"])
    counts = [(one.document["results"], one.document["counts"]["pass"]) for one in reports[:4]]
    assert counts == [(3, 3), (3, 0), (6, 0), (1, 1)]
    shown = capsys.readouterr().out
    assert "Passed: both gates met. http://testserver/suites/support-agent/runs/1/" in shown
    assert "6 of 6" in shown
    step = Run.objects.get(number=2, suite=suite).results.first()
    assert step.output.trace[0]["name"] == "find_order"
    assert again(Run.objects.latest("pk")).external_names == ["ragas/faithfulness"]


def test_coroutines_outputs_and_errors_are_taken(site: Evalsite) -> None:
    async def agent(case: Case) -> Any:
        match case.metadata["number"]:
            case 0:
                raise ValueError("no such order")
            case 1:
                return 7
            case 2:
                step = {"type": "tool", "name": "find_order", "input": {"id": 1}, "output": "there"}
                return Output(
                    "A refund.",
                    trace=[step],
                    input_tokens=5,
                    cost_usd=Decimal("0.02"),
                    latency_ms=9,
                )
            case _:
                return "A refund."

    report = site.evaluate("support", agent, target="mine", concurrency=2)

    results = {
        row.case.key: row for row in Run.objects.get().results.select_related("case", "output")
    }
    assert results["C-0"].error == "Target failed: ValueError: no such order"
    assert results["C-1"].error == "Target failed: The agent returned int, not a text or an Output."
    whole = results["C-2"]
    assert (whole.latency_ms, whole.input_tokens, whole.run_cost_usd) == (9, 5, Decimal("0.02"))
    assert whole.output.trace[0]["name"] == "find_order"
    assert results["C-3"].latency_ms is not None
    assert report.document["counts"]["pass"] == 3


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ("A refund.\0\ud800", "", "A refund.\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        ({"output": "A refund.", "case": "C-1", "repetition": 9}, "", "A refund."),
        (
            Output("A refund.", trace=[{"type": "tool", "name": "a", "input": object()}]),
            *("The answer of the agent cannot be sent as JSON: Object of type object", ""),
        ),
        (Output("A refund.", trace=[{"input": float("nan")}]), "cannot be sent as JSON", ""),
        (ValueError("odd \0"), "ValueError: odd \N{REPLACEMENT CHARACTER}", ""),
    ],
)
def test_an_odd_answer_is_that_of_its_case_alone(
    site: Evalsite, answer: Any, error: str, text: str
) -> None:
    def agent(case: Case) -> Any:
        if case.key == "C-0" and isinstance(answer, Exception):
            raise answer
        return answer if case.key == "C-0" else "A refund."

    site.evaluate("support", agent, target="mine")

    rows = Run.objects.get().results.select_related("case", "output")
    results = {row.case.key: row for row in rows}
    odd = results.pop("C-0")
    assert error in odd.error
    assert error or odd.output.text == text
    assert {row.output.text for row in results.values()} == {"A refund."}


def test_a_run_that_was_left_goes_on_with_what_still_waits(site: Evalsite) -> None:
    asked: list[str] = []

    def agent(case: Case) -> str:
        asked.append(case.key)
        return "A refund."

    site.add_target("python")
    started = site.post("runs", {"suite": "support", "targets": ["python"]}, key="once")
    again = site.post("runs", {"suite": "support", "targets": ["python"]}, key="once")
    assert started == again
    site.push("support:1", [{"case": "C-1", "output": "A refund."}])
    report = site.evaluate("support", agent, run="support:1")
    assert (sorted(asked), report.passed) == (["C-0", "C-2", "C-3", "C-4"], True)


def test_faults_on_the_way_are_tried_again_and_the_last_one_is_told(
    site: Evalsite, transport: Site, waits: list[float]
) -> None:
    transport.answers = [429, httpx2.ConnectError("refused"), 503]
    assert site.get("suites/support")["slug"] == "support"
    assert waits == [7.0, 4.0, 7.0]
    transport.answers = [httpx2.ConnectError("refused")] * 5
    with pytest.raises(EvalsiteError, match="http://testserver cannot be reached: refused"):
        site.get("suites")


def test_refusals_say_what_is_wrong_and_where(site: Evalsite) -> None:
    with pytest.raises(EvalsiteError) as refusal:
        site.evaluate("nobody", lambda case: "")
    assert refusal.value.status == 400
    assert refusal.value.errors == {"/suite": ["There is no suite 'nobody'."]}

    def stop(case: Case) -> str:
        stop_run(Run.objects.get(), stopped_by=None)
        connection.close()
        return "A refund."

    with pytest.raises(EvalsiteError) as refusal:
        site.evaluate("support", stop, concurrency=1)
    assert refusal.value.code == "run_not_active"


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (200, b"<html>Log in</html>", "does not answer like a site of Evalsite"),
        (200, b"[" * 100_000, "does not answer like a site of Evalsite"),
        (200, b"[]", "does not answer like a site of Evalsite"),
        (200, b"null", "does not answer like a site of Evalsite"),
        (403, b"<html>No</html>", "The site answered 403."),
        (400, b"[]", "The site answered 400."),
        (400, b'{"detail": "No.", "errors": "x"}', "No."),
        (400, b'{"detail": "No.", "errors": {"/a": 1, "/b": null}}', "No."),
    ],
)
def test_answers_of_something_else_are_told(
    site: Evalsite, transport: Site, status: int, content: bytes, message: str
) -> None:
    transport.answers = [httpx2.Response(status, content=content)]
    with pytest.raises(EvalsiteError, match=message) as refusal:
        site.get("suites")
    assert (refusal.value.status, refusal.value.errors) == (status, {})


@pytest.mark.parametrize("path", ["/api/suites?cursor=", "//third.example/api/suites?cursor="])
def test_the_token_goes_to_no_other_site(site: Evalsite, transport: Site, path: str) -> None:
    first = {"next": f"http://elsewhere.example{path}", "results": [{"slug": "first"}]}
    last = {"next": None, "results": [{"slug": "support"}]}
    transport.answers = [httpx2.Response(200, json=page) for page in (first, last)]
    assert [row["slug"] for row in site.rows("suites")] == ["first", "support"]
    assert transport.hosts == {"testserver"}


def test_server_and_token_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALSITE_SERVER", f"{ADDRESS}/")
    with pytest.raises(EvalsiteError, match="EVALSITE_TOKEN is missing"):
        Evalsite()
    monkeypatch.setenv("EVALSITE_TOKEN", "evs_x")
    assert Evalsite().server == ADDRESS


def test_the_client_needs_no_django() -> None:
    code = "import evalsite.client, sys; print([m for m in sys.modules if m.startswith(('django', 'pydantic'))])"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "[]"

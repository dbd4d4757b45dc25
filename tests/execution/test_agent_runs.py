"""Whole runs against an agent over HTTP: its calls in the ledger, its costs, its secrets, its end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.model_calls.models import encrypt
from evaluators.scoring.types import DomainError
from runs.execution.reaper import reap
from runs.execution.run_worker import work_on_run
from runs.models.results import Artifact, ModelCall, Result
from runs.models.runs import Run, RunStatus
from runs.models.suites import Target
from runs.running.retrying import stop_run
from runs.running.services import start_run, suggested_concurrency
from tests.support.agent_server import AgentServer, Asked, echoes, refuses, says, sends
from tests.support.factories import make_case, make_suite, make_target
from tests.support.run_workers import counts, work_in_thread
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = "Bearer t0p-s3cret-value"
REPLY = {
    "output": "It is a refund.",
    "cost": 0.5,
    "usage": {"in": 3, "out": 4},
    "files": {"a.md": "# A"},
    "steps": [],
}
Start = Callable[..., Run]


@pytest.fixture
def start(agent_server: AgentServer) -> Start:
    """Start a run of so many cases against the agent, with a secret header."""
    agent_server.behave(then=says(REPLY))

    def start(cases: int = 3, *, changes: dict[str, Any] | None = None, **choices: Any) -> Run:
        suite = make_suite(tree=tree(CHECK))
        for number in range(cases):
            make_case(suite=suite, key=f"C-{number}", position=number)
        config = {
            "url": agent_server.url,
            "output_path": "output",
            "tool_calls_path": "steps",
            "files_path": "files",
            "input_tokens_path": "usage.in",
            "output_tokens_path": "usage.out",
            "cost_path": "cost",
            "tries": 1,
            "headers": [{"name": "Authorization", "secret": True}],
        }
        target = make_target(
            name="desk",
            kind="http",
            config=config | (changes or {}),
            encrypted_secrets={"authorization": encrypt(SECRET)},
        )
        return start_run(suite=suite, target=target, started_by=None, **choices)

    return start


def test_every_answer_is_scored_and_every_call_is_in_the_ledger(
    start: Start, agent_server: AgentServer
) -> None:
    run = start(3)
    work_on_run(run.pk)
    assert counts(run)[:2] == ("completed", 3)
    calls = ModelCall.objects.filter(run=run)
    assert calls.count() == len(agent_server.asked) == 3
    call = calls.first()
    assert call is not None
    assert (call.purpose, call.status, call.http_status) == ("target", "ok", 200)
    assert (call.model_name, call.model_id, call.input_tokens) == ("desk", None, 3)
    assert call.reply["json"]["output"] == "It is a refund."
    assert run.run_cost_usd == Decimal("1.5")
    assert set(Result.objects.values_list("run_cost_usd", flat=True)) == {Decimal("0.5")}
    assert Artifact.objects.filter(result__run=run, path="a.md").count() == 3
    assert Result.objects.filter(output__trace=[]).count() == 3
    assert agent_server.asked[0].headers["Authorization"] == SECRET


def test_the_secret_is_nowhere_after_a_run(
    start: Start, agent_server: AgentServer, admin_client: Client, caplog: Any
) -> None:
    agent_server.behave(refuses(500), echoes(), then=echoes())
    run = start(3)
    work_on_run(run.pk)
    dump = io.StringIO()
    call_command("dumpdata", stdout=dump)
    row = Run.objects.get(pk=run.pk)
    place = {"slug": run.suite.slug, "number": run.number}
    pages = [reverse("runs:run", kwargs=place), reverse("runs:target", args=[run.target_id])]
    for key in ("C-0", "C-1"):
        case = place | {"key": key, "repetition": 1}
        pages += [reverse(f"runs:{name}", kwargs=case) for name in ("result", "result-calls")]
    read = [admin_client.get(page).content.decode() for page in pages]
    texts = (dump.getvalue(), json.dumps(row.snapshot), caplog.text, *read)
    assert all("s3cret" not in text for text in texts)
    assert "[secret]" in dump.getvalue()
    assert "gAAAA" not in json.dumps(row.snapshot)


def test_a_secret_in_another_spelling_is_nowhere_after_a_run(
    start: Start, agent_server: AgentServer, viewer_client: Client, caplog: Any
) -> None:
    spelled = "t0p\\u002Ds3\\u0063ret\\u002dvalue"
    reply = (
        f'{{"output": "{spelled}", "steps": [{{"name": "x", "input": {{"{spelled}": 1}}}}], '
        f'"files": {{"{spelled}": "{spelled}"}}}}'
    )
    agent_server.behave(then=sends(reply.encode()))
    run = start(1)
    work_on_run(run.pk)
    dump = io.StringIO()
    call_command("dumpdata", stdout=dump)
    case = {"slug": run.suite.slug, "number": run.number, "key": "C-0", "repetition": 1}
    pages = [reverse(f"runs:{name}", kwargs=case) for name in ("result", "result-calls")]
    read = [viewer_client.get(page).content.decode() for page in pages]
    texts = (dump.getvalue(), caplog.text, *read)
    assert counts(run)[:2] == ("completed", 1)
    assert all("t0p" not in text and "ret-value" not in text for text in texts)
    assert all("[secret]" in page for page in read)
    held = Artifact.objects.select_related("content").get(result__run=run)
    assert (held.path, bytes(held.content.content)) == ("[secret]", b"[secret]")


def test_an_odd_file_is_told_of_on_the_result_that_was_scored_without_it(
    start: Start, agent_server: AgentServer, viewer_client: Client
) -> None:
    agent_server.behave(then=says(REPLY | {"files": {"a.md": "# A", "a\\b": "x"}}))
    run = start(1)
    work_on_run(run.pk)
    result = Result.objects.get(run=run)
    assert (result.status, result.verdict) == ("scored", "pass")
    assert [held.path for held in Artifact.objects.filter(result=result)] == ["a.md"]
    assert "a\\\\b" in result.warnings[0]
    case = {"slug": run.suite.slug, "number": run.number, "key": "C-0", "repetition": 1}
    page = viewer_client.get(reverse("runs:result", kwargs=case)).content.decode()
    assert "A file was left out of the answer" in page


def test_a_failed_answer_is_shown_on_its_result_with_what_came_back(
    start: Start, agent_server: AgentServer, viewer_client: Client
) -> None:
    agent_server.behave(then=says({"answer": "elsewhere"}))
    run = start(1)
    work_on_run(run.pk)
    place = {"slug": run.suite.slug, "number": run.number, "key": "C-0", "repetition": 1}
    page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    assert "Bad reply: output, path output: the reply is an object with answer" in page
    calls = viewer_client.get(reverse("runs:result-calls", kwargs=place)).content.decode()
    assert "elsewhere" in calls
    assert "Answered, not readable" in calls


def test_an_agent_that_fails_every_case_alike_ends_the_run(
    start: Start, agent_server: AgentServer
) -> None:
    agent_server.behave(then=refuses(401))
    run = start(30, concurrency=2)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.FAILED
    assert "does not accept the credentials (401)" in run.status_reason
    assert len(agent_server.asked) < 30


def test_a_spent_budget_prevents_further_requests(start: Start, agent_server: AgentServer) -> None:
    run = start(20, concurrency=1, budget_usd=Decimal(1))
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.status == RunStatus.BUDGET_REACHED
    assert len(agent_server.asked) == 2
    assert run.run_cost_usd == Decimal(1)


def test_a_stop_prevents_further_requests_and_records_those_in_flight(
    start: Start, agent_server: AgentServer
) -> None:
    async def slow(asked: Asked) -> Any:
        await asked.released()
        return await says(REPLY)(asked)

    agent_server.behave(then=slow)
    run = start(200, concurrency=2)
    thread = work_in_thread(run)
    agent_server.wait_for(2)
    stop_run(run=run, stopped_by=None)
    agent_server.release()
    thread.join(30)
    run.refresh_from_db()
    assert run.status == RunStatus.STOPPED
    assert 2 <= len(agent_server.asked) < 200
    assert ModelCall.objects.filter(run=run).count() == len(agent_server.asked)
    assert run.run_cost_usd == len(agent_server.asked) * Decimal("0.5")


def test_a_reply_in_the_ledger_is_not_asked_for_again_after_a_lost_lease(
    start: Start, agent_server: AgentServer
) -> None:
    run = start(2)
    work_on_run(run.pk)
    # As after a kill -9: the replies are written, the results are not.
    Result.objects.filter(run=run).update(status="pending", verdict="", score=None)
    Artifact.objects.all().delete()
    for result in Result.objects.filter(run=run):
        result.scores.all().delete()
        result.output.delete()
    Run.objects.filter(pk=run.pk).update(
        status="running", done_count=0, pass_count=0, fail_count=0, finished_at=None
    )
    reap(now=timezone.now())
    work_on_run(run.pk)
    assert counts(run)[:2] == ("completed", 2)
    assert len(agent_server.asked) == 2
    assert run.run_cost_usd == Decimal(1)


def test_a_secret_never_follows_a_target_to_another_server(
    start: Start, agent_server: AgentServer
) -> None:
    run = start(1)
    target = Target.objects.get()
    target.config["url"] = "https://elsewhere.example/ask"
    target.save()
    work_on_run(run.pk)
    error = Result.objects.get(run=run).error
    assert "desk now points at https://elsewhere.example" in error
    assert agent_server.asked == []


def test_a_header_may_be_filled_from_a_variable_of_the_server(
    start: Start, agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [{"name": "X-Key", "value": "Key {{EVALSITE_TARGET_SECRET_A}}"}]
    monkeypatch.setitem(settings.TARGET_SECRETS, "EVALSITE_TARGET_SECRET_A", "hidden-value")
    work_on_run(start(1, changes={"headers": named}).pk)
    assert agent_server.asked[0].headers["X-Key"] == "Key hidden-value"
    kept = ModelCall.objects.get().request["headers"]
    assert kept == {"X-Key": "Key {{EVALSITE_TARGET_SECRET_A}}"}


def test_headers_that_cannot_be_filled_refuse_the_start(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [{"name": "X-Key", "value": "{{EVALSITE_TARGET_SECRET_GONE}}"}]
    with pytest.raises(DomainError, match="variable EVALSITE_TARGET_SECRET_GONE is not set"):
        start(1, changes={"headers": named})
    Target.objects.all().delete()
    missing = [{"name": "X-Key", "secret": True}]
    with pytest.raises(DomainError, match="secret header X-Key has no value stored"):
        start(1, changes={"headers": missing})


def test_a_variable_that_is_gone_since_the_start_is_told(
    start: Start, agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [{"name": "X-Key", "value": "{{EVALSITE_TARGET_SECRET_A}}"}]
    monkeypatch.setitem(settings.TARGET_SECRETS, "EVALSITE_TARGET_SECRET_A", "hidden-value")
    run = start(1, changes={"headers": named})
    monkeypatch.delitem(settings.TARGET_SECRETS, "EVALSITE_TARGET_SECRET_A")
    work_on_run(run.pk)
    error = Result.objects.get(run=run).error
    assert "The variable EVALSITE_TARGET_SECRET_A is not set on the server." in error
    assert agent_server.asked == []


def test_a_run_suggests_as_many_at_once_as_the_agent_allows(start: Start) -> None:
    target = start(1, changes={"concurrency": 3}).target
    assert target is not None
    assert suggested_concurrency(target, None) == 3

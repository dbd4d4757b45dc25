"""The pages of alignments: the form with its price, every state, the figures, and what a role may do."""

from __future__ import annotations

import re
from decimal import Decimal
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evaluators.model_calls import limit_policy
from evaluators.model_calls.calls import CallOutcome
from evaluators.models import LanguageModel
from runs.execution import jobs
from runs.management.commands import align
from runs.models.jobs import ModelJob
from runs.models.runs import Run
from runs.models.suites import Suite, SuiteDraft
from runs.reviews.alignment import services
from runs.reviews.alignment.planning import AlignmentRequest
from runs.reviews.alignment.services import start_alignment
from runs.suites.drafts import get_draft
from runs.tasks import work_on_job
from tests.api.site import get
from tests.reviews.aligning import (
    CALL_USD,
    KIND,
    PEOPLE,
    TODAY,
    make_alignment,
    make_decided_suite,
    writes,
)
from tests.support.members import make_client, make_member
from tests.support.model_server import ModelServer, hang
from tests.support.run_workers import work_in_thread
from tests.support.worker_lines import make_worker

pytestmark = pytest.mark.django_db
LIST = "/suites/support/agreement/align/"


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep the ids of the alignments that are queued."""
    asked: list[int] = []
    monkeypatch.setattr(services, "queue_job", asked.append)
    return asked


@pytest.fixture
def decided() -> tuple[Suite, Run]:
    return make_decided_suite(people=PEOPLE[:20])


@pytest.fixture
def editor() -> Client:
    return make_client(make_member("editor", "ed"))


def words(response: Any, status: int = 200) -> str:
    assert response.status_code == status
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def test_the_price_and_what_can_be_proven_stand_before_the_start(
    decided: tuple[Suite, Run], editor: Client, viewer_client: Client
) -> None:
    said = words(editor.get(f"{LIST}?evaluator=tone"))
    assert "from the tokens of 20 calls of tone" in said
    assert re.search(r"About \$0\.\d+, at most \$0\.\d+, 31 calls\.", said)
    # 7 must turn for three candidates, and the judge differs on no more than 5.
    assert (
        "10 cases are held out; today's judge differs from people on 5 cases, but 7 such cases are needed, so no "
        "candidate can count. Review more results first."
    ) in said
    sent = {"evaluator": "tone", "writer": "mock", "candidates": "1", "budget": "", "form_key": "k"}
    said = words(editor.post(f"{LIST}?estimate=1", sent))
    assert "but 6 such cases are needed" in said
    assert "Write 1 candidate" in said
    said = words(editor.post(LIST, sent | {"budget": "0"}), 422)
    assert "The budget must be more than $0." in said

    started = editor.post(LIST, sent | {"budget": "0.5"})
    job = ModelJob.objects.get()
    address = reverse("runs:alignment", args=("support", job.pk))
    assert started["Location"] == address
    assert (job.budget_usd, job.asked_by.get_username()) == (Decimal("0.5"), "ed")
    assert editor.post(LIST, sent | {"budget": "0.5"})["Location"] == address, "sent twice"
    assert "ed is aligning tone already" in words(editor.post(LIST, sent | {"form_key": "l"}), 422)

    said = words(viewer_client.get(LIST))
    assert "You can read alignments." in said
    assert "Waiting for a worker Mock" in said
    assert viewer_client.post(LIST, sent).status_code == 403
    page = viewer_client.get(address).content.decode()
    assert 'data-state="waiting"' in page
    assert "No worker is running." in page
    process = make_worker()
    assert "Waiting for a worker" in editor.get(address).content.decode()
    process.delete()
    assert 'hx-trigger="every 1s"' in page
    assert "alignment-stop" not in page
    assert "/stop/" not in page


def test_a_finished_alignment_shows_figures_the_difference_and_cases_that_turn(
    decided: tuple[Suite, Run], editor: Client
) -> None:
    suite, run = decided
    make_alignment(suite, run)
    job = make_alignment(suite, run)
    address = reverse("runs:alignment", args=("support", job.pk))
    with CaptureQueriesContext(
        connection,
    ) as asked:
        page = editor.get(address)
    assert len(asked) < 40
    said = words(page)
    assert (
        "Candidate 1 agrees with people on 20 of 20 held-out results, today's instructions with 0 of 20: more than "
        "chance explains (p < 0.001, corrected for 1 candidate)."
    ) in said
    assert "Today's instructions 0.0% 0 of 20, 0.0% to 16.1%" in said
    assert "Candidate 1 100.0% 20 of 20, 83.8% to 100.0%" in said
    assert "100.0 pts" in said
    assert "1 earlier alignment of this evaluator tried other candidates" in said
    assert "20 to, 0 away Agrees better p < 0.001" in said
    assert f"before: {TODAY.removesuffix('.')}" in said
    assert f"after: {KIND[:18]}" in said
    assert "People like it. (Mock)" in said
    assert page.content.decode().count('data-turn="won"') == 20
    assert reverse("runs:result", args=("support", 1, "C-00", 1)) in page.content.decode()
    assert editor.get(address, headers={"hx-request": "true"}).status_code == 286
    assert (
        'href="/suites/support/agreement/align/"'
        in editor.get("/suites/support/agreement/").content.decode()
    )

    address_of_api = f"/api/suites/support/alignments/{job.pk}"
    found = get(editor, address_of_api, "/api/suites/{slug}/alignments/{alignment}")
    assert found["conclusion"] in said
    assert (found["best"], found["today"]["agreed"], found["today_text"]) == (1, 0, TODAY)
    [candidate] = found["candidates"]
    assert (candidate["finding"], candidate["won"], candidate["held_out"]["of"]) == (
        "better", 20, 20,
    )  # fmt: skip

    body = {"candidate": 2}
    refused = editor.post(f"{address_of_api}/take", body, "application/json")
    assert (refused.status_code, refused.json()["code"]) == (409, "cannot_align")
    rae = make_client(make_member("editor", "rae"))
    taken = rae.post(f"{address_of_api}/take", {"candidate": 1}, "application/json")
    assert taken.json() == {"evaluator": "tone", "candidate": 1, "base_version": 1}
    node = SuiteDraft.objects.get().content["evaluators"]["children"][0]
    assert node["config"]["prompt"] == KIND
    SuiteDraft.objects.all().delete()

    taken = {"candidate": "1", "stamp": get_draft(suite, make_member("viewer", "x")).stamp}
    response = editor.post(f"{address}take/", taken)
    assert response["Location"] == "/suites/support/evaluators/"
    node = SuiteDraft.objects.get().content["evaluators"]["children"][0]
    assert node["config"]["prompt"] == KIND
    assert "Your draft has these instructions." in words(editor.get(address))
    response = editor.post(f"{address}take/", taken, follow=True)
    assert "other instructions in your draft than in v1" in words(response)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"state": "failed", "reason": "The writer gave no instructions: 401."}, "401."),
        ({"state": "stopped", "reason": "Stopped by ed."}, "Cancelled. Stopped by ed."),
        (
            {"state": "budget_reached", "reason": "The budget of $1.00 leaves no room for a call."},
            "Budget reached. The budget of $1.00 leaves no room",
        ),
    ],
)
def test_an_alignment_that_ended_early_says_why_and_can_be_continued(
    editor: Client, facts: dict[str, Any], text: str
) -> None:
    suite, _ = make_decided_suite(people=PEOPLE[:2])
    job = make_alignment(suite, **facts)
    address = reverse("runs:alignment", args=("support", job.pk))
    assert text in words(editor.get(address))
    assert "Enter an amount in US dollars, such as 2.50." in words(
        editor.post(f"{address}resume/", {"budget": "much"}, follow=True)
    )
    editor.post(f"{address}resume/", {"budget": "2"})
    job.refresh_from_db()
    assert (job.state, job.budget_usd, job.reason) == ("waiting", Decimal(2), "")
    editor.post(f"{address}stop/")
    job.refresh_from_db()
    assert (job.state, job.reason) == ("stopped", "Stopped by ed.")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clock")
def test_a_writer_that_does_not_answer_can_be_stopped_and_fails_it_in_the_end(
    model_server: ModelServer, editor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LATE_REPLIES_S", 0.0)
    monkeypatch.setattr(jobs, "RENEW_EVERY_S", 0.0)
    model_server.behave(then=hang())
    suite, _ = make_decided_suite(model_server.base_url)
    request = AlignmentRequest("tone", LanguageModel.objects.get(), 1)
    job = start_alignment(suite, request, by=None)
    address = reverse("runs:alignment", args=("support", job.pk))
    worker = work_in_thread(job, work_on_job)
    model_server.wait_for_chats(1)
    assert "Mock writes the candidates Decisions" in words(editor.get(address))
    editor.post(f"{address}stop/")
    assert "Cancelled. Stopped by ed." in words(editor.get(address))
    worker.join(30)
    assert not worker.is_alive(), "it does not wait for the reply"
    job.refresh_from_db()
    assert (job.state, job.calls.get().error) == ("stopped", "Stopped before the answer came")

    ModelJob.objects.update(state="running")
    page = words(editor.get(address))
    assert "Mock writes the candidates; 1 try failed so far" in page
    ModelJob.objects.update(state="stopped")
    LanguageModel.objects.update(timeout_s=1)
    monkeypatch.setitem(limit_policy.TRIES, CallOutcome.TIMEOUT, 1)
    editor.post(f"{address}resume/")
    work_on_job(job.pk)
    reason = "The alignment failed. The writer gave no instructions: Mock: No answer within 1 s."
    assert reason in words(editor.get(address))


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clock")
def test_the_command_line_says_the_price_does_it_and_ends_with_what_was_found(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_server.behave(then=writes(KIND))
    make_decided_suite(model_server.base_url)
    out = StringIO()
    options = {"writer": "mock", "candidates": 1, "stdout": out, "stderr": StringIO()}
    call_command("align", "support", "tone", estimate=True, **options)
    assert re.match(r"About \$0\.\d+, at most \$0\.\d+, 16 calls\.\n15 cases are", out.getvalue())
    assert not ModelJob.objects.exists()
    call_command("align", "support", "tone", budget="1", **options)
    job = ModelJob.objects.get()
    assert (job.state, job.asked_by, job.spent_usd()) == ("done", None, 16 * CALL_USD)
    said = out.getvalue()
    assert "Candidate 1 agrees with people on 15 of 15 held-out results" in said
    assert f"/suites/support/agreement/align/{job.pk}/" in said
    model_server.behave(then=writes("Anything is good."))
    with pytest.raises(SystemExit) as none_is_better:
        call_command("align", "support", "tone", budget="1", **options)
    assert none_is_better.value.code == 1

    # A worker of the site takes it first, and then ends.
    def start(*args: Any, **options: Any) -> ModelJob | None:
        job = start_alignment(*args, **options)
        return ModelJob.objects.claim(job.pk, "elsewhere/x/1/1")

    monkeypatch.setattr(align, "start_alignment", start)
    monkeypatch.setattr(jobs.time, "sleep", lambda s: ModelJob.objects.latest("pk").release())
    with pytest.raises(SystemExit):
        call_command("align", "support", "tone", budget="1", **options)
    assert ModelJob.objects.latest("pk").state == "done"

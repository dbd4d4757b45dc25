"""Drafting cases from beginning to end: asked, written by a model over HTTP, looked at, and stored."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from evalsite.access.members import erase_member
from evaluators.model_calls import client as model_client
from evaluators.model_calls.limit_policy import ONE_TRY
from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from runs.cases.services import add_case, remove_case
from runs.drafting.forms import keep
from runs.drafting.material import PART_LENGTH, SourceText
from runs.drafting.preview import Proposal
from runs.drafting.services import (
    Choices,
    DraftingRequest,
    discard_drafts,
    keep_choices,
    plan_drafting,
    start_drafting,
    stop_drafting,
    store_drafted,
)
from runs.execution.jobs import JobCalls, work_on_job
from runs.formats.suite_files import case_values
from runs.models.jobs import ModelJob
from runs.models.results import ModelCall, ResultOutput
from runs.models.suites import Suite
from runs.specs.suites import CaseSpec
from runs.tasks import READ_JOBS
from tests.support.factories import (
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_user,
)
from tests.support.model_server import ModelServer, Request, completion, good, status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]
# What a call of the model server costs at these prices: 100 tokens in, 20 out.
PRICES = {
    "input_price_usd_per_mtok": Decimal(10),
    "cached_price_usd_per_mtok": Decimal(10),
    "output_price_usd_per_mtok": Decimal(50),
}
CALL_USD = Decimal("0.002")


def drafted(*inputs: str, **more: Any) -> dict[str, Any]:
    return {
        "cases": [
            {"title": text[:20], "input": text, "expected_output": "", "expected_outcomes": ["Is kind"],
             "tags": ["drafted"], **more}
            for text in inputs
        ]
    }  # fmt: skip


@pytest.fixture
def suite(db: None) -> Suite:
    suite = make_suite(slug="refunds", title="Refunds")
    make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is my refund?"}])
    return suite


@pytest.fixture
def model(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """Return a model that is asked once, whatever happens."""
    monkeypatch.setattr(model_client, "Retries", lambda: ONE_TRY)
    return make_model(slug="mock", name="Mock", base_url=model_server.base_url, **PRICES)


def draft(suite: Suite, model: LanguageModel, **asked: Any) -> ModelJob:
    request = DraftingRequest(model, **{"description": "A shop that refunds.", "count": 2, **asked})
    job = start_drafting(suite, request, by=make_user(role="editor"))
    work_on_job(job.pk, READ_JOBS)
    return ModelJob.objects.select_related("suite").get(pk=job.pk)


def texts(job: ModelJob) -> list[str]:
    return [row["input"] for row in (job.outcome or {})["rows"]]


@pytest.mark.each_database
def test_cases_are_drafted_looked_at_and_stored_as_the_next_version_with_where_they_come_from(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    model_server.behave(good(drafted("Where is my refund", "Can I return a gift?")))
    job = draft(suite, model, budget_usd=Decimal(1))
    assert (job.state, job.spent_usd(), suite.cases.count()) == ("done", CALL_USD, 1)
    [call] = ModelCall.objects.all()
    assert (call.purpose, call.run, call.job_id) == ("drafting", None, job.pk)
    assert "A shop that refunds." in json.dumps(call.request)
    first, second = Proposal(job).rows
    assert (first.is_taken, [each.key for each in first.duplicates]) == (False, ["C-1"])
    assert (second.is_taken, second.problems, second.key) == (True, [], "can-i-return-a-gift")

    editor = make_user(role="editor")
    counts = store_drafted(job, seen=suite.version_stamp, by=editor)
    assert counts == {"added": 1, "version": 2, "left": 1}
    assert store_drafted(job, seen="", by=editor) == counts
    case = suite.cases.get(key="can-i-return-a-gift")
    assert case.metadata == {
        "drafted": {"by": "Mock", "from": "a description", "on": job.asked_at.date().isoformat()}
    }
    assert (case.tags, case.expected_outcomes, case.evaluators) == (["drafted"], ["Is kind"], None)
    assert suite.versions.first().note == "1 case drafted by Mock from a description"
    assert CaseSpec.model_validate(case.spec.as_json()).metadata == case.metadata
    assert case_values(case.spec)["metadata"] == case.metadata
    assert AuditEntry.objects.get(action="draft").after == {
        "model": "mock", "source": "a description", "cases": 2,
    }  # fmt: skip


@pytest.mark.each_database
def test_a_worker_that_dies_pays_for_no_answered_call_twice(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    batches = [
        drafted(*(f"Question {n} of batch {batch}" for n in range(10))) for batch in range(3)
    ]
    model_server.behave(*(good(batch) for batch in batches))
    job = draft(suite, model, count=30)
    before = texts(job)
    assert len(before) == 30
    # As if the worker had died before the last reply came.
    job.calls.get(generation=2).delete()
    ModelJob.objects.update(state="running", outcome=None, heartbeat_at=None)
    asked = len(model_server.requests)
    model_server.behave(good(batches[2]))
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert len(model_server.requests) == asked + 1
    assert (texts(job), job.state, job.spent_usd()) == (before, "done", 3 * CALL_USD)


def test_each_question_names_what_was_drafted_before(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    model_server.behave(
        good(drafted(*(f"About {n}" for n in range(10)))), then=good(drafted("Last"))
    )
    draft(suite, model, count=11)
    first, second = (request.text for request in model_server.requests)
    assert "About 3" not in first
    assert "- About 3" in second
    assert "- Case C-1" in first


def test_the_budget_keeps_what_there_is_and_says_so(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    ten = json.dumps(drafted(*(f"About {n}" for n in range(10))))
    usage = {"prompt_tokens": 0, "completion_tokens": 3_000, "total_tokens": 3_000}
    model_server.behave(then=raw(ten, usage=usage))
    call_usd = Decimal("0.15")
    job = draft(suite, model, count=50, budget_usd=Decimal("0.4"))
    assert (job.state, len(texts(job)), job.spent_usd()) == ("budget_reached", 20, 2 * call_usd)
    assert job.reason == "The budget of $0.400 leaves no room for a call."


def test_a_budget_below_the_first_call_asks_nothing(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    def refusal(budget: str) -> str:
        asked = DraftingRequest(model, description="A shop", budget_usd=Decimal(budget))
        with pytest.raises(DomainError) as refused:
            start_drafting(suite, asked, by=None)
        return str(refused.value)

    assert refusal("0") == "The budget must be more than $0."
    assert "A budget of $0.050 does not cover the first call, which costs about $0.1" in refusal(
        "0.05"
    )
    job = start_drafting(suite, DraftingRequest(model, description="A shop"), by=None)
    # As if its price had been raised since.
    ModelJob.objects.update(budget_usd=Decimal("0.05"))
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.reason) == (
        "budget_reached", "The budget of $0.050 leaves no room for a call.",
    )  # fmt: skip
    assert not model_server.requests


def raw(text: str, **options: Any) -> Any:
    async def behave(request: Request) -> Any:
        return completion(text, **options)

    return behave


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (raw(""), "could not be read in 2 attempts: the reply is empty"),
        (raw("Here are your cases!"), "does not start with a JSON object"),
        (raw('{"cases": [1], "cases": []}'), "could not be read in 2 attempts"),
        (raw('{"cases": "none"}'), "does not satisfy the schema"),
        (raw('{"cases": [], "evaluators": []}'), "Additional properties are not allowed"),
        (status(429, "slow down"), "Mock: Rate limited by the server (429): slow down"),
        (status(500, "broken"), "Mock: Server error (500): broken"),
        (status(401, "who?"), "Mock: The server does not accept the key (401): who?"),
    ],
)
def test_a_model_that_cannot_be_used_fails_the_drafting_with_the_reason(
    suite: Suite, model: LanguageModel, model_server: ModelServer, reply: Any, reason: str
) -> None:
    model_server.behave(then=reply)
    job = draft(suite, model, count=30)
    assert (job.state, job.outcome) == ("failed", None)
    assert reason in job.reason
    assert "judge" not in job.reason
    assert len(model_server.requests) <= 4


def test_a_model_that_hangs_ends_with_its_time_out_and_keeps_what_came_before(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    async def hang(request: Request) -> Any:
        await request.hang()

    LanguageModel.objects.update(timeout_s=1)
    model_server.behave(good(drafted("First")), then=hang)
    job = draft(suite, LanguageModel.objects.get(), count=20)
    assert (job.state, texts(job)) == ("done", ["First"])
    assert (job.outcome or {})["problem"] == "Mock: No answer within 1 s"


def test_hostile_cases_are_kept_as_text_or_named_with_what_is_wrong(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    script = "<script>alert(1)</script>"
    reply = drafted(script, "", evaluators=[{"type": "script", "command": "rm"}])
    reply["cases"] += ["nonsense", *reply["cases"] * 500]
    model_server.behave(then=good(reply))
    job = draft(suite, model, count=3)
    proposal = Proposal(job)
    first, empty, nonsense = proposal.rows
    assert first.case is not None
    assert first.case.input[0]["content"] == script
    assert (first.case.evaluators, first.left_out) == (None, ["evaluators"])
    assert empty.problems == ["Input is empty; write what the case asks."]
    assert nonsense.problems == ["The model gave no case here."]
    assert [row.is_taken for row in proposal.rows] == [True, False, False]
    assert proposal.left_out_count == 1_000
    assert store_drafted(job, seen="", by=None)["added"] == 1


def test_failed_results_are_read_worst_first_and_their_text_goes_with_them(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    run = make_run(suite=suite, number=12)
    for number, verdict in enumerate(("fail", "pass", "fail")):
        case = make_case(suite=suite, key=f"R-{number}", expected_output="Friday")
        result = make_result(run=run, case=case, verdict=verdict, score=0.5 - number / 10)
        ResultOutput.objects.create(result=result, text=f"Answer {number}")
    model_server.behave(good(drafted("Again", "And again")))
    with CaptureQueriesContext(connection) as queries:
        job = draft(suite, model, source="results", run=run)
    assert not any('"runs_resultoutput"."trace"' in query["sql"] for query in queries)
    assert job.request["from"] == "2 failed results of refunds#12"
    text = model_server.requests[0].text
    assert text.index("The agent answered: Answer 2") < text.index("The agent answered: Answer 0")
    assert "Answer 1" not in text
    # Retention removes the outputs of the run, and with them what was drafted from them.
    ModelJob.objects.filter(sources=run).forget_texts()
    job.refresh_from_db()
    assert (job.request, job.outcome, job.spent_usd()) == ({}, None, CALL_USD)
    assert list(job.calls.values_list("request", "reply")) == [({}, None)]
    with pytest.raises(DomainError, match="no drafted cases any more"):
        store_drafted(job, seen="", by=None)


def test_a_long_document_is_read_in_parts_and_each_case_names_its_part(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    document = SourceText("handbook.md", "word " * (PART_LENGTH // 4))
    asked = {"source": "documents", "documents": [document], "description": ""}
    with pytest.raises(DomainError, match="cut in 2 parts, and each gets at least one case"):
        plan_drafting(suite, DraftingRequest(model, count=1, **asked))
    model_server.behave(good(drafted("One")), good(drafted("Two")))
    job = draft(suite, model, **asked)
    cases = [row.case for row in Proposal(job).rows]
    assert [case.metadata["drafted"]["part"] for case in cases if case] == [
        "handbook.md, part 1 of 2", "handbook.md, part 2 of 2",
    ]  # fmt: skip


def test_cases_as_source_show_conversations_tags_and_metadata_of_the_suite(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    turns = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    for key in ("C-2", "C-3"):
        make_case(
            suite=suite, key=key, input=turns, tags=["gifts"], metadata={"plan": "pro", "n": 1}
        )
    case = drafted("", metadata={"plan": "free", "n": 2})["cases"][0] | {"input": turns}
    model_server.behave(then=good({"cases": [case]}))
    job = draft(suite, model, source="cases", count=1, keys=["C-2"])
    assert job.request["from"] == "1 case of refunds"
    assert "(gifts)" in model_server.requests[0].text
    [row] = Proposal(job).rows
    assert row.case is not None
    assert [turn["role"] for turn in row.case.input] == ["user", "assistant", "user"]
    assert {name: row.case.metadata[name] for name in row.case.metadata if name != "drafted"} == {
        "plan": "free"
    }
    assert [each.key for each in row.duplicates] == ["C-2", "C-3"]


@pytest.mark.each_database
def test_a_reply_that_comes_after_its_drafting_was_deleted_leaves_no_text(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    model_server.behave(then=good(drafted("One question")))
    request = DraftingRequest(model, description="A shop that refunds.", count=20)
    job = start_drafting(suite, request, by=None)

    def deleted(job: ModelJob) -> Any:
        work, ask_models = READ_JOBS["drafting"](job)

        async def ask(calls: JobCalls) -> Any:
            outcome = await ask_models(calls)
            await calls.database.do(job.stop, None)
            await calls.database.do(discard_drafts, job, by=None)
            return outcome

        return work, ask

    work_on_job(job.pk, {"drafting": deleted})
    job.refresh_from_db()
    assert (job.state, job.request, job.outcome) == ("stopped", {}, None)
    assert [(call.request, call.reply) for call in job.calls.all()] == [({}, None)] * 2
    assert job.spent_usd() == 2 * CALL_USD


@pytest.mark.each_database
def test_a_person_edits_unticks_and_leaves_fields_out(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    model_server.behave(good(drafted("One question", "Another question")))
    job = draft(suite, model)
    choices = Choices(
        taken={1},
        fields={"title", "expected_output"},
        cells={1: {"key": "C-1", "input": "What else?", "expected_output": "Nothing"}},
    )
    proposal = keep_choices(job, choices)
    assert proposal.rows[1].problems == ["Key the suite already has a case 'C-1'."]
    with pytest.raises(DomainError, match="1 ticked case cannot be stored. C-1: Key the suite"):
        store_drafted(job, seen="", by=None)
    # No database stores what some programs send.
    edited = keep(proposal, QueryDict("shown=1&take=1&field=title&title-1=a%00b"))
    assert edited.rows[1].cells["title"] == "a\N{REPLACEMENT CHARACTER}b"
    keep_choices(job, Choices({1}, choices.fields, {1: {"key": "C-9"}}))
    assert store_drafted(job, seen="", by=None) == {"added": 1, "version": 2, "left": 1}
    case = suite.cases.get(key="C-9")
    assert (case.input[0]["content"], case.expected_output) == ("What else?", "Nothing")
    assert (case.tags, case.expected_outcomes) == ([], [])
    # Once stored, nothing changes any more.
    keep_choices(job, Choices({0}, set(), {0: {"key": "late"}}))
    assert not suite.cases.filter(key="late").exists()


def test_a_suite_that_was_changed_meanwhile_is_not_overwritten(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    model_server.behave(good(drafted("A new question", "Another one")))
    job = draft(suite, model)
    seen = suite.version_stamp
    other = make_user(role="editor")
    spec = CaseSpec(key="a-new-question", input=({"role": "user", "content": "A new question!"},))
    add_case(suite, spec, by=other)
    with pytest.raises(DomainError, match="Refunds was changed meanwhile: it is at version 2 now"):
        store_drafted(job, seen=seen, by=None)
    suite.refresh_from_db()
    job = ModelJob.objects.select_related("suite").get(pk=job.pk)
    first, _ = Proposal(job).rows
    assert (first.key, first.is_taken) == ("a-new-question-2", False)
    assert first.duplicates[0].key == "a-new-question"
    store_drafted(job, seen=suite.version_stamp, by=None)
    remove_case(suite, "a-new-question", base_revision=1, by=other)
    assert suite.cases.filter(is_current=True).count() == 2
    Suite.objects.update(archived_at=timezone.now())
    with pytest.raises(DomainError, match="archived"):
        draft(suite, model)


def test_a_form_sent_twice_drafts_once_and_two_people_draft_at_once(
    suite: Suite, model: LanguageModel
) -> None:
    request, editor = DraftingRequest(model, description="A shop"), make_user(role="editor")
    job = start_drafting(suite, request, by=editor, form_key="f")
    assert start_drafting(suite, request, by=editor, form_key="f") == job
    assert start_drafting(suite, request, by=make_user(role="editor"), form_key="f") != job
    # A key counts for one form of one suite.
    for others in ({"purpose": "alignment"}, {"suite": make_suite(slug="other")}):
        ModelJob.objects.filter(pk=job.pk).update(**others)
        job = start_drafting(suite, request, by=editor, form_key="f")
    assert ModelJob.objects.filter(asked_by=editor, form_key="f").count() == 3


def test_what_is_stopped_discarded_or_old_is_not_written_on(
    suite: Suite, model: LanguageModel, model_server: ModelServer
) -> None:
    request, kim = DraftingRequest(model, description="A shop"), make_user(name="kim")
    job = start_drafting(suite, request, by=kim)
    assert stop_drafting(job, by=kim)
    assert not stop_drafting(job, by=kim)
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.reason, job.finished_at) == (
        "stopped", "Stopped by kim.", timezone.now(),
    )  # fmt: skip
    assert AuditEntry.objects.filter(action="stop_draft").count() == 1
    assert not model_server.requests
    model_server.behave(then=good(drafted("One", "Two")))
    done = draft(suite, model)
    discard_drafts(done, by=kim)
    entry = AuditEntry.objects.get(action="delete_draft")
    assert (entry.actor, entry.object_name) == (kim, suite.title)
    old = draft(suite, model)
    ModelJob.objects.forget_old_drafts(now=timezone.now() + timedelta(days=13))
    old.refresh_from_db()
    assert old.request
    ModelJob.objects.forget_old_drafts(now=timezone.now() + timedelta(days=15))
    assert {job.outcome for job in ModelJob.objects.all()} == {None}
    erased = draft(suite, model)
    erase_member(erased.asked_by, actor=None)
    assert ModelJob.objects.get(pk=erased.pk).request == {}
    assert erased.spent_usd() == CALL_USD


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"description": " "}, "Describe the agent"),
        ({"count": 0}, "0 cases cannot be drafted"),
        ({"count": 101}, "draft 1 to 100"),
        ({"source": "documents"}, "Choose at least one document"),
        ({"source": "cases", "keys": ["no"]}, "none of these cases"),
        ({"source": "results"}, "Choose a run"),
    ],
)
def test_what_cannot_be_drafted_from_is_refused(
    suite: Suite, model: LanguageModel, asked: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DomainError, match=reason):
        plan_drafting(suite, DraftingRequest(model, **{"description": "A shop", **asked}))


def test_the_price_is_known_before_and_a_budget_needs_one(
    suite: Suite, model: LanguageModel
) -> None:
    request = DraftingRequest(model, description="A shop", count=20)
    plan = plan_drafting(suite, request)
    assert plan.calls == 2
    # 5,000 tokens of replies at $50 a million, and about 1,000 of questions at $10.
    assert plan.cost_usd is not None
    assert Decimal("0.255") < plan.cost_usd < Decimal("0.265")
    assert plan.budget_usd == 2 * plan.cost_usd
    LanguageModel.objects.update(input_price_usd_per_mtok=None)
    unpriced = LanguageModel.objects.get()
    plan = plan_drafting(suite, DraftingRequest(unpriced, description="A shop"))
    assert (plan.cost_usd, plan.budget_usd) == (None, None)
    with pytest.raises(DomainError, match="There are no prices for Mock"):
        plan_drafting(suite, DraftingRequest(unpriced, description="A", budget_usd=Decimal(1)))

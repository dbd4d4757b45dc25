"""Aligning a judge: from people's decisions to instructions in a draft, and every state in between."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from evaluators.models import AuditEntry, LanguageModel
from runs import tasks
from runs.execution.reaper import reap
from runs.models.jobs import ModelJob
from runs.models.removals import RemovalPart
from runs.models.results import ModelCall
from runs.models.suites import Suite
from runs.retention.queries import Selection
from runs.retention.services import begin_removal, remove_data
from runs.reviews.alignment import services
from runs.reviews.alignment.planning import (
    AlignmentPlan,
    AlignmentRequest,
    CannotAlignError,
    alignable_evaluators,
    plan_alignment,
)
from runs.reviews.alignment.services import (
    AlignmentUnderWayError,
    OtherInstructionsError,
    resume_alignment,
    start_alignment,
    stop_alignment,
    take_candidate,
)
from runs.reviews.alignment.specs import AlignmentOutcome
from runs.reviews.alignment.writing import find_problem
from runs.suites.drafts import DraftChangedError, change_draft, get_draft
from runs.suites.edits import Configure
from tests.reviews.aligning import (
    CALL_USD,
    KIND,
    SHORT,
    TODAY,
    is_writing,
    make_decided_suite,
    texts_of,
    writes,
)
from tests.services.processes import dead_process_name
from tests.support.factories import change_evaluator, make_model, make_suite, make_user
from tests.support.model_server import ModelServer, good, rate_limited, status
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.each_database,
    pytest.mark.usefixtures("clock"),
]


@pytest.fixture(autouse=True)
def queued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep the ids of the alignments that are queued."""
    asked: list[int] = []
    monkeypatch.setattr(services, "queue_job", asked.append)
    return asked


@pytest.fixture
def suite(model_server: ModelServer) -> Suite:
    model_server.behave(then=writes(SHORT, KIND))
    return make_decided_suite(model_server.base_url)[0]


def request_for(suite: Suite, **facts: Any) -> AlignmentRequest:
    writer = LanguageModel.objects.get(slug="mock")
    return AlignmentRequest(
        **{"path": "tone", "writer": writer, "candidates": 2, "seed": "s"} | facts
    )


def done(suite: Suite, **facts: Any) -> ModelJob:
    job = start_alignment(suite, request_for(suite, **facts), by=make_user(role="editor"))
    tasks.work_on_job(job.pk)
    job.refresh_from_db()
    return job


def test_an_alignment_writes_judges_held_out_results_and_books_its_calls(
    suite: Suite, model_server: ModelServer, queued: list[int]
) -> None:
    plan = plan_alignment(suite, request_for(suite))
    seen, held_out = plan.spec.seen, plan.spec.held_out
    assert (len(seen), len(held_out), plan.disagreements) == (15, 15, 8)
    assert (plan.power.disagreements, plan.power.needed, plan.power.is_able) == (7, 7, True)
    # Today's verdicts are stored: only the two candidates are asked about each held-out result.
    assert (plan.estimate.writer_calls, plan.estimate.judge_calls) == (1, 30)
    assert plan.estimate.cost_usd is not None
    assert plan.estimate.cost_usd > 30 * CALL_USD
    assert plan.estimate.basis == "from the tokens of 30 calls of tone"

    run_costs = suite.runs.values_list("run_cost_usd", "evaluation_cost_usd").get()
    job = done(suite)
    assert queued == [job.pk]
    assert (job.state, job.reason, job.planned_calls) == ("done", "", 31)
    outcome = AlignmentOutcome.model_validate(job.outcome)
    assert [candidate.text for candidate in outcome.candidates] == [SHORT, KIND]
    assert [len(outcome.opinions[key]) for key in range(3)] == [15, 15, 15]
    people = {entry.result: entry.person for entry in held_out}
    assert {pk: given.verdict for pk, given in outcome.opinions[2].items()} == people

    (asked,) = [request.text for request in model_server.requests if is_writing(request)]
    assert all(text not in asked for text in texts_of(list(people)))
    shown = [entry for entry in seen if entry.result in plan.spec.shown]
    assert all(text in asked for text in texts_of([entry.result for entry in shown]))
    assert sum(entry.is_disagreement for entry in shown) == 8
    assert TODAY in asked
    assert "The judge said: fail (0.10). Number" in asked
    assert "People said: pass. Note" in asked

    calls = ModelCall.objects.filter(job=job)
    assert (calls.count(), job.spent_usd()) == (31, 31 * CALL_USD)
    assert set(calls.values_list("purpose", flat=True)) == {"alignment"}
    by_step = [calls.filter(generation=step).count() for step in range(4)]
    assert by_step == [1, 0, 15, 15]
    assert suite.runs.values_list("run_cost_usd", "evaluation_cost_usd").get() == run_costs
    entry = AuditEntry.objects.get(object_type="alignment")
    assert (entry.action, entry.object_name) == ("start", "tone of support")


def test_another_worker_goes_on_and_pays_only_for_what_was_not_answered(
    suite: Suite, model_server: ModelServer
) -> None:
    job = done(suite)
    first = job.outcome
    kept = ModelCall.objects.filter(job=job).order_by("pk")[:12].values_list("pk", flat=True)
    ModelCall.objects.filter(job=job).exclude(pk__in=list(kept)).delete()
    ModelJob.objects.update(
        state="running", outcome=None, worker=dead_process_name(), heartbeat_at=timezone.now()
    )
    reap(now=timezone.now())
    before = len(model_server.requests)
    tasks.work_on_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("done", first)
    assert (len(model_server.requests) - before, job.calls.count()) == (19, 31)


def test_a_budget_ends_it_early_and_a_larger_one_continues(suite: Suite) -> None:
    job = done(suite, budget_usd=26 * CALL_USD)
    assert (job.state, job.spent_usd()) == ("budget_reached", 26 * CALL_USD)
    outcome = AlignmentOutcome.model_validate(job.outcome)
    assert sum(map(len, outcome.opinions.values())) == 15 + 25
    with pytest.raises(CannotAlignError, match="is spent already"):
        resume_alignment(job, 26 * CALL_USD, by=None)
    resume_alignment(job, Decimal(1), by=None)
    tasks.work_on_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.calls.count()) == ("done", 31)
    with pytest.raises(CannotAlignError, match="nothing is left"):
        resume_alignment(job, Decimal(2), by=None)


def test_a_judge_is_not_taken_to_cost_what_its_model_costs_as_writer(
    suite: Suite, model_server: ModelServer
) -> None:
    # $0.04 in and $0.02 out.
    usage = {"prompt_tokens": 4000, "completion_tokens": 400}
    model_server.behave(then=writes(SHORT, KIND, usage=usage))
    budget = Decimal("0.06") + 30 * CALL_USD
    job = done(suite, budget_usd=budget)
    assert (job.state, job.spent_usd()) == ("done", budget)


def test_a_writer_that_gives_nothing_usable_fails_it_with_the_reason(
    suite: Suite, model_server: ModelServer
) -> None:
    model_server.behave(then=good("No."))
    job = done(suite)
    assert (job.state, job.calls.count()) == ("failed", 2), "it is asked once more"
    assert job.reason.startswith(
        "The writer gave no instructions: its reply could not be read in 2 attempts: the reply does"
    )
    for behaviour, reason in (
        (good({"candidates": []}), "[] should be non-empty"),
        (writes(TODAY), "no text can be used: candidate 1: it equals another text"),
        (status(401, "no such key"), "does not accept the key (401)"),
    ):
        model_server.behave(then=behaviour)
        ModelCall.objects.filter(job=job).delete()
        resume_alignment(job, None, by=None)
        tasks.work_on_job(job.pk)
        job.refresh_from_db()
        assert job.state == "failed"
        assert reason in job.reason


def test_candidates_that_cannot_be_used_are_left_out_with_the_reason(
    suite: Suite, model_server: ModelServer
) -> None:
    spec = plan_alignment(suite, request_for(suite)).spec
    leaked = texts_of([spec.held_out[0].result])[0]
    for text, problem in (
        (" ", "it is empty"),
        (f"Pass this:\n{leaked}", "it contains an answer that it was not shown"),
        ("Good: {{metadata.answer}}", "it adds {{metadata.answer}}"),
        ("./prompts/tone.md", "it names a file"),
    ):
        assert find_problem(text.strip(), spec, [leaked]) == problem
    assert find_problem("x" * 8_001, spec, []).startswith("it has 8\u202f001 characters")
    named = spec.model_copy(update={"node": spec.node_with("Is {{output}} kind to {{question}}?")})
    assert find_problem("Is {{output}} kind?", named, []) == "it lacks {{question}}"

    model_server.behave(then=writes(f"Pass this:\n{leaked}", KIND))
    job = done(suite)
    outcome = AlignmentOutcome.model_validate(job.outcome)
    assert [candidate.text for candidate in outcome.candidates] == [KIND]
    assert outcome.left_out == ("candidate 1: it contains an answer that it was not shown",)


def test_a_limited_or_unreadable_judge_leaves_results_without_a_score(
    suite: Suite, model_server: ModelServer
) -> None:
    model_server.behave(rate_limited(0.01), then=writes(SHORT, KIND))
    assert done(suite).state == "done", "429 is repeated"
    works = writes(KIND)
    spec = plan_alignment(suite, request_for(suite)).spec
    first = texts_of([spec.held_out[0].result])[0]

    async def behave(request: Any) -> Any:
        is_first = first in request.text and not is_writing(request)
        return await (good("No.") if is_first else works)(request)

    model_server.behave(then=behave)
    job = done(suite, candidates=1)
    given = AlignmentOutcome.model_validate(job.outcome).opinions[1]
    assert [pk for pk, opinion in given.items() if opinion.score is None] == [
        spec.held_out[0].result
    ]
    assert "could not be read" in given[spec.held_out[0].result].reason


def test_what_cannot_begin_says_why_before_money_is_spent(
    suite: Suite, model_server: ModelServer
) -> None:
    def refusal(**facts: Any) -> str:
        with pytest.raises(CannotAlignError) as refused:
            start_alignment(suite, request_for(suite, **facts), by=None)
        return str(refused.value)

    assert refusal(path="gone") == ("support has no evaluator 'gone'. These can be aligned: tone.")
    assert refusal(candidates=9) == "1 to 5 candidates can be written, not 9."
    assert refusal(budget_usd=Decimal(0)) == "The budget must be more than $0."
    too_little = refusal(budget_usd=Decimal("0.01"))
    assert too_little.startswith(
        "A budget of $0.010 does not cover the first call, which costs about $"
    )
    unpriced = make_model(slug="free", name="Free")
    assert refusal(writer=unpriced).startswith("There are no prices for Free, so a budget cannot")
    ModelCall.objects.all().delete()
    assert "what this costs is not known, because there is no call of tone" in refusal()
    suite.runs.get().results.filter(case__key__gt="C-05").update(reviewed_verdict="")
    assert refusal() == "6 reviewed results can be judged by tone, and 10 are needed."
    change_evaluator(suite, "tone", config={"prompt": ""})
    assert "it has no instructions of its own" in refusal()
    assert not model_server.requests
    assert not ModelJob.objects.exists()


def test_which_evaluators_can_be_aligned_is_said_for_each() -> None:
    rubric = {**JUDGED, "name": "facts", "kind": "rubric"}
    rubric["config"] = {"rubrics": [{"id": "a", "expected_outcome": "It is right."}]}
    overall = tree(CHECK, aggregator={"type": "llm_judge", "prompt": "All in all?"})
    silent = {**JUDGED, "name": "silent", "config": {}}
    suite = make_suite(tree=tree(JUDGED, rubric, {**overall, "name": "overall"}, silent))
    found = {entry.path: entry.problem for entry in alignable_evaluators(suite)}
    assert found == {
        "right": "",
        "facts": "Rubric has no instructions in free text. Change its settings instead.",
        "overall": "its judge reads the scores of other evaluators, not the answer alone.",
        "silent": "it has no instructions of its own. Write some first, such as what a good answer does.",
    }


def test_changed_instructions_are_asked_about_the_held_out_results_too(
    suite: Suite, model_server: ModelServer
) -> None:
    change_evaluator(suite, "tone", config={"prompt": "A good answer is polite."})
    with pytest.raises(CannotAlignError, match="there is nothing to learn from"):
        plan_alignment(suite, request_for(suite))


def test_two_at_once_a_form_sent_twice_and_stopping(suite: Suite) -> None:
    ben, request = make_user(role="editor", name="ben"), request_for(suite)
    job = start_alignment(suite, request, by=ben, form_key="one")
    assert start_alignment(suite, request, by=ben, form_key="one") == job
    with pytest.raises(AlignmentUnderWayError, match="ben is aligning tone already"):
        start_alignment(suite, request, by=make_user(role="editor", name="eva"))
    assert stop_alignment(job, by=ben)
    assert not stop_alignment(job, by=ben)
    job.refresh_from_db()
    assert job.finished_at == timezone.now(), "although no worker has it"
    tasks.work_on_job(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason, job.calls.count()) == ("stopped", "Stopped by ben.", 0)
    other = start_alignment(suite, request, by=ben)
    with pytest.raises(AlignmentUnderWayError):
        resume_alignment(job, None, by=ben)
    stop_alignment(other, by=ben)
    resume_alignment(job, None, by=ben)
    tasks.work_on_job(job.pk)
    job.refresh_from_db()
    assert job.state == "done"
    actions = AuditEntry.objects.filter(object_type="alignment").order_by("pk")
    assert list(actions.values_list("action", flat=True)) == [
        "start", "stop", "start", "stop", "resume",
    ]  # fmt: skip


def test_one_form_that_is_sent_for_two_evaluators_at_once_starts_one(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    ben = make_user(role="editor", name="ben")
    facts = {"suite": suite, "purpose": "alignment", "subject": "kind", "model_name": "Mock"}

    def plan_meanwhile(suite: Suite, request: AlignmentRequest) -> AlignmentPlan:
        ModelJob.objects.create(**facts, request={}, asked_by=ben, form_key="one")
        return plan_alignment(suite, request)

    monkeypatch.setattr(services, "plan_alignment", plan_meanwhile)
    job = start_alignment(suite, request_for(suite), by=ben, form_key="one")
    assert (job.subject, ModelJob.objects.count()) == ("kind", 1)


def test_a_candidate_is_taken_into_the_draft_and_other_instructions_only_by_choice(
    suite: Suite,
) -> None:
    job, ben = done(suite), make_user(role="editor", name="ben")
    draft = get_draft(suite, ben)
    node = draft.content["evaluators"]["children"][0]
    with pytest.raises(DraftChangedError):
        take_candidate(job, 2, "stale", by=ben)
    with pytest.raises(CannotAlignError, match="no such candidate"):
        take_candidate(job, 3, draft.stamp, by=ben)
    own = {**node["config"], "prompt": "My own.", "samples": 3}
    draft = change_draft(draft, draft.stamp, Configure(node["id"], own))
    with pytest.raises(OtherInstructionsError, match="has other instructions in your draft"):
        take_candidate(job, 2, draft.stamp, by=ben)
    draft = take_candidate(job, 2, draft.stamp, by=ben, replaces=True)
    config = draft.content["evaluators"]["children"][0]["config"]
    assert (config["prompt"], config["samples"]) == (KIND, 3)
    suite.refresh_from_db()
    assert suite.spec.evaluators.children[0].config["prompt"] == TODAY


def test_texts_go_with_the_outputs_and_the_calls_with_the_alignment(suite: Suite) -> None:
    job, run = done(suite), suite.runs.get()
    selection = Selection(RemovalPart.OUTPUTS, suite, [run])
    remove_data(begin_removal(selection, by=None, in_background=False).pk)
    assert {(call.request == {}, call.reply, call.request_hash) for call in job.calls.all()} == {
        (True, None, "")
    }
    assert job.spent_usd() == 31 * CALL_USD
    with pytest.raises(CannotAlignError, match="30 decisions do not count, because their outputs"):
        plan_alignment(suite, request_for(suite))
    job.delete()
    assert not ModelCall.objects.filter(purpose="alignment").exists()

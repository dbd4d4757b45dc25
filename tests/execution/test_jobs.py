"""Jobs ask models outside of runs: within their budget, in the ledger, and on where a lost worker stopped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone

from evaluators.kinds._base import JudgeFailure, JudgeQuestion
from evaluators.kinds._judging import OPINION_SCHEMA
from evaluators.model_calls.models import model_spec
from evaluators.models import LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.engine.plan import Plan, TargetPlan
from runs.execution import jobs, reaper
from runs.execution.jobs import ActiveJobs, JobBudget, JobCalls, JobFailedError, work_on_job
from runs.execution.ledger import CallRefusedError
from runs.execution.loading import work_outside_runs
from runs.models.jobs import MAX_JOB_TRIES, ModelJob
from runs.models.results import ModelCall
from runs.models.runs import Run
from tests.services.processes import dead_process_name
from tests.support.factories import make_model, make_run, make_suite
from tests.support.model_server import ModelServer, Request, good, hang, status
from tests.support.run_workers import work_in_thread

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.each_database,
    pytest.mark.usefixtures("clock"),
]
OPINION = {"reasoning": "It names the days.", "hits": [], "misses": [], "score": 0.7}
# What a call of the model server costs at these prices: 100 tokens in, 20 out.
PRICES = {
    "input_price_usd_per_mtok": Decimal(10),
    "cached_price_usd_per_mtok": Decimal(10),
    "output_price_usd_per_mtok": Decimal(50),
}
CALL_USD = Decimal("0.002")
LATER = timedelta(seconds=60)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keep the ids of the jobs that the reaper queues."""
    asked: list[int] = []
    monkeypatch.setattr(reaper, "queue_job", lambda pk, **options: asked.append(pk))
    return asked


def make_job(server: ModelServer, **columns: Any) -> ModelJob:
    model = LanguageModel.objects.filter(slug="mock").first()
    model = model or make_model(slug="mock", base_url=server.base_url, **PRICES)
    return ModelJob.objects.create(
        suite=make_suite(), purpose="alignment", model=model, model_name=model.name,
        **{"request": {}, **columns},
    )  # fmt: skip


def ask_four(job: ModelJob) -> Any:
    """Read a job that asks the model four questions, each a step of its own."""
    plan = Plan({}, PolicySpec(), EvaluatorSpec(name="all", kind="composite", config={}),
                TargetPlan("none", "recorded"), judge="mock")  # fmt: skip
    models = list(LanguageModel.objects.all())
    work = work_outside_runs(plan, job.suite_id)
    work.models = {model.slug: model_spec(model) for model in models}
    work.model_ids = {model.slug: model.pk for model in models}

    async def ask(calls: JobCalls, step: int) -> float | None:
        question = JudgeQuestion("test", f"Question {step}", (), OPINION_SCHEMA)
        try:
            return float((await calls.model("mock", step).ask(question)).content["score"])
        except CallRefusedError:
            return None
        except JudgeFailure as failure:
            raise JobFailedError(failure.reason) from failure

    async def ask_models(calls: JobCalls) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(calls, step)) for step in range(4)]
        return {"scores": [task.result() for task in tasks]}

    return work, ask_models


READ_JOBS = {"alignment": ask_four}


def work(job_id: int) -> None:
    work_on_job(job_id, READ_JOBS)


async def late(request: Request) -> Any:
    """Give an opinion once the server is released."""
    await request.hang()
    return await good(OPINION)(request)


def test_a_job_goes_on_where_its_worker_was_lost_and_pays_for_no_reply_twice(
    model_server: ModelServer, queued: list[int]
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("done", {"scores": [0.7] * 4})
    assert [call.generation for call in job.calls.order_by("generation")] == [0, 1, 2, 3]
    assert {(call.purpose, call.run_id, call.cost_usd) for call in job.calls.all()} == {
        ("alignment", None, CALL_USD)
    }
    assert job.spent_usd() == 4 * CALL_USD

    # As if its worker had died before the last two replies came.
    job.calls.filter(generation__gte=2).delete()
    ModelJob.objects.update(
        state="running", outcome=None, worker=dead_process_name(), token="lost",
        heartbeat_at=timezone.now(),
    )  # fmt: skip
    work_on_job(job.pk, READ_JOBS)
    assert job.calls.count() == 2, "it is another worker's"
    reaper.reap(now=timezone.now())
    assert queued == [job.pk]
    before = len(model_server.requests)
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("done", {"scores": [0.7] * 4})
    assert (len(model_server.requests) - before, job.calls.count(), job.tries) == (2, 4, 0)


def test_a_budget_ends_with_an_answer_whose_cost_nobody_knows(model_server: ModelServer) -> None:
    model_server.behave(then=good(OPINION, usage={}))
    job = make_job(model_server, budget_usd=Decimal(1))
    work(job.pk)
    job.refresh_from_db()
    assert (job.state, len(model_server.requests)) == ("budget_reached", 1)
    assert job.outcome == {"scores": [0.7, None, None, None]}
    assert job.reason.startswith("What a call of mock costs is not known")

    # Calls that are free need no tokens.
    LanguageModel.objects.update(**dict.fromkeys(PRICES, Decimal(0)))
    ModelJob.objects.update(state="waiting", heartbeat_at=None, finished_at=None)
    work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("done", {"scores": [0.7] * 4})


def test_a_budget_is_never_exceeded_and_a_larger_one_continues(model_server: ModelServer) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server, budget_usd=Decimal("0.005"))
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.spent_usd()) == ("budget_reached", 2 * CALL_USD)
    assert job.reason == "The budget of $0.005 leaves no room for a call."
    assert sorted(job.outcome["scores"], key=str) == [0.7, 0.7, None, None]

    ModelJob.objects.update(
        state="waiting", budget_usd=Decimal(1), heartbeat_at=None, finished_at=None
    )
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert (job.state, job.outcome, job.calls.count()) == ("done", {"scores": [0.7] * 4}, 4)


def test_the_first_call_is_not_made_where_the_estimate_is_more_than_the_budget(
    model_server: ModelServer,
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server, budget_usd=Decimal("0.005"))

    def dear(job: ModelJob) -> Any:
        work, _ = ask_four(job)

        async def ask(calls: JobCalls) -> Any:
            question = JudgeQuestion("test", "Question", (), OPINION_SCHEMA)
            with pytest.raises(CallRefusedError):
                await calls.model("mock", 0, estimate_usd=Decimal("0.006")).ask(question)
            return {}

        return work, ask

    work_on_job(job.pk, {"alignment": dear})
    job.refresh_from_db()
    assert (job.state, job.reason) == (
        "budget_reached", "The budget of $0.005 leaves no room for a call.",
    )  # fmt: skip
    assert not model_server.requests


def test_money_of_a_call_that_was_never_sent_is_free_for_others() -> None:
    budget = JobBudget(Decimal(1))

    async def give_up() -> bool:
        return await budget.reserve(asyncio.current_task(), "mock")

    async def main() -> list[bool]:
        first = asyncio.create_task(give_up())
        second = asyncio.create_task(give_up())
        return [await first, await second]

    assert asyncio.run(main()) == [True, True]
    assert budget.reserved == {}


def test_a_job_that_a_person_stopped_asks_no_more_and_keeps_what_came(
    model_server: ModelServer,
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)

    def stopped(job: ModelJob) -> Any:
        work, ask_models = ask_four(job)

        async def ask(calls: JobCalls) -> Any:
            await calls.database.do(ModelJob.objects.update, state="stopped")
            assert not await calls.database.do(job.keep)
            calls.close("stopped")
            return await ask_models(calls)

        return work, ask

    work_on_job(job.pk, {"alignment": stopped})
    job.refresh_from_db()
    assert (job.state, job.outcome, job.calls.count()) == ("stopped", {"scores": [None] * 4}, 0)


def test_a_worker_learns_with_its_next_reply_that_its_job_was_stopped(
    model_server: ModelServer,
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)

    def stopped(job: ModelJob) -> Any:
        work, _ = ask_four(job)

        async def ask(calls: JobCalls) -> Any:
            question = JudgeQuestion("test", "Question", (), OPINION_SCHEMA)
            await calls.database.do(ModelJob.objects.update, state="stopped")
            await calls.model("mock", 0).ask(question)
            await calls.write()
            with pytest.raises(CallRefusedError):
                await calls.model("mock", 1).ask(question)
            return {}

        return work, ask

    work_on_job(job.pk, {"alignment": stopped})
    job.refresh_from_db()
    assert (job.state, job.calls.count()) == ("stopped", 1)


def test_a_job_ends_without_an_error_when_its_suite_is_deleted_while_it_asks(
    model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)

    def deleted(job: ModelJob) -> Any:
        work, ask_models = ask_four(job)

        async def ask(calls: JobCalls) -> Any:
            await calls.database.do(job.suite.delete)
            return await ask_models(calls)

        return work, ask

    work_on_job(job.pk, {"alignment": deleted})
    assert model_server.chats
    assert not caplog.records
    assert not ModelCall.objects.exists()


def test_no_text_comes_back_once_those_of_its_runs_were_removed(model_server: ModelServer) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)
    job.sources.add(make_run(suite=job.suite))

    def removed(job: ModelJob) -> Any:
        work, _ = ask_four(job)

        async def ask(calls: JobCalls) -> Any:
            question = JudgeQuestion("test", "Question", (), OPINION_SCHEMA)
            await calls.model("mock", 0).ask(question)
            await calls.write()
            await calls.database.do(
                ModelJob.objects.filter(sources__in=Run.objects.all()).forget_texts
            )
            await calls.model("mock", 1).ask(question)
            await calls.write()
            with pytest.raises(CallRefusedError):
                await calls.model("mock", 2).ask(question)
            return {}

        return work, ask

    work_on_job(job.pk, {"alignment": removed})
    job.refresh_from_db()
    assert (job.state, job.reason) == ("stopped", "Its texts were removed.")
    assert list(job.calls.values_list("request", "reply")) == [({}, None)] * 2
    assert job.spent_usd() == 2 * CALL_USD


def test_a_worker_that_is_told_to_end_keeps_the_reply_in_flight_and_hands_its_job_back(
    model_server: ModelServer, queued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model_server.behave(then=late)
    job = make_job(model_server)
    LanguageModel.objects.update(concurrency=1)
    with monkeypatch.context() as process:
        process.setattr(jobs, "_active_jobs", ActiveJobs())
        worker = work_in_thread(job, work)
        model_server.wait_for_chats(1)
        jobs.release()
        model_server.release()
        worker.join(30)
        work(job.pk)
    assert not worker.is_alive()
    job.refresh_from_db()
    assert (job.state, job.worker, job.tries, job.heartbeat_at) == ("waiting", "", 0, None)
    assert (len(model_server.requests), job.calls.filter(status="ok").count()) == (1, 1)

    # Nor does it wait for a model that does not answer.
    model_server.behave(then=hang())
    model_server.hold()
    with monkeypatch.context() as process:
        process.setattr(jobs, "_active_jobs", ActiveJobs())
        process.setattr(jobs, "LAST_REPLIES_S", 0.0)
        worker = work_in_thread(job, work)
        model_server.wait_for_chats(2)
        jobs.release()
        worker.join(30)
    assert not worker.is_alive()
    job.refresh_from_db()
    assert (job.state, job.outcome, job.spent_usd()) == ("waiting", None, CALL_USD)
    assert job.calls.get(status="connection").error == "Stopped before the answer came"

    reaper.reap(now=timezone.now())
    assert queued == [job.pk]
    model_server.behave(then=good(OPINION))
    work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("done", {"scores": [0.7] * 4})
    assert (len(model_server.requests), job.spent_usd()) == (5, 4 * CALL_USD)


def test_a_refusal_or_too_many_lost_workers_fail_a_job_with_the_reason(
    model_server: ModelServer, queued: list[int]
) -> None:
    model_server.behave(then=status(401, "no such key"))
    job = make_job(model_server)
    work_on_job(job.pk, READ_JOBS)
    job.refresh_from_db()
    assert job.state == "failed"
    assert "does not accept the key (401): no such key" in job.reason
    assert job.calls.count() >= 1, "the ledger has the refusal"

    ModelJob.objects.update(state="running", heartbeat_at=timezone.now(), tries=MAX_JOB_TRIES)
    reaper.reap(now=timezone.now() + LATER)
    job.refresh_from_db()
    assert (job.state, job.reason, queued) == (
        "failed", "5 workers ended while they worked on it.", [],
    )  # fmt: skip


def test_a_job_whose_worker_loses_the_database_while_it_reads_it_goes_on_with_the_next(
    model_server: ModelServer, queued: list[int]
) -> None:
    model_server.behave(then=good(OPINION))
    job = make_job(model_server)

    def read(job: ModelJob) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with pytest.raises(OperationalError):
        work_on_job(job.pk, {"alignment": read})
    reaper.reap(now=timezone.now() + LATER)
    assert queued == [job.pk]
    ModelJob.objects.update(heartbeat_at=None)
    work(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason, job.tries) == ("done", "", 0)


def test_a_suite_has_one_open_job_for_a_subject(model_server: ModelServer) -> None:
    job = make_job(model_server, subject="tone")
    with pytest.raises(IntegrityError), transaction.atomic():
        ModelJob.objects.create(
            suite=job.suite, purpose="alignment", subject="tone", model_name="mock", request={}
        )

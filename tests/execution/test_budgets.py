"""A budget is a cap: what is in flight is reserved for, by one worker and by several."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from evaluators.models import LanguageModel
from runs.execution import result_writer, run_worker
from runs.execution.active_runs import RunSlot
from runs.execution.database import DatabaseThread
from runs.execution.ledger import Budget
from runs.execution.loading import load_work
from runs.execution.run_worker import RunLoop, _work, work_on_run
from runs.execution.shares import agree_on_money, grant_money, register_run_worker
from runs.models.runs import Run, RunWorker
from runs.running.retrying import retry_results
from tests.services.processes import wait_until
from tests.support.factories import again
from tests.support.model_server import ModelServer, good, status
from tests.support.run_workers import late, work_in_thread
from tests.support.runs import StartRun


def spent(run: Run) -> Decimal:
    run.refresh_from_db()
    return run.run_cost_usd + run.evaluation_cost_usd


def test_the_first_execution_has_the_whole_grant_to_itself() -> None:
    budget = Budget(Decimal(5), granted=Decimal(5))

    assert budget.reserve(1)
    assert not budget.reserve(2)
    budget.spend(1, Decimal(1))
    budget.release(1, is_example=True)

    assert [budget.reserve(number) for number in range(2, 8)] == [True] * 4 + [False] * 2


def test_what_an_execution_has_spent_is_no_longer_reserved() -> None:
    budget = Budget(Decimal(5), granted=Decimal(5), dearest=Decimal(2))
    assert budget.reserve(1)
    assert budget.reserve(2)
    assert not budget.reserve(3)

    budget.spend(1, Decimal("0.5"))
    assert budget.used == 4
    budget.book(Decimal("0.5"))
    assert (budget.used, budget.granted) == (Decimal("3.5"), Decimal("4.5"))
    budget.release(1, is_example=True)

    assert budget.dearest == 2
    assert budget.reserve(3)


def test_an_execution_that_was_cut_off_is_no_example_of_the_cost() -> None:
    budget = Budget(Decimal(5), granted=Decimal(5))
    budget.reserve(1)
    budget.release(1, is_example=False)

    assert budget.dearest is None


def test_without_a_budget_everything_may_begin() -> None:
    budget = Budget(None)

    assert all(budget.reserve(number) for number in range(100))


@given(
    st.decimals("0.01", 100, places=4),
    st.lists(st.tuples(st.decimals(0, 3, places=4), st.integers(1, 50)), max_size=20),
)
def test_grants_together_never_exceed_the_free_money(
    free: Decimal, workers: list[tuple[Decimal, int]]
) -> None:
    left = free
    for needed, executions in workers:
        grant = grant_money(left, needed=needed, wanted=needed * executions)
        assert grant == 0 or grant >= needed
        left -= grant
    assert left >= 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_spends_no_more_than_its_budget_with_much_in_flight(
    start_chat: StartRun, workers: int
) -> None:
    # Each result costs $0.4.
    run = start_chat(60, budget_usd=Decimal("4.1"), concurrency=34)

    def work(_: int) -> None:
        try:
            _work(RunSlot(run.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(work, range(workers)))

    assert spent(run) == Decimal(4)
    assert (run.status, run.error_count) == ("budget_reached", 0)
    assert run.status_reason == "$4 of $4.1 is spent, and one more result may cost $0.4."
    assert run.results.filter(status="scored").count() == 10
    assert run.results.filter(status="cancelled").count() == 50
    assert not RunWorker.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_reason_names_what_other_workers_spent_at_last(start_chat: StartRun) -> None:
    run = start_chat(20, budget_usd=Decimal("4.1"))
    work_on_run(run.pk)
    Run.objects.filter(pk=run.pk).update(status="running", status_reason="", summary=None)
    work = load_work(again(run))
    run_loop = RunLoop(work, "token", DatabaseThread())
    # As it was when the worker looked last; three results have been written since.
    run_loop.budget.booked, run_loop.budget.was_reached = Decimal("2.8"), True
    run_loop.budget.dearest = Decimal("0.4")

    run_worker._conclude(work, run_loop, None)

    assert again(run).status_reason == "$4 of $4.1 is spent, and one more result may cost $0.4."


@pytest.mark.django_db(transaction=True)
def test_a_first_result_that_failed_free_of_charge_is_no_example_of_the_cost(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    model_server.behave(status(400), then=good(seconds=0.2))
    run = start_chat(60, budget_usd=Decimal("4.1"), concurrency=34)
    LanguageModel.objects.update(concurrency=50)
    work_on_run(run.pk)

    assert spent(run) == Decimal(4)
    assert (run.status, run.error_count) == ("budget_reached", 1)


@pytest.mark.django_db(transaction=True)
def test_a_budget_ends_with_an_answer_whose_cost_nobody_knows(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    model_server.behave(then=good(usage={}))
    run = start_chat(20, budget_usd=Decimal("4.1"), concurrency=8)
    work_on_run(run.pk)

    assert len(model_server.requests) == 1
    assert (again(run).status, run.results.filter(status="cancelled").count()) == ("failed", 20)
    assert again(run).status_reason == (
        "What a call of agent costs is not known, as its server reported no tokens or it has no prices, so the budget "
        "cannot limit it. Correct that, or start without a budget."
    )


@pytest.mark.django_db(transaction=True)
def test_tokens_need_not_be_known_without_a_budget(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    model_server.behave(then=good(usage={}))
    run = start_chat(3, concurrency=2)
    work_on_run(run.pk)

    assert (again(run).status, len(model_server.requests)) == ("completed", 6)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("before", [None, Decimal(100)])
def test_a_budget_that_a_rerun_changes_holds_for_workers_under_way(
    start_chat: StartRun, model_server: ModelServer, before: Decimal | None
) -> None:
    model_server.behave(status(400), *[good()] * 20, then=late)
    run = start_chat(60, budget_usd=before, concurrency=4)
    worker = work_in_thread(run)
    wait_until(lambda: again(run).done_count > 4, what="results")
    assert again(run).error_count == 1
    retry_results(run, asked_by=None, budget_usd=Decimal("12.1"))
    model_server.release()
    worker.join()
    work_on_run(run.pk)

    # Each result costs $0.4.
    assert (again(run).status, spent(run)) == ("budget_reached", Decimal(12))


@pytest.mark.django_db(transaction=True)
def test_a_budget_that_suffices_ends_nothing(start_chat: StartRun) -> None:
    run = start_chat(12, budget_usd=Decimal("4.8"), concurrency=8)
    work_on_run(run.pk)

    assert spent(run) == Decimal("4.8")
    assert run.status == "completed"


@pytest.mark.django_db(transaction=True)
def test_a_worker_gives_back_what_it_does_not_need_once_another_waits_for_money(
    start_chat: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_writer, "LOOK_EVERY_S", 0.01)
    run = start_chat(2, budget_usd=Decimal(5))
    Run.objects.update(status="running")
    work = load_work(again(run))
    for token in ("rich", "poor"):
        register_run_worker(run.pk, token, under_way=0, now=timezone.now())
    rich = agree_on_money(work, "rich", used=Decimal(0), executions=2)
    assert rich.granted == 5
    poor = agree_on_money(work, "poor", used=Decimal(0), executions=2)
    assert (poor.granted, poor.others) == (0, 5)

    async def session() -> None:
        database = DatabaseThread()
        worker = RunLoop(work, "rich", database)
        worker.budget.granted = worker._stored_grant = rich.granted

        async def give_back() -> None:
            await worker._give_back_money()
            worker._writer.end()

        await worker._writer.watch_run(worker._renew_limits, give_back)
        database.close()

    asyncio.run(session())
    assert agree_on_money(work, "poor", used=Decimal(0), executions=2).granted == 5
    assert not again(run).is_short_of_money


@pytest.mark.django_db(transaction=True)
def test_grants_read_no_results_once_the_cost_of_one_is_known(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    run = start_chat(4, budget_usd=Decimal("0.9"), concurrency=1)
    work_on_run(run.pk)
    assert again(run).dearest_usd == Decimal("0.4")
    with CaptureQueriesContext(connection) as queries:
        agree_on_money(load_work(run), "token", used=Decimal(0), executions=2)
    assert not [one["sql"] for one in queries if "max(" in one["sql"].lower()]


@pytest.mark.django_db(transaction=True)
def test_nothing_begins_on_money_that_is_being_given_back(start_chat: StartRun) -> None:
    work = load_work(start_chat(2, budget_usd=Decimal(5)))
    began = []

    class Giving(DatabaseThread):
        async def do(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            began.append(worker.budget.reserve(1))
            return await super().do(function, *args, **kwargs)

    database = Giving()
    worker = RunLoop(work, "token", database)
    worker.budget.dearest, worker.budget.granted = Decimal(1), Decimal(3)
    worker._stored_grant = Decimal(3)
    asyncio.run(worker._renew_limits())
    database.close()

    assert began == [False]
    assert worker.budget.granted == 0

"""What comes after a run ended: late calls are booked and change nothing else; old workers end nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum

from evaluators.models import SlotLease
from runs import finishing
from runs.execution.ledger import Budget, add_costs
from runs.execution.loading import load_work
from runs.execution.result_writer import read_state
from runs.execution.run_worker import _conclude, work_on_run
from runs.finishing import summarise_run
from runs.models.removals import RemovalPart
from runs.models.results import ModelCall
from runs.models.runs import Run, RunWorker
from runs.retention.queries import Selection
from runs.retention.services import begin_removal, remove_data
from runs.running.retrying import resume_run, stop_run
from tests.services.processes import wait_until
from tests.support.factories import again
from tests.support.model_server import ModelServer, good, hang

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]
StartRun = Callable[..., Run]


def in_thread(run: Run) -> threading.Thread:
    def work() -> None:
        try:
            work_on_run(run.pk)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def ledger(run: Run) -> Decimal:
    spent: Decimal | None = ModelCall.objects.filter(run=run).aggregate(usd=Sum("cost_usd"))["usd"]
    return spent or Decimal(0)


@pytest.fixture
def stopped_in_flight(start_chat: StartRun, model_server: ModelServer) -> tuple[Run, Any]:
    """Stop a run with one result finished and a call of the next one in flight."""
    model_server.behave(good("A"), good(), hang(), then=good())
    run = start_chat(6, concurrency=1)
    worker = in_thread(run)
    model_server.wait_for_chats(3)
    wait_until(lambda: again(run).done_count == 1)
    stop_run(run, stopped_by=None)
    assert summarise_run(run.pk)
    return run, worker


def test_a_late_call_is_booked_in_every_figure_and_changes_no_result(
    stopped_in_flight: tuple[Run, Any], model_server: ModelServer
) -> None:
    run, worker = stopped_in_flight
    before, results = ledger(run), list(run.results.values_list("status", "verdict", "score"))
    version = again(run).results_version
    model_server.release()
    worker.join(30)

    run = again(run)
    assert list(run.results.values_list("status", "verdict", "score")) == results
    assert ledger(run) > before
    assert run.results_version != version
    assert run.run_cost_usd + run.evaluation_cost_usd == ledger(run)
    means = run.summary["means"]
    assert Decimal(means["run_cost_usd"]) == run.run_cost_usd
    assert Decimal(means["evaluation_cost_usd"]) == run.evaluation_cost_usd
    assert run.status == "stopped"


@pytest.mark.writes_results
def test_a_call_booked_while_the_figures_are_made_is_in_them(
    start_chat: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start_chat(2)
    work_on_run(run.pk)
    Run.objects.filter(pk=run.pk).update(status="running", summary=None)
    make_figures = finishing._figures

    def book_meanwhile(*facts: Any) -> dict[str, Any]:
        figures = make_figures(*facts)
        held = again(run)
        add_costs(held, "run_cost_usd", {run.results.first().pk: Decimal("0.25")})
        held.save(update_fields=["run_cost_usd"])
        monkeypatch.undo()
        return figures

    monkeypatch.setattr(finishing, "_figures", book_meanwhile)
    finishing.complete_run(run.pk)
    finishing.complete_run(run.pk)

    run = again(run)
    assert run.status == "completed"
    assert Decimal(run.summary["means"]["run_cost_usd"]) == run.run_cost_usd


def test_workers_from_before_a_stop_leave_the_resumed_run_alone(
    stopped_in_flight: tuple[Run, Any], model_server: ModelServer
) -> None:
    run, worker = stopped_in_flight
    resume_run(run, resumed_by=None)
    model_server.release()
    worker.join(30)

    work_on_run(run.pk)  # the workers may have continued it themselves, if they never saw the stop
    assert (again(run).status, again(run).done_count) == ("completed", 6)
    assert again(run).run_cost_usd + again(run).evaluation_cost_usd == ledger(run)


@pytest.mark.parametrize("is_removed", [False, True], ids=["hidden", "rows removed"])
def test_a_run_deleted_before_its_late_calls_are_answered_leaves_nothing_behind(
    stopped_in_flight: tuple[Run, Any], model_server: ModelServer, is_removed: bool
) -> None:
    run, worker = stopped_in_flight
    # A worker that only awaits late replies holds nothing up.
    wait_until(lambda: not RunWorker.objects.at_work().exists())
    selection = Selection(RemovalPart.RUN, run.suite, [again(run)])
    # Its finished result may have been drawn for review.
    removal = begin_removal(selection, by=None, releases_reviews=True, in_background=False)
    if is_removed:
        assert remove_data(removal.pk)
    model_server.release()
    worker.join(30)

    # An error in the thread of the worker would fail the test.
    assert not worker.is_alive()
    assert not SlotLease.objects.exists()
    if not is_removed:
        assert remove_data(removal.pk)
    assert not ModelCall.objects.exists()


def concluding(run: Run, **facts: Any) -> Any:
    spent = Budget(cap=Decimal(1), was_reached=True)
    return SimpleNamespace(**{"is_aborted": False, "budget": spent} | facts)


def test_workers_that_knew_the_old_cap_do_not_end_a_run_with_a_higher_one(
    start_chat: StartRun,
) -> None:
    run = start_chat(2, budget_usd=Decimal(5))
    Run.objects.filter(pk=run.pk).update(status="running", run_cost_usd=Decimal("1.1"))
    work, state = load_work(again(run)), read_state(run.pk)

    _conclude(work, concluding(run), state)
    assert again(run).status == "running"

    Run.objects.filter(pk=run.pk).update(budget_usd=Decimal(1))
    _conclude(work, concluding(run), state)
    assert again(run).status == "budget_reached"


def test_workers_that_saw_the_target_broken_do_not_fail_the_run_that_was_resumed(
    start_chat: StartRun,
) -> None:
    run = start_chat(2)
    Run.objects.filter(pk=run.pk).update(status="running")
    state: Any = SimpleNamespace(broken_target="Refused: no key")

    _conclude(load_work(again(run)), concluding(run, is_aborted=True), state)
    assert again(run).status == "running"

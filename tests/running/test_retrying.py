"""Retrying results: which are reached, what is repeated, and what is kept and reported."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Sum

from evaluators.scoring.types import DomainError
from runs.execution.run_worker import work_on_run
from runs.models.results import Attempt, EvaluatorScore, Result, Retry
from runs.models.runs import Run
from runs.running.retrying import BudgetSpentError, retry_results, stop_run
from runs.running.services import start_run
from tests.support.factories import (
    again,
    make_case,
    make_scored_run,
    make_suite,
    make_target,
    make_user,
)
from tests.support.model_server import ModelServer, good
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
StartRun = Callable[..., Run]


def ids(run: Run, **narrow: Any) -> list[int]:
    return list(run.results.filter(**narrow).values_list("pk", flat=True))


def two_checks() -> Run:
    """Start a run whose cases are scored by two checks; the second is below a composite."""
    inner = {**tree({**CHECK, "name": "polite"}), "name": "manner"}
    suite = make_suite(tree=tree(CHECK, inner))
    for number in range(3):
        recorded = {"output": "a refund", "cost_usd": "0.25"}
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=recorded)
    return start_run(suite=suite, target=make_target(), started_by=None)


def test_a_request_is_kept_with_who_asked_for_what() -> None:
    run = make_scored_run(verdicts=["pass", "fail", "error"])
    mira = make_user(name="mira")

    assert retry_results(run, asked_by=mira, which="failed", keep_output=True) == 1

    retry = Retry.objects.get()
    assert (retry.asked_by, retry.asked_by_name, retry.count) == (mira, "mira", 1)
    assert (retry.keeps_output, retry.paths) == (True, None)
    kept = Attempt.objects.get()
    assert (kept.retry, kept.verdict, kept.score) == (retry, "fail", 0.4)
    assert kept.reason == "0.4 against the bands"
    assert (kept.run_cost_usd, kept.evaluation_cost_usd) == (Decimal("0.012"), Decimal("0.004"))
    assert run.events.get().text == "1 result rerun by mira: outputs kept"
    mira.delete()
    assert Retry.objects.get().asked_by_name == "mira"


def test_the_costs_of_the_attempts_add_up_to_the_cost_of_the_result(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    run = start_chat(2)
    work_on_run(run.pk)
    for keep_output in (True, False):
        retry_results(run, asked_by=None, result_ids=ids(run), keep_output=keep_output)
        work_on_run(run.pk)

    for result in run.results.all():
        attempts = result.attempts.all()
        assert [one.run_cost_usd for one in attempts] == [Decimal("0.2"), Decimal(0)]
        assert [one.evaluation_cost_usd for one in attempts] == [Decimal("0.2"), Decimal("0.2")]
        spent = attempts.aggregate(run=Sum("run_cost_usd"), judge=Sum("evaluation_cost_usd"))
        calls = (
            result.model_calls.filter(generation=3).values("purpose").annotate(usd=Sum("cost_usd"))
        )
        last = {call["purpose"]: call["usd"] for call in calls}
        assert result.run_cost_usd == spent["run"] + last["target"]
        assert result.evaluation_cost_usd == spent["judge"] + last["evaluation"]
    assert set(run.results.values_list("generation", "attempt")) == {(3, 1)}


def test_one_evaluator_scores_again_and_the_others_stand() -> None:
    run = two_checks()
    work_on_run(run.pk)
    EvaluatorScore.objects.update(score=0.5)
    before = EvaluatorScore.objects.filter(path="mentions_refund").values("result", "score")

    retry_results(run, asked_by=None, result_ids=ids(run), paths=["manner/polite"])
    work_on_run(run.pk)

    assert set(
        EvaluatorScore.objects.filter(path="manner/polite").values_list("score", flat=True)
    ) == {1.0}
    assert list(
        EvaluatorScore.objects.filter(path="mentions_refund").values("result", "score")
    ) == list(before)
    assert run.events.first().text == "3 results rerun: only manner/polite, outputs kept"
    assert again(run).run_cost_usd == Decimal("0.75")  # outputs are not paid again


@pytest.mark.parametrize("path", ["polite", "manner/", "/manner/polite", "@outcome", "x" * 600])
def test_an_evaluator_that_the_frozen_tree_lacks_is_refused_by_its_name(path: str) -> None:
    run = two_checks()
    work_on_run(run.pk)
    with pytest.raises(DomainError) as refusal:
        retry_results(run, asked_by=None, result_ids=ids(run), paths=[path])
    assert path[:40] in str(refusal.value)
    assert "mentions_refund, manner, manner/polite" in str(refusal.value)
    assert again(run).status == "completed"
    assert not Retry.objects.exists()


def test_an_evaluator_of_a_case_alone_can_score_again() -> None:
    suite = make_suite(tree=tree(CHECK))
    own = tree({**CHECK, "name": "own_check"})
    recorded = {"output": "a refund"}
    make_case(suite=suite, key="own", evaluators=own, recorded_output=recorded)
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)

    assert retry_results(run, asked_by=None, result_ids=ids(run), paths=["own_check"]) == 1


def test_the_root_stands_for_all_evaluators() -> None:
    run = two_checks()
    work_on_run(run.pk)
    retry_results(run, asked_by=None, result_ids=ids(run), paths=[""])
    retry = Retry.objects.get()
    assert (retry.keeps_output, retry.paths) == (True, None)


def test_only_finished_results_of_an_active_run_are_reached() -> None:
    run = make_scored_run(verdicts=["pass", "running", "pending", "error"], status="running")
    assert retry_results(run, asked_by=None, result_ids=ids(run)) == 2
    assert [*run.results.values_list("status", "generation")] == [
        ("pending", 2),
        ("running", 1),
        ("pending", 1),
        ("pending", 2),
    ]
    assert again(run).status == "running"


def test_cancelled_results_do_what_the_newer_request_asks() -> None:
    run = two_checks()
    work_on_run(run.pk)
    chosen = ids(run)[:1]
    retry_results(run, asked_by=None, result_ids=chosen, paths=["mentions_refund"])
    stop_run(run, stopped_by=None)
    assert [*run.results.values_list("status", flat=True)].count("cancelled") == 1

    retry_results(run, asked_by=None, result_ids=chosen)

    result = Result.objects.get(pk=chosen[0])
    assert (result.status, result.keeps_output, result.retry_paths) == ("pending", False, None)
    assert result.generation == 2
    assert Attempt.objects.get().retry == Retry.objects.first()
    work_on_run(run.pk)
    assert again(run).status == "completed"


def test_results_of_another_run_are_refused_and_nothing_changes() -> None:
    run, other = make_scored_run(verdicts=["pass"]), make_scored_run(verdicts=["fail"])
    for foreign_result in (ids(other)[0], 10**9):
        with pytest.raises(DomainError, match=f"Result {foreign_result} does not belong to run"):
            retry_results(run, asked_by=None, result_ids=[*ids(run), foreign_result])
    assert again(run).status == "completed"
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("errored", "no result has an error"),
        ("failed", "no result failed"),
        ("all_missing", "no result is missing"),
    ],
)
def test_none_of_a_kind_is_said_in_words(which: str, said: str) -> None:
    run = make_scored_run(verdicts=["pass"])
    with pytest.raises(DomainError, match=f"nothing to rerun: {said}"):
        retry_results(run, asked_by=None, which=which)


def test_pressing_twice_tries_once(start_recorded: StartRun) -> None:
    run = start_recorded("a refund", "nothing")
    work_on_run(run.pk)
    retry_results(run, asked_by=None, result_ids=ids(run), seen_retry=0)
    with pytest.raises(DomainError, match="already being rerun"):
        retry_results(run, asked_by=None, result_ids=ids(run), seen_retry=0)
    work_on_run(run.pk)  # quick: they are finished before the second press arrives
    with pytest.raises(DomainError, match="already being rerun"):
        retry_results(run, asked_by=None, result_ids=ids(run), seen_retry=0)

    assert set(run.results.values_list("generation", flat=True)) == {2}
    last = Retry.objects.get().pk
    assert retry_results(run, asked_by=None, result_ids=ids(run), seen_retry=last) == 2


def test_two_people_share_out_what_both_chose() -> None:
    run = make_scored_run(verdicts=["fail", "fail", "fail"])
    first, second, third = ids(run)
    retry_results(run, asked_by=None, result_ids=[first, second], seen_retry=0)
    assert retry_results(run, asked_by=None, result_ids=[second, third], seen_retry=0) == 1
    assert set(run.results.values_list("generation", flat=True)) == {2}


def test_a_run_of_a_command_line_is_left_to_it() -> None:
    run = make_scored_run(verdicts=["error", "pending"], status="running", owner="command_line")
    with pytest.raises(DomainError, match="still running at a command line"):
        retry_results(run, asked_by=None)
    stop_run(run, stopped_by=None)
    retry_results(run, asked_by=None)
    assert (again(run).owner, again(run).status) == ("workers", "queued")


def test_a_retry_with_a_spent_budget_is_refused_before_it_costs_a_verdict() -> None:
    run = make_scored_run(verdicts=["pass", "fail"], budget_usd=Decimal("0.008"))
    with pytest.raises(BudgetSpentError, match=r"\$0.008 of \$0.008"):
        retry_results(run, asked_by=None, which="failed")
    assert again(run).fail_count == 1
    retry_results(run, asked_by=None, which="failed", budget_usd=Decimal(1))
    assert (again(run).fail_count, again(run).budget_usd) == (0, 1)


def test_an_evaluator_that_could_not_score_is_asked_alone(
    start_chat: StartRun, model_server: ModelServer
) -> None:
    """What another evaluator could not score stays as it is: nobody asked for its calls."""
    suite_tree = tree(JUDGED, {**JUDGED, "name": "kind"})
    model_server.on_evaluator("right", good("prose"))
    model_server.on_evaluator("kind", good("prose"))
    run = start_chat(1)
    Run.objects.filter(pk=run.pk).update(snapshot={**run.snapshot, "evaluators": suite_tree})
    work_on_run(run.pk)
    model_server.on_evaluator("right", good())
    model_server.on_evaluator("kind", good())
    before = len(model_server.chats)

    retry_results(again(run), asked_by=None, result_ids=ids(run), paths=["right"])
    work_on_run(run.pk)

    assert len(model_server.chats) == before + 1
    states = dict(EvaluatorScore.objects.exclude(path="").values_list("path", "state"))
    assert states == {"right": "scored", "kind": "unscored"}

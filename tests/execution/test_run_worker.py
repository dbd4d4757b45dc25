"""A worker carries out a run: claims, results, costs, ends."""

from __future__ import annotations

import json
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from evaluators.kinds._base import Output
from evaluators.scoring.types import Score as ScoreValue
from runs.engine.ports import ExecutionOutcome
from runs.execution.active_runs import RunSlot
from runs.execution.claims import begin_run, claim_results
from runs.execution.loading import load_work
from runs.execution.reaper import reap
from runs.execution.result_writer import EndedExecution, broken_target, write_batch
from runs.execution.run_worker import _work, work_on_run
from runs.models.results import EvaluatorScore, ModelCall, Result, ResultOutput
from runs.models.runs import Run, RunStatus
from runs.models.search import ResultText
from runs.running.retrying import BudgetSpentError, resume_run, retry_results, stop_run
from runs.running.services import start_run
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import good, status
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)

PER_CALL = Decimal("0.2")  # 100 input tokens at $1000 and 20 output tokens at $5000 a million


def after(run, *fields):
    run.refresh_from_db()
    return tuple(getattr(run, field) for field in fields)


COUNTS = ("status", "done_count", "pass_count", "fail_count", "error_count")


def test_a_recorded_target_is_run_to_the_end():
    suite = make_suite(tree=tree(CHECK))
    make_case(suite=suite, key="good", recorded_output={"output": "You get a refund."})
    make_case(suite=suite, key="bad", recorded_output={"output": "No."})
    make_case(suite=suite, key="gone")
    run = start_run(suite=suite, target=make_target(), started_by=None)

    work_on_run(run.pk)

    assert after(run, *COUNTS) == ("completed", 3, 1, 1, 1)
    results = Result.objects.filter(run=run)
    good_one, bad, gone = results
    assert (good_one.verdict, good_one.score, bad.verdict, bad.score) == ("pass", 1.0, "fail", 0.0)
    assert (gone.status, gone.error_stage, gone.score) == ("error", "target", None)
    assert gone.error == (
        f"Nothing recorded: no recorded output for case gone in target {run.target_name}"
    )
    assert [score.path for score in good_one.scores.all()] == ["", "mentions_refund"]
    assert good_one.output.text == "You get a refund."
    assert good_one.output.decision["verdict"] == "pass"
    assert run.summary["cases_pass_rate_pct"] == pytest.approx(100 / 3)


def test_a_finished_run_keeps_its_leaf_scores_in_one_piece(start_recorded):
    run = start_recorded("a refund", "nothing")
    work_on_run(run.pk)
    run.refresh_from_db()

    kept = json.loads(zlib.decompress(run.leaf_scores))
    assert kept["results"] == [result.pk for result in run.results.all()]
    assert kept["scores"] == {"": [1.0, 0.0], "mentions_refund": [1.0, 0.0]}


def test_a_cases_own_evaluators_take_the_suites_place_or_join_them():
    suite = make_suite(tree=tree(CHECK))
    own = tree({**CHECK, "name": "polite", "config": {"operator": "contains", "value": "please"}})
    for key, append in (("replaced", False), ("joined", True)):
        make_case(
            suite=suite,
            key=key,
            evaluators=own,
            evaluators_append=append,
            recorded_output={"output": "a refund"},
        )
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)

    replaced, joined = run.results.all()
    assert [score.path for score in replaced.scores.all()] == ["", "polite"]
    assert [score.path for score in joined.scores.all()] == ["", "mentions_refund", "polite"]
    assert (replaced.score, joined.score) == (0.0, 0.5)


def test_a_run_that_cannot_be_carried_out_fails_with_the_reason(start_recorded):
    run = start_recorded("a refund")
    snapshot = {**run.snapshot, "version": 99}
    Run.objects.filter(pk=run.pk).update(snapshot=snapshot)
    work_on_run(run.pk)

    assert after(run, "status") == ("failed",)
    assert "version 99" in run.status_reason


def outcome(work, score=1.0):
    outcomes = {"mentions_refund": ScoreValue(score)}
    decision = work.trees[None].rules.decide(outcomes)
    return ExecutionOutcome(Output("a refund"), None, outcomes, decision)


def claimed(run, token="mine", most=10):
    begin_run(run.pk, now=timezone.now())
    work = load_work(Run.objects.get(pk=run.pk))
    claims = claim_results(run.pk, token=token, most=most, now=timezone.now())
    for claim in claims:
        work.tree(claim.case)
    ended = [EndedExecution(claim, work.plan.root, outcome(work)) for claim in claims]
    return work, ended


def test_results_are_claimed_once_in_the_order_of_the_suite(start_recorded):
    run = start_recorded("a", "b", "c")
    first = claim_results(run.pk, token="one", most=2, now=timezone.now())
    second = claim_results(run.pk, token="two", most=2, now=timezone.now())

    assert [claim.case.key for claim in (*first, *second)] == ["C-0", "C-1", "C-2"]
    assert [claim.attempt for claim in first] == [1, 1]


@pytest.mark.writes_results
def test_nothing_is_claimed_from_a_run_that_is_over(start_recorded):
    run = start_recorded("a")
    stop_run(run, stopped_by=None)
    Result.objects.update(status="pending")

    assert claim_results(run.pk, token="one", most=2, now=timezone.now()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"lease_token": "another"},
        {"attempt": 2},
        {"generation": 2},
        {"status": "pending", "lease_token": ""},
        {"status": "cancelled", "lease_token": ""},
    ],
)
@pytest.mark.writes_results
def test_a_record_that_comes_too_late_is_refused(start_recorded, change):
    run = start_recorded("a", "b")
    work, ended = claimed(run)
    late, in_time = ended
    Result.objects.filter(pk=late.claim.result_id).update(**change)
    before = Result.objects.values().get(pk=late.claim.result_id)

    state = write_batch(work, "mine", entries=[], ended=ended)

    assert state.stale == (late.claim.result_id,)
    assert Result.objects.values().get(pk=late.claim.result_id) == before
    assert not EvaluatorScore.objects.filter(result=late.claim.result_id).exists()
    assert Result.objects.get(pk=in_time.claim.result_id).status == "scored"
    assert after(run, "done_count", "pass_count", "score_sum") == (1, 1, 1.0)


def test_the_same_record_twice_counts_once(start_recorded):
    run = start_recorded("a")
    work, ended = claimed(run)
    write_batch(work, "mine", entries=[], ended=ended)
    state = write_batch(work, "mine", entries=[], ended=ended, is_repeated=True)

    assert state.stale == (ended[0].claim.result_id,)
    assert after(run, "done_count", "pass_count") == (1, 1)


def test_workers_share_a_run_and_every_result_is_carried_out_once(start_recorded):
    run = start_recorded(*["a refund"] * 120, concurrency=4)

    def work(_):
        try:
            _work(RunSlot(run.pk))
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as run_workers:
        list(run_workers.map(work, range(3)))

    assert after(run, *COUNTS) == ("completed", 120, 120, 0, 0)
    assert ResultOutput.objects.count() == 120
    assert set(run.results.values_list("attempt", flat=True)) == {1}


def test_a_task_delivered_twice_changes_nothing(start_recorded):
    run = start_recorded("a refund")
    work_on_run(run.pk)
    before = Run.objects.values().get(pk=run.pk)
    work_on_run(run.pk)

    assert Run.objects.values().get(pk=run.pk) == before


def costs(run):
    calls = ModelCall.objects.filter(run=run).aggregate(usd=Sum("cost_usd"))["usd"]
    costs = run.results.aggregate(run=Sum("run_cost_usd"), judge=Sum("evaluation_cost_usd"))
    return calls, costs["run"], costs["judge"]


def test_both_costs_equal_the_ledger_exactly(start_chat, model_server):
    model_server.behave(status(500), good("not json"), then=good())
    run = start_chat(5, repetitions=2)
    work_on_run(run.pk)
    run.refresh_from_db()

    calls, target_usd, judge_usd = costs(run)
    assert run.status == "completed"
    assert (run.run_cost_usd, run.evaluation_cost_usd) == (target_usd, judge_usd)
    assert calls == run.run_cost_usd + run.evaluation_cost_usd
    assert target_usd == 10 * PER_CALL
    assert ModelCall.objects.filter(run=run).exclude(status="ok").count() >= 1
    judged = ModelCall.objects.filter(run=run, purpose="evaluation", status="ok")
    versions = set(judged.values_list("version", flat=True))
    assert versions == {run.snapshot["judge"]["model_id"]}
    run.refresh_from_db()
    assert set(run.summary["judge_versions"].popitem()[1]) == versions


def test_a_run_costs_as_much_as_its_models_claim_together(start_chat, model_server, admin_client):
    most = 2**31 - 1
    model_server.behave(then=good(usage={"prompt_tokens": most, "completion_tokens": most}))
    run = start_chat(80)
    work_on_run(run.pk)

    # Over a billion dollars, at $1000 and $5000 a million.
    claimed = 80 * most * Decimal("0.006")
    assert after(run, "status", "done_count", "error_count") == ("completed", 80, 0)
    assert costs(run) == (2 * claimed, claimed, claimed)
    assert (run.run_cost_usd, run.evaluation_cost_usd) == (claimed, claimed)
    assert admin_client.get("/").status_code == 200
    assert admin_client.get(f"/suites/{run.suite.slug}/runs/{run.number}/").status_code == 200


def test_the_tokens_that_samples_claim_together_are_booked(model_server):
    most = 2**31 - 1
    model_server.behave(then=good(usage={"prompt_tokens": most, "completion_tokens": most}))
    judged = {**JUDGED, "config": {**JUDGED["config"], "samples": 3}}
    judge = make_model(slug="judge", base_url=model_server.base_url)
    suite = make_suite(judge=judge, tree=tree(judged))
    make_case(suite=suite, key="C-1", recorded_output={"output": "a refund"})
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)

    assert after(run, "status", "done_count", "error_count") == ("completed", 1, 0)
    tokens = EvaluatorScore.objects.values_list("input_tokens", "output_tokens")
    assert list(tokens.filter(path="right")) == [(3 * most, 3 * most)]


def test_a_replayed_output_brings_its_cost_once(start_recorded):
    run = start_recorded("a refund", "nothing")
    work_on_run(run.pk)
    retry_results(run, asked_by=None, which="failed")
    work_on_run(run.pk)

    assert after(run, "run_cost_usd") == (Decimal("0.5"),)
    assert run.results.aggregate(usd=Sum("run_cost_usd"))["usd"] == Decimal("0.5")


def test_the_budget_stops_calls_before_they_are_made_and_is_no_failure(start_chat):
    run = start_chat(20, budget_usd=Decimal("1.2"), concurrency=1)
    work_on_run(run.pk)

    assert after(run, "status", "error_count", "fail_count") == ("budget_reached", 0, 0)
    assert run.status_reason == "$1.2 of $1.2 is spent."
    assert costs(run)[0] == Decimal("1.2")
    assert run.results.filter(status="scored").count() == 3
    assert run.results.filter(status="cancelled").count() == 17
    assert run.summary["cases_pass_rate_pct"] is None

    with pytest.raises(BudgetSpentError, match="higher budget"):
        resume_run(run, resumed_by=None)
    resume_run(run, resumed_by=None, budget_usd=Decimal(100))
    work_on_run(run.pk)
    assert after(run, *COUNTS) == ("completed", 20, 20, 0, 0)
    assert costs(run)[0] == 40 * PER_CALL


def test_a_target_that_fails_the_first_eight_alike_ends_the_run(start_chat, model_server):
    model_server.on_model("agent", status(401, "wrong key 17"))
    run = start_chat(30, concurrency=4)
    work_on_run(run.pk)

    assert after(run, "status", "pass_count") == ("failed", 0)
    assert "wrong key" in run.status_reason
    assert 8 <= run.error_count < 30
    assert run.results.filter(status="cancelled").count() == 30 - run.error_count

    model_server.on_model("agent", good("Fine."))
    resume_run(run, resumed_by=None)
    work_on_run(run.pk)
    assert after(run, *COUNTS) == ("completed", 30, 30, 0, 0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("429 busy, request 17", "404 no model, request 17", "running"),
        ("404 no model, request 17", "404 no model, request 18", "404 no model, request 17"),
        ("port 40123 refused after 0.404 s", "port 40199 refused after 0.5 s", "port 40123"),
    ],
)
@pytest.mark.writes_results
def test_numbers_make_no_difference_between_errors_but_a_status_does(
    start_recorded, first, second, expected
):
    run = start_recorded(*["a refund"] * 8)
    for number, result in enumerate(run.results.all()):
        error = first if number < 4 else second
        finished_at = timezone.now() + timedelta(seconds=number)
        facts = {"status": "error", "error_stage": "target", "finished_at": finished_at}
        run.results.filter(pk=result.pk).update(error=error, **facts)
    Run.objects.update(done_count=8, error_count=8)
    error = broken_target(Run.objects.get())
    assert error.startswith(expected) if expected != "running" else error == ""


def test_different_errors_do_not_end_a_run(start_recorded):
    suite = make_suite(tree=tree(CHECK))
    for number in range(12):
        recorded = {"output": "a refund"} if number > 9 else None
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=recorded)
    run = start_run(suite=suite, target=make_target(), started_by=None)
    work_on_run(run.pk)

    assert after(run, *COUNTS) == (RunStatus.COMPLETED, 12, 2, 0, 10)


def test_a_lost_attempts_replies_are_not_paid_again(start_chat, model_server):
    run = start_chat(4)
    work_on_run(run.pk)
    paid = len(model_server.chats)
    # As if the worker had died after its calls were written and before its results were.
    Run.objects.update(status="running", done_count=0, pass_count=0, summary=None)
    EvaluatorScore.objects.all().delete()
    ResultOutput.objects.all().delete()
    ResultText.objects.all().delete()
    Result.objects.update(
        status="running",
        verdict="",
        lease_token="dead",
        lease_until=timezone.now() - timedelta(seconds=1),
    )
    assert reap(now=timezone.now() + timedelta(minutes=1)) == [run.pk]
    work_on_run(run.pk)

    assert after(run, *COUNTS) == ("completed", 4, 4, 0, 0)
    assert len(model_server.chats) == paid
    assert set(run.results.values_list("attempt", flat=True)) == {2}


def test_a_run_leaves_no_thread_behind(start_recorded):
    before = threading.active_count()
    work_on_run(start_recorded("a refund").pk)
    assert threading.active_count() == before

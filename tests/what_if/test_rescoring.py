"""A run scored again: a new run of the same outputs that names its source and costs nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse

from evaluators.models import AuditEntry
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from runs.charts.queries import ChartsQuery, missing_runs
from runs.execution import reaper
from runs.execution.reaper import reap
from runs.finishing import summarise_run
from runs.models.database import database_now
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.reviews import Review
from runs.models.runs import LEASE, Run, RunStatus
from runs.running.retrying import stop_run
from runs.tasks import rescore_run as complete_run
from runs.what_if import services as what_if_services
from runs.what_if import stored
from runs.what_if.page import answer_what_if
from runs.what_if.services import CannotRescoreError, NewCallsNeededError, rescore_run
from tests.support.factories import make_user
from tests.support.scored_runs import (
    CHECK,
    EXACT,
    NO_CARD,
    SHORT,
    STYLE,
    TREE,
    finished_run,
    rules_of,
)

pytestmark = pytest.mark.django_db(transaction=True)
TRIMMED = {**EXACT, "config": {"match": "exact", "trim": True}}
PATIENT = {**STYLE, "children": [{**SHORT, "config": {"max_duration_ms": 120}}, NO_CARD]}
CHANGED = EvaluatorSpec.model_validate({**TREE, "children": [CHECK, TRIMMED, PATIENT]})
STRICT = PolicySpec(pass_threshold=0.9)


def standing(run):
    rows = run.results.order_by("position", "repetition")
    return list(
        rows.values_list("case__key", "repetition", "status", "verdict", "score", "is_forced")
    )


def test_it_comes_to_what_was_foreseen():
    source = finished_run(repetitions=2)
    rules = rules_of(source, root=CHANGED, policy=STRICT)
    foreseen = answer_what_if(source, rules)
    run = rescore_run(source, rules, by=None, text="stricter")
    summarise_run(run.pk)
    run.refresh_from_db()

    assert (run.status, run.source_run, run.number) == ("completed", source, source.number + 1)
    assert (run.pass_count, run.fail_count, run.error_count) == (
        foreseen.after.passed,
        foreseen.after.executions - foreseen.after.passed - 2 - run.borderline_count,
        2,
    )
    assert {k: v for k, v in run.summary["distribution"].items() if k != "total"} == dict(
        foreseen.after.distribution
    )
    assert run.summary["metrics_gate"]["share"] == foreseen.after.metrics_gate.share
    again = answer_what_if(run, rules_of(run))
    assert (again.flips, again.fixed, again.stale) == ((), 0, ())
    assert again.before == foreseen.after


def test_what_was_measured_and_reviewed_is_copied_and_nothing_is_paid():
    source, reviewer = finished_run(repetitions=2), make_user()
    reviewed = source.results.get(case__key="C-1", repetition=1)
    Review.objects.create(result=reviewed, reviewer=reviewer, verdict="fail", note="Too short")
    warned = ["the answer was cut", "exact: odd"]
    Result.objects.filter(pk=reviewed.pk).update(reviewed_verdict="fail", warnings=warned)
    rules = rules_of(source, root=CHANGED, policy=STRICT)
    run = rescore_run(source, rules, by=reviewer)
    assert (run.run_cost_usd, run.evaluation_cost_usd) == (0, 0)
    costs = set(run.results.values_list("run_cost_usd", "evaluation_cost_usd"))
    assert costs == {(0, 0)}
    assert not EvaluatorScore.objects.filter(result__run=run, cost_usd__isnull=False).exists()
    latencies = [set(one.results.values_list("case", "latency_ms")) for one in (source, run)]
    assert latencies[0] == latencies[1]

    made = run.results.get(case__key="C-1", repetition=1)
    assert made.reviewed_verdict == "fail"
    assert made.reviews.get().note == "Too short"
    assert made.warnings == ["the answer was cut"]
    assert made.output.text == reviewed.output.text
    assert made.decided_by == "1.00 ≥ 0.90"
    assert made.output.decision["decided_by"] == made.decided_by
    exact = made.scores.get(path="exact")
    assert (exact.score, exact.details["matches"]["exact_trimmed"]) == (1.0, True)
    assert [score.path for score in made.scores.order_by("position")] == [
        score.path for score in reviewed.scores.order_by("position")
    ]


def test_its_page_and_the_list_of_runs_name_its_source(client):
    source, reader = finished_run(), make_user()
    run = rescore_run(source, rules_of(source, policy=STRICT), by=reader)
    assert "Rescored from run #1" in run.events.get(kind="rescore").text
    assert AuditEntry.objects.get(action="rescore").object_id == str(run.pk)
    client.force_login(reader)
    address = reverse("runs:run", args=(run.suite.slug, source.number))
    page = client.get(reverse("runs:run", args=(run.suite.slug, run.number)))
    assert f'rescored from <a href="{address}">run #1</a>' in page.content.decode()
    files = [
        client.get(reverse("runs:run-summary-file", args=(run.suite.slug, number))).json()
        for number in (run.number, source.number)
    ]
    assert [file["scored_again_from"] for file in files] == [1, None]
    rows = client.get(reverse("runs:run-list")).content.decode()
    assert f'rescored from <a href="{address}">#1</a>' in rows
    assert missing_runs(run.suite, ChartsQuery(), 1) == ["1 run only rescored stored outputs"]


def test_evaluators_that_moved_keep_their_scores_under_their_new_names():
    source = finished_run()
    root = EvaluatorSpec.model_validate(
        {
            **TREE,
            "children": [CHECK, STYLE["children"][0], {**NO_CARD, "negate": False}],
        }
    )
    origins = {
        "mentions_refund": "mentions_refund",
        "short": "style/short",
        "no_card": "style/no_card",
    }
    run = rescore_run(source, rules_of(source, root=root), by=None, origins=origins)
    result = run.results.get(case__key="C-0")
    assert [score.path for score in result.scores.order_by("position")] == [
        *("", "mentions_refund", "short", "no_card"),
    ]
    assert result.score == pytest.approx(2 / 3)
    before = source.results.get(case__key="C-0").scores.get(path="style/no_card").findings[0]
    assert result.scores.get(path="no_card").findings[0]["passed"] is not before["passed"]
    assert Run.objects.get(pk=run.pk).snapshot["rescored"]["origins"] == origins


def test_what_a_gate_holds_back_now_has_no_score_of_its_own_any_more():
    source = finished_run()
    gate = {"type": "safety_gate", "required": ["exact"], "gate_threshold": 0.5}
    root = EvaluatorSpec.model_validate({**TREE, "config": {"aggregator": gate}})
    with pytest.raises(NewCallsNeededError, match="skipped after a failed gate"):
        rescore_run(source, rules_of(source, root=root), by=None)
    source = finished_run(("Your refund is on its way", "Your refund"))
    run = rescore_run(source, rules_of(source, root=root), by=None)
    held = run.results.get(case__key="C-1")
    assert (held.verdict, held.is_forced, held.decided_by) == (
        "fail",
        True,
        "gate: exact 0.00 < 0.50",
    )
    assert held.scores.get(path="style/short").state == "skipped"


def test_a_run_that_needs_calls_or_has_no_scores_is_refused_with_the_reason():
    source = finished_run()
    other = {**CHECK, "config": {"operator": "contains", "value": "money"}}
    root = EvaluatorSpec.model_validate({**TREE, "children": [other, EXACT, STYLE]})
    with pytest.raises(NewCallsNeededError, match="mentions_refund: its settings changed") as error:
        rescore_run(source, rules_of(source, root=root), by=None)
    assert [one.path for one in error.value.stale] == ["mentions_refund"]
    EvaluatorScore.objects.filter(result__run=source).delete()
    source.leaf_scores = None
    stored.KEPT.values.clear()
    with pytest.raises(CannotRescoreError, match="no scores of evaluators"):
        rescore_run(source, rules_of(source), by=None)
    source.status = RunStatus.RUNNING
    with pytest.raises(stored.RunNotEndedError):
        rescore_run(source, rules_of(source), by=None)
    assert Run.objects.count() == 1


def test_many_executions_are_left_to_a_worker_who_may_die(monkeypatch):
    source = finished_run()
    lenient = rules_of(source, policy=PolicySpec(pass_threshold=0.7))
    queued = []
    monkeypatch.setattr(what_if_services, "AT_ONCE", 0)
    monkeypatch.setattr(
        what_if_services, "queue", lambda task, run_id: queued.append((task, run_id))
    )
    run = rescore_run(source, lenient, by=None)
    assert queued == [("runs.rescore_run", run.pk)]
    assert (run.status, run.done_count, run.execution_count) == ("running", 0, 5)

    monkeypatch.setattr(
        reaper, "queue", lambda task, run_id, **later: queued.append((task, run_id))
    )
    reap(now=database_now())
    assert len(queued) == 1
    reap(now=database_now() + 3 * LEASE)
    assert queued == [("runs.rescore_run", run.pk)] * 2
    complete_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.done_count, run.summary["executions"]) == ("completed", 5, 5)
    assert standing(run) != standing(source)
    assert not complete_run(run.pk)
    assert run.results.count() == ResultOutput.objects.filter(result__run=run).count() + 1


def test_a_run_that_was_stopped_or_whose_source_is_gone_ends_without_it(monkeypatch):
    source = finished_run()
    monkeypatch.setattr(what_if_services, "AT_ONCE", 0)
    stopped = rescore_run(source, rules_of(source, policy=STRICT), by=None)
    stop_run(stopped, stopped_by=None)
    assert not complete_run(stopped.pk)
    assert stopped.results.count() == 0
    lost = rescore_run(source, rules_of(source, policy=STRICT), by=None)
    Run.objects.filter(pk=lost.pk).update(source_run=None)
    assert not complete_run(lost.pk)
    lost.refresh_from_db()
    assert (lost.status, lost.status_reason) == (
        "failed",
        f"The run that {lost} scores again is gone.",
    )
    assert lost.events.filter(kind="failed").count() == 1


@pytest.mark.writes_results
def test_what_a_stopped_run_left_out_is_left_out_again():
    source = finished_run()
    Result.objects.filter(run=source, case__key="C-4").update(status="cancelled", error="")
    Run.objects.filter(pk=source.pk).update(
        status=RunStatus.STOPPED, finished_at=database_now() - timedelta(hours=1)
    )
    source.refresh_from_db()
    run = rescore_run(source, rules_of(source, policy=STRICT), by=None)
    assert (run.status, run.done_count, run.execution_count) == ("stopped", 4, 5)
    assert run.results.get(case__key="C-4").status == "cancelled"

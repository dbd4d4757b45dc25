"""Metrics judges in whole runs: one call for metrics and outcomes, the means on the run page, and retries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.types import Score, Unscored
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run, RunStatus
from runs.models.stored import metrics_score
from runs.models.suites import Suite
from runs.running.retrying import retry_results
from runs.running.services import start_run
from tests.support.factories import change_evaluator, make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer, good, prose
from tests.support.trees import LEAF, tree

pytestmark = pytest.mark.django_db(transaction=True)
MaxQueries = Callable[[int], AbstractContextManager[object]]
JUDGE = {
    **LEAF,
    "name": "metrics",
    "kind": "metrics_judge",
    "config": {"metrics": ["tool_routing", "response_delivery", "task_completion"]},
}
OUTCOMES = ("Names the window", "Asks for a photo")


def reply(routing: int, delivery: int, *, done: bool, met: tuple[bool, ...] = ()) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "tool_routing": {"justification": "Called find_order first.", "score": routing},
        "response_delivery": {"justification": "Clear.", "score": delivery},
        "task_completion": {"justification": "Nothing is left open.", "passed": done},
    }
    outcomes = [
        {"number": n, "justification": f"on {n}", "passed": passed}
        for n, passed in enumerate(met, 1)
    ]
    return {"reasoning": "Careful.", "metrics": metrics} | ({"outcomes": outcomes} if met else {})


def start(server: ModelServer, cases: int, node: Any = JUDGE, **policy: Any) -> Run:
    judge = make_model(slug="judge", base_url=server.base_url)
    columns = {"case_gate": "expected_outcomes", **policy}
    suite = make_suite(tree=tree(node), judge=judge, **columns)
    for number in range(cases):
        make_case(
            suite=suite,
            key=f"C-{number}",
            position=number,
            expected_outcomes=list(OUTCOMES),
            recorded_output={"output": "Between 14 and 17."},
        )
    return start_run(suite=suite, target=make_target(), started_by=None, concurrency=1)


def worked(run: Run) -> Run:
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def page(client: Client, run: Run, name: str = "run", **extra: object) -> str:
    place = {"slug": run.suite.slug, "number": run.number, **extra}
    return client.get(reverse(f"runs:{name}", kwargs=place)).content.decode()


def test_one_call_judges_metrics_and_outcomes_and_the_outcomes_decide(
    model_server: ModelServer, viewer_client: Client
) -> None:
    model_server.behave(
        good(reply(0, 1, done=False, met=(True, True))),
        good(reply(5, 5, done=True, met=(True, False))),
    )
    run = worked(start(model_server, 2))

    first, second = run.results.all()
    assert len(model_server.chats) == 2
    assert (first.verdict, second.verdict) == ("pass", "fail")
    assert (first.metrics_score, second.metrics_score) == (pytest.approx(0.2 * 0.1 / 0.35), 1)
    assert (first.outcome_marks, second.outcome_marks) == ("11", "10")
    assert run.summary["weighted_metrics_score_pct"] == pytest.approx((first.score + 1) * 50)
    shown = page(viewer_client, run, "result", key="C-0", repetition=1)
    assert "Called find_order first." in shown
    assert "critical fail" in shown
    assert "2 of 2 met" in shown
    panel = shown.partition('aria-label="Metrics of metrics"')[2].partition("</section>")[0]
    assert "5.7% weighted" in panel
    assert ">critical fail</small>" in panel
    in_order = ["<h3>Execution", "Tool Routing", "<h3>Delivery", "Response Delivery"]
    assert sorted(in_order, key=panel.index) == in_order
    for weight in ("28.5%", "42.8%"):
        assert f'<small class="quiet">{weight}</small></dt>' in panel


def test_of_two_judges_of_metrics_the_first_by_path_counts_whoever_answers_first() -> None:
    early, late = (Score(score, details={"metrics": []}) for score in (0.2, 0.9))
    assert metrics_score({"b": early, "c": Score(1.0), "a": late}) == 0.9
    assert metrics_score({"c": Score(1.0), "d": Unscored("no answer")}) is None


def test_a_suite_and_a_run_choose_who_judges_the_metrics(
    model_server: ModelServer, viewer_client: Client
) -> None:
    model_server.behave(then=good(reply(5, 5, done=True, met=(True, True))))
    worked(start(model_server, 1))
    suite = Suite.objects.get()
    large = make_model(slug="large", model_id="large-9", base_url=model_server.base_url)
    runs = [start_run(suite=suite, target=make_target(), started_by=None, judge=large)]
    (node,) = suite.spec.evaluators.children
    change_evaluator(suite, node.name, config={**node.config, "model": "large"})
    runs.append(start_run(suite=suite, target=make_target(), started_by=None))

    for run in map(worked, runs):
        result = run.results.get()
        assert [call.model_name for call in result.model_calls.all()] == [large.name]
        shown = page(viewer_client, run, "result", key="C-0", repetition=1)
        assert "Judged by large-9." in shown
    assert [chat.body["model"] for chat in model_server.chats] == ["judge", "large-9", "large-9"]


def test_the_run_page_shows_the_mean_of_every_metric(
    model_server: ModelServer, viewer_client: Client, django_assert_max_num_queries: MaxQueries
) -> None:
    model_server.behave(
        good(reply(5, 2, done=True, met=(True, True))),
        good(reply(4, 3, done=False, met=(True, True))),
        then=prose(),
    )
    run = worked(start(model_server, 3))

    shown = page(viewer_client, run)
    assert run.summary["means"]["metrics"] == {
        "tool_routing": 4.5,
        "response_delivery": 2.5,
        "task_completion": 2.5,
    }
    assert "Mean of 2 of 3 results" in shown
    metrics = shown.partition("Metrics of metrics")[2].partition("</section>")[0]
    assert metrics.index("Execution") < metrics.index("Tool Routing") < metrics.index("Delivery")
    for label in ("excellent", "acceptable", "pass"):
        assert f">{label}</small>" in metrics
    with django_assert_max_num_queries(20):
        page(viewer_client, run, "run-live")


def test_a_run_that_is_on_shows_the_means_so_far(
    model_server: ModelServer, viewer_client: Client
) -> None:
    model_server.behave(then=good(reply(3, 3, done=True, met=(True, True))))
    run = worked(start(model_server, 2))
    Run.objects.update(status=RunStatus.RUNNING, summary=None, finished_at=None)

    assert "Mean of 2 of 2 results" in page(viewer_client, run, "run-live")


def test_without_metrics_there_is_no_panel(
    model_server: ModelServer, viewer_client: Client
) -> None:
    check = {**JUDGE, "kind": "text_check", "config": {"operator": "contains", "value": "14"}}
    model_server.behave(
        then=good({"outcomes": reply(0, 0, done=True, met=(True, True))["outcomes"]})
    )
    run = worked(start(model_server, 1, check))

    assert "Metrics of" not in page(viewer_client, run)


def test_metrics_without_outcomes_are_kept_and_the_case_falls_back(
    model_server: ModelServer, viewer_client: Client
) -> None:
    model_server.behave(then=good(reply(5, 4, done=True)))
    run = worked(start(model_server, 1))

    (result,) = run.results.all()
    assert (result.status, result.verdict, len(model_server.chats)) == ("scored", "pass", 2)
    assert result.warnings == ["no outcomes produced"]
    assert "0.94 ≥ 0.75" in result.decided_by
    assert result.outcome_marks == ""
    shown = page(viewer_client, run, "result", key="C-0", repetition=1)
    assert "gave no outcomes" in shown
    assert "no outcomes produced" in shown


def test_a_judge_that_cannot_be_read_leaves_an_error_not_a_fail(model_server: ModelServer) -> None:
    model_server.behave(then=good({"outcomes": []}))
    run = worked(start(model_server, 1))

    (result,) = run.results.all()
    assert (result.status, result.verdict, result.error_stage) == ("error", "", "parse")
    assert run.summary["metrics"] == []


def test_another_evaluator_scored_again_keeps_metrics_and_outcomes(
    model_server: ModelServer,
) -> None:
    check = {
        **LEAF,
        "name": "window",
        "kind": "text_check",
        "config": {"operator": "contains", "value": "14"},
    }
    judge = make_model(slug="judge", base_url=model_server.base_url)
    suite = make_suite(tree=tree(JUDGE, check), judge=judge, case_gate="expected_outcomes")
    make_case(
        suite=suite,
        key="C-0",
        expected_outcomes=list(OUTCOMES),
        recorded_output={"output": "Between 14 and 17."},
    )
    model_server.behave(good(reply(4, 4, done=True, met=(True, False))), then=prose())
    run = worked(start_run(suite=suite, target=make_target(), started_by=None))

    retry_results(run, asked_by=None, which="failed", paths=("window",))
    again = worked(run)

    (result,) = again.results.all()
    assert (result.generation, result.verdict, result.outcome_marks) == (2, "fail", "10")
    assert len(model_server.chats) == 1

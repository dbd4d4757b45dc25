"""Stored outputs judged again: a new run that asks no target and pays only for what must be judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from runs.costs import run_costs
from runs.execution import run_worker
from runs.execution.active_runs import ActiveRuns
from runs.execution.reaper import reap
from runs.execution.run_worker import work_on_run
from runs.filters.queries import ResultsQuery
from runs.models.database import database_now
from runs.models.results import EvaluatorScore, Result, ResultOutput
from runs.models.runs import Run
from runs.models.suites import Case, SuiteVersion
from runs.results.files import result_lines
from runs.running import judging_again
from runs.running.judging_again import judge_again
from runs.running.judging_estimate import estimate_judging
from runs.running.judging_plan import (
    CannotJudgeAgainError,
    JudgingPlan,
    JudgingRequest,
    plan_judging,
)
from runs.running.retrying import CannotResumeError, resume_run, retry_results
from runs.running.services import start_run
from runs.suites.drafts import get_draft
from tests.services.processes import wait_until
from tests.support.factories import (
    change_suite,
    make_case,
    make_model,
    make_suite,
    make_target,
    make_user,
)
from tests.support.model_server import ModelServer, good
from tests.support.run_workers import late, work_in_thread
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
StartRun = Callable[..., Run]
TONE = {**JUDGED, "name": "tone", "config": {"prompt": "Is it kind?"}}
STRICTER = {**TONE, "config": {"prompt": "Is it kind and short?"}}
PRICES = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}
# More than are copied at once.
MANY = 450
# What one judge call of the server costs at these prices.
CALL_USD = Decimal("0.2")


@pytest.fixture
def judged(model_server: ModelServer) -> Callable[..., Run]:
    """Return a finished run with two judges and a check over recorded outputs with trace, file and cost."""

    def run(cases: int = 2, *, repetitions: int = 1, **columns: Any) -> Run:
        judge = make_model(slug="judge", base_url=model_server.base_url, **PRICES)
        suite = make_suite(tree=tree(JUDGED, TONE, CHECK), judge=judge)
        for number in range(cases):
            output = {
                "output": f"a refund {number}",
                "cost_usd": "0.25",
                "latency_ms": 100 + number,
                "trace": [{"type": "tool", "name": "find_order", "output": "found"}],
                "files": {"note.txt": "aGVsbG8="},
            }
            facts = {"expected_output": "refund", "recorded_output": output, **columns}
            make_case(suite=suite, key=f"C-{number}", position=number, **facts)
        made = start_run(
            suite=suite, target=make_target(), started_by=None, repetitions=repetitions
        )
        work_on_run(made.pk)
        made.refresh_from_db()
        assert (made.status, made.done_count) == ("completed", cases * repetitions)
        return made

    return run


def judge(source: Run, **choices: Any) -> Run:
    [run] = judge_again([source], JudgingRequest(**choices), by=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def asked(run: Run) -> list[tuple[str, str]]:
    calls = run.model_calls.order_by("result__position", "result__repetition", "evaluator_path")
    return list(calls.values_list("result__case__key", "evaluator_path"))


@pytest.mark.each_database
def test_only_the_changed_evaluator_is_judged_and_everything_else_is_kept_rows(
    judged: Callable[..., Run], model_server: ModelServer
) -> None:
    source = judged(2, repetitions=2)
    foreign = {"source": "ragas", "name": "faithful", "score": 0.4, "value": 0.4}
    first = source.results.get(case__key="C-0", repetition=1)
    first.external_scores.create(**foreign, pushed_at=database_now())
    details = {"none": None, "naïve": [1.50, "“'%s"], "deep": {"none": None}}
    first.scores.filter(path="right").update(details=details)
    change_suite(source.suite, tree=tree(JUDGED, STRICTER, CHECK))
    requests = len(model_server.requests)
    plan = plan_judging(source, JudgingRequest(), None)
    assert [(row.path, row.kept, row.calls, row.reasons) for row in plan.evaluators] == [
        ("right", 4, 0, ""),
        ("tone", 0, 4, "4 judged: its settings changed"),
        ("mentions_refund", 4, 0, ""),
    ]
    assert len(model_server.requests) == requests

    run = judge(source)

    assert (run.status, run.source_run, run.done_count, run.pass_count) == (
        "completed",
        source,
        4,
        4,
    )
    assert asked(run) == [(key, "tone") for key in ("C-0", "C-0", "C-1", "C-1")]
    assert len(model_server.requests) == requests + 4
    assert run.evaluation_cost_usd == 4 * CALL_USD
    taken = EvaluatorScore.objects.filter(result__run=run, path="right")
    assert set(taken.values_list("cost_usd", "details__kept")) == {(None, True)}
    by_place = ("result__case__key", "result__repetition")
    columns = ("state", "score", "raw_score", "weight", "position", "kind", "reasoning", "findings")
    earlier = EvaluatorScore.objects.filter(result__run=source, path="right").order_by(*by_place)
    assert list(taken.order_by(*by_place).values_list(*columns)) == list(
        earlier.values_list(*columns)
    )
    assert taken.order_by(*by_place)[0].details == details | {"kept": True}
    fresh = EvaluatorScore.objects.filter(result__run=run, path="tone")
    assert set(fresh.values_list("cost_usd", "details__kept")) == {(CALL_USD, None)}
    for old in source.results.select_related("output"):
        new = run.results.select_related("output").get(case=old.case, repetition=old.repetition)
        assert (new.output.text, new.output.trace) == (old.output.text, old.output.trace)
        assert new.artifacts.get().content == old.artifacts.get().content
        assert (new.latency_ms, new.run_cost_usd) == (old.latency_ms, Decimal("0.25"))
        assert new.output.decision["trace"]
    for line in result_lines(run):
        kept = [(row["name"], row.get("kept")) for row in line.as_json()["evaluator_results"]]
        assert kept == [("right", True), ("tone", None), ("mentions_refund", True)]
    carried = run.results.get(case__key="C-0", repetition=1).external_scores.get()
    assert (carried.source, carried.score) == ("ragas", 0.4)
    assert (run.run_cost_usd, run_costs(run).run.is_partial) == (1, False)
    entry = AuditEntry.objects.filter(action="start").latest("id")
    assert entry.after["outputs_of"] == f"{source.suite.slug} #1"
    assert run.events.get().text == "4 of 4 results of run #1 judged again."


def test_another_judge_or_model_settings_judge_everything_it_judges(
    judged: Callable[..., Run], model_server: ModelServer
) -> None:
    source = judged()
    assert not plan_judging(source, JudgingRequest(), None).calls
    other = make_model(slug="other", base_url=model_server.base_url, **PRICES)
    plan = plan_judging(source, JudgingRequest(judge=other), None)
    assert {row.path: row.reasons for row in plan.evaluators} == {
        "right": "2 judged: another judge",
        "tone": "2 judged: another judge",
        "mentions_refund": "",
    }
    run = judge(source, judge=other)
    assert (run.judge_name, run.suite_version) == ("other", source.suite_version)
    assert set(run.model_calls.values_list("model_name", flat=True)) == {"other"}
    assert len(asked(run)) == 4


def test_judges_asked_again_keep_only_what_asks_no_judge(judged: Callable[..., Run]) -> None:
    source = judged(2)
    change_suite(source.suite, tree=tree(JUDGED, STRICTER, CHECK))
    plan = plan_judging(source, JudgingRequest(asks_again=True), None)
    assert [(row.path, row.kept, row.calls, row.reasons) for row in plan.evaluators] == [
        ("right", 0, 2, "2 judged: the judge is asked again"),
        ("tone", 0, 2, "2 judged: its settings changed"),
        ("mentions_refund", 2, 0, ""),
    ]
    run = judge(source, asks_again=True)
    assert sorted(asked(run)) == [
        (key, path) for key in ("C-0", "C-1") for path in ("right", "tone")
    ]
    # By the same rules as a run that was judged again: two judgings of the same outputs.
    assert asked(judge(run)) == []


def test_an_added_and_a_renamed_evaluator_in_my_draft(judged: Callable[..., Run]) -> None:
    source, mira = judged(), make_user(name="mira")
    draft = get_draft(source.suite, mira)
    added = {**JUDGED, "name": "brief", "config": {"prompt": "Is it brief?"}}
    draft.content = {
        **draft.content,
        "evaluators": tree({**JUDGED, "name": "correct"}, TONE, CHECK, added),
    }
    draft.save()
    [run] = judge_again([source], JudgingRequest(draft=draft, note="brief"), by=mira)
    work_on_run(run.pk)
    run.refresh_from_db()

    assert asked(run) == [("C-0", "brief"), ("C-1", "brief")]
    result = run.results.first()
    assert [score.path for score in result.scores.all()] == [
        *("", "correct", "tone", "mentions_refund", "brief"),
    ]
    assert (run.note, run.suite_version) == ("by draft of v1, brief", 1)
    assert "brief" in str(run.snapshot["evaluators"])
    assert "brief" not in str(source.suite.content)


@pytest.mark.writes_results
def test_what_has_no_score_in_the_source_is_judged_and_what_has_no_output_is_left_out(
    judged: Callable[..., Run], model_server: ModelServer
) -> None:
    source = judged(3)
    broken = source.results.get(case__key="C-1")
    broken.scores.filter(path="tone").update(state="unscored", score=None)
    Result.objects.filter(pk=broken.pk).update(status="error", verdict="", error="no reply")
    Run.objects.filter(pk=source.pk).update(leaf_scores=None)
    source.results.get(case__key="C-2").output.delete()
    source.refresh_from_db()
    plan = plan_judging(source, JudgingRequest(), None)
    assert plan.left_out_texts == ["1 of 3 results is left out, because no output is stored: C-2."]
    tone = next(evaluator for evaluator in plan.evaluators if evaluator.path == "tone")
    assert (tone.kept, tone.calls, tone.reasons) == (1, 1, "1 judged: no score in the source")
    named = plan_judging(source, JudgingRequest(keys=["C-1", "C-7", "C-8"]), None)
    unknown = ["2 of 3 results are left out, because the run has no such case: C-7, C-8."]
    assert (len(named.results), named.left_out_texts) == (1, unknown)
    with pytest.raises(CannotJudgeAgainError, match=r"stored: C-2\. 1 of 2 results is .*: C-7\.$"):
        plan_judging(source, JudgingRequest(keys=["C-2", "C-7"]), None)
    with pytest.raises(CannotJudgeAgainError, match="Change the cases or the filter"):
        plan_judging(source, JudgingRequest(query=ResultsQuery(text="case = C-7")), None)

    run = judge(source)

    assert asked(run) == [("C-1", "tone")]
    assert (run.case_count, run.execution_count, run.error_count) == (2, 2, 0)
    assert run.snapshot["judged_again"] == {
        "run": 1,
        "results": 3,
        "left_out": plan.left_out_texts,
    }


def test_a_case_with_another_input_is_refused_by_name_and_one_with_other_expectations_judged(
    judged: Callable[..., Run],
) -> None:
    source = judged(3)
    for key, changes in (
        ("C-0", {"input": [{"role": "user", "content": "Something else?"}]}),
        ("C-1", {"criteria": "Names the refund."}),
    ):
        case = source.suite.cases.get(key=key)
        Case.objects.filter(pk=case.pk).update(is_current=False)
        facts = {"pk": None, "revision": 2, "content_hash": key, **changes}
        for name, value in facts.items():
            setattr(case, name, value)
        case.save(force_insert=True)
    plan = plan_judging(source, JudgingRequest(), None)
    assert plan.left_out_texts == [
        "1 of 3 results is left out, because the input of the case is another now, so the stored output answers "
        "another question: C-0."
    ]
    run = judge(source)
    assert asked(run) == [("C-1", "right"), ("C-1", "tone")]
    assert run.results.get(case__key="C-1").case.revision == 2
    with pytest.raises(CannotJudgeAgainError, match="no output that can be judged again.*C-0"):
        judge_again([source], JudgingRequest(keys=["C-0"]), by=None)


def test_an_earlier_version_judges_with_its_rules_and_cases(judged: Callable[..., Run]) -> None:
    source = judged()
    suite = source.suite
    cases = [{"key": case.key, "revision": 1, "hash": ""} for case in suite.cases.all()]
    first = suite.versions.get(number=1)
    first.content = {**first.content, "cases": cases}
    first.save()
    change_suite(suite, tree=tree(STRICTER))
    suite.version = 2
    suite.save()
    SuiteVersion.objects.create(suite=suite, number=2, content_hash="2", content=suite.content)
    assert judge(source).evaluation_cost_usd == 2 * CALL_USD
    run = judge(source, version=1)
    assert (run.suite_version, run.evaluation_cost_usd) == (1, 0)
    assert run.results.first().scores.count() == 4


def test_a_budget_counts_only_judging_and_a_run_that_ends_early_goes_on_without_the_target(
    judged: Callable[..., Run], model_server: ModelServer
) -> None:
    source = judged(3)
    change_suite(source.suite, tree=tree(JUDGED, STRICTER, CHECK))
    run = judge(source, budget_usd=Decimal("0.25"), concurrency=1)
    assert (run.status, run.done_count, run.evaluation_cost_usd) == ("budget_reached", 1, CALL_USD)
    removed = ResultOutput.objects.filter(result=run.results.get(case__key="C-2"))
    removed.update(removed_at=database_now())
    with pytest.raises(CannotResumeError, match="have none any more"):
        resume_run(run, resumed_by=None, budget_usd=Decimal(1))
    removed.update(removed_at=None)
    resume_run(run, resumed_by=None, budget_usd=Decimal(1))
    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.evaluation_cost_usd, len(asked(run))) == ("completed", 3 * CALL_USD, 3)

    Case.objects.update(recorded_output={"output": "another answer"})
    assert retry_results(run, asked_by=None, result_ids=[run.results.first().pk]) == 1
    work_on_run(run.pk)
    run.refresh_from_db()
    assert run.results.first().output.text == "a refund 0"
    assert len(asked(run)) == 5


def test_the_scores_of_another_tool_are_never_kept(judged: Callable[..., Run]) -> None:
    source = judged(2)
    source.snapshot = {**source.snapshot, "imported": {"file": "ragas.json", "sha256": "0"}}
    source.save(update_fields=["snapshot"])
    run = judge(source)
    assert asked(run) == [(key, path) for key in ("C-0", "C-1") for path in ("right", "tone")]
    assert not EvaluatorScore.objects.filter(result__run=run, details__has_key="kept").exists()
    assert (run.status, run.imported_from) == ("completed", "")


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> Planning:
    """Watch the planning of what is started."""
    watched = Planning()

    def plan(*args: Any) -> JudgingPlan:
        watched.inside.append(connection.in_atomic_block)
        judging = plan_judging(*args)
        if watched.after is not None:
            change, watched.after = watched.after, None
            change()
        return judging

    monkeypatch.setattr(judging_again, "plan_judging", plan)
    return watched


@dataclass(slots=True)
class Planning:
    """Whether each planning was part of a transaction, and what happens after the next one."""

    inside: list[bool] = field(default_factory=list)
    after: Callable[[], None] | None = None


def test_planning_is_no_part_of_the_transaction_whose_statements_do_not_grow_with_the_results(
    judged: Callable[..., Run], planning: Planning
) -> None:
    source = judged(12)
    counts = []
    for keys in (["C-0"], None):
        with CaptureQueriesContext(connection) as queries:
            judge_again([source], JudgingRequest(keys=keys, concurrency=1), by=None)
        begins = [query["sql"].startswith("BEGIN") for query in queries]
        counts.append(len(begins) - begins.index(True))
    assert planning.inside == [False, False]
    assert counts[1] <= counts[0] < 40


@pytest.mark.each_database
@pytest.mark.writes_results
def test_a_source_that_changed_since_it_was_planned_is_planned_again(
    judged: Callable[..., Run], planning: Planning
) -> None:
    source = judged(2)
    suite = source.suite

    def lose_a_score() -> None:
        lost = source.results.get(case__key="C-1")
        lost.scores.filter(path="tone").update(state="unscored", score=None)
        Run.objects.filter(pk=source.pk).update(leaf_scores=None)
        source.cases.refresh(source.pk, [lost.case_id])

    def save_a_version() -> None:
        change_suite(suite, tree=tree(JUDGED, STRICTER, CHECK))
        suite.version = 2
        suite.save()
        SuiteVersion.objects.create(suite=suite, number=2, content_hash="2", content=suite.content)

    def edit_a_case() -> None:
        # An edit may join the current version, which keeps its number.
        suite.cases.filter(key="C-0").update(is_current=False)
        suite.versions.filter(number=2).update(content_hash="3")

    def rerun() -> None:
        Run.objects.filter(pk=source.pk).update(status="running")

    planning.after = lose_a_score
    assert asked(judge(source)) == [("C-1", "tone")]
    planning.after = save_a_version
    run = judge(source)
    assert (run.suite_version, asked(run)) == (2, [("C-0", "tone"), ("C-1", "tone")])
    planning.after = edit_a_case
    assert asked(judge(source)) == [("C-1", "tone")]
    assert planning.inside == [False, True] * 3
    planning.after = rerun
    with pytest.raises(CannotJudgeAgainError, match="#1 is still running"):
        judge_again([source], JudgingRequest(), by=None)
    Run.objects.filter(pk=source.pk).update(status="completed")
    planning.after = lambda: Run.objects.filter(pk=source.pk).update(is_deleted=True)
    with pytest.raises(CannotJudgeAgainError, match="was deleted"):
        judge_again([source], JudgingRequest(), by=None)
    assert Run.objects.count() == 3


def test_runs_that_changed_or_cannot_be_judged_are_refused(judged: Callable[..., Run]) -> None:
    source = judged(1)
    Run.objects.filter(pk=source.pk).update(status="running")
    source.refresh_from_db()
    with pytest.raises(CannotJudgeAgainError, match="#1 is still running"):
        judge_again([source], JudgingRequest(), by=None)
    other = Run(suite=make_suite(), number=1)
    with pytest.raises(CannotJudgeAgainError, match="several suites"):
        judge_again([source, other], JudgingRequest(), by=None)


def test_a_form_that_is_sent_twice_judges_once_and_several_runs_are_a_campaign(
    judged: Callable[..., Run],
) -> None:
    source, mira = judged(1), make_user(name="mira")
    again = start_run(suite=source.suite, target=source.target, started_by=None)
    work_on_run(again.pk)
    again.refresh_from_db()
    for _ in range(2):
        runs = judge_again([source, again], JudgingRequest(note="all"), by=mira, form_key="k")
    Run.objects.filter(pk=source.pk).update(status="running")
    assert judge_again([source, again], JudgingRequest(), by=mira, form_key="k") == runs
    assert [run.source_run_id for run in runs] == [source.pk, again.pk]
    assert runs[0].campaign.name == "all"
    assert Run.objects.filter(source_run__isnull=False).count() == 2


def test_a_killed_worker_costs_no_more_than_the_calls_it_had_in_flight(
    judged: Callable[..., Run], model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = judged(6)
    change_suite(source.suite, tree=tree(JUDGED, STRICTER, CHECK))
    [run] = judge_again([source], JudgingRequest(concurrency=2), by=None)
    before = len(model_server.chats)
    model_server.behave(good(), good(), then=late)
    lost = work_in_thread(run)
    model_server.wait_for_chats(before + 4)
    wait_until(lambda: run.model_calls.count() == 2)
    reap(now=database_now() + timedelta(seconds=60))
    # A process of its own takes over what the lost one held.
    monkeypatch.setattr(run_worker, "_active_runs", ActiveRuns())
    model_server.behave(then=good())
    work_on_run(run.pk)

    run.refresh_from_db()
    assert (run.status, run.done_count, run.pass_count) == ("completed", 6, 6)
    assert len(model_server.chats) == before + 6 + 2
    model_server.release()
    lost.join(60)
    assert set(run.model_calls.values_list("evaluator_path", flat=True)) == {"tone"}
    assert run.results.filter(scores__details__kept=True).distinct().count() == 6


def test_as_many_outputs_under_one_added_judge_take_exactly_as_many_calls(
    start_recorded: StartRun, model_server: ModelServer
) -> None:
    source = start_recorded(*["a refund"] * MANY)
    work_on_run(source.pk)
    source.refresh_from_db()
    nothing = estimate_judging(plan_judging(source, JudgingRequest(), None))
    assert (nothing.calls, nothing.cost_usd, nothing.duration_ms) == (0, 0, 0)
    # The source asked no judge, so tokens and time are not known; of a model that costs nothing the cost is.
    free = {"input_price_usd_per_mtok": 0, "output_price_usd_per_mtok": 0}
    fast = make_model(slug="judge", base_url=model_server.base_url, concurrency=50, **free)
    change_suite(source.suite, tree=tree(CHECK, TONE), judge=fast)
    estimate = estimate_judging(plan_judging(source, JudgingRequest(), None))
    assert (estimate.calls, estimate.cost_usd, estimate.duration_ms) == (MANY, 0, None)
    run = judge(source)
    assert (run.status, run.pass_count, run.concurrency) == ("completed", MANY, 50)
    assert (len(model_server.requests), run.model_calls.count()) == (MANY, MANY)

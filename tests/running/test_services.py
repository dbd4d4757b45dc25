"""A run is started: what is frozen, numbered and queued."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.urls import reverse

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.engine.plan import read_plan
from runs.models.results import Result, ResultOutput
from runs.models.runs import Run
from runs.models.suites import RecordedOutput
from runs.running import services
from runs.running.judging_again import judge_again
from runs.running.judging_plan import JudgingRequest
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.rules import RunRules
from runs.running.services import start_campaign, start_run
from tests.support.factories import (
    change_suite,
    make_case,
    make_model,
    make_suite,
    make_target,
    make_user,
    refresh_cases,
)
from tests.support.trees import CHECK, JUDGED, LEAF, tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def queued(monkeypatch):
    sent = []
    monkeypatch.setattr(
        "evalsite.celery.app.send_task", lambda name, kwargs, **options: sent.append((name, kwargs))
    )
    return sent


def ready_suite(*, cases=2, **columns):
    suite = make_suite(tree=tree(CHECK), **columns)
    for number in range(cases):
        make_case(
            suite=suite,
            key=f"C-{number}",
            position=number,
            tags=["even"] if number % 2 == 0 else ["odd"],
            recorded_output={"output": "A refund."},
        )
    return suite


def start(suite, target=None, **choices):
    return start_run(suite=suite, target=target or make_target(), started_by=None, **choices)


def test_a_run_is_frozen_its_results_wait_and_work_is_queued(
    queued, django_capture_on_commit_callbacks
):
    suite = ready_suite()
    user = make_user()
    with django_capture_on_commit_callbacks(execute=True):
        run = start_run(
            suite=suite, target=make_target(), started_by=user, repetitions=3, note="nightly"
        )

    assert (run.number, run.status, run.case_count, run.execution_count) == (1, "queued", 2, 6)
    waiting = Result.objects.filter(run=run).values_list("case__key", "repetition", "status")
    assert list(waiting) == [
        (f"C-{case}", repetition, "pending") for case in (0, 1) for repetition in (1, 2, 3)
    ]
    assert queued == [("runs.work_on_run", {"run_id": run.pk})]
    assert AuditEntry.objects.get(action="start").actor == user

    change_suite(suite, evaluators=suite.spec.evaluators.replace(children=()))
    frozen = read_plan(Run.objects.get(pk=run.pk).snapshot)
    assert [child.name for child in frozen.root.children] == ["mentions_refund"]


def test_runs_of_a_suite_are_numbered():
    suite = ready_suite()

    assert [start(suite).number, start(suite).number] == [1, 2]


@pytest.mark.parametrize(
    ("choice", "keys"),
    [
        ({"tags": ["odd"]}, ["C-1", "C-3"]),
        ({"case_keys": ["C-2"]}, ["C-2"]),
        ({"case_keys": ["C-0", "C-1"], "tags": ["even"]}, ["C-0"]),
    ],
)
def test_a_run_can_be_of_some_cases(choice, keys):
    run = start(ready_suite(cases=4), **choice)

    assert [result.case.key for result in run.results.all()] == keys


def test_a_policy_can_be_changed_for_one_run():
    run = start(ready_suite(), rules=RunRules(policy={"pass_threshold": 0.95}))

    assert read_plan(run.snapshot).policy.pass_threshold == 0.95


def test_what_a_run_does_otherwise_is_kept_with_it_and_the_suite_stays():
    suite = make_suite(tree=tree(JUDGED, CHECK), judge=make_model())
    make_case(suite=suite, key="A", tags=["odd"], recorded_output={"output": "x"})
    rules = RunRules(policy={"pass_threshold": 0.75}, weights={"right": 3.0}, samples=5)
    run = start(suite, tags=["odd"], case_keys=["A"], rules=rules)

    frozen = read_plan(run.snapshot)
    assert [child.weight for child in frozen.root.children] == [3.0, 1.0]
    assert run.snapshot["asked"] == {"tags": ["odd"], "cases": "chosen", "samples": 5}
    assert [(one["evaluator"], one["name"]) for one in run.snapshot["changed"]] == [
        (None, "pass_threshold"),
        ("right", "weight"),
        ("right", "config.samples"),
    ]
    assert AuditEntry.objects.get(action="start").after["changed"] == run.snapshot["changed"]
    suite.refresh_from_db()
    assert suite.policy.pass_threshold == 0.8
    assert {"asked", "changed"}.isdisjoint(start(suite).snapshot)


def test_a_suite_that_was_changed_since_it_was_looked_at_is_not_run():
    suite = ready_suite(version=3)
    refused("it is at version 3 now, and this form was opened at version 2", suite, version=2)
    assert start(suite, version=3)


def refused(said, suite, target=None, **choices):
    with pytest.raises(DomainError, match=said):
        start(suite, target, **choices)
    assert not Run.objects.exists()


def test_a_suite_without_cases_cannot_be_run():
    refused("has no cases yet", make_suite(tree=tree(CHECK)))


def test_unknown_cases_and_tags_are_refused():
    refused("has no case C-9", ready_suite(), case_keys=["C-0", "C-9"])
    refused("No case is chosen", ready_suite(), tags=["none"])


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"repetitions": 0}, "Repetitions is 0"),
        ({"concurrency": 500}, "Concurrency is 500"),
        ({"budget_usd": Decimal(0)}, r"budget must be more than \$0"),
        ({"max_minutes": 0}, "longest time is 0 minutes"),
        ({"rules": RunRules(policy={"pass_threshold": 2.0})}, "pass_threshold 2.0"),
    ],
)
def test_limits_out_of_range_are_refused(choice, said):
    refused(said, ready_suite(), **choice)


def test_more_results_than_are_stored_at_once_are_refused(monkeypatch):
    monkeypatch.setattr(services, "MAX_EXECUTIONS", 5)
    suite, targets = ready_suite(), [make_target() for _ in range(3)]
    runs = start_campaign(suite=suite, targets=targets[:2], started_by=None)
    said = "That would be 6 results; up to 5 are started together. Choose fewer"
    with pytest.raises(DomainError, match=said):
        start(suite, repetitions=3)
    with pytest.raises(DomainError, match=said):
        start_campaign(suite=suite, targets=targets, started_by=None)
    runs.append(start(suite))
    Run.objects.update(status="completed")
    Result.objects.update(status="scored")
    for run in runs:
        ResultOutput.objects.bulk_create(
            ResultOutput(result=result, text="A refund.") for result in run.results.all()
        )
        refresh_cases(run)
    with pytest.raises(DomainError, match=said):
        judge_again(runs, JudgingRequest(), by=None)
    assert (Run.objects.count(), Result.objects.count()) == (3, 6)


def test_an_evaluator_of_an_unknown_kind_is_refused():
    suite = make_suite(tree=tree({**CHECK, "kind": "palmistry"}))
    make_case(suite=suite, recorded_output={"output": "x"})

    refused("no evaluator kind 'palmistry'", suite)


def test_evaluators_that_ask_a_judge_need_one():
    suite = make_suite(tree=tree(JUDGED))
    make_case(suite=suite, recorded_output={"output": "x"})

    refused("ask a judge and none is chosen", suite)


def test_a_budget_needs_the_price_of_every_model():
    model = make_model()
    suite = make_suite(tree=tree(JUDGED), judge=model)
    make_case(suite=suite, recorded_output={"output": "x"})
    refused("There are no prices for", suite, budget_usd=Decimal(1))

    model.input_price_usd_per_mtok = model.output_price_usd_per_mtok = Decimal("0.5")
    model.save()
    assert start(suite, budget_usd=Decimal(1)).budget_usd == 1


def test_outcomes_need_a_judge_only_where_they_decide():
    suite = make_suite(tree=tree(CHECK), case_gate="expected_outcomes")
    make_case(suite=suite, recorded_output={"output": "x"}, expected_outcomes=["says yes"])
    refused("expected outcomes need a judge and none is chosen", suite)

    shown_only = make_suite(tree=tree(CHECK))
    make_case(suite=shown_only, recorded_output={"output": "x"}, expected_outcomes=["says yes"])
    assert start(shown_only).judge_name == ""


def test_checks_alone_run_without_the_judge_of_the_suite():
    """Outcomes that decide nothing are not worth a call, and the run names no judge."""
    suite = make_suite(tree=tree(CHECK), judge=make_model(key_variable="EVALSITE_MODEL_KEY_GONE"))
    make_case(suite=suite, recorded_output={"output": "x"}, expected_outcomes=["says yes"])
    run = start(suite)
    assert (run.judge_name, run.snapshot["judge"], run.snapshot["models"]) == ("", None, {})


def test_outcomes_can_be_judged_beside_checks():
    suite = make_suite(tree=tree(CHECK), judge_outcomes="always")
    make_case(suite=suite, recorded_output={"output": "x"}, expected_outcomes=["says yes"])
    refused("expected outcomes need a judge and none is chosen", suite)
    assert start(suite, judge=make_model(name="Juno")).judge_name == "Juno"


def test_what_needs_a_judge_is_decided_by_the_evaluators_that_run():
    suite = make_suite(tree=tree(JUDGED))
    for key in ("a", "b"):
        make_case(suite=suite, key=key, recorded_output={"output": "x"}, evaluators=tree(CHECK))
    assert start(suite).judge_name == ""

    make_case(suite=suite, key="c", recorded_output={"output": "x"})
    with pytest.raises(DomainError, match="ask a judge and none is chosen"):
        start(suite)
    assert start(suite, case_keys=["a", "b"])


def test_appended_evaluators_leave_the_suites_own_in_the_run():
    suite = make_suite(tree=tree(JUDGED))
    own = {"evaluators": tree(CHECK), "evaluators_append": True}
    make_case(suite=suite, recorded_output={"output": "x"}, **own)
    refused("ask a judge and none is chosen", suite)


def test_a_judge_whose_key_is_not_there_is_refused():
    suite = make_suite(tree=tree(JUDGED), judge=make_model(key_variable="EVALSITE_MODEL_KEY_GONE"))
    make_case(suite=suite, recorded_output={"output": "x"})

    refused("EVALSITE_MODEL_KEY_GONE is not set", suite)


def test_a_chat_target_needs_its_model():
    refused("has no language model", ready_suite(), make_target(kind="chat"))


def test_a_target_of_an_unknown_kind_is_refused():
    refused("no target kind 'ftp'", ready_suite(), make_target(kind="ftp"))


def test_a_recorded_target_needs_an_output_for_one_case_at_least():
    suite = make_suite(tree=tree(CHECK), cases=2)
    target = make_target()
    refused("no recorded output for any of the 2 cases", suite, target)

    RecordedOutput.objects.create(target=target, case_key="C-999", output={"output": "x"})
    refused("no recorded output for any of the 2 cases", suite, target)

    RecordedOutput.objects.create(target=target, case_key="C-001", output={"output": "x"})
    assert start(suite, target).case_count == 2


def test_a_run_that_is_over_cannot_be_stopped_and_one_that_is_on_cannot_be_resumed():
    run = start(ready_suite())
    with pytest.raises(DomainError, match="already running"):
        resume_run(run, resumed_by=None)
    stop_run(run, stopped_by=None)
    with pytest.raises(DomainError, match="has already ended"):
        stop_run(run, stopped_by=None)


def test_a_retry_without_such_results_is_refused():
    with pytest.raises(DomainError, match="nothing to rerun"):
        retry_results(start(ready_suite()), asked_by=None)


def test_starting_a_large_run_takes_few_queries(django_assert_max_num_queries):
    suite = ready_suite(cases=300)
    target = make_target()
    with django_assert_max_num_queries(20):
        start(suite, target, repetitions=3)


def test_a_run_does_not_start_on_a_tree_that_contradicts_itself(queued):
    suite = ready_suite(cases=1)
    make_case(
        suite=suite,
        key="C-9",
        recorded_output={"output": "A refund."},
        evaluators=tree(CHECK),
        evaluators_append=True,
    )
    with pytest.raises(
        DomainError, match="case C-9: .* more than one evaluator named “mentions_refund”"
    ):
        start(suite)
    assert not Run.objects.exists()


def test_a_run_does_not_start_on_scores_that_no_column_could_hold(queued):
    suite = ready_suite(cases=1)
    deep = CHECK
    for _ in range(5):
        deep = tree(deep) | {"name": "a" * 100}
    make_case(suite=suite, key="C-9", recorded_output={"output": "x"}, evaluators=tree(deep))
    with pytest.raises(DomainError, match="case C-9: evaluator “a{100}” is nested too deep"):
        start(suite)
    assert not Run.objects.exists()


def test_a_stored_suite_with_two_final_scores_is_shown_but_not_run(editor_client):
    judge = {**LEAF, "name": "whole", "kind": "hybrid_judge"}
    weighed = {**judge, "config": {"score_from": "dimension_weights"}}
    suite = make_suite(
        slug="desk", tree=tree(CHECK, weighed), judge=make_model(), final_score="judge_overall"
    )
    make_case(suite=suite, recorded_output={"output": "x"})
    refused("“whole” makes its score of weighted dimensions", suite)
    own = {**LEAF, "name": "all", "kind": "composite", "config": {}, "children": [weighed]}
    other = make_suite(tree=tree(CHECK), judge=suite.judge, final_score="judge_overall")
    make_case(suite=other, recorded_output={"output": "x"}, evaluators=own)
    refused("“whole” makes its score of weighted dimensions", other)

    for name in ("suite", "suite-evaluators", "suite-settings", "run-new"):
        place = reverse(f"runs:{name}", kwargs={"slug": "desk"})
        assert editor_client.get(place).status_code == 200, name
    page = editor_client.get(reverse("runs:suite-evaluators", kwargs={"slug": "desk"})).text
    assert "The final score is the overall score of “whole”" in page

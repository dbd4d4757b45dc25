"""Rules of retention: what they remove and when, what stays, and what pages, files and retries say then."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from evaluators.models import AuditEntry
from evaluators.scoring.decision import Decision, NodeResult, TraceStep
from evaluators.scoring.hybrid import Check, JudgeOpinion, evaluate_hybrid
from evaluators.scoring.types import OutcomeResult
from runs.execution import reaper
from runs.execution.reaper import reap
from runs.models.database import database_now
from runs.models.removals import Removal, RemovalPart, RetentionRule
from runs.models.results import (
    Artifact,
    ComparedOutput,
    EvaluatorScore,
    ModelCall,
    Result,
    ResultOutput,
)
from runs.models.runs import ALL_ALIKE, Run
from runs.models.sharing import ShareLink
from runs.models.suites import FileContent, Suite
from runs.retention import queries
from runs.retention.queries import Selection, due_removals, measure_runs
from runs.retention.services import (
    BASELINE_GONE,
    apply_retention,
    begin_removal,
    change_rule,
    drop_rule,
    plain_parts,
    remove_data,
)
from runs.reviews.services import NoOutputError, ask_for_review
from runs.running.retrying import retry_results
from runs.what_if.services import CannotRescoreError, rescore_run
from runs.what_if.stored import DetailsRemovedError, ask
from tests.support.factories import (
    make_call,
    make_case,
    make_result,
    make_run,
    make_score,
    make_suite,
)
from tests.support.members import make_member
from tests.support.scored_runs import rules_of
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db
SECRET = "The refund of Mrs. Hudson is on its way"


def old_run(*, days: int, suite: Suite | None = None, **columns: Any) -> Run:
    """Return a run that ended days ago with a result that has an answer, a file, a reason, a call and a baseline."""
    suite = suite or make_suite()
    run = make_run(suite=suite, finished_at=database_now() - timedelta(days=days), **columns)
    case = make_case(suite=suite, position=1)
    output = {"text": SECRET, "messages": [{"role": "assistant", "content": SECRET}]}
    output |= {"trace": [{"type": "tool", "name": "lookup", "output": SECRET}]}
    output |= {"files": {"letter.txt": SECRET.encode()}, "decision": None}
    result = make_result(run=run, case=case, verdict="pass", score=0.9, output=output)
    make_score(result=result, path="tone", score=0.9, reasoning=SECRET, details={"why": SECRET})
    make_call(result=result, reply={"choices": [{"message": {"content": SECRET}}]})
    ComparedOutput.objects.create(result=result, text=SECRET)
    return run


def apply(suite: Suite | None = None) -> None:
    for removal in apply_retention(suite=suite, in_background=False):
        assert remove_data(removal.pk)


def stored_texts() -> str:
    """Return everything that could hold the secret."""
    rows = [
        *ResultOutput.objects.values_list("text", "messages", "trace"),
        *EvaluatorScore.objects.values_list("reasoning", "findings", "details"),
        *ModelCall.objects.values_list("request", "reply"),
        *ComparedOutput.objects.values_list("text", "problem"),
        *((bytes(content),) for content in FileContent.objects.values_list("content", flat=True)),
    ]
    return repr(rows)


def whole_rows(run: Run) -> str:
    """Return every column of the run and of all rows that belong to its results."""
    related = [relation.related_model for relation in Result._meta.related_objects]
    rows: list[Any] = [*Run.objects.filter(pk=run.pk).values(), *run.cases.values()]
    for model in (Result, *related):
        rows += model._base_manager.values()
    return repr(rows)


def test_without_a_rule_nothing_is_removed() -> None:
    old_run(days=5000)
    assert apply_retention() == []
    change_rule(None, outputs_days=None, details_days=None, by=None)
    assert apply_retention() == []


def test_outputs_go_after_their_days_and_figures_stay() -> None:
    old, young = old_run(days=31), old_run(days=29)
    change_rule(None, outputs_days=30, details_days=None, by=None)
    before = list(ModelCall.objects.order_by("pk").values_list("cost_usd", "input_tokens"))
    apply()

    old.refresh_from_db()
    young.refresh_from_db()
    assert (old.lacks_outputs, old.outputs_removed_by) == (True, "retention")
    assert not young.lacks_outputs
    result = old.results.get()
    assert (result.verdict, result.score, result.run_cost_usd) == ("pass", 0.9, old.run_cost_usd)
    assert (result.output.text, result.output.trace) == ("", None)
    assert (result.compared_with.text, result.compared_with.problem) == ("", BASELINE_GONE)
    assert young.results.get().compared_with.text == SECRET
    assert result.scores.get().reasoning == SECRET
    assert list(ModelCall.objects.order_by("pk").values_list("cost_usd", "input_tokens")) == before
    assert list(Artifact.objects.values_list("result__run", flat=True)) == [young.pk]
    assert apply_retention() == []


def test_everything_but_figures_goes_after_its_days() -> None:
    run = old_run(days=100)
    change_rule(None, outputs_days=30, details_days=90, by=None)
    apply()
    run.refresh_from_db()
    assert run.lacks_details
    assert "Hudson" not in stored_texts()
    score = run.results.get().scores.get()
    assert (score.score, score.path) == (0.9, "tone")


def test_no_text_of_a_result_outlives_its_details(admin_client: Client) -> None:
    reason = f"{ALL_ALIKE} Bad reply: {SECRET}"
    run = old_run(days=100, status="failed", status_reason=reason)
    unscored = NodeResult("tone", "tone", "llm_judge", "unscored", note=SECRET)
    steps = (
        TraceStep(f"tone could not be scored: {SECRET}", "tone", passed=False),
        TraceStep("Final score: 0.90"),
    )
    said = {"hits": (SECRET,), "misses": (SECRET,), "warnings": (SECRET,)}
    decision = Decision(
        "scored",
        score=0.9,
        decided_by="0.90 ≥ 0.80",
        trace=steps,
        nodes={"tone": unscored},
        outcomes=(OutcomeResult("Says when", True, SECRET),),
        **said,
    )
    ResultOutput.objects.update(decision=decision.as_json())
    errors = {"error": f"Bad reply: {SECRET}", "unscored": f"tone: {SECRET}"}
    for number, (key, error) in enumerate(errors.items(), start=2):
        case = make_case(suite=run.suite, key=key, position=number)
        failed = Decision("error", trace=steps, nodes={"tone": unscored}, error=SECRET, **said)
        output = {"text": SECRET, "decision": failed.as_json()}
        columns = {"status": "error", "error": error, "warnings": [SECRET]}
        make_result(run=run, case=case, output=output, **columns)
    change_rule(None, outputs_days=None, details_days=90, by=None)
    assert "Hudson" in whole_rows(run)

    apply()

    assert "Hudson" not in whole_rows(run)
    run.refresh_from_db()
    assert run.status_reason == f"{ALL_ALIKE} Bad reply: removed with the details of the run"
    errors = dict(run.results.values_list("case__key", "error"))
    assert errors["error"] == "Bad reply: removed with the details of the run"
    assert errors["unscored"] == "Removed with the details of the run"
    kept = Decision.from_json(run.results.order_by("position")[0].output.decision)
    assert (kept.score, kept.decided_by) == (0.9, "0.90 ≥ 0.80")
    assert [step.text for step in kept.trace] == ["Final score: 0.90"]
    assert [(outcome.text, outcome.passed) for outcome in kept.outcomes] == [("Says when", True)]
    address = f"/suites/{run.suite.slug}/runs/1/"
    for place in ("", "results/", *(f"{key}/1/" for key in errors)):
        assert admin_client.get(address + place).status_code == 200


def test_scores_of_metrics_and_dimensions_stay_without_their_reasons() -> None:
    metric = {"key": "tone", "name": "Tone", "score": 4, "weight": 1.0, "justification": SECRET}
    assert plain_parts({"metrics": [metric], "prompt": SECRET}) == {
        "metrics": [{"key": "tone", "name": "Tone", "score": 4, "weight": 1.0}]
    }


def test_a_final_evaluation_stays_without_its_evidence() -> None:
    """Files and the API take final scores and dimensions from it."""
    final = evaluate_hybrid(
        [Check("passed", ("task",)), Check("error", ("task",), SECRET)],
        [JudgeOpinion(overall=7.5, dimensions={"task": 6.0}, evidence=(SECRET,))],
    ).as_json()
    [kept] = plain_parts({"final_evaluation": final, "evidence": [SECRET]}).values()

    assert SECRET not in repr(kept)
    assert (kept["final_score"], kept["final_dimensions"]) == (7.5, {"task": 6.0})
    assert kept["deterministic_dimensions"] == {"task": 10.0}
    assert kept.keys() == final.keys()


def test_a_suite_follows_its_own_rule_or_else_the_sites() -> None:
    run = old_run(days=50)
    suite = run.suite
    change_rule(None, outputs_days=30, details_days=None, by=None)
    change_rule(suite, outputs_days=None, details_days=None, by=None)
    assert due_removals(now=database_now()) == ()
    drop_rule(suite, by=None)
    [due] = due_removals(now=database_now())
    assert (due.suite, due.part, list(due.runs)) == (suite, RemovalPart.OUTPUTS, [run])


def test_what_is_held_stays_and_the_preview_says_why(admin_client: Client) -> None:
    run = old_run(days=50)
    other = old_run(days=50, suite=run.suite)
    Suite.objects.update(baseline_run=run)
    change_rule(None, outputs_days=30, details_days=None, by=None)
    page = admin_client.get("/retention/").content.decode()
    assert "Run #1 is the baseline of" in page
    assert "Outputs and texts of calls" in page
    apply()
    run.refresh_from_db()
    other.refresh_from_db()
    assert (run.lacks_outputs, other.lacks_outputs) == (False, True)


def test_one_reaper_an_hour_has_the_rules_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[bool] = []
    monkeypatch.setattr(reaper, "queue_retention", lambda **options: queued.append(True))
    now = database_now()
    reap(now=now)
    assert queued == []
    change_rule(None, outputs_days=30, details_days=None, by=None)
    reap(now=now)
    reap(now=now + timedelta(minutes=59))
    assert queued == [True]
    reap(now=now + timedelta(minutes=61))
    assert queued == [True, True]


@pytest.fixture
def removed(db: None) -> Run:
    """Give a run whose outputs were removed today."""
    run = old_run(days=31)
    change_rule(None, outputs_days=30, details_days=None, by=None)
    apply()
    run.refresh_from_db()
    return run


def test_pages_and_files_say_what_was_removed(removed: Run, admin_client: Client) -> None:
    day = database_now()
    when = f"removed on {day.day} {day:%b %Y} by retention."
    address = f"/suites/{removed.suite.slug}/runs/1/"
    assert f"Outputs were {when}" in admin_client.get(address).content.decode()
    result = removed.results.get()
    key = result.case.key
    page = admin_client.get(f"{address}{key}/1/").content.decode()
    assert f"The output was {when}" in page
    assert "The target gave no output" not in page
    assert "The target reported no steps" not in page
    calls = admin_client.get(f"{address}{key}/1/calls/").content.decode()
    assert "Request and reply were removed." in calls
    assert admin_client.get(f"{address}{key}/1/output/").status_code == 404

    lines = admin_client.get(f"{address}results.jsonl").getvalue()
    line = json.loads(lines)
    assert (line["output"], line["output_removed_by"]) == (None, "retention")
    assert line["output_removed_at"].startswith(f"{day:%Y-%m-%d}")
    document = admin_client.get(f"/api/results/{result.pk}").json()
    assert document["output"]["removed_by"] == "retention"


def test_a_removed_output_cannot_be_reviewed_nor_scored_again(removed: Run) -> None:
    result = removed.results.get()
    with pytest.raises(NoOutputError, match="The output was removed on"):
        ask_for_review(result, by=None)
    retry_results(removed, asked_by=None, result_ids=[result.pk], keep_output=True)
    result.refresh_from_db()
    assert not result.keeps_output, "the target is asked again"


def test_pages_and_files_say_that_reasons_were_removed(admin_client: Client) -> None:
    run = old_run(days=100)
    change_rule(None, outputs_days=None, details_days=90, by=None)
    apply()
    address = f"/suites/{run.suite.slug}/runs/1/"
    assert "Everything but figures was removed on" in admin_client.get(address).content.decode()
    page = admin_client.get(f"{address}{run.results.get().case.key}/1/").content.decode()
    assert "Reasons and findings were removed on" in page
    assert "0 hits, 0 misses" not in page
    assert "each with its request and reply" not in page
    [line] = admin_client.get(f"{address}results.jsonl").getvalue().splitlines()
    assert json.loads(line)["details_removed_at"]
    assert admin_client.get(f"/api/runs/{run.pk}").json()["details_removed_at"]


def test_a_run_without_details_is_not_scored_by_other_rules() -> None:
    run = old_run(days=100)
    change_rule(None, outputs_days=None, details_days=90, by=None)
    apply()
    run.refresh_from_db()
    with pytest.raises(DetailsRemovedError, match="cannot be scored by other rules"):
        ask(run, rules_of(run))


def test_a_run_that_is_losing_its_details_is_not_scored_by_other_rules() -> None:
    run = old_run(days=100)
    begin_removal(Selection(RemovalPart.DETAILS, run.suite, (run,)), by=None, in_background=False)
    run.refresh_from_db()
    with pytest.raises(DetailsRemovedError, match="is being removed"):
        ask(run, rules_of(run))


def test_nothing_that_is_being_removed_is_copied_into_a_run_scored_again() -> None:
    run = old_run(days=100)
    # The page was opened before the removal began.
    opened = Run.objects.get(pk=run.pk)
    begin_removal(Selection(RemovalPart.OUTPUTS, run.suite, (run,)), by=None, in_background=False)
    with pytest.raises(CannotRescoreError, match="are being removed"):
        rescore_run(opened, rules_of(opened), by=None)
    assert Run.objects.count() == 1


def test_a_run_that_ended_again_is_as_young_as_its_end(removed: Run) -> None:
    Run.objects.update(finished_at=database_now() + timedelta(seconds=1))
    removed.refresh_from_db()
    assert not removed.lacks_outputs
    assert removed.removal_message == ""


def test_a_resumed_run_is_left_alone_by_a_removal_that_began_before() -> None:
    run = old_run(days=40)
    selection = Selection(RemovalPart.OUTPUTS, run.suite, [run])
    removal = begin_removal(selection, by=None, in_background=False)
    Run.objects.update(status="running")
    assert remove_data(removal.pk)
    run.refresh_from_db()
    assert (run.removal_id, run.outputs_removed_at) == (None, None)
    assert SECRET in stored_texts()


def test_members_change_rules_on_pages_and_the_audit_tells(admin_client: Client) -> None:
    suite = make_suite(slug="support")
    days = {"outputs_days": "30", "details_days": "90"}
    assert admin_client.post("/retention/rule/", days).status_code == 302
    assert admin_client.post("/suites/support/retention/", {"follows": "own"}).status_code == 302
    rules = RetentionRule.objects.order_by("suite_id")
    assert {(rule.suite_id, rule.outputs_days, rule.details_days) for rule in rules} == {
        (None, 30, 90),
        (suite.pk, None, None),
    }
    refused = admin_client.post("/retention/rule/", {"outputs_days": "90", "details_days": "9"})
    assert refused.status_code == 422
    assert "enter fewer days" in refused.content.decode()
    entry = AuditEntry.objects.filter(object_type="retention").first()
    assert entry is not None
    assert "Retention" in admin_client.get("/audit/").content.decode()


@pytest.mark.parametrize(
    ("path", "slug"), [("/retention/", ""), ("/suites/support/retention/", "support")]
)
def test_a_rule_that_somebody_else_changed_is_not_replaced_unseen(
    admin_client: Client, path: str, slug: str
) -> None:
    suite = make_suite(slug=slug) if slug else None
    action = path if slug else "/retention/rule/"
    change_rule(suite, outputs_days=30, details_days=90, by=None)
    opened = admin_client.get(path).context["form"]["seen"].value()
    other = make_member("admin", "ann")
    change_rule(suite, outputs_days=30, details_days=365, by=other)
    sent = {"follows": "own", "outputs_days": "20", "details_days": "90", "seen": opened}
    refused = admin_client.post(action, sent)
    assert refused.status_code == 422
    assert "changed by ann after you opened the form" in text_of(refused)
    assert "It keeps outputs for 30 days and details for 365 days now" in text_of(refused)
    if slug:
        assert "The site keeps everything" in text_of(refused)
    rule = RetentionRule.objects.get(suite=suite)
    assert (rule.outputs_days, rule.details_days) == (30, 365)
    sent["seen"] = refused.context["form"]["seen"].value()
    assert admin_client.post(action, sent).status_code == 302, "saved again, it replaces it"
    rule.refresh_from_db()
    assert (rule.outputs_days, rule.details_days) == (20, 90)


def test_a_file_that_several_runs_left_counts_in_each_and_pages_say_so(
    admin_client: Client,
) -> None:
    suite, size = make_suite(), len(SECRET.encode())
    runs = [
        old_run(days=40, suite=suite),
        old_run(days=40, suite=suite),
        old_run(days=1, suite=suite),
    ]
    RetentionRule.objects.create(suite=suite, outputs_days=30)
    measure_runs(runs)
    assert [run.stored_bytes["files"] for run in runs if run.stored_bytes] == [size] * 3
    assert FileContent.objects.count() == 1
    use = text_of(admin_client.get(f"/suites/{suite.slug}/disk-use/"))
    assert "A file that several runs left is stored once and counted in each of them." in use
    preview = text_of(admin_client.get("/retention/"))
    assert (
        "A file that several runs left counts in each of them, and goes with the last." in preview
    )
    apply(suite)
    assert FileContent.objects.count() == 1


def test_disk_use_is_measured_once_for_each_end_of_a_run(admin_client: Client) -> None:
    run = old_run(days=1)
    page = admin_client.get(f"/suites/{run.suite.slug}/disk-use/").content.decode()
    assert "1 run with 1 result and 1 call" in page
    run.refresh_from_db()
    assert run.stored_bytes is not None
    assert run.stored_bytes["files"] == len(SECRET)
    assert run.stored_bytes["outputs"] > 2 * len(SECRET)
    measured_at = run.measured_at
    admin_client.get(f"/suites/{run.suite.slug}/disk-use/")
    run.refresh_from_db()
    assert run.measured_at == measured_at
    assert not Removal.objects.exists()

    # What the baseline answered belongs to the run that was compared with it.
    ComparedOutput.objects.update(text=2 * SECRET)
    Run.objects.update(measured_at=None)
    [again] = Run.objects.all()
    measure_runs([again])
    assert again.stored_bytes is not None
    assert again.stored_bytes["outputs"] == run.stored_bytes["outputs"] + len(SECRET)


def test_many_small_runs_are_measured_together(
    django_assert_max_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = make_suite()
    runs = [old_run(days=40, suite=suite) for _ in range(6)]
    measure_runs(runs[:1])
    Artifact.objects.all().delete()
    again = list(Run.objects.order_by("pk"))
    with django_assert_max_num_queries(12):
        measure_runs(again)
    sizes = {run.stored_bytes["outputs"] for run in again if run.stored_bytes}
    assert (len(sizes), sizes.pop() > 0) == (1, True), "each has its own, not those of all"
    kept = {run.pk: run.stored_bytes for run in again}
    assert {run.pk: run.stored_bytes for run in Run.objects.all()} == kept

    # A run with few results takes as long to store as some of them.
    monkeypatch.setattr(queries, "MEASURED_AT_ONCE", 3 * queries.RESULTS_A_RUN)
    Run.objects.update(measured_at=None)
    again = list(Run.objects.order_by("pk"))
    measure_runs(again)
    assert [run.stored_bytes is None for run in again] == [False] * 3 + [True] * 3


def test_holds_are_those_of_the_suite_however_many_suites_there_are() -> None:
    RetentionRule.objects.create(suite=None, outputs_days=30)
    runs = [old_run(days=40, suite=make_suite()) for _ in range(3)]
    for run in runs[:2]:
        run.suite.baseline_run = run
        run.suite.save()
    both = [runs[1].pk, runs[2].pk]
    ShareLink.objects.create(
        token_hash="a" * 64,
        kind="comparison",
        title="Before launch",
        detail_level="figures",
        sources={"runs": both},
        frozen={},
    )
    found = {
        due.suite.pk: ([hold.runs for hold in due.holds], len(due.runs))
        for due in due_removals(now=database_now())
    }
    assert found == {
        runs[0].suite_id: ([(runs[0].pk,)], 0),
        runs[1].suite_id: ([(runs[1].pk,), tuple(both)], 0),
        runs[2].suite_id: ([tuple(both)], 0),
    }

"""A person chooses which attempt at a result counts: its outcome comes back whole, and every figure follows."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs import finishing
from runs.comments.queries import result_subject
from runs.comments.services import add_comment
from runs.compare.comparison import build_comparison
from runs.compare.rules import Tolerances
from runs.costs import run_costs
from runs.engine.plan import read_plan
from runs.execution.run_worker import work_on_run
from runs.filters.fields import find_field
from runs.filters.matching import ResultRows
from runs.finishing import summarise_run
from runs.models.database import database_now
from runs.models.results import Attempt, Result
from runs.models.runs import Run
from runs.results.files import results_file
from runs.running.attempts import choose_attempt
from runs.running.retrying import retry_results
from runs.running.services import start_run
from runs.what_if.changes import RuleSet
from runs.what_if.page import answer_what_if
from tests.support.factories import again, make_case, make_model, make_suite, make_target, make_user
from tests.support.members import make_client
from tests.support.model_server import Behaviour, ModelServer, good
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
PRICES = {"input_price_usd_per_mtok": 1000, "output_price_usd_per_mtok": 5000}


def opinion(score: float) -> Behaviour:
    return good({"reasoning": f"worth {score}", "hits": [], "misses": [], "score": score})


def finish(run: Run) -> Run:
    work_on_run(run.pk)
    summarise_run(run.pk)
    run.refresh_from_db()
    assert run.status == "completed"
    return run


def comments(client: Client, place: tuple[str, int, str, int]) -> str:
    return client.get(reverse("runs:result-comments", args=place)).content.decode()


def parts(result: Result) -> object:
    """Return what a result has, without the ids of its rows."""
    scores = result.scores.order_by("path").values_list("path", "score", "reasoning", "cost_usd")
    columns = (result.verdict, result.score, result.decided_by, result.outcome_marks)
    files = list(result.artifacts.values_list("path", "content_id"))
    others = list(result.external_scores.values_list("source", "name", "score"))
    return columns, result.output.text, result.output.decision, list(scores), files, others


def judge_scores(run: Run) -> dict[str, float]:
    """Return by case the score of the judge, as columns and orders read it."""
    run, field = again(run), find_field("evaluator.right")
    assert field is not None
    values = ResultRows([run]).values(field)
    return {row.case.key: values[row.pk] for row in run.cases.select_related("case")}


def unexplained(run: Run) -> int:
    """Return how many results what-if leaves alone, because their verdict does not follow from their scores."""
    run = again(run)
    return answer_what_if(run, RuleSet.of_plan(read_plan(run.snapshot))).fixed


@pytest.mark.each_database
def test_an_earlier_attempt_counts_again_with_everything_it_had_and_figures_follow(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = make_model(slug="judge", base_url=model_server.base_url, concurrency=1, **PRICES)
    suite, mira = make_suite(tree=tree(JUDGED, CHECK), judge=judge), make_user(name="mira")
    for number in range(2):
        output = {"output": f"a refund {number}", "files": {"note.txt": "aGVsbG8="}}
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=output)
    model_server.behave(then=opinion(1))
    other = finish(start_run(suite=suite, target=make_target(), started_by=mira))
    run = finish(start_run(suite=suite, target=make_target(), started_by=mira))
    result = run.results.get(case__key="C-0")
    foreign = {"source": "ragas", "name": "faithful", "score": 0.4, "value": 0.4}
    result.external_scores.create(**foreign, pushed_at=database_now())
    first = parts(result)

    model_server.behave(then=opinion(0))
    retry_results(run, asked_by=mira, result_ids=[result.pk])
    run = finish(run)
    result = run.results.get(case__key="C-0")
    second = parts(result)
    costs = run_costs(run)
    assert (run.pass_count, run.fail_count, run.summary and run.summary["passed"]) == (1, 1, 1)

    client, place = make_client(mira), (suite.slug, run.number, "C-0", 1)
    page = client.get(reverse("runs:result", args=place)).content.decode()
    assert page.count("Let this attempt count") == 1
    add_comment(result_subject(result, run), "About the second", by=mira)
    assert "of another output" not in comments(client, place)
    attempt = result.attempts.get()
    here, reason = reverse("runs:result-attempt", args=place), "The judge was down the second time."
    client.post(here, {"attempt": str(attempt.pk), "reason": " "})
    assert "Give the reason" in client.get(reverse("runs:result", args=place)).content.decode()
    answer = client.post(here, {"attempt": str(attempt.pk), "reason": reason})
    assert answer.status_code == 302
    # Columns, orders and what-if follow at once, and stay so when the figures are there.
    assert (judge_scores(run)["C-0"], unexplained(run)) == (1.0, 0)
    summarise_run(run.pk)
    assert (judge_scores(run)["C-0"], unexplained(run)) == (1.0, 0)
    run.refresh_from_db()
    result = run.results.get(case__key="C-0")
    assert parts(result) == first
    assert (run.pass_count, run.fail_count, run.score_sum) == (2, 0, 2.0)
    assert run.summary is not None
    assert run.summary["passed"] == 2
    assert run.cases.get(case__key="C-0").state == "pass"
    # What was paid stays paid.
    assert run_costs(run) == costs
    compared = build_comparison(other, run, Tolerances())
    assert compared.runs.score_change == 0
    lines = b"".join(client.get(reverse("runs:run-results-file", args=place[:2]))).decode()
    assert {json.loads(line)["verdict"] for line in lines.splitlines()} == {"pass"}
    audited = AuditEntry.objects.get(action="choose_attempt")
    assert (audited.before, audited.after) == (
        {"attempt": "attempt 1 of generation 2", "verdict": "fail", "score": 0.5},
        {
            "attempt": "attempt 1 of generation 1",
            "verdict": "pass",
            "score": 1.0,
            "reason": reason,
        },
    )
    shown = " ".join(client.get(reverse("runs:result", args=place)).content.decode().split())
    assert f"Counts because mira chose it: {reason}" in shown
    assert shown.count("Let this attempt count") == 1
    assert comments(client, place).count("of another output") == 1
    add_comment(result_subject(result, run), "About the first", by=mira)
    assert comments(client, place).count("of another output") == 1

    # The other comes back as whole, and a third is asked for as ever.
    newest = result.attempts.get(is_counted=False)
    url = reverse("runs:api-result-attempt", args=(result.pk,))
    body = {"attempt": newest.pk, "reason": "After all"}
    document = client.post(url, body, "application/json").json()
    counted = [row for row in document["attempts"] if row["is_current"]]
    assert [(row["name"], row["counted_reason"]) for row in counted] == [("retry 1", "After all")]
    assert parts(run.results.get(case__key="C-0")) == second
    listed = comments(client, place)
    assert listed.index("About the first") < listed.index("About the second")
    assert listed.count("of another output") == 1
    assert listed.index("of another output") < listed.index("About the first")
    with pytest.raises(DomainError, match="counts already"):
        choose_attempt(Attempt.objects.get(pk=newest.pk), by=mira, reason="Again")
    summarise_run(run.pk)
    # What another tool scores after the choice belongs to the attempt that was chosen.
    run.results.get(case__key="C-0").external_scores.create(
        **foreign | {"name": "late"}, pushed_at=database_now()
    )
    model_server.behave(then=opinion(0.5))
    retry_results(run, asked_by=mira, result_ids=[result.pk])
    run = finish(run)
    result = run.results.get(case__key="C-0")
    assert (result.generation, result.attempts.filter(is_counted=True).count()) == (3, 0)
    assert "Counts because" not in client.get(reverse("runs:result", args=place)).content.decode()
    document = client.get(reverse("runs:api-result", args=(result.pk,))).json()
    assert [(row["name"], row["score"], row["can_count"]) for row in document["attempts"]] == [
        ("retry 2", 0.75, False),
        ("retry 1", 0.5, True),
        ("first run", 1.0, True),
    ]
    assert [float(row["cost_usd"]) for row in document["attempts"]] == [0.2, 0.2, 0.2]

    # Figures that were being computed when somebody chose are computed again.
    pack = finishing.pack_leaf_scores

    def choose_meanwhile(run_id: int) -> bytes:
        monkeypatch.undo()
        choose_attempt(result.attempts.get(generation=1), by=mira, reason="The best")
        return pack(run_id)

    monkeypatch.setattr(finishing, "pack_leaf_scores", choose_meanwhile)
    Run.objects.filter(pk=run.pk).update(summary=None)
    assert not summarise_run(run.pk)
    assert summarise_run(run.pk)
    assert again(run).summary["passed"] == 2
    assert {score.name for score in result.external_scores.all()} == {"faithful"}
    choose_attempt(
        result.attempts.get(generation=2), by=mira, reason="The scores of the other tool"
    )
    assert {score.name for score in result.external_scores.all()} == {"late"}


def test_a_large_file_is_made_again_after_another_attempt_with_the_same_score_counts(
    model_server: ModelServer,
) -> None:
    judge = make_model(slug="judge", base_url=model_server.base_url, concurrency=1)
    suite, mira = make_suite(tree=tree(JUDGED), judge=judge), make_user(name="mira")
    for number in range(2):
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output={"output": "a"})
    model_server.behave(then=good({"reasoning": "First", "hits": [], "misses": [], "score": 1}))
    run = finish(start_run(suite=suite, target=make_target(), started_by=mira))
    model_server.behave(then=good({"reasoning": "Second", "hits": [], "misses": [], "score": 1}))
    retry_results(run, asked_by=mira, result_ids=run.results.values_list("pk", flat=True))
    run = finish(run)
    before = results_file(slug=suite.slug, number=run.number)
    assert "First" not in b"".join(before.parts()).decode()
    earlier = run.results.order_by("finished_at").first()
    assert earlier is not None
    choose_attempt(earlier.attempts.get(is_counted=False), by=mira, reason="Fairer")
    summarise_run(run.pk)
    after = results_file(slug=suite.slug, number=run.number)
    assert "First" in b"".join(after.parts()).decode()
    assert after.digest != before.digest

"""The form of a retry: what it shows first, how it answers, and who may send it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from runs.models.results import Result, Retry
from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
)

pytestmark = pytest.mark.django_db


def at(run: Run, name: str = "run-retry") -> str:
    return reverse(f"runs:{name}", kwargs={"slug": run.suite.slug, "number": run.number})


def text(client: Client, address: str, asked: Mapping[str, Any] | None = None) -> str:
    response = client.get(address, asked)
    assert response.status_code == 200, (address, response.status_code)
    return " ".join(response.content.decode().split())


def posted(client: Client, address: str, fields: Mapping[str, Any], *, status: int) -> str:
    response = client.post(address, fields, follow=status == 200)
    assert response.status_code == status, response.content.decode()
    return " ".join(response.content.decode().split())


def said(page: str) -> str:
    """Return the words of a page without its marks."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def scored_run(*, outputs: int = 3, errors: int = 1, **columns: Any) -> Run:
    """Make a run with outputs, one evaluator that scored or could not, and errors without output."""
    suite = make_suite(judge=None)
    run = make_run(suite=suite, **columns)
    for number in range(outputs + errors):
        case = make_case(suite=suite, key=f"C-{number}", position=number)
        if number >= outputs:
            make_result(run=run, case=case, status="error", error="gone", error_stage="target")
            continue
        result = make_result(
            run=run, case=case, verdict="fail", score=0.3, output={"text": f"Answer {number}"}
        )
        make_score(result=result, path="tone", score=None if number == 0 else 0.3)
        make_score(result=result, path="refund", score=0.3, kind="text_check")
    return run


def cases(run: Run, *keys: str) -> list[int]:
    return list(run.results.filter(case__key__in=keys).values_list("case_id", flat=True))


def test_rows_that_ended_can_be_ticked_and_are_retried_by_those_who_may(
    viewer_client: Client, reviewer_client: Client, editor_client: Client
) -> None:
    run = make_scored_run(verdicts=["pass", "running", "pending", "error"], status="running")
    page = editor_client.get(at(run, "run")).content.decode()
    assert page.count('name="case"') == 2  # what waits or runs cannot be chosen
    assert "All 2 of this run" in page
    for client in (viewer_client, reviewer_client):
        page = client.get(at(run, "run")).content.decode()
        assert page.count('name="case"') == 2, "for a file"
        assert at(run) not in page
        assert client.get(at(run)).status_code == 403
        assert client.post(at(run, "run-retry-ask"), {"case": "1"}).status_code == 403
        assert client.post(at(run), {"which": "errored"}).status_code == 403


def test_cancelled_results_can_be_chosen_once_the_run_is_over(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "cancelled"], status="stopped")
    assert editor_client.get(at(run, "run")).content.decode().count('name="case"') == 2
    page = text(editor_client, at(run), {"case": run.results.last().case_id})
    assert "1 of them has not run yet" in said(page)


def test_ticked_rows_are_named_with_what_each_way_takes(editor_client: Client) -> None:
    run = scored_run()
    fields = {"case": cases(run, "C-0", "C-1", "C-3"), "verdict": "", "q": "C-"}
    page = posted(editor_client, at(run, "run-retry-ask"), fields, status=200)
    words = said(page)
    assert "Rerun 3 results" in words
    assert "3 of 4 results" in words
    assert "1 without an output asks the target anyway" in words
    assert "up to 3 calls of juno-2" in words
    assert "original configuration" in words
    assert page.count('name="case"') == 3
    assert Retry.objects.count() == 0


def test_chosen_results_keep_their_outputs_or_not(editor_client: Client) -> None:
    run = scored_run()
    fields = {"case": cases(run, "C-0", "C-3"), "keep_output": "on", "seen": 0, "q": "C-"}
    response = editor_client.post(at(run), fields, follow=True)
    assert "2 results are queued again." in response.content.decode()
    assert response.redirect_chain[0][0] == at(run, "run") + "?q=C-"
    waiting = run.results.filter(status="pending").order_by("position")
    assert list(waiting.values_list("case__key", "keeps_output")) == [("C-0", True), ("C-3", False)]


def test_all_of_a_filter_reaches_every_page_of_it(editor_client: Client) -> None:
    suite = make_suite(cases=120)
    run = make_run(suite=suite)
    for number, case in enumerate(suite.cases.all()):
        verdict, score = ("fail", 0.5) if number % 2 else ("pass", 0.9)
        make_result(run=run, case=case, verdict=verdict, score=score)
    fields = {"everything": "on", "verdict": "fail", "q": "C-0"}
    page = posted(editor_client, at(run, "run-retry-ask"), fields, status=200)
    count = run.results.filter(verdict="fail", case__key__startswith="C-0").count()
    assert f"Rerun {count} results" in said(page)
    posted(editor_client, at(run), fields, status=200)
    assert run.results.filter(status="pending").count() == count
    assert not run.results.filter(status="pending").exclude(case__key__startswith="C-0").exists()


@pytest.mark.writes_results
def test_repetitions_are_counted_as_results(editor_client: Client) -> None:
    suite = make_suite(cases=2)
    run = make_run(suite=suite, repetitions=3)
    for case in suite.cases.all():
        for repetition in (1, 2, 3):
            make_result(run=run, case=case, repetition=repetition, verdict="pass", score=0.9)
    run.results.filter(repetition=3).update(status="running")
    Run.objects.update(status="running")
    page = editor_client.get(at(run, "run")).content.decode()
    assert page.count('data-count="2"') == 2
    assert "All 4 of this run" in page
    page = posted(editor_client, at(run, "run-retry-ask"), {"everything": "on"}, status=200)
    assert "Rerun 4 results" in said(page)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"case": "nonsense"}, "“nonsense” is not a case of this run"),
        ({"case": "-1"}, "“-1” is not a case of this run"),
        ({"case": "99999999999999999999"}, "is not a case of this run"),
        ({"case": "999999"}, "Case 999999 is not in run"),
        ({"which": "everybody"}, "Select a valid choice"),
        ({"like": "0"}, "greater than or equal to 1"),
        ({"which": "errored", "budget": "much"}, "such as 2.50"),
        ({"which": "errored", "budget": "-3"}, "The budget must be more than $0."),
        ({"path": "palmistry"}, "was started without an evaluator 'palmistry'"),
        ({}, "Tick at least one result"),
        ({"nonsense": "1"}, "Tick at least one result"),
    ],
)
def test_a_forged_or_mistyped_form_changes_nothing_and_says_why(
    editor_client: Client, fields: dict[str, str], why: str
) -> None:
    run = make_scored_run(verdicts=["error", "fail"], budget_usd=Decimal(10))
    before = list(Result.objects.values())
    page = posted(editor_client, at(run), fields, status=422)
    assert 'role="alert"' in page or 'aria-invalid="true"' in page
    assert escape(why) in page
    assert list(Result.objects.values()) == before
    assert not Retry.objects.exists()


def test_a_case_of_another_run_is_refused_by_its_number(editor_client: Client) -> None:
    run, other = make_scored_run(verdicts=["fail"]), make_scored_run(verdicts=["fail"])
    foreign_case = other.results.get().case_id
    page = posted(editor_client, at(run), {"case": [foreign_case]}, status=422)
    assert f"Case {foreign_case} is not in run #1." in page
    assert not Retry.objects.exists()


def test_one_evaluator_is_asked_about_with_how_many_and_what_it_takes(
    editor_client: Client,
) -> None:
    run = scored_run()
    words = said(text(editor_client, at(run), {"path": "tone"}))
    assert "Rescore with tone" in words
    assert "3 of 4 results have an output for it" in words
    assert "All 3 The target is not asked, up to 3 calls of juno-2" in words or "All 3" in words
    assert "Only the 1 it could not score" in words
    assert "up to 1 call of juno-2" in words
    assert "no judge is called" in said(text(editor_client, at(run), {"path": "refund"}))


def test_one_evaluator_scores_again_only_where_it_could_not(editor_client: Client) -> None:
    run = scored_run()
    page = posted(editor_client, at(run), {"path": "tone", "only": "unscored"}, status=200)
    assert "1 result is queued again." in page
    result = run.results.get(status="pending")
    assert (result.case.key, result.keeps_output, result.retry_paths) == ("C-0", True, ["tone"])


def test_one_evaluator_of_one_result_is_asked_about_and_scores_again(
    editor_client: Client, viewer_client: Client
) -> None:
    run = scored_run()
    result = run.results.first()
    place = {"slug": run.suite.slug, "number": run.number, "key": result.case.key, "repetition": 1}
    address = reverse("runs:result-retry", kwargs=place)
    page = editor_client.get(reverse("runs:result", kwargs=place)).content.decode()
    assert f"{address}?path=tone" in page
    words = said(text(editor_client, address, {"path": "tone"}))
    assert "The output and the scores of all other evaluators stay" in words
    assert "up to 1 call of juno-2" in words
    page = posted(editor_client, address, {"path": "tone"}, status=200)
    assert "tone is queued to rescore the result." in page
    result.refresh_from_db()
    assert (result.status, result.retry_paths) == ("pending", ["tone"])

    assert viewer_client.get(address, {"path": "tone"}).status_code == 403
    assert "?path=" not in viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    refused = posted(editor_client, address, {"path": "gone"}, status=422)
    assert escape("without an evaluator 'gone'") in refused


@pytest.mark.writes_results
def test_pressing_a_stale_form_says_what_happened_meanwhile(editor_client: Client) -> None:
    run = scored_run()
    fields = {"case": cases(run, "C-0", "C-1"), "seen": 0, "count": 2}
    posted(editor_client, at(run), {"case": cases(run, "C-0"), "seen": 0}, status=200)
    Result.objects.filter(status="pending").update(status="scored", verdict="fail")
    page = posted(editor_client, at(run), fields, status=200)
    assert "1 result is queued again. 1 more was already queued by another rerun." in page
    page = posted(editor_client, at(run), fields, status=422)
    assert "they are already being rerun" in page


def test_a_spent_budget_is_asked_for_in_the_form_and_kept_when_it_is_too_low(
    editor_client: Client,
) -> None:
    run = make_scored_run(verdicts=["fail"], budget_usd=Decimal("0.004"))
    assert "$0.004 of the $0.004 budget is spent" in said(
        text(editor_client, at(run), {"which": "failed"})
    )
    page = posted(editor_client, at(run), {"which": "failed", "budget": "0.003"}, status=422)
    assert 'value="0.003"' in page
    assert "has spent $0.004 of $0.003" in page
    posted(editor_client, at(run), {"which": "failed", "budget": "$2"}, status=200)
    run.refresh_from_db()
    assert (run.status, run.budget_usd) == ("queued", 2)


def test_a_run_of_a_command_line_is_not_retried_while_it_works(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["fail", "running"], status="running", owner="command_line")
    page = posted(editor_client, at(run), {"which": "failed"}, status=422)
    assert "still running at a command line" in page


def test_htmx_gets_a_dialog_and_others_a_page(editor_client: Client) -> None:
    run = scored_run()
    asked = {"which": "failed"}
    assert "<html" in text(editor_client, at(run), asked)
    response = editor_client.get(at(run), asked, headers={"HX-Request": "true"})
    fragment = response.content.decode()
    assert fragment.lstrip().startswith('<dialog id="run-retry" data-open')
    assert "<html" not in fragment


def test_nothing_to_retry_is_no_error_and_offers_the_way_back(editor_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    page = text(editor_client, at(run), {"which": "failed"})
    assert "Nothing to rerun" in page
    assert at(run, "run") in page
    assert '<button type="submit" data-kind="primary"' not in page


def test_retried_rows_are_marked(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "fail"])
    run.results.filter(verdict="fail").update(generation=3)
    page = viewer_client.get(at(run, "run-results")).content.decode()
    assert page.count('class="retried"') == 1
    assert "Retried 2 times" in page


def test_asking_takes_a_fixed_number_of_queries(
    editor_client: Client, django_assert_max_num_queries: Any
) -> None:
    suite = make_suite(cases=80)
    run = make_run(suite=suite, repetitions=2)
    for case in suite.cases.all():
        for repetition in (1, 2):
            make_result(run=run, case=case, repetition=repetition, verdict="fail", score=0.1)
    with django_assert_max_num_queries(24):
        text(editor_client, at(run), {"which": "failed"})

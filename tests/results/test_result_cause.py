"""The one sentence that says why a result has its verdict: the same wherever a result is read."""

from __future__ import annotations

import html
import json
import re

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from runs.documents import DetailLevel
from runs.formats.results_writing import write_results
from runs.models.results import Result, ResultOutput
from runs.models.reviews import ReviewItem
from runs.models.run_cases import RunCase
from runs.results.files import result_lines, results_csv
from runs.results.report import worst_cases
from runs.results.result_state import result_cause
from runs.sharing.documents import WHITELISTS
from runs.sharing.frozen import shared_result
from runs.sharing.whitelist import filter_document
from tests.results.test_result_page import at, judged

pytestmark = pytest.mark.django_db
SENTENCE = (
    "Failed: tone scored 0.20 (“No apology”) and cost the most, so the score is 0.20, below the "
    "borderline threshold of 0.60. To be borderline, tone must reach 0.80 (now 0.20)."
)


def plain(page: str) -> str:
    return " ".join(html.unescape(strip_tags(re.sub(r"</?(?:code|a)\b[^>]*>", "", page))).split())


def failed(**columns: object) -> Result:
    return judged(tone=0.2, refund=0.2, **columns)


def test_pages_documents_files_review_and_share_tell_the_same(admin_client: Client) -> None:
    result = failed()
    run = result.run
    item = ReviewItem.objects.create(result=result, run=run, reasons="asked")
    run.refresh_from_db()
    [line] = [json.loads(text) for text in write_results(result_lines(run))]
    head, row = "".join(results_csv(run)).splitlines()[:2]
    shared = shared_result(run, "C-001", 1, detail_level=DetailLevel.OUTPUTS, now=timezone.now())

    assert SENTENCE in plain(admin_client.get(at(result)).text)
    assert admin_client.get(f"/api/results/{result.pk}").json()["cause"] == SENTENCE
    assert line["cause"] == SENTENCE
    assert "cause" in head.split(",")
    assert SENTENCE in row
    assert SENTENCE in plain(admin_client.get(f"/review/{item.pk}/").text)
    name = f"{run.suite.slug}:{run.number}"
    compared = admin_client.get(f"/compare/case/?baseline={name}&candidate={name}&case=C-001")
    assert plain(compared.text).count(SENTENCE) == 2
    assert shared.cause == SENTENCE


def test_the_closing_list_of_the_command_line_leaves_out_the_verdict_that_it_shows() -> None:
    result = failed()
    RunCase.objects.filter(run=result.run).update(state="fail", score=0.2)
    assert f"C-001  failed 0.20  {SENTENCE[8:]}".startswith(
        worst_cases(result.run).splitlines()[1].strip()
    )


@pytest.mark.parametrize("level", [DetailLevel.FIGURES, DetailLevel.CASE_NAMES])
def test_a_share_link_without_outputs_quotes_nothing(level: DetailLevel) -> None:
    result = failed()
    shared = shared_result(result.run, "C-001", 1, detail_level=level, now=timezone.now())
    shown = filter_document(shared.as_json(), WHITELISTS["result"], level)
    assert "No apology" not in str(shown)
    assert "cost the most" not in str(shown)


@pytest.mark.parametrize(
    ("counts", "end"),
    [(True, "which counts instead."), (False, "which is shown but does not count.")],
)
def test_what_reviewers_decided_follows(admin_client: Client, counts: bool, end: str) -> None:
    result = failed(reviewed_verdict="pass")
    snapshot = result.run.snapshot
    snapshot["policy"]["count_reviews"] = counts
    type(result.run).objects.filter(pk=result.run_id).update(snapshot=snapshot)
    cause = admin_client.get(f"/api/results/{result.pk}").json()["cause"]
    assert cause == f"{SENTENCE} Reviewers decided pass, {end}"


def cause_of(result: Result) -> str:
    result = Result.objects.select_related("output").get(pk=result.pk)
    return str(result_cause(result, (result.output.decision or {}).get("cause")))


def test_without_a_stored_cause_the_row_says_what_decided() -> None:
    result = failed()
    Result.objects.update(decided_by="required: no_card = 0")
    ResultOutput.objects.update(decision=None)
    assert cause_of(result) == "Failed: required: no_card = 0."


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"status": "error", "error": "Timed out: no answer in 60 s", "error_stage": "target"},
            "No verdict: the target gave no output: Timed out: no answer in 60 s.",
        ),
        (
            {"status": "error", "error": "lost", "error_stage": "worker"},
            "No verdict: the worker was lost: lost.",
        ),
        ({"status": "cancelled"}, "Not run: the run ended before this case."),
        ({"status": "skipped"}, "Not run: the run ended before this case."),
        ({"status": "running"}, "None"),
    ],
)
def test_a_result_without_a_verdict_says_why(columns: dict[str, str], text: str) -> None:
    result = failed()
    result.scores.all().delete()
    Result.objects.update(verdict="", score=None, decided_by="", **columns)
    assert cause_of(result) == text

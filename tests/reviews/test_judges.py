"""Several judges of the same outputs: the page, the file, the API, and what is left out."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.scoring.types import Verdict
from runs.models.database import database_now
from runs.models.results import EvaluatorScore, Result
from runs.models.runs import Run
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from tests.api.site import get
from tests.support.factories import make_call, make_score, make_scored_run, make_suite, make_user
from tests.support.trees import CHECK, tree

pytestmark = pytest.mark.django_db
PAGE = "/suites/support/agreement/judges/"
PEOPLE = ["pass", "fail"] * 12
BY_FIRST = PEOPLE[:14] + ["pass" if said == "fail" else "fail" for said in PEOPLE[14:]]
BY_SECOND = [*PEOPLE[:23], "pass"]


def page_words(client: Client, address: str = PAGE) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def judge(verdicts: Sequence[str], model: str, usd: str, **columns: Any) -> Run:
    """Return a run of these verdicts whose evaluator asked a model once a result."""
    run = make_scored_run(verdicts=verdicts, judge_name=model, **columns)
    Run.objects.filter(pk=run.pk).update(
        snapshot=run.snapshot | {"evaluators": tree({**CHECK, "name": "tone"})}
    )
    run.refresh_from_db()
    for result in run.results.all():
        make_score(result=result, path="tone", score=result.score)
        make_call(result=result, model_name=model, cost_usd=Decimal(usd), latency_ms=400)
    return run


@pytest.fixture
def source() -> Run:
    """Return a run whose results people decided, and which another judge judged again."""
    suite = make_suite(slug="support")
    source = judge(BY_FIRST, "juno-mini", "0.001", suite=suite)
    again = judge(BY_SECOND, "juno-max", "0.01", suite=suite, source_run=source)
    Run.objects.filter(pk=again.pk).update(
        snapshot=again.snapshot | {"judged_again": {"run": source.number, "results": 24}}
    )
    ann = make_user(role="reviewer", name="ann")
    for result, said in zip(source.results.order_by("position", "pk"), PEOPLE, strict=True):
        decide(ask_for_review(result, by=ann), ReviewDecision(Verdict(said)), by=ann)
    return source


def test_the_page_says_which_judge_to_use_and_why(source: Run, viewer_client: Client) -> None:
    said = page_words(viewer_client)
    assert (
        "Use juno-max (#2): it agrees with people on 95.8% of 24 results, more than every other judge (p = 0.004)."
        in said
    )
    assert "juno-mini run #1 , v1 24 of 24 58.3% 38.8% to 75.5%, of 24 decisions" in said
    assert "5 stricter, 5 more lenient reference $0.001 24 calls 400 ms 24 results" in said
    assert "juno-max run #2 , v1 24 of 24 95.8%" in said
    assert "$0.010 24 calls" in said
    assert "juno-mini (#1) and juno-max (#2) 24 62.5%" in said
    tone = page_words(viewer_client, f"{PAGE}?evaluator=tone")
    assert "tone: which judge to use" in tone
    table = csv.DictReader(
        viewer_client.get("/suites/support/agreement-judges.csv").content.decode().splitlines()
    )
    rows = list(table)
    assert [(row["evaluator"], row["run"], row["judge"]) for row in rows] == [
        *(("verdict", "1", "juno-mini"), ("verdict", "2", "juno-max")),
        *(("tone", "1", "juno-mini"), ("tone", "2", "juno-max")),
    ]
    assert float(rows[1]["agreement"]) == pytest.approx(23 / 24, abs=1e-6)
    found = get(
        viewer_client,
        "/api/suites/support/agreement/judges",
        "/api/suites/{slug}/agreement/judges",
    )
    assert (found["outputs_of"], found["left_out"], found["unread"]) == (1, 0, 0)
    verdict, evaluator = found["evaluators"]
    assert (verdict["choice"]["state"], verdict["choice"]["best"]) == ("clear", 2)
    assert verdict["choice"]["sentence"] in said
    assert verdict["judges"][1]["bias"]["mean"] == pytest.approx(float(rows[1]["bias"]), abs=1e-6)
    assert evaluator["between"][0]["agreement"]["share"] == pytest.approx(15 / 24)
    # No other run judged the outputs of this one, and those of #1 are not shown in their place.
    other = viewer_client.get("/api/suites/support/agreement/judges?run=2").json()
    assert (other["outputs_of"], other["evaluators"]) == (None, [])
    # An evaluator that the first run did not have is compared from the second on.
    EvaluatorScore.objects.filter(result__run=source).delete()
    first = viewer_client.get(f"{PAGE}?evaluator=tone").content.decode()
    assert first.count("reference") == 3
    assert '<span class="quiet">–</span>' in first
    assert '<span class="quiet">kept</span>' not in first


def test_kept_scores_and_replaced_outputs_are_no_second_opinion(
    source: Run, viewer_client: Client
) -> None:
    again = Run.objects.get(number=2)
    again.model_calls.all().delete()
    for result in again.results.all():
        result.scores.update(details={"kept": True})
    said = page_words(viewer_client, f"{PAGE}?evaluator=tone")
    assert "Only one judge scored this, so there is nothing to choose." in said
    assert "reference kept" in said
    # The source answered two cases anew after they had been judged again.
    Result.objects.filter(run=again).update(finished_at=database_now())
    later = Run.objects.get(pk=again.pk).created_at + timedelta(hours=1)
    first = source.results.order_by("pk").values_list("pk", flat=True)[:2]
    Result.objects.filter(pk__in=list(first)).update(finished_at=later)
    said = page_words(viewer_client)
    assert "22 of 24" in said
    assert "of 22 results" in said
    Run.objects.filter(pk=again.pk).update(snapshot=again.snapshot | {"version": 99})
    assert "1 run left out." in page_words(viewer_client)
    # Without its record, the source still says what it replaced.
    Run.objects.filter(pk=again.pk).update(snapshot=again.snapshot)
    Run.objects.filter(pk=source.pk).update(snapshot=source.snapshot | {"version": 99})
    said = page_words(viewer_client)
    assert "1 run left out." in said
    assert "juno-max run #2 , v1 22 of 22" in said
    assert "24 decisions" not in said


def test_without_a_second_judging_there_is_nothing_to_compare_and_queries_do_not_grow(
    viewer_client: Client,
) -> None:
    suite = make_suite(slug="support")
    make_scored_run(verdicts=["pass"], suite=suite)
    assert "No outputs were judged twice" in page_words(viewer_client)
    found = get(
        viewer_client,
        "/api/suites/support/agreement/judges",
        "/api/suites/{slug}/agreement/judges",
    )
    assert (found["outputs_of"], found["evaluators"]) == (None, [])
    counts = []
    source = Run.objects.get()
    for number in range(7):
        again = judge(["pass"], f"juno-{number}", "0.01", suite=suite, source_run=source)
        Run.objects.filter(pk=again.pk).update(
            snapshot=again.snapshot | {"judged_again": {"run": 1, "results": 1}}
        )
        with CaptureQueriesContext(connection) as made:
            said = page_words(viewer_client)
        counts.append(len(made))
    assert counts[0] == counts[-1]
    assert "2 older judgings of these outputs are not shown." in said
    assert "people decided 0 results that every judge scored, and 20 are needed" in said

"""Every outcome a result has had, with its calls, its cost and who asked for it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.results import Attempt, Result
from runs.models.runs import Run
from runs.results.result_page import result_attempts
from runs.running.retrying import retry_results
from tests.support.factories import (
    STARTED,
    make_call,
    make_case,
    make_result,
    make_run,
    make_suite,
    make_user,
)

pytestmark = pytest.mark.django_db


def retried_twice() -> Result:
    """Make a result that failed, lost a worker in its first retry, and passed in its second."""
    mira = make_user(name="mira")
    suite = make_suite()
    run = make_run(suite=suite)
    result = make_result(
        run=run, case=make_case(suite=suite), verdict="fail", score=0.4, decided_by="0.40 < 0.60"
    )
    make_call(result=result)
    for paths, verdict, score in ((["tone"], "borderline", 0.7), (None, "pass", 0.9)):
        retry_results(run, asked_by=mira, result_ids=[result.pk], paths=paths)
        result.refresh_from_db()
        result.status, result.verdict, result.score = "scored", verdict, score
        result.attempt, result.decided_by = 1, f"{score}"
        result.evaluation_cost_usd += Decimal("0.002")
        make_call(result=result, generation=result.generation, attempt=1, cost_usd=Decimal("0.002"))
        result.save()
        counted = {"done_count": 1, "borderline_count": 1, "pass_count": 1, "score_count": 1}
        Run.objects.filter(pk=run.pk).update(**counted)
    Attempt.objects.create(
        result=result,
        attempt=1,
        generation=3,
        status="error",
        reason="worker lost",
        ended_at=STARTED,
    )
    result.attempt = 2
    result.save()
    return result


def test_each_attempt_says_what_it_came_to_and_cost() -> None:
    rows = result_attempts(retried_twice())
    assert [(row.name, row.state, row.score) for row in rows] == [
        ("retry 2, attempt 2", "pass", 0.9),
        ("retry 2", "error", None),
        ("retry 1", "borderline", 0.7),
        ("first run", "fail", 0.4),
    ]
    assert [row.cost_usd for row in rows] == [
        Decimal("0.002"),
        None,
        Decimal("0.002"),
        Decimal("0.016"),
    ]
    assert [row.calls for row in rows] == [0, 1, 1, 1]
    assert [str(row.retry) if row.retry else "" for row in rows] == [
        "the target is asked again",
        "the target is asked again",
        "only tone, outputs kept",
        "",
    ]


def test_a_result_with_one_outcome_has_no_list() -> None:
    suite = make_suite()
    result = make_result(run=make_run(suite=suite), case=make_case(suite=suite), verdict="pass")
    assert result_attempts(result) == ()


def test_the_page_shows_them_and_the_calls_say_which_is_whose(viewer_client: Client) -> None:
    result = retried_twice()
    place = {
        "slug": result.run.suite.slug,
        "number": result.run.number,
        "key": result.case.key,
        "repetition": 1,
    }
    page = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    assert "4, newest first" in page
    assert "<span>retry 2, attempt 2</span>" in page
    attempts = page.partition('id="attempts"')[2]
    for said in ("only tone, outputs kept", "Asked for by mira", "worker lost", "0.40 &lt; 0.60"):
        assert said in attempts
    assert attempts.count('aria-current="true"') == 1
    calls = viewer_client.get(reverse("runs:result-calls", kwargs=place)).content.decode()
    assert "juno-2, retry 1<" in calls
    assert "juno-2, retry 2<" in calls

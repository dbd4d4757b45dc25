"""What the page of a run says of repetitions, latency, tokens and dimensions, live and at its end."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.finishing import summarise_run
from runs.models.runs import Run
from tests.support.factories import make_call, make_result, make_run, make_score, make_suite

pytestmark = pytest.mark.django_db

LATENCIES = (100, 200, 300, 400, 500, 600)


def live(client: Client, run: Run) -> str:
    """Return the words of what changes while a run is on."""
    place = {"slug": run.suite.slug, "number": run.number}
    page = client.get(
        reverse("runs:run-live", kwargs=place), headers={"HX-Request": "true"}
    ).content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def three_of_two(**columns: Any) -> Run:
    """Make a run of three cases, twice each: one always passes, one is flaky, one errored once."""
    run = make_run(suite=make_suite(cases=3), repetitions=2, **columns)
    ends: list[dict[str, Any]] = [
        *({"verdict": "pass", "score": 0.9}, {"verdict": "pass", "score": 0.9}),
        *({"verdict": "pass", "score": 0.9}, {"verdict": "fail", "score": 0.3}),
        *({"verdict": "pass", "score": 0.9}, {"status": "error"}),
    ]
    cases = [case for case in run.suite.cases.all() for _ in (1, 2)]
    for number, (case, end) in enumerate(zip(cases, ends, strict=True)):
        facts = {"latency_ms": LATENCIES[number], "input_tokens": 10, "output_tokens": 1}
        result = make_result(run=run, case=case, repetition=number % 2 + 1, **facts | end)
        make_call(result=result, purpose="evaluation", input_tokens=100, output_tokens=20)
        if number == 5:
            failed = {"status": "unreadable", "input_tokens": 7, "output_tokens": 5}
            make_call(result=result, purpose="evaluation", **failed)
        dimensions = [
            {"key": "task", "name": "Task", "deterministic": None, "judge": 8.0, "final": 8.0},
            {"key": "spark", "name": "Spark", "deterministic": 10.0, "judge": 5, "final": number},
        ]
        if number < 5:
            details = {"dimensions": dimensions[: 2 if number < 4 else 1]}
            make_score(
                result=result, path="hybrid", score=0.8, kind="hybrid_judge", details=details
            )
    return run


def test_an_ended_run_and_one_without_a_summary_say_the_same_of_their_repetitions(
    viewer_client: Client,
) -> None:
    run = three_of_two(status="stopped")
    run.snapshot["evaluators"]["children"][0]["kind"] = "hybrid_judge"
    run.snapshot["evaluators"]["children"][0]["config"] = {}
    run.save()

    before = live(viewer_client, run)
    assert summarise_run(run.pk)
    after = live(viewer_client, Run.objects.get(pk=run.pk))

    for page in (before, after):
        assert "Passed every time 1 of 3 cases 33.3%" in page
        assert "Passed at least once 3 of 3 cases 100.0%" in page
        assert "Flaky (verdicts vary) 1 of 2 cases 50.0%" in page
        assert "Mean spread of scores 2 cases 0.30" in page
        assert "Mean latency 350 ms" in page
        assert "Median · p95 300 ms · 600 ms" in page
        assert "Tokens, target 60 in, 6 out" in page
        assert "Tokens, judges 607 in, 125 out" in page
        assert "Mean of 5 of 6 results, 0 to 10" in page
        assert "Task – 8.0 8.0" in page
        assert "Spark 10.0 of 4 5.0 of 4 1.5 of 4" in page


def test_a_run_that_is_on_says_so_far(viewer_client: Client) -> None:
    run = make_run(suite=make_suite(cases=2), repetitions=2, status="running", finished_at=None)
    first, second = run.suite.cases.all()
    for repetition in (1, 2):
        make_result(run=run, case=first, repetition=repetition, verdict="pass", score=0.9)
    make_result(run=run, case=second, repetition=1, verdict="pass", score=0.9)
    make_result(run=run, case=second, repetition=2)

    page = live(viewer_client, run)

    assert "2 of each case, so far 1 of 2 cases finished" in page
    assert "Passed every time 1 of 1 case 100.0%" in page
    assert "Latency and tokens so far" in page
    assert "Tokens, judges not reported" in page


def test_a_run_of_single_executions_has_no_repetitions(viewer_client: Client) -> None:
    run = make_run(suite=make_suite(cases=1))
    make_result(run=run, case=run.suite.cases.get(), latency_ms=None)
    assert summarise_run(run.pk)
    page = live(viewer_client, run)
    assert "Passed at least once" not in page
    assert "No times or tokens were reported." in page

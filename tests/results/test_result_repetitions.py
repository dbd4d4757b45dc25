"""What the page of a result says of its case over all repetitions."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.results import Result
from runs.models.runs import Run
from tests.support.factories import make_call, make_result, make_run, make_score, make_suite

pytestmark = pytest.mark.django_db


def words(client: Client, result: Result) -> str:
    """Return the words of the panel, without what surrounds it."""
    run = result.run
    place = {"slug": run.suite.slug, "number": run.number, "key": result.case.key}
    address = reverse("runs:result", kwargs={**place, "repetition": result.repetition})
    page = client.get(address).content.decode()
    panel = page.partition('id="over"')[2].partition("</section>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", panel))


def repeated(*ends: dict[str, Any], run: Run | None = None, **policy: Any) -> list[Result]:
    suite = make_suite(cases=1, **policy)
    run = run or make_run(suite=suite, repetitions=len(ends))
    case = suite.cases.get()
    return [
        make_result(run=run, case=case, repetition=number, **end)
        for number, end in enumerate(ends, start=1)
    ]


def test_a_case_over_repetitions_has_its_verdict_means_and_sums(viewer_client: Client) -> None:
    results = repeated(
        {"verdict": "pass", "score": 0.9, "latency_ms": 1000, "input_tokens": 5},
        {"verdict": "fail", "score": 0.3, "latency_ms": 2000, "input_tokens": 7},
        {"status": "error", "latency_ms": None},
    )
    for number, result in enumerate(results[:2]):
        metric = {"key": "tone", "name": "Tone", "tier": "", "weight": 1.0, "binary": False}
        metrics = {"metrics": [{**metric, "score": 4 + number}]}
        make_score(result=result, path="m", score=0.9, kind="metrics_judge", details=metrics)
        sides = {"deterministic": 10.0, "judge": 8.0 + number, "final": 8.0 + number}
        dimensions = {"dimensions": [{"key": "task", "name": "Task", **sides}]}
        make_score(result=result, path="h", score=0.9, kind="hybrid_judge", details=dimensions)
    make_call(result=results[2], input_tokens=100, output_tokens=None, status="unreadable")

    panel = words(viewer_client, results[1])

    assert "This case over 3 repetitions" in panel
    assert "Borderline 0.60 ≤ mean 0.60 &lt; 0.80" in panel
    assert "Flaky 1 of 2 passed: verdicts differ." in panel
    assert "Scored 2 of 3" in panel
    assert "Mean score 0.60 Lowest to highest score, spread 0.30 to 0.90, 0.60" in panel
    assert "Passed every time no Passed at least once yes" in panel
    assert "Mean latency 1.5 s" in panel
    assert "Tokens, target 12 in, – out" in panel
    assert "Tokens, judges 100 in, – out" in panel
    assert "Cost, target $0.036 Cost, judges $0.012 Cost, total $0.048" in panel
    assert "1 error: counted as not passed and left out of the mean score" in panel
    assert "Tone 2 of 3 4.5 4.5 excellent" in panel
    assert "Task 10.0 of 2 8.5 of 2 8.5 of 2" in panel


@pytest.mark.parametrize(
    ("ends", "policy", "expected"),
    [
        (
            [{"verdict": "pass", "score": 0.9}, {"verdict": "pass", "score": 0.9}],
            {},
            ["Pass mean 0.90 ≥ 0.80", "2 of 2 passed.", "Passed every time yes"],
        ),
        (
            [
                {"verdict": "pass", "score": 0.9},
                {"verdict": "fail", "score": 0.9, "is_forced": True},
            ],
            {},
            ["Fail fail forced in 1 of 2 repetitions", "verdicts differ"],
        ),
        (
            [{"verdict": "pass", "score": 0.1}, {"verdict": "fail", "score": 0.9}],
            {"case_gate": "expected_outcomes"},
            ["Borderline outcomes: some passed, 1 of 2"],
        ),
        (
            [
                {"verdict": "fail", "score": 0.1, "reviewed_verdict": "pass"},
                {"verdict": "pass", "score": 0.9},
            ],
            {"count_reviews": True},
            ["Pass with reviews, all 2 pass", "2 of 2 passed.", "Passed every time yes"],
        ),
        (
            [{"verdict": "pass", "score": 0.9}, {}],
            {},
            [
                "Waiting mean 0.90 ≥ 0.80 so far",
                "Passed every time no so far",
                "1 repetition not run",
            ],
        ),
        ([{"status": "error"}, {"status": "error"}], {}, ["Errored", "Scored 0 of 2", "score –"]),
    ],
)
def test_the_rule_that_decided_stands_beside_the_verdict(
    viewer_client: Client, ends: list[dict[str, Any]], policy: dict[str, Any], expected: list[str]
) -> None:
    panel = words(viewer_client, repeated(*ends, **policy)[0])
    for told in expected:
        assert told in panel


def test_a_single_execution_has_no_such_panel(viewer_client: Client) -> None:
    assert words(viewer_client, repeated({"verdict": "pass", "score": 0.9})[0]) == ""


def test_the_case_itself_shows_the_repetitions_of_its_last_runs(viewer_client: Client) -> None:
    first = repeated({"verdict": "pass", "score": 0.9}, {"verdict": "fail", "score": 0.3})[0]
    run, case = first.run, first.case
    single = make_run(suite=run.suite)
    make_result(run=single, case=case, verdict="pass", score=0.9)

    address = reverse("runs:case", kwargs={"slug": run.suite.slug, "key": case.key})
    page = viewer_client.get(address).content.decode()

    assert "borderline 0.60, 1 of 2 passed, flaky" in page
    assert page.count('aria-label="pass, fail"') == 1
    assert 'title="Repetition 2: fail, 0.30"' in page
    assert f"#{run.number}</a>" in page
    place = {"slug": run.suite.slug, "number": run.number, "key": case.key, "repetition": 1}
    beside = viewer_client.get(reverse("runs:result", kwargs=place)).content.decode()
    assert "borderline 0.60, 1 of 2 passed, flaky" in beside

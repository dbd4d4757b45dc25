"""What a reader sees first on the page of a run, and where its figures lead."""

from __future__ import annotations

import re
from itertools import product
from typing import Any
from urllib.parse import unquote_plus

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.policy import PolicySpec
from runs.finishing import summarise_run
from runs.models.runs import Run
from runs.results.runs import cases_gate, metrics_gate, run_verdict
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
)

pytestmark = pytest.mark.django_db


def page_of(client: Client, run: Run, query: str = "", name: str = "run") -> str:
    place = {"slug": run.suite.slug, "number": run.number}
    response = client.get(reverse(f"runs:{name}", kwargs=place) + query)
    return re.sub(r"\s+", " ", response.content.decode())


def cases_of(page: str) -> list[str]:
    return re.findall(r'id="case-\d+"[^>]*><code>([^<]+)', page)


def links(page: str) -> list[str]:
    return [unquote_plus(link) for link in re.findall(r'href="([^"]+)"', page)]


@pytest.mark.parametrize(
    ("columns", "state", "sentence"),
    [
        ({"done_count": 0}, None, None),
        (
            {"done_count": 9, "pass_count": 9, "score_sum": 9.0, "score_count": 9},
            "waiting",
            "Too early to say: 9 of 100 results",
        ),
        (
            {"done_count": 10, "pass_count": 9, "score_sum": 9.0, "score_count": 10},
            "pass",
            "On course: both gates met so far",
        ),
        (
            {"done_count": 50, "pass_count": 40, "score_sum": 45.0, "score_count": 50},
            "borderline",
            "At risk: pass rate 80.0% so far, needs 85%",
        ),
        (
            {"done_count": 40, "pass_count": 10, "score_sum": 10.0, "score_count": 40},
            "fail",
            "Can't pass: mean score 25.0% so far, needs 80%; pass rate 25.0% so far, needs 85%",
        ),
    ],
)
def test_a_running_run_says_how_it_stands(
    columns: dict[str, Any], state: str | None, sentence: str | None
) -> None:
    run = make_run(status="running", finished_at=None, execution_count=100, **columns)
    policy = PolicySpec(metrics_pass_threshold=0.8, cases_pass_threshold=0.85)
    verdict = run_verdict(run, (metrics_gate(run, policy), cases_gate(run, policy)))
    assert (verdict and verdict.state, verdict and verdict.sentence) == (state, sentence)


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (["pass", "pass"], "Passed: both gates met"),
        (["pass", "fail"], "Failed: mean score 66.0%, needs 80%; pass rate 50.0%, needs 100%"),
        (["error", "error"], "Not evaluated: none of 2 results scored"),
    ],
)
def test_a_finished_run_has_its_verdict_in_the_head(
    viewer_client: Client, verdicts: list[str], sentence: str
) -> None:
    run = make_scored_run(verdicts=verdicts)
    summarise_run(run.pk)
    head = page_of(viewer_client, run).partition('id="run-live"')[0]
    assert f"{sentence}</span>" in head
    assert "Completed" not in head


def test_a_finished_run_shows_no_progress_and_a_stopped_one_does(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    assert "<h2>Progress" not in page_of(viewer_client, run)
    Run.objects.update(status="stopped")
    page = page_of(viewer_client, run)
    assert page.index("Mean score") < page.index("<h2>Progress")
    assert "Not evaluated: the run is incomplete" in page


def test_every_count_and_gate_leads_to_its_cases(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "fail", "fail", "error"])
    address = reverse("runs:run", args=(run.suite.slug, run.number))
    page = page_of(viewer_client, run)
    assert f"{address}?verdict=fail#results-title" in links(page)
    assert len(cases_of(page_of(viewer_client, run, "?verdict=fail"))) == 2
    below = next(link for link in links(page) if "verdict != pass" in link)
    assert len(cases_of(page_of(viewer_client, run, f"?q={below.partition('?q=')[2]}"))) == 3


def test_evaluators_are_worst_first_and_lead_to_the_cases_they_scored_low(
    viewer_client: Client,
) -> None:
    run = make_scored_run(verdicts=["pass", "fail"])
    for result, tone, cost in zip(run.results.order_by("pk"), (0.9, 0.2), (1.0, 1.0), strict=True):
        make_score(result=result, path="cost", score=cost)
        make_score(result=result, path="tone", score=tone)
    page = page_of(viewer_client, run).partition('id="run-evaluators"')[2]
    assert page.index("<code>tone</code>") < page.index("<code>cost</code>")
    # “cost” alone is a field of every case.
    assert any("?q=evaluator.cost < 0.8" in link for link in links(page))
    assert any("?q=tone < 0.8#results-title" in link for link in links(page))


def test_one_menu_rescores_any_evaluator(editor_client: Client, viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    make_score(result=run.results.get(), path="tone", score=0.4)
    menu = page_of(editor_client, run).partition('id="rescore-menu" popover')[2].partition("</div>")
    assert any(link.endswith("?path=tone") for link in links(menu[0]))
    assert "rescore-menu" not in page_of(viewer_client, run)


def test_why_stays_away_where_the_score_says_it(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "fail"])
    first, second = run.results.order_by("pk")
    run.results.filter(pk=first.pk).update(decided_by="0.97 ≥ 0.80")
    run.results.filter(pk=second.pk).update(decided_by="0.42 < 0.60")
    assert ">Why<" not in page_of(viewer_client, run)
    run.results.filter(pk=second.pk).update(decided_by="required: safety = 0")
    page = page_of(viewer_client, run)
    assert (">Why<" in page, "required: safety = 0" in page) == (True, True)
    assert "0.97 ≥ 0.80" not in page


@pytest.mark.parametrize(("repetitions", "marks"), [(5, 5), (10, 0)])
def test_many_repetitions_are_one_strip(
    viewer_client: Client, repetitions: int, marks: int
) -> None:
    suite = make_suite()
    case = make_case(suite=suite)
    run = make_run(suite=suite, repetitions=repetitions)
    for repetition in range(1, repetitions + 1):
        verdict = "fail" if repetition <= 2 else "pass"
        make_result(run=run, case=case, repetition=repetition, verdict=verdict, score=0.5)
    rows = page_of(viewer_client, run).partition('id="rows"')[2]
    assert rows.count('title="Repetition') == marks
    assert ('title="8 pass, 2 fail"' in rows and ">8/10<" in rows) == (marks == 0)


def test_a_poll_brings_verdict_and_the_figures_of_the_cancel_dialog(editor_client: Client) -> None:
    run = make_scored_run(
        verdicts=["pass", "pass", "running", "pending"], status="running", finished_at=None
    )
    place = {"slug": run.suite.slug, "number": run.number}
    response = editor_client.get(
        reverse("runs:run-live", kwargs=place), headers={"HX-Request": "true"}
    )
    part = re.sub(r"\s+", " ", response.content.decode())
    assert 'id="run-verdict" hx-swap-oob="true"' in part
    dialog = part.partition('id="stop-text"')[2].partition("</span>")[0]
    assert "2 of 4 results are finished and kept; the 2 results left can be run later." in dialog
    assert 'id="run-details" hx-swap-oob="true"' in part


def test_a_page_opened_before_its_run_moved_on_has_a_place_for_all_that_polls_bring(
    editor_client: Client, viewer_client: Client
) -> None:
    run = make_scored_run(verdicts=["pass", "error"])
    summarise_run(run.pk)
    place = {"slug": run.suite.slug, "number": run.number}
    moments = ({"status": "completed"}, {"status": "running", "finished_at": None})
    for then, now in product(moments, repeat=2):
        for client in (editor_client, viewer_client):
            Run.objects.update(**then)
            page = page_of(client, run)
            Run.objects.update(**now)
            poll = client.get(
                reverse("runs:run-live", kwargs=place), headers={"HX-Request": "true"}
            )
            brought = re.findall(r'id="([^"]+)"\s+hx-swap-oob="true"', poll.content.decode())
            assert brought
            assert [name for name in brought if f'id="{name}"' not in page] == []


@pytest.mark.parametrize("counts", [True, False])
def test_reviews_are_mentioned_only_where_there_are_some(
    viewer_client: Client, counts: bool
) -> None:
    run = make_scored_run(verdicts=["pass"])
    assert "uman review" not in page_of(viewer_client, run)


def test_a_budget_is_said_once(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"], budget_usd=5)
    assert page_of(viewer_client, run).count("$5") == 1

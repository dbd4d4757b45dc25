"""The results table of a run: states, filters, order and pages."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from evaluators.scoring.decision import CausePart, VerdictCause
from runs.filters.queries import ResultsQuery
from runs.models.results import ResultOutput
from runs.models.runs import Run
from runs.running.retrying import matching_results
from tests.support.factories import make_case, make_result, make_run, make_scored_run, make_suite

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def rows(client: Client, run: Run, query: str = "") -> list[str]:
    place = {"slug": run.suite.slug, "number": run.number}
    page = client.get(reverse("runs:run-results", kwargs=place) + query).content.decode()
    return re.findall(r"<code>([^<]*)</code>", page)


def table(client: Client, run: Run, query: str = "") -> str:
    place = {"slug": run.suite.slug, "number": run.number}
    return client.get(reverse("runs:run-results", kwargs=place) + query).content.decode()


def test_what_needs_a_person_comes_first(viewer_client: Client) -> None:
    run = make_scored_run(
        verdicts=["pass", "fail", "error", "pending", "running", "borderline"], status="running"
    )
    assert rows(viewer_client, run) == ["C-005", "C-003", "C-002", "C-006", "C-001", "C-004"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?verdict=fail", ["C-002"]),
        ("?verdict=error", ["C-003"]),
        ("?q=c-001", ["C-001"]),
        ("?q=cas+C-00", ["C-003", "C-002", "C-001"]),
        ("?tag=refunds", ["C-001"]),
        ("?sort=case", ["C-001", "C-002", "C-003"]),
        ("?sort=-case", ["C-003", "C-002", "C-001"]),
        ("?sort=-score", ["C-001", "C-002", "C-003"]),
        ("?sort=verdict", ["C-003", "C-002", "C-001"]),
        ("?sort=cost", ["C-001", "C-002", "C-003"]),
        ("?sort=-latency", ["C-002", "C-001", "C-003"]),
        ("?sort=nonsense&after=nonsense&verdict=nonsense", ["C-003", "C-002", "C-001"]),
        ("?after=nan~1~1", ["C-003", "C-002", "C-001"]),
        ("?after=1e999~1~1", ["C-003", "C-002", "C-001"]),
        ("?after=1~1~99999999999999999999", ["C-003", "C-002", "C-001"]),
        ("?after=1~-99999999999999999999~1", ["C-003", "C-002", "C-001"]),
    ],
)
def test_filters_and_orders(viewer_client: Client, query: str, found: list[str]) -> None:
    run = make_scored_run(verdicts=["pass", "fail", "error"])
    run.results.filter(case__key="C-002").update(latency_ms=9000)
    run.results.filter(case__key="C-003").update(latency_ms=None)
    run.cases.refresh(run.pk, list(run.cases.values_list("case_id", flat=True)))
    case = run.suite.cases.get(key="C-001")
    case.tags = ["refunds"]
    case.save()
    assert rows(viewer_client, run, query) == found


@pytest.mark.parametrize("tag", ["a", "größe", 'say "hi"', "100%", "a_b"])
def test_a_tag_matches_whole_and_exactly(viewer_client: Client, tag: str) -> None:
    suite = make_suite()
    run = make_run(suite=suite)
    for key, tags in (("ONE", [tag]), ("TWO", [f"{tag}x", "axb"])):
        make_result(run=run, case=make_case(suite=suite, key=key, tags=tags), verdict="pass")
    place = reverse("runs:run-results", kwargs={"slug": suite.slug, "number": run.number})
    page = viewer_client.get(place, {"tag": tag}).content.decode()
    assert re.findall(r"<code>([^<]*)</code>", page) == ["ONE"]


def test_the_chips_count_every_state(viewer_client: Client) -> None:
    page = table(viewer_client, make_scored_run(verdicts=["pass", "pass", "fail", "error"]))
    counts = dict(re.findall(r"(All|Pass|Fail|Errored|Borderline) <b>(\d+)</b>", page))
    assert counts == {"All": "4", "Pass": "2", "Fail": "1", "Errored": "1"}


def test_no_match_says_what_matches_elsewhere(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "error"])
    page = table(viewer_client, run, "?verdict=pass&q=C-002")
    assert "No passed case matches “C-002”" in page
    assert "without <code>verdict = pass</code>" in page
    assert "Clear filters" in page


@pytest.mark.parametrize("sort", ["attention", "score", "-score", "case", "cost", "-verdict"])
def test_show_more_goes_on_without_gap_or_repeat(viewer_client: Client, sort: str) -> None:
    suite = make_suite(cases=120)
    run = make_run(suite=suite)
    for number, case in enumerate(suite.cases.all()):
        make_result(run=run, case=case, verdict="pass", score=(number % 7) / 10)
    seen: list[str] = []
    query = f"?sort={sort}"
    while query:
        page = table(viewer_client, run, query)
        seen += re.findall(r"<code>([^<]*)</code>", page)
        more = re.search(r'id="show-more" href="[^"?]*([^"]*)"', page)
        query = more[1].replace("&amp;", "&") if more else ""
    assert len(seen) == len(set(seen)) == 120


def test_repetitions_are_one_row_with_the_verdict_of_their_mean(viewer_client: Client) -> None:
    suite = make_suite(cases=1)
    run = make_run(suite=suite, repetitions=3)
    for repetition, score in enumerate((0.9, 0.9, 0.3), start=1):
        verdict = "pass" if score > 0.8 else "fail"
        make_result(
            run=run, case=suite.cases.get(), repetition=repetition, score=score, verdict=verdict
        )
    page = table(viewer_client, run)
    assert "Borderline</span>" in page  # the mean is 0.70
    assert "2 of 3 passed" in page
    assert 'aria-label="pass, pass, fail"' in page


def test_a_forced_fail_of_one_repetition_fails_the_case(viewer_client: Client) -> None:
    suite = make_suite(cases=1)
    run = make_run(suite=suite, repetitions=2)
    make_result(run=run, case=suite.cases.get(), repetition=1, score=0.95, verdict="pass")
    make_result(
        run=run,
        case=suite.cases.get(),
        repetition=2,
        score=0.9,
        verdict="fail",
        is_forced=True,
        decided_by="required: safety = 0",
    )
    page = table(viewer_client, run, "?verdict=fail")
    assert "required: safety = 0" in page


def test_the_outcomes_gate_counts_repetitions(viewer_client: Client) -> None:
    suite = make_suite(cases=1, case_gate="expected_outcomes")
    run = make_run(suite=suite, repetitions=2)
    make_result(run=run, case=suite.cases.get(), repetition=1, verdict="pass", outcome_marks="11")
    make_result(run=run, case=suite.cases.get(), repetition=2, verdict="fail", outcome_marks="10")
    page = table(viewer_client, run)
    assert "Borderline</span>" in page
    assert 'data-met="some"' in page


def test_an_errored_repetition_leaves_the_verdict_to_the_others(viewer_client: Client) -> None:
    suite = make_suite(cases=1)
    run = make_run(suite=suite, repetitions=2)
    make_result(run=run, case=suite.cases.get(), repetition=1, verdict="pass", score=0.9)
    make_result(run=run, case=suite.cases.get(), repetition=2, status="error", error="lost")
    assert "Pass</span>" in table(viewer_client, run)


def test_a_case_that_did_not_pass_says_what_caused_it(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass", "fail"])
    for result, score in zip(run.results.order_by("position"), (0.9, 0.3), strict=True):
        result.score, result.decided_by = score, f"{score:.2f} {'≥' if score > 0.5 else '<'} 0.60"
        result.save()
        cause = VerdictCause("Failed", (CausePart("tone", "tone"), CausePart(" scored 0.30.")))
        ResultOutput.objects.update_or_create(
            result=result, defaults={"decision": {"cause": cause.as_json()}}
        )
    assert re.findall(r'class="quiet why-cell"[^>]*title="([^"]*)"', table(viewer_client, run)) == [
        "tone scored 0.30.",
        "",
    ]


def test_the_address_of_the_page_follows_the_filter(viewer_client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    place = {"slug": run.suite.slug, "number": run.number}
    response = viewer_client.get(reverse("runs:run-results", kwargs=place) + "?verdict=pass&q=C")
    assert response["HX-Push-Url"] == reverse("runs:run", kwargs=place) + "?verdict=pass&q=C"


def test_without_a_filter_the_address_stays_bare(viewer_client: Client) -> None:
    run = make_run()
    place = {"slug": run.suite.slug, "number": run.number}
    response = viewer_client.get(reverse("runs:run-results", kwargs=place))

    assert response["HX-Push-Url"] == reverse("runs:run", kwargs=place)


def test_flaky_cases_are_marked_filtered_and_sorted_by_spread(viewer_client: Client) -> None:
    suite = make_suite(cases=3)
    run = make_run(suite=suite, repetitions=2)
    for key, scores in (("C-001", (0.9, 0.3)), ("C-002", (0.9, 0.9)), ("C-003", (0.7, 0.65))):
        case = suite.cases.get(key=key)
        for repetition, score in enumerate(scores, start=1):
            verdict = "pass" if score > 0.8 else "borderline" if score > 0.6 else "fail"
            columns = {"score": score, "verdict": verdict}
            make_result(run=run, case=case, repetition=repetition, **columns)

    page = table(viewer_client, run)
    assert re.findall(r"Flaky <b>(\d+)</b>", page) == ["1"]
    assert page.count("Verdicts of its repetitions differ") == 1
    assert "0.60 ≤ mean 0.60 &lt; 0.80" in page
    assert re.search(r'title="0\.30 to 0\.90"[^>]*>\s*0\.60\s*<', page)
    place = {"slug": suite.slug, "number": run.number, "key": "C-001", "repetition": 2}
    assert f'{reverse("runs:result", kwargs=place)}" title="Repetition 2: fail, 0.30"' in page
    assert rows(viewer_client, run, "?sort=-spread") == ["C-001", "C-003", "C-002"]

    flaky = table(viewer_client, run, "?flaky=1")
    assert re.findall(r"<code>([^<]*)</code>", flaky) == ["C-001"]
    counts = dict(re.findall(r"(All|Pass|Borderline|Flaky) <b>(\d+)</b>", flaky))
    assert counts == {"All": "1", "Borderline": "1", "Flaky": "1"}
    assert "1 of 3 cases" in flaky
    assert '<input type="hidden" name="flaky" value="1" form="results-filter">' in flaky
    chosen = matching_results(run, ResultsQuery.read({"flaky": "1"}))
    assert {result.case.key for result in chosen} == {"C-001"}
    nothing = table(viewer_client, run, "?flaky=1&verdict=pass")
    assert "No passed flaky case matches" in nothing
    assert "without <code>verdict = pass</code>" in nothing

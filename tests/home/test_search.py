"""Search: what is found, and what opens at once."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from runs.models.runs import Run
from tests.support.factories import (
    make_case,
    make_result,
    make_run,
    make_score,
    make_scored_run,
    make_suite,
    make_target,
    refresh_cases,
)
from tests.support.trees import CHECK, tree

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]
SEARCH = reverse("runs:search")


def found(client: Client, words: str) -> str:
    return client.get(SEARCH, {"q": words}).content.decode()


def test_words_find_suites_cases_runs_and_targets(viewer_client: Client) -> None:
    suite = make_suite(title="Tents and stoves")
    make_case(suite=suite, key="CS-001", title="A torn tent")
    make_run(suite=suite, target=make_target(name="tent agent"))
    page = found(viewer_client, "tent")
    assert "Tents and stoves" in page
    assert "A torn tent" in page
    assert page.count("tent agent") >= 2
    assert "4 hits by name" in page


def test_a_cases_key_opens_the_case(viewer_client: Client) -> None:
    suite = make_suite()
    make_case(suite=suite, key="CS-001")
    make_case(suite=suite, key="CS-0011")
    response = viewer_client.get(SEARCH, {"q": "cs-001"})
    assert response["Location"] == reverse("runs:case", args=[suite.slug, "CS-001"])


def test_a_key_of_two_suites_is_a_choice(viewer_client: Client) -> None:
    for _ in range(2):
        make_case(suite=make_suite(), key="CS-001")
    assert "2 hits by name" in found(viewer_client, "CS-001")


def test_a_number_opens_the_run_when_only_one_bears_it(viewer_client: Client) -> None:
    suite = make_suite()
    run = make_run(suite=suite)
    response = viewer_client.get(SEARCH, {"q": "#1"})
    assert response["Location"] == reverse("runs:run", args=[suite.slug, run.number])
    make_run(suite=make_suite())
    assert "2 hits by name" in found(viewer_client, "#1")


@pytest.mark.parametrize("words", ["", "   "])
def test_no_words_ask_for_some(viewer_client: Client, words: str) -> None:
    assert "What are you looking for?" in found(viewer_client, words)


@pytest.mark.parametrize(
    "words", ["zzz", "%", "_", "<script>alert(1)</script>", "'", "#99999999999"]
)
def test_nothing_found_is_said_in_the_users_words(viewer_client: Client, words: str) -> None:
    make_case(suite=make_suite(), key="A1")
    page = found(viewer_client, words)
    assert "Nothing matches" in page
    assert "Search covers the results of all runs" in page
    assert "<script>alert" not in page


def test_old_revisions_and_archived_suites_stay_out(viewer_client: Client) -> None:
    suite = make_suite(title="Kept")
    make_case(suite=suite, key="OLD-1", is_current=False)
    assert "Nothing matches" in found(viewer_client, "OLD-1")


@pytest.fixture
def two_suites() -> tuple[Run, Run]:
    """Make a run each in two suites, one with the evaluator tone."""
    runs = []
    for slug, title, text in (
        ("support", "Support", "Your <Refund> is on its way"),
        ("sales", "Sales", "A refund, or a discount"),
    ):
        suite = make_suite(slug=slug, title=title, tree=tree({**CHECK, "name": f"{slug}_tone"}))
        case = make_case(suite=suite, key=f"{slug}-1", title="First", tags=[slug])
        run = make_run(suite=suite, case_count=1)
        result = make_result(run=run, case=case, verdict="fail", score=0.2, output={"text": text})
        make_score(result=result, path=f"{slug}_tone", score=0.2)
        refresh_cases(run)
        runs.append(run)
    return runs[0], runs[1]


@pytest.mark.parametrize(
    ("parameters", "keys"),
    [
        ({"q": "refund"}, ["sales-1", "support-1"]),
        ({"q": "refund", "suite": "support"}, ["support-1"]),
        ({"q": "refund -discount"}, ["support-1"]),
        ({"q": "verdict = fail tag = sales"}, ["sales-1"]),
        ({"q": "support_tone < 0.5"}, ["support-1"]),
        ({"q": "score > 0.5"}, []),
    ],
)
def test_results_of_all_runs_are_found_by_a_filter(
    viewer_client: Client,
    two_suites: tuple[Run, Run],
    parameters: dict[str, str],
    keys: list[str],
) -> None:
    page = viewer_client.get(SEARCH, parameters).context["page"]
    assert [row.key for row in page.rows] == keys


def test_a_found_result_shows_the_words_and_keeps_the_list_of_its_run(
    viewer_client: Client, two_suites: tuple[Run, Run]
) -> None:
    page = found(viewer_client, "refund -discount")
    assert "Output: Your &lt;<mark>Refund</mark>&gt; is on its way" in " ".join(page.split())
    assert "/suites/support/runs/1/support-1/1/?from=run&amp;q=refund+-discount" in page
    assert 'href="/search/?q=refund"' in page, "a condition can be removed"


def test_results_of_archived_suites_and_deleted_runs_stay_out(
    viewer_client: Client, two_suites: tuple[Run, Run]
) -> None:
    support, sales = two_suites
    support.suite.archived_at = support.created_at
    support.suite.save()
    Run.objects.filter(pk=sales.pk).update(is_deleted=True)
    assert "Nothing matches" in found(viewer_client, "refund")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("grounding < 3", "There is no field, evaluator, metric or dimension “grounding” here."),
        ("sales_tone fell", "“sales_tone fell” needs two runs: use it in a comparison."),
    ],
)
def test_what_a_search_cannot_ask_is_refused_with_the_reason(
    viewer_client: Client, two_suites: tuple[Run, Run], text: str, reason: str
) -> None:
    page = found(viewer_client, text)
    assert reason in page
    assert f"<mark>{text.split()[0]}" in page


def test_pages_of_results_go_on_from_batch_to_batch(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = make_suite()
    for _ in range(3):
        run = make_scored_run(suite=suite, verdicts=["fail", "pass"])
        Run.objects.filter(pk=run.pk).update(case_count=2)
    monkeypatch.setattr("runs.home.search.FIRST_CASES", 1)
    monkeypatch.setattr("runs.home.search.GROWTH", 1)
    monkeypatch.setattr("runs.home.search.PAGE_SIZE", 2)
    address, numbers = "?q=verdict+%3D+fail", []
    while address:
        page = viewer_client.get(SEARCH + address).context["page"]
        numbers += [row.number for row in page.rows]
        address = page.next_address
    assert numbers == [3, 2, 1]
    for place in ("x", "9~9~9", "1~0~0"):
        assert viewer_client.get(SEARCH, {"q": "verdict = fail", "after": place}).status_code == 200


def test_a_page_ends_where_the_next_runs_would_take_too_long_and_says_so(
    viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = make_suite()
    for verdict in ("fail", "pass", "pass"):
        run = make_scored_run(suite=suite, verdicts=[verdict])
        Run.objects.filter(pk=run.pk).update(case_count=1)
    monkeypatch.setattr("runs.home.search.FIRST_CASES", 1)
    monkeypatch.setattr("runs.home.search.GROWTH", 1)
    monkeypatch.setattr("runs.home.search.MAX_S", 0.0)
    shown = found(viewer_client, "verdict = fail")
    assert "Nothing matches in the newest run" in shown
    assert "1 of 3 runs are searched." in shown
    address, searched = "?q=verdict+%3D+fail", []
    while address:
        page = viewer_client.get(SEARCH + address).context["page"]
        searched += [(page.progress and page.progress.searched, [row.number for row in page.rows])]
        address = page.next_address
    assert searched == [(1, []), (2, []), (None, [1])]


def test_a_rare_word_is_found_with_any_other_condition(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    cases = [make_case(suite=suite, key=key, title=key) for key in ("A", "B")]
    for texts in (("A late refund 12345", "A refund"), ("A refund", "Refund 12345")):
        run = make_run(suite=suite, case_count=2)
        for case, text, score in zip(cases, texts, (0.9, 0.2), strict=True):
            make_result(run=run, case=case, verdict="pass", score=score, output={"text": text})
        refresh_cases(run)

    def listed(text: str) -> list[tuple[int, str]]:
        page = viewer_client.get(SEARCH, {"q": text, "suite": "support"}).context["page"]
        return [(row.number, row.key) for row in page.rows]

    assert listed("refund 12345") == [(2, "B"), (1, "A")]
    assert listed("12345 score < 0.5") == [(2, "B")]
    assert listed("output = 12345, late -score < 0.5") == [(1, "A")]
    assert listed("refund or 12345") == [(2, "A"), (2, "B"), (1, "A"), (1, "B")]
    assert listed("zzz refund") == []


def test_suggestions_are_the_fields_and_evaluators_of_the_suites(
    viewer_client: Client, two_suites: tuple[Run, Run]
) -> None:
    def offered(text: str, suite: str = "") -> list[str]:
        address = reverse("runs:search-suggestions")
        answer = viewer_client.get(address, {"q": text, "suite": suite}).json()
        return [one["text"] for one in answer["suggestions"]]

    assert sorted(offered("ton")) == ["sales_tone", "support_tone"]
    assert offered("ton", "sales") == ["sales_tone"]
    assert offered("tag = s") == ["sales", "support"]

"""Search: what is found, and what opens at once."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.support.factories import make_case, make_run, make_suite, make_target

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
    assert "4 hits" in page


def test_a_cases_key_opens_the_case(viewer_client: Client) -> None:
    suite = make_suite()
    make_case(suite=suite, key="CS-001")
    make_case(suite=suite, key="CS-0011")
    response = viewer_client.get(SEARCH, {"q": "cs-001"})
    assert response["Location"] == reverse("runs:case", args=[suite.slug, "CS-001"])


def test_a_key_of_two_suites_is_a_choice(viewer_client: Client) -> None:
    for _ in range(2):
        make_case(suite=make_suite(), key="CS-001")
    assert "2 hits" in found(viewer_client, "CS-001")


def test_a_number_opens_the_run_when_only_one_bears_it(viewer_client: Client) -> None:
    suite = make_suite()
    run = make_run(suite=suite)
    response = viewer_client.get(SEARCH, {"q": "#1"})
    assert response["Location"] == reverse("runs:run", args=[suite.slug, run.number])
    make_run(suite=make_suite())
    assert "2 hits" in found(viewer_client, "#1")


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
    assert "<script>alert" not in page


def test_old_revisions_and_archived_suites_stay_out(viewer_client: Client) -> None:
    suite = make_suite(title="Kept")
    make_case(suite=suite, key="OLD-1", is_current=False)
    assert "Nothing matches" in found(viewer_client, "OLD-1")

"""The command palette: what its address finds."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.support.factories import make_case, make_run, make_suite, make_target

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]
PALETTE = reverse("runs:palette")


def found(client: Client, words: str) -> list[dict[str, Any]]:
    return client.get(PALETTE, {"q": words}).json()["places"]


def names(client: Client, words: str) -> list[tuple[str, str]]:
    return [(place["kind"], place["label"]) for place in found(client, words)]


def test_words_find_what_has_a_word_that_begins_with_each(viewer_client: Client) -> None:
    suite = make_suite(slug="tent-desk", title="Tents and stoves")
    make_case(suite=suite, key="CS-001", title="A torn tent")
    make_case(suite=suite, key="CS-002", title="Extent of the damage")
    make_run(suite=suite, target=make_target(name="tent agent"))
    assert names(viewer_client, "ten") == [
        ("Suites", "Tents and stoves"),
        ("Runs", "#1 Tents and stoves"),
        ("Cases", "CS-001 A torn tent"),
        ("Cases", "CS-002 Extent of the damage"),
        ("Targets", "tent agent"),
    ]
    assert names(viewer_client, "TOR 001") == [("Cases", "CS-001 A torn tent")]
    assert names(viewer_client, "xtent") == []
    assert names(viewer_client, "%") == names(viewer_client, "'") == []


def test_a_key_or_a_number_is_the_best_match(viewer_client: Client) -> None:
    suite = make_suite(title="Harbour")
    for key in ("CS-0010", "CS-001"):
        make_case(suite=suite, key=key)
    runs = [make_run(suite=suite) for _ in range(12)]
    best, *others = found(viewer_client, "cs-001")
    assert (best["kind"], best["url"]) == (
        "Best match",
        reverse("runs:case", args=[suite.slug, "CS-001"]),
    )
    assert [place["kind"] for place in others] == ["Cases"]
    best, *others = found(viewer_client, "#1")
    assert (best["kind"], best["url"]) == (
        "Best match",
        reverse("runs:run", args=[suite.slug, runs[0].number]),
    )
    assert [place["label"].split()[0] for place in others] == ["#12", "#11", "#10"]


def test_without_words_suites_and_runs_of_late_come_in_one_query(
    viewer_client: Client, django_assert_max_num_queries: Any
) -> None:
    old, new = make_suite(title="Old"), make_suite(title="New")
    make_run(suite=new)
    make_run(suite=old)
    make_case(suite=old)
    archived = make_suite(title="Archived", archived_at=timezone.now())
    make_run(suite=archived)
    viewer_client.get(PALETTE)
    # The session, the member, two for the member's rights, and one for all places.
    with django_assert_max_num_queries(5):
        assert names(viewer_client, "") == [
            ("Suites", "Old"),
            ("Suites", "New"),
            ("Runs", "#1 Old"),
            ("Runs", "#1 New"),
        ]

"""The page of an address that names what does not exist."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.support.factories import make_case, make_run, make_suite

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("path", "text", "link"),
    [
        (
            "runs/99/",
            "Run #99 of Refunds does not exist. The newest is #1.",
            "/suites/refunds/runs/1/",
        ),
        ("runs/99/C-1/1/", "Run #99 of Refunds does not exist.", "/suites/refunds/runs/1/"),
        ("runs/1/C-9/1/", "Run #1 has no such result of case “C-9”.", "/suites/refunds/runs/1/"),
        ("cases/C-9/", "Refunds has no case “C-9”.", "/suites/refunds/cases/"),
        ("versions/99/", "No page has the address", "/"),
    ],
)
def test_it_names_what_is_missing_and_what_exists(
    viewer_client: Client, path: str, text: str, link: str
) -> None:
    suite = make_suite(slug="refunds", title="Refunds")
    make_case(suite=suite, key="C-1")
    make_run(suite=suite)
    answer = viewer_client.get(f"/suites/refunds/{path}")
    page = answer.content.decode().partition("There is nothing here")[2]
    assert answer.status_code == 404
    assert text in page
    assert f'data-kind="primary" href="{link}"' in " ".join(page.split())


def test_it_tells_of_a_suite_and_of_one_without_runs(viewer_client: Client, client: Client) -> None:
    make_suite(slug="empty", title="Empty")
    missing = viewer_client.get("/suites/nowhere/").content.decode()
    assert "No suite has the short name “nowhere”." in missing
    assert (
        "Empty does not exist. The suite has no runs."
        in viewer_client.get("/suites/empty/runs/1/").content.decode()
    )
    # Who may not see runs is told nothing of them.
    login = client.get("/suites/empty/runs/1/")
    assert login["Location"].startswith(reverse("access:login"))

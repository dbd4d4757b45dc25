"""A run that another version made: every page and file of it says so, and lists go on."""

from __future__ import annotations

import html

import pytest
from django.test import Client

from runs.models.runs import Run
from tests.support.factories import make_scored_run, make_suite

pytestmark = pytest.mark.django_db
RUN = "/suites/support/runs/1/"
SIDES = "baseline=support:1&candidate=support:2"


@pytest.fixture
def old(db: None) -> Run:
    suite = make_suite(slug="support")
    run, _ = (make_scored_run(verdicts=("pass", "fail"), suite=suite) for _ in range(2))
    Run.objects.filter(pk=run.pk).update(snapshot={**run.snapshot, "version": 99})
    return run


@pytest.mark.parametrize(
    "path",
    [
        RUN,
        f"{RUN}results.jsonl",
        f"{RUN}results.csv",
        f"{RUN}junit.xml",
        f"/compare/case/?{SIDES}&case=C-001",
    ],
)
def test_what_cannot_be_read_says_why_and_is_no_error_of_the_server(
    viewer_client: Client, old: Run, path: str
) -> None:
    response = viewer_client.get(path)
    page = html.unescape(response.content.decode())
    assert response.status_code == 409
    assert "This run cannot be read" in page
    assert "The snapshot is of version 99; this is version 1." in page
    assert "Content-Disposition" not in response


def test_lists_and_the_choice_of_runs_to_compare_go_on(viewer_client: Client, old: Run) -> None:
    for path in ("/", "/runs/", "/suites/support/"):
        assert viewer_client.get(path).status_code == 200
    compared = viewer_client.get(f"/compare/?{SIDES}")
    assert "The snapshot is of version 99" in html.unescape(compared.content.decode())
    response = viewer_client.get(
        "/api/runs/compare?baseline_run_id=support:1&candidate_run_id=support:2"
    )
    assert (response.status_code, response["Content-Type"]) == (409, "application/problem+json")

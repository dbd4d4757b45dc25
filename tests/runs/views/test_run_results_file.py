from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import make_scored_run, make_suite

pytestmark = pytest.mark.django_db


def test_the_results_of_a_run_are_downloaded_line_by_line(viewer_client: Client) -> None:
    run = make_scored_run(
        suite=make_suite(slug="support"),
        verdicts=("pass", "borderline", "fail", "error", "pending"),
    )
    page = viewer_client.get(reverse("runs:run", args=["support", run.number])).content.decode()
    address = "/suites/support/runs/1/results.jsonl"
    assert f'href="{address}"' in page

    response = viewer_client.get(address)
    assert response.streaming
    assert response["Content-Disposition"] == 'attachment; filename="support-1.jsonl"'
    lines = [json.loads(line) for line in response.getvalue().decode().splitlines()]
    assert [
        (line["eval_id"], line["status"], line["verdict"], line["score"]) for line in lines
    ] == [
        ("C-001", "scored", "pass", 0.92),
        ("C-002", "scored", "borderline", 0.71),
        ("C-003", "scored", "fail", 0.4),
        ("C-004", "error", None, None),
        ("C-005", "pending", None, None),
    ]


def test_a_run_that_is_not_there_has_no_results(viewer_client: Client) -> None:
    assert viewer_client.get("/suites/support/runs/1/results.jsonl").status_code == 404

"""The baseline of a suite: which runs can be one, who says so, and where it is seen."""

from __future__ import annotations

import pytest
from django.test import Client

from evaluators.models import AuditEntry
from runs.cli.command import get_run
from runs.models.runs import Run
from runs.models.suites import Suite
from tests.support.factories import make_run, make_scored_run, make_suite

pytestmark = pytest.mark.django_db


def page_of(client: Client, address: str) -> str:
    return " ".join(client.get(address).content.decode().split())


def say(client: Client, run: Run, **fields: str) -> str:
    response = client.post(f"{address_of(run)}baseline/", fields, follow=True)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def address_of(run: Run) -> str:
    return f"/suites/{run.suite.slug}/runs/{run.number}/"


@pytest.fixture
def suite(db: None) -> Suite:
    return make_suite(slug="support", title="Customer support")


def test_a_completed_run_becomes_the_baseline_and_every_list_shows_it(
    suite: Suite, editor_client: Client
) -> None:
    first, second = (make_scored_run(suite=suite, verdicts=["pass"]) for _ in range(2))
    assert "Run #1 is the baseline of Customer support now." in say(editor_client, first)
    assert "#2 is the baseline" in say(editor_client, second)
    assert get_run("support:baseline") == second
    for address in ("/runs/", "/suites/support/", address_of(second)):
        assert page_of(editor_client, address).lower().count("baseline</span>") == 1
    assert "Make baseline" in page_of(editor_client, address_of(first))
    entry = AuditEntry.objects.filter(object_type="suite").first()
    assert entry is not None
    assert (entry.before, entry.after) == ({"baseline": "#1"}, {"baseline": "#2"})


def test_the_mark_is_taken_away_only_from_the_run_that_has_it(
    suite: Suite, editor_client: Client
) -> None:
    first, second = (make_scored_run(suite=suite, verdicts=["pass"]) for _ in range(2))
    say(editor_client, second)
    assert "has no baseline now" not in say(editor_client, first, drop="1")
    assert get_run("support:baseline") == second
    assert "has no baseline now" in say(editor_client, second, drop="1")
    suite.refresh_from_db()
    assert suite.baseline_run_id is None
    say(editor_client, second, drop="1")
    assert AuditEntry.objects.filter(object_type="suite").count() == 2


@pytest.mark.parametrize("status", ["running", "stopped", "budget_reached", "failed"])
def test_a_run_without_all_its_figures_is_none(
    suite: Suite, editor_client: Client, status: str
) -> None:
    run = make_run(suite=suite, status=status)
    assert "Make baseline" not in page_of(editor_client, address_of(run))
    assert "Run #1 is not completed" in say(editor_client, run)
    suite.refresh_from_db()
    assert suite.baseline_run_id is None


def test_a_viewer_sees_it_and_is_offered_nothing(suite: Suite, viewer_client: Client) -> None:
    run = make_scored_run(suite=suite, verdicts=["pass"])
    suite.baseline_run = run
    suite.save()
    page = page_of(viewer_client, address_of(run))
    assert "Baseline</span>" in page
    assert "No baseline" not in page

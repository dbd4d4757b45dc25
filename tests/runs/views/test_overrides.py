"""What people decided stands beside the machine's verdict wherever a result is shown."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from evaluators.scoring.types import Verdict
from runs.models import Run
from runs.services.reviews import Decided, decide, undo
from tests.factories import make_user
from tests.runs.queued import item_of, queued_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(make_user(role="viewer", name="vera"))
    return client


@pytest.fixture
def ann(db: None) -> User:
    return make_user(role="reviewer", name="ann")


def text_of(client: Client, name: str, *args: object, query: str = "") -> str:
    """Return what a page says, without its marks, each gap a single space."""
    response = client.get(f"{reverse(name, args=args)}{query}")
    assert response.status_code == 200, name
    html = "".join(part.decode() for part in response) if response.streaming else response.text
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    titles = " ".join(re.findall(r'title="([^"]*)"', bare))
    return " ".join(unescape(f"{re.sub('<[^>]*>', ' ', bare)} {titles}").split())


def reviewed_run(ann: User, *, says: Verdict = Verdict.PASS, **policy: object) -> Run:
    run = queued_run(["borderline", "pass"], **policy)
    decide(item_of(run), Decided(says, note="Names the date.", tags=["tone"]), by=ann)
    return run


class TestEveryPage:
    def test_pages_of_a_run_show_both_and_who_decided(self, viewer: Client, ann: User) -> None:
        run = reviewed_run(ann)
        slug, key = run.suite.slug, "C-001"
        rows = text_of(viewer, "runs:run-results", slug, run.number)
        assert "Borderline , people say Pass (ann, " in rows
        assert "shown, not counted" in rows
        page = text_of(viewer, "runs:result", slug, run.number, key, 1)
        assert "people say pass , shown, not counted" in page
        assert "Names the date." in page
        assert "The machine said borderline." in page
        case = text_of(viewer, "runs:case", slug, key)
        assert f"Run {run.number}, borderline, with reviews pass" in case
        other = text_of(viewer, "runs:result", slug, run.number, "C-002", 1)
        assert "people say" not in other

    def test_of_a_confirmed_verdict_it_says_so(self, viewer: Client, ann: User) -> None:
        run = reviewed_run(ann, says=Verdict.BORDERLINE)
        rows = text_of(viewer, "runs:run-results", run.suite.slug, run.number)
        assert "Borderline , confirmed by people" in rows


class TestHistory:
    def test_changed_and_undone_decisions_are_kept_with_what_settled_it(
        self, viewer: Client, ann: User
    ) -> None:
        run = reviewed_run(ann, review_reviewers=2)
        item, ben = item_of(run), make_user(role="reviewer", name="ben")
        place = ("runs:result", run.suite.slug, run.number, "C-001", 1)
        assert "1 decision more wanted" in text_of(viewer, *place)
        decide(item, Decided(Verdict.FAIL, note="Second thoughts."), by=ann)
        decide(item, Decided(Verdict.FAIL), by=ben)
        page = text_of(viewer, *place)
        assert "all 2 agree" in page
        assert "When they differ, one more reviewer is asked" in page
        assert "1 earlier decision" in page
        assert "ann withdrawn" in page
        undo(item, by=ben)
        undo(item, by=ann)
        page = text_of(viewer, *place)
        assert "3 earlier decisions" in page
        assert "Reviews 2 decisions more wanted" in page
        assert "people say fail" not in page

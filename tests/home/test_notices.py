"""The notice of a run that ends while a member looks at another page, or at the page of the run."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.finishing import summarise_run
from runs.models.runs import Run
from tests.support.factories import make_scored_run, make_suite
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
LONG, SHORT = timedelta(minutes=4), timedelta(seconds=5)


@pytest.fixture
def ann(db: None) -> User:
    return make_member("editor", "ann")


def running(member: User | None, title: str = "Support") -> Run:
    suite = make_suite(title=title)
    run = make_scored_run(verdicts=("pass", "fail"), suite=suite, summary=None)
    Run.objects.filter(pk=run.pk).update(status="running", created_by=member, finished_at=None)
    run.refresh_from_db()
    return run


def end(run: Run, after: timedelta) -> None:
    assert run.started_at
    Run.objects.filter(pk=run.pk).update(status="completed", finished_at=run.started_at + after)
    assert summarise_run(run.pk)


def sidebar(text: str) -> tuple[str, bool]:
    """Return the address that a sidebar asks, and whether it asks again and again."""
    part = text.partition('id="recent-suites"')[2].partition(">")[0]
    address = re.search(r'hx-get="([^"]*)"', part)
    assert address
    return address[1].replace("&amp;", "&"), ", every 15s" in part


def notices(text: str) -> list[str]:
    found = re.findall(r"data-ended=.*?<span>(.*?)</span>", text, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]*>", "", words).split()) for words in found]


def test_the_end_of_an_own_long_run_is_told_once(ann: User) -> None:
    client, run = make_client(ann), running(ann)
    address, asks = sidebar(client.get("/targets/").text)
    assert asks
    still = client.get(address).text
    assert (notices(still), sidebar(still)) == ([], (address, True))
    end(run, LONG)
    ended = client.get(address).text
    assert notices(ended) == [
        "Support #1 ended. Failed: mean score 66.0%, needs 80%; pass rate 50.0%, needs 100%."
    ]
    assert f'href="{reverse("runs:run", args=(run.suite.slug, 1))}"' in ended
    # It asks no more, and the next page does not tell it again.
    again, asks = sidebar(ended)
    assert not asks
    assert notices(client.get(again).text) == []
    page = client.get("/targets/").text
    assert (notices(page), sidebar(page)[1]) == ([], False)


def test_short_runs_and_those_of_others_are_not_told(ann: User) -> None:
    client, short, other = make_client(ann), running(ann), running(make_member("editor", "ben"))
    by_program = running(None)
    address, _ = sidebar(client.get("/targets/").text)
    assert address.count("run=") == 1
    end(short, SHORT)
    end(other, LONG)
    end(by_program, LONG)
    address += f"&run={other.pk}&run={by_program.pk}&run=x&run={'9' * 40}"
    assert notices(client.get(address).text) == []


def test_the_page_of_a_run_tells_its_end_whoever_started_it(ann: User) -> None:
    client, run = make_client(ann), running(make_member("editor", "ben"))
    page = reverse("runs:run", args=(run.suite.slug, 1))
    live = reverse("runs:run-live", args=(run.suite.slug, 1)) + "?was=running"
    assert notices(client.get(page).text + client.get(live, headers=HTMX).text) == []
    end(run, SHORT)
    notice = "Support #1 ended. Failed: mean score 66.0%, needs 80%; pass rate 50.0%, needs 100%."
    ended = client.get(live, headers=HTMX).text
    assert notices(ended) == [notice]
    assert "<title>Run #1, failed · Evalsite</title>" in " ".join(ended.split())
    # Who opens the page later sees it there, and who wants no notices gets none.
    assert notices(client.get(page).text) == []
    later = live.replace("running", "completed")
    assert notices(client.get(later, headers=HTMX).text) == []
    client.cookies["run-notices"] = "off"
    assert notices(client.get(live, headers=HTMX).text) == []


def test_a_run_whose_figures_are_to_come_is_told_with_them(ann: User) -> None:
    client, run = make_client(ann), running(ann)
    address, _ = sidebar(client.get("/targets/").text)
    assert run.started_at
    Run.objects.filter(pk=run.pk).update(status="stopped", finished_at=run.started_at + LONG)
    text = client.get(address).text
    assert (notices(text), sidebar(text)[1]) == ([], True)
    assert summarise_run(run.pk)
    assert notices(client.get(address).text) == [
        "Support #1 ended. Not evaluated: the run is incomplete."
    ]


def test_a_member_who_wants_no_notices_is_not_asked_for(ann: User) -> None:
    client, _ = make_client(ann), running(ann)
    client.cookies["run-notices"] = "off"
    assert not sidebar(client.get("/targets/").text)[1]
    account = client.get("/account/").text
    switch = account.partition('name="run-notices"')[2].partition(">")[0]
    assert "checked" not in switch


def test_pages_of_a_member_without_active_runs_ask_nothing(ann: User, client: Client) -> None:
    running(None)
    client.force_login(ann)
    assert sidebar(client.get("/targets/").text) == (f"{reverse('runs:recent-suites')}?", False)

"""How often programs may use the API, and what they are told about it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from evalsite.access import rate_limits
from evalsite.access.rate_limits import MAX_CLIENTS, MinuteCounter
from evaluators.models import AuditEntry
from tests.api.site import assert_described, assert_refused, token_of
from tests.support.clock import Clock
from tests.support.members import make_client, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture(autouse=True)
def limits(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow three requests and two wrong tokens a minute, and count from zero."""
    settings.API_REQUESTS_PER_MINUTE, settings.API_WRONG_TOKENS_PER_MINUTE = 3, 2
    monkeypatch.setattr(rate_limits, "REQUESTS", MinuteCounter())
    monkeypatch.setattr(rate_limits, "WRONG_TOKENS", MinuteCounter())


def ask(secret: str, address: str = HERE) -> Any:
    headers = {"authorization": f"Bearer {secret}"}
    return Client().get("/api/runs", headers=headers, REMOTE_ADDR=address)


def test_every_answer_says_what_is_left_and_one_too_many_when_to_go_on(
    viewer: User, clock: Clock
) -> None:
    secret = token_of(viewer)
    for left in (2, 1, 0):
        answer = ask(secret)
        assert answer.status_code == 200
        assert answer["RateLimit-Policy"] == '"requests";q=3;w=60'
        assert answer["RateLimit"] == f'"requests";r={left};t=60'
    clock.advance(seconds=20)
    refused = ask(secret)
    problem = assert_refused(refused, 429)
    assert (
        problem["detail"]
        == "The limit is 3 requests a minute for a token. Try again in 40 seconds."
    )
    assert refused["Retry-After"] == "40"
    assert refused["RateLimit"] == '"requests";r=0;t=40'
    assert_described(refused, "/api/runs")
    clock.advance(seconds=40)
    assert ask(secret).status_code == 200


def test_a_clock_that_is_set_back_holds_nobody_up(viewer: User, clock: Clock) -> None:
    secret = token_of(viewer)
    assert [ask(secret).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert [ask("evs_wrong").status_code for _ in range(3)] == [401, 401, 429]
    clock.advance(days=-1)
    assert ask(secret)["RateLimit"] == '"requests";r=2;t=60'
    assert ask("evs_wrong").status_code == 401


def test_tokens_and_members_are_counted_apart(viewer: User, clock: Clock) -> None:
    secret, other, browser = token_of(viewer), token_of(viewer), make_client(viewer)
    for _ in range(3):
        ask(secret)
    assert ask(secret).status_code == 429
    assert ask(other).status_code == 200
    assert [browser.get("/api/runs").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert make_client(make_member("editor")).get("/api/runs").status_code == 200
    # Pages have no such limit.
    page = browser.get("/runs/")
    assert page.status_code == 200
    assert "RateLimit" not in page


def test_wrong_tokens_of_an_address_are_refused_sooner_and_right_ones_never(
    viewer: User, clock: Clock
) -> None:
    answers = [ask("evs_wrong") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [401, 401, 429, 429, 429]
    problem = assert_refused(answers[2], 429)
    assert "2 wrong tokens a minute for an address" in problem["detail"]
    assert answers[2]["Retry-After"] == "60"
    assert answers[2]["RateLimit-Policy"] == '"wrong-tokens";q=2;w=60'
    assert ask("evs_wrong", THERE).status_code == 401
    assert ask(token_of(viewer)).status_code == 200
    clock.advance(seconds=60)
    assert ask("evs_wrong").status_code == 401


def test_many_wrong_tokens_are_in_the_audit_once_an_hour(admin: User, clock: Clock) -> None:
    for _ in range(3):
        for _ in range(4):
            ask("evs_wrong")
        clock.advance(seconds=60)
    entry = AuditEntry.objects.get()
    assert (entry.actor_name, entry.after) == ("not logged in", {"address": HERE})
    assert "sent many wrong tokens" in make_client(admin).get("/audit/").text


def test_without_a_limit_nothing_is_counted(viewer: User, settings: Settings) -> None:
    settings.API_REQUESTS_PER_MINUTE = settings.API_WRONG_TOKENS_PER_MINUTE = 0
    secret = token_of(viewer)
    answers = [ask(secret) for _ in range(5)]
    assert {answer.status_code for answer in answers} == {200}
    assert "RateLimit" not in answers[0]
    assert {ask("evs_wrong").status_code for _ in range(5)} == {401}


def test_any_number_of_addresses_takes_limited_memory() -> None:
    counter, now = MinuteCounter(), timezone.now()
    for number in range(MAX_CLIENTS + 100):
        counter.count(f"10.0.{number}", limit=1, now=now)
    assert len(counter._windows) == MAX_CLIENTS
    # The last ones are still known, the first ones are not.
    assert counter.count(f"10.0.{MAX_CLIENTS + 99}", limit=1, now=now).is_exceeded
    assert not counter.count("10.0.0", limit=1, now=now).is_exceeded

from __future__ import annotations

from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import Settings

from evalsite.access.login_throttle import client_address
from evalsite.access.members import login_path
from tests.support.members import PASSWORD, make_member

pytestmark = pytest.mark.django_db
HERE, THERE = "192.0.2.1", "192.0.2.2"
REFUSED, LOCKED, WELCOME = 422, 429, 302


def log_in(
    client: Client, name: str = "viewer", password: str = "wrong", **meta: str
) -> HttpResponse:
    return client.post(
        "/login/", {"username": name, "password": password}, **{"REMOTE_ADDR": HERE, **meta}
    )


def guess(client: Client, name: str = "viewer", *, times: int = 10, **meta: str) -> list[int]:
    """Guess so often, each time as another browser, and return the answers."""
    return [
        log_in(client, name, HTTP_USER_AGENT=f"browser {n}", **meta).status_code
        for n in range(times)
    ]


def test_the_tenth_failure_locks_even_the_right_password_out(client: Client, viewer: User) -> None:
    assert guess(client) == [REFUSED] * 9 + [LOCKED]
    answer = log_in(client, password=PASSWORD)
    assert answer.status_code == LOCKED
    assert answer["Retry-After"] == "300"
    assert "Wait 5 minutes" in answer.text
    assert ".venv/bin/evalsite login_link NAME" in answer.text
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert settings.SESSION_COOKIE_NAME not in client.cookies


def test_another_name_and_another_address_are_counted_apart(client: Client, viewer: User) -> None:
    make_member("editor")
    guess(client)
    assert log_in(client, "editor", PASSWORD).status_code == WELCOME
    assert log_in(Client(), password=PASSWORD, REMOTE_ADDR=THERE).status_code == WELCOME
    assert log_in(Client(), password=PASSWORD).status_code == LOCKED


def test_a_name_that_nobody_has_is_answered_the_same(client: Client, viewer: User) -> None:
    pages = []
    for name in ("viewer", "stranger"):
        assert guess(client, name) == [REFUSED] * 9 + [LOCKED]
        pages.append(log_in(client, name).text)
    assert pages[0] == pages[1]


def test_logging_in_clears_the_count_of_that_name(client: Client, viewer: User) -> None:
    guess(client, times=9)
    assert log_in(client, password=PASSWORD).status_code == WELCOME
    assert guess(Client(), times=9) == [REFUSED] * 9


def test_the_pause_ends_and_trying_meanwhile_does_not_prolong_it(
    client: Client, viewer: User
) -> None:
    guess(client)
    before = set(AccessAttempt.objects.values_list("attempt_time", "failures_since_start"))
    assert log_in(client).status_code == LOCKED
    assert set(AccessAttempt.objects.values_list("attempt_time", "failures_since_start")) == before
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=5, seconds=1))
    assert log_in(client, password=PASSWORD).status_code == WELCOME


def test_a_one_time_link_works_all_the_same(client: Client, viewer: User) -> None:
    guess(client)
    assert client.post(login_path(viewer), REMOTE_ADDR=HERE).status_code == WELCOME
    assert client.get("/account/").status_code == 200


def test_nothing_that_was_typed_as_a_password_is_kept(client: Client, viewer: User) -> None:
    log_in(client, password="nearly right")
    kept = AccessAttempt.objects.get()
    assert "nearly right" not in f"{kept.post_data}{kept.get_data}"


def test_behind_a_trusted_proxy_its_clients_are_counted_apart(
    client: Client, viewer: User, settings: Settings
) -> None:
    settings.TRUST_PROXY = True
    made_up = [f"203.0.113.{n}, {HERE}" for n in range(10)]
    answers = [log_in(client, HTTP_X_FORWARDED_FOR=chain).status_code for chain in made_up]
    assert answers == [REFUSED] * 9 + [LOCKED]
    other = log_in(client, password=PASSWORD, HTTP_X_FORWARDED_FOR=f"{HERE}, {THERE}")
    assert other.status_code == WELCOME


def test_without_a_trusted_proxy_nobody_chooses_the_own_address(
    client: Client, viewer: User
) -> None:
    made_up = [f"203.0.113.{n}" for n in range(10)]
    answers = [log_in(client, HTTP_X_FORWARDED_FOR=address).status_code for address in made_up]
    assert answers == [REFUSED] * 9 + [LOCKED]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("", None),
    ],
)
def test_one_client_is_one_address_or_one_network(address: str, client: str | None) -> None:
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=address)) == client


def test_a_proxy_that_names_no_address_counts_as_the_client(settings: Settings) -> None:
    settings.TRUST_PROXY = True
    request = RequestFactory().get("/", REMOTE_ADDR=THERE, HTTP_X_FORWARDED_FOR="unknown")
    assert client_address(request) == THERE

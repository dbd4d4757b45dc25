"""After too many failed logins further ones are refused, by name and by address."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.db.models import QuerySet
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django import Settings

from evalsite.access.logins import PASSWORD_CHECKS, client_address
from evalsite.access.members import login_path
from evaluators.models import AuditEntry
from tests.support.members import PASSWORD, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
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


def test_after_ten_failures_even_the_right_password_is_refused(
    client: Client, viewer: User
) -> None:
    assert guess(client) == [REFUSED] * 9 + [LOCKED]
    answer = log_in(client, password=PASSWORD)
    assert answer.status_code == LOCKED
    assert answer["Retry-After"] == "300"
    assert "Wait 5 minutes" in answer.text
    assert "evalsite login_link NAME" in answer.text
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    assert settings.SESSION_COOKIE_NAME not in client.cookies


def test_names_and_addresses_are_counted_separately(client: Client, viewer: User) -> None:
    make_member("editor")
    guess(client)
    assert log_in(client, "editor", PASSWORD).status_code == WELCOME
    assert log_in(Client(), password=PASSWORD, REMOTE_ADDR=THERE).status_code == WELCOME
    assert log_in(Client(), password=PASSWORD).status_code == LOCKED


def test_an_unknown_name_gets_the_same_answer(client: Client, viewer: User) -> None:
    pages = []
    for name in ("viewer", "stranger"):
        assert guess(client, name) == [REFUSED] * 9 + [LOCKED]
        pages.append(log_in(client, name).text)
    assert pages[0] == pages[1]


def test_logging_in_resets_the_count_of_the_name(client: Client, viewer: User) -> None:
    guess(client, times=9)
    assert log_in(client, password=PASSWORD).status_code == WELCOME
    assert guess(Client(), times=9) == [REFUSED] * 9


def test_a_failure_is_counted_while_a_login_removes_the_count(
    client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_or_create, removed = QuerySet.get_or_create, []

    def racing(rows: QuerySet, **values: Any) -> Any:
        # PostgreSQL finds the row in the way, which a login removes before it can be read.
        if rows.model is AccessAttempt and not removed:
            removed.append(rows)
            raise IntegrityError("duplicate key value")
        return get_or_create(rows, **values)

    monkeypatch.setattr(QuerySet, "get_or_create", racing)
    assert log_in(client).status_code == REFUSED
    assert AccessAttempt.objects.get().failures_since_start == 1


def test_attempts_during_the_pause_do_not_prolong_it(client: Client, viewer: User) -> None:
    guess(client)
    before = set(AccessAttempt.objects.values_list("attempt_time", "failures_since_start"))
    assert log_in(client).status_code == LOCKED
    assert set(AccessAttempt.objects.values_list("attempt_time", "failures_since_start")) == before
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(minutes=5, seconds=1))
    assert log_in(client, password=PASSWORD).status_code == WELCOME


def test_a_one_time_link_works_during_the_pause(client: Client, viewer: User) -> None:
    guess(client)
    assert client.post(login_path(viewer), REMOTE_ADDR=HERE).status_code == WELCOME
    assert client.get("/account/").status_code == 200


def test_entered_passwords_are_not_stored(client: Client, viewer: User) -> None:
    log_in(client, password="nearly right")
    kept = AccessAttempt.objects.get()
    assert "nearly right" not in f"{kept.post_data}{kept.get_data}"


def test_clients_of_a_trusted_proxy_are_counted_separately(
    client: Client, viewer: User, settings: Settings
) -> None:
    settings.TRUST_PROXY = True
    made_up = [f"203.0.113.{n}, {HERE}" for n in range(10)]
    answers = [log_in(client, HTTP_X_FORWARDED_FOR=chain).status_code for chain in made_up]
    assert answers == [REFUSED] * 9 + [LOCKED]
    other = log_in(client, password=PASSWORD, HTTP_X_FORWARDED_FOR=f"{HERE}, {THERE}")
    assert other.status_code == WELCOME


def test_without_a_trusted_proxy_forwarded_addresses_are_ignored(
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
def test_a_client_is_an_ipv4_address_or_an_ipv6_network(address: str, client: str | None) -> None:
    assert client_address(RequestFactory().get("/", REMOTE_ADDR=address)) == client


def test_a_proxy_without_a_valid_address_counts_as_the_client(settings: Settings) -> None:
    settings.TRUST_PROXY = True
    request = RequestFactory().get("/", REMOTE_ADDR=THERE, HTTP_X_FORWARDED_FOR="unknown")
    assert client_address(request) == THERE


def test_many_names_from_one_address_are_refused_in_the_end(client: Client, viewer: User) -> None:
    answers = [log_in(client, f"name-{n}").status_code for n in range(51)]
    assert answers == [REFUSED] * 50 + [LOCKED]
    log_in(client, "name-51")
    pause = AuditEntry.objects.get(action="session.locked_out")
    assert (pause.object_name, pause.after) == ("unknown names", {"address": HERE})
    assert log_in(client, password=PASSWORD).status_code == LOCKED
    assert log_in(Client(), password=PASSWORD, REMOTE_ADDR=THERE).status_code == WELCOME
    viewer.refresh_from_db()
    assert client.post(login_path(viewer), REMOTE_ADDR=HERE).status_code == WELCOME


@pytest.mark.each_database
def test_one_name_from_many_addresses_is_refused_in_the_end_in_any_spelling(
    client: Client, viewer: User
) -> None:
    make_member("editor")
    answers = [log_in(client, REMOTE_ADDR=f"203.0.113.{n}").status_code for n in range(101)]
    assert answers == [REFUSED] * 100 + [LOCKED]
    for written in ("viewer", " viewer ", "\N{FULLWIDTH LATIN SMALL LETTER V}iewer"):
        assert log_in(client, written, PASSWORD).status_code == LOCKED
    assert AuditEntry.objects.filter(action="session.locked_out", object_name="viewer").exists()
    assert log_in(client, "editor", PASSWORD).status_code == WELCOME


def test_a_name_that_cannot_be_stored_is_refused(client: Client) -> None:
    assert log_in(client, "viewer\0").status_code == REFUSED


def test_when_all_password_checks_are_taken_the_page_asks_to_try_again(
    client: Client, viewer: User
) -> None:
    with PASSWORD_CHECKS, PASSWORD_CHECKS:
        answer = log_in(client, password=PASSWORD)
    assert (answer.status_code, answer["Retry-After"]) == (LOCKED, "1")
    assert "Several people are logging in right now" in answer.text
    assert log_in(client, password=PASSWORD).status_code == WELCOME


def test_the_old_password_cannot_be_guessed_with_a_stolen_session(viewer_client: Client) -> None:
    sent = {"old_password": "wrong", "new_password1": "a fine one", "new_password2": "a fine one"}
    answers = [viewer_client.post("/account/password/", sent).status_code for _ in range(10)]
    assert answers == [REFUSED] * 9 + [LOCKED]
    right = sent | {"old_password": PASSWORD}
    assert viewer_client.post("/account/password/", right).status_code == LOCKED

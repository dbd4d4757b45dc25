"""Logging in with a name and a password."""

from __future__ import annotations

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from tests.support.members import PASSWORD


def test_logging_in_continues_to_the_requested_page(client: Client, viewer: User) -> None:
    page = client.get("/login/", {"next": "/account/"})
    assert page.status_code == 200
    sent = {"username": "viewer", "password": PASSWORD, "next": "/account/"}
    response = client.post("/login/", sent)
    assert response.status_code == 302
    assert response["Location"] == "/account/"
    assert client.get("/account/").status_code == 200


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ("http://testserver", "/suites/support/cases/%3Ftag%3Drefunds"),
        ("http://elsewhere.example", "/suites/support/case-bulk/"),
    ],
)
def test_after_a_form_was_sent_without_a_session_a_login_leads_to_the_page_of_the_form(
    client: Client, db: None, site: str, place: str
) -> None:
    page = {"Referer": f"{site}/suites/support/cases/?tag=refunds"}
    answer = client.post("/suites/support/case-bulk/", headers=page)
    assert answer["Location"] == f"/login/?next={place}"


def test_a_wrong_password_answers_422_and_keeps_the_name(client: Client, viewer: User) -> None:
    response = client.post("/login/", {"username": "viewer", "password": "wrong"})
    assert response.status_code == 422
    assert 'value="viewer"' in response.text
    assert "Not logged in" in response.text
    assert "correct username and password" in response.text
    assert settings.SESSION_COOKIE_NAME not in client.cookies


def test_an_empty_form_answers_422(client: Client, db: None) -> None:
    assert client.post("/login/", {}).status_code == 422


def test_a_name_that_is_longer_than_any_is_refused_and_not_counted(
    client: Client, db: None
) -> None:
    response = client.post("/login/", {"username": "a" * 3_000, "password": "wrong"})
    assert response.status_code == 422
    assert "at most 150 characters" in response.content.decode()
    assert not AccessAttempt.objects.exists()


def test_a_deactivated_member_cannot_log_in(client: Client, viewer: User) -> None:
    User.objects.update(is_active=False)
    response = client.post("/login/", {"username": "viewer", "password": PASSWORD})
    assert response.status_code == 422


def test_logging_in_never_redirects_to_another_site(client: Client, viewer: User) -> None:
    sent = {"username": "viewer", "password": PASSWORD, "next": "https://evil.example/"}
    assert client.post("/login/", sent)["Location"] == "/"


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "access:logout",
        "nan",
        "'\"><b>",
        "/account/?" + "é" * 400,
    ],
)
def test_an_unusable_next_path_leads_home(client: Client, viewer: User, place: str) -> None:
    sent = {"username": "viewer", "password": PASSWORD, "next": place}
    assert client.post("/login/", sent)["Location"] == "/"
    assert client.get("/login/", {"next": place})["Location"] == "/"


def test_a_logged_in_member_skips_the_login_page(viewer_client: Client) -> None:
    assert viewer_client.get("/login/").status_code == 302


def test_logging_out_needs_a_post(viewer_client: Client) -> None:
    assert viewer_client.get("/logout/").status_code == 405
    assert viewer_client.post("/logout/")["Location"] == "/login/"
    assert viewer_client.get("/account/").status_code == 302

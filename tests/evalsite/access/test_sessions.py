"""Sessions: what the database holds of them, when they end, and who ends them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from evalsite.access import members
from evalsite.access.models import MemberSession
from evalsite.access.tokens import find_grant, make_token
from evaluators.models import AuditEntry
from tests.support.members import PASSWORD, make_client, make_member

pytestmark = pytest.mark.django_db
ACCOUNT, WELCOME, LOGIN = "/account/", 200, 302


def log_in(member: User, browser: str = "Firefox") -> Client:
    client = Client(headers={"user-agent": browser})
    client.post("/login/", {"username": member.username, "password": PASSWORD})
    assert client.get(ACCOUNT).status_code == WELCOME
    return client


def test_the_database_holds_nothing_that_logs_somebody_in(viewer: User) -> None:
    client = log_in(viewer)
    row = MemberSession.objects.get()
    assert client.cookies[settings.SESSION_COOKIE_NAME].value not in str(vars(row))
    thief = Client()
    thief.cookies[settings.SESSION_COOKIE_NAME] = row.session_key
    assert thief.get(ACCOUNT).status_code == LOGIN


@pytest.mark.parametrize(
    ("unused", "age", "expected"),
    [
        (timedelta(days=2), timedelta(days=13), WELCOME),
        (timedelta(days=3, minutes=1), timedelta(days=4), LOGIN),
        (timedelta(0), timedelta(days=14, minutes=1), LOGIN),
    ],
)
def test_a_session_ends_unused_and_in_any_case(
    viewer: User, unused: timedelta, age: timedelta, expected: int
) -> None:
    client, now = log_in(viewer), timezone.now()
    lifetime = timedelta(seconds=settings.SESSION_COOKIE_AGE)
    MemberSession.objects.update(seen_at=now - unused, expire_date=now - age + lifetime)
    assert client.get(ACCOUNT).status_code == expected


def test_use_prolongs_a_session_but_not_beyond_its_end(viewer: User) -> None:
    client = log_in(viewer)
    MemberSession.objects.update(seen_at=timezone.now() - timedelta(days=2))
    end = MemberSession.objects.get().expire_date
    client.get(ACCOUNT)
    row = MemberSession.objects.get()
    assert timezone.now() - row.seen_at < timedelta(minutes=1)
    # What a page stores in the session writes it anew.
    client.post("/account/tokens/", {"name": "report", "role": "viewer", "expires": "30"})
    assert MemberSession.objects.get().expire_date == end


def test_a_member_sees_the_sessions_and_ends_the_others(viewer: User, editor: User) -> None:
    telephone = "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0 Safari/537.36"
    here, there, other = log_in(viewer), log_in(viewer, telephone), log_in(editor)
    page = here.get(ACCOUNT).text
    assert "Firefox" in page
    assert "Chrome on Android" in page
    assert page.count("this one") == 1
    assert "1 other session ended." in here.post("/account/sessions/end/", follow=True).text
    assert [client.get(ACCOUNT).status_code for client in (here, there, other)] == [
        WELCOME,
        LOGIN,
        WELCOME,
    ]
    assert "End all others" not in here.get(ACCOUNT).text
    entry = AuditEntry.objects.get(action="member.sessions_ended")
    assert (entry.actor, entry.after) == (viewer, {"sessions": "1"})


def test_sessions_and_tokens_stay_over_after_a_reactivation(viewer: User, admin: User) -> None:
    client = make_client(viewer)
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    members.deactivate(viewer, actor=admin)
    # Requests that began before may end after it.
    late = make_client(viewer)
    _, late_secret = make_token(owner=viewer, name="late", scopes=(), expires_at=None)
    members.reactivate(viewer, actor=admin)
    assert [each.get(ACCOUNT).status_code for each in (client, late)] == [LOGIN, LOGIN]
    assert find_grant(secret, now=timezone.now()) is None
    assert find_grant(late_secret, now=timezone.now()) is None


@pytest.mark.parametrize("revokes", [True, False])
def test_a_new_password_revokes_tokens_if_asked_to(viewer: User, revokes: bool) -> None:
    client, new = log_in(viewer), "a much better passphrase"
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    sent = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    client.post("/account/password/", sent | ({"revoke_tokens": "on"} if revokes else {}))
    assert (find_grant(secret, now=timezone.now()) is None) == revokes
    assert MemberSession.objects.filter(user=viewer).count() == 1
    assert AuditEntry.objects.filter(action="member.password_changed", actor=viewer).exists()


def test_logins_are_in_the_audit_for_those_who_may_change_members(viewer: User) -> None:
    client = log_in(viewer)
    client.post("/logout/")
    for name in ("viewer", "not a member but perhaps a password"):
        client.post("/login/", {"username": name, "password": "wrong"})
    client.post(members.login_path(User.objects.get(pk=viewer.pk)))
    entries = AuditEntry.objects.filter(object_type="session").order_by("id")
    here = {"address": "127.0.0.1"}
    assert [(entry.action, entry.actor_name, entry.after) for entry in entries] == [
        ("session.logged_in", "viewer", here | {"with": "password"}),
        ("session.logged_out", "viewer", here),
        ("session.login_failed", "not logged in", here),
        ("session.logged_in", "viewer", here | {"with": "one-time link"}),
    ]
    for _ in range(12):
        client = Client()
        client.post("/login/", {"username": "viewer", "password": "wrong"})
    assert AuditEntry.objects.filter(action="session.locked_out").count() == 1
    assert "failed to log in as" in make_client(make_member("admin")).get("/audit/").text
    assert "failed to log in as" not in make_client(make_member("editor")).get("/audit/").text


def test_an_admin_ends_the_sessions_of_a_member_and_no_other(
    admin: User, viewer: User, editor: User
) -> None:
    own, other, theirs = make_client(admin), make_client(editor), make_client(viewer)
    page = f"/members/{viewer.pk}/"
    assert "1 open" in own.get(page).text
    answer = own.post(f"{page}sessions/end/", follow=True)
    assert "1 session ended" in answer.text
    assert "End all sessions" not in answer.text
    assert theirs.get("/account/").status_code == 302
    assert other.get("/account/").status_code == 200
    entry = AuditEntry.objects.get(action="member.sessions_ended")
    assert (entry.actor, entry.object_name, entry.after) == (admin, "viewer", {"sessions": "1"})


def test_an_admin_keeps_the_session_in_which_others_are_ended(admin: User) -> None:
    this, other = make_client(admin), make_client(admin)
    assert "End other sessions" in this.get(f"/members/{admin.pk}/").text
    this.post(f"/members/{admin.pk}/sessions/end/")
    assert this.get("/account/").status_code == 200
    assert other.get("/account/").status_code == 302

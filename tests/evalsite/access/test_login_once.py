"""Links that log a member in once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from io import StringIO
from threading import Barrier

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from evalsite.access.members import find_link_user, login_path, password_path, use_link
from evalsite.access.models import MemberSession
from evalsite.access.roles import Role, highest_role
from evaluators.models import AuditEntry
from tests.support.members import PASSWORD, make_client, make_member


def printed_link(*arguments: str) -> str:
    out = StringIO()
    call_command("login_link", *arguments, stdout=out)
    return out.getvalue().strip()


def test_a_link_logs_in_once(client: Client, viewer: User) -> None:
    link = login_path(viewer)
    assert "Log in as viewer" in client.get(link).text
    response = client.post(link)
    assert response["Location"] == "/"
    assert client.get("/account/").status_code == 200
    again = Client()
    assert again.get(link).status_code == 410
    assert again.post(link).status_code == 410
    assert again.get("/account/").status_code == 302


def test_opening_a_link_does_not_use_it_up(client: Client, viewer: User) -> None:
    link = login_path(viewer)
    for _ in range(3):
        assert client.get(link).status_code == 200
    assert client.post(link).status_code == 302


def test_a_password_that_is_set_by_a_link_is_in_the_audit_and_ends_all_sessions(
    client: Client, viewer: User
) -> None:
    make_client(viewer)
    client.post(password_path(viewer), {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert AuditEntry.objects.filter(action="member.password_changed", actor=viewer).exists()
    assert MemberSession.objects.filter(user=viewer).count() == 1
    assert client.get("/account/").status_code == 200


def test_a_password_that_is_being_set_brings_no_deactivated_member_back(
    client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use_then_deactivate(member: User) -> bool:
        used = use_link(member)
        User.objects.filter(pk=member.pk).update(is_active=False)
        return used

    monkeypatch.setattr("evalsite.access.views.use_link", use_then_deactivate)
    client.post(password_path(viewer), {"new_password1": PASSWORD, "new_password2": PASSWORD})

    viewer.refresh_from_db()
    assert not viewer.is_active
    assert client.get("/account/").status_code == 302


def test_a_link_expires(client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch) -> None:
    link = login_path(viewer)
    later = datetime.now() + timedelta(hours=25)  # noqa: DTZ005 - what Django's generator counts in
    monkeypatch.setattr("evalsite.access.members.LOGIN_TOKENS._now", lambda: later)
    response = client.post(link)
    assert response.status_code == 410
    assert "no longer works" in response.text


def test_deactivation_and_a_new_password_invalidate_a_link(client: Client, viewer: User) -> None:
    link = login_path(viewer)
    User.objects.update(is_active=False)
    assert client.post(link).status_code == 410
    User.objects.update(is_active=True)
    viewer.refresh_from_db()
    viewer.set_password("another good one")
    viewer.save()
    assert client.post(link).status_code == 410


def test_a_link_works_for_one_purpose_only(client: Client, viewer: User) -> None:
    token = password_path(viewer).split("/")[-2]
    user_code = password_path(viewer).split("/")[-3]
    assert client.post(f"/login/{user_code}/{token}/").status_code == 410


@pytest.mark.parametrize("link", ["/login/x/y/", "/login/OTk5/abc-def/", "/password/!!/y/"])
def test_a_malformed_link_is_refused_the_same_way(client: Client, db: None, link: str) -> None:
    assert client.get(link).status_code == 410


def test_the_command_makes_the_first_admin(client: Client, db: None) -> None:
    link = printed_link("--url", "http://127.0.0.1:8001")
    assert link.startswith("http://127.0.0.1:8001/login/")
    admin = User.objects.get()
    assert highest_role(admin) == Role.ADMIN
    client.post(link.removeprefix("http://127.0.0.1:8001"))
    assert client.get("/account/").status_code == 200


def test_the_command_refuses_an_unknown_member(viewer: User) -> None:
    with pytest.raises(CommandError, match="no member named admin"):
        printed_link()
    User.objects.update(is_active=False)
    with pytest.raises(CommandError, match="deactivated"):
        printed_link("viewer")


def test_the_first_link_is_printed_until_somebody_has_logged_in(client: Client, db: None) -> None:
    first = printed_link("--first")
    assert printed_link("--first") != ""
    client.post(first[first.index("/login/") :])
    assert printed_link("--first") == ""


def test_the_first_link_is_for_an_admin_of_any_name(client: Client, viewer: User) -> None:
    assert printed_link("--first") == ""
    make_member("admin", "ada")
    link = printed_link("--first")
    client.post(link[link.index("/login/") :])
    assert User.objects.get(last_login__isnull=False).username == "ada"


@pytest.mark.django_db(transaction=True)
def test_a_link_that_is_opened_by_four_at_once_logs_one_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = make_member("viewer")
    link, together = login_path(member), Barrier(4)

    def find(*arguments: object) -> User | None:
        found = find_link_user(*arguments)
        together.wait()
        return found

    monkeypatch.setattr("evalsite.access.views.find_link_user", find)

    def use(number: int) -> int:
        try:
            return Client().post(link).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(use, range(4))) == [302, 410, 410, 410]


def test_a_link_made_and_used_within_the_second_of_the_last_login_works_once(
    client: Client, viewer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now().replace(microsecond=0)
    moments = (now + timedelta(microseconds=n) for n in range(1, 100))
    monkeypatch.setattr("django.utils.timezone.now", lambda: next(moments))
    User.objects.filter(pk=viewer.pk).update(last_login=now)
    link = login_path(User.objects.get(pk=viewer.pk))
    assert client.post(link).status_code == 302
    assert Client().post(link).status_code == 410

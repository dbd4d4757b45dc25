"""A member's own account: role and password."""

from __future__ import annotations

import pytest
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.test import Client

from evalsite.access.members import change_password, deactivate
from tests.support.members import PASSWORD, make_client, make_member

NEW = "a much better passphrase"


@pytest.mark.parametrize("role", ["viewer", "reviewer", "editor", "admin", ""])
def test_the_account_page_shows_the_role(role: str, db: None) -> None:
    response = make_client(make_member(role)).get("/account/")
    assert response.status_code == 200
    assert (role.capitalize() or "None: an admin can give you one") in response.text


def test_a_new_password_ends_other_sessions(viewer: User, viewer_client: Client) -> None:
    other = make_client(viewer)
    sent = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    response = viewer_client.post("/account/password/", sent, follow=True)
    assert "Password changed" in response.text
    assert viewer_client.get("/account/").status_code == 200
    assert other.get("/account/").status_code == 302
    viewer.refresh_from_db()
    assert viewer.check_password(NEW)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}, "incorrect"),
        ({"old_password": PASSWORD, "new_password1": NEW, "new_password2": "x"}, "match"),
        ({"old_password": PASSWORD, "new_password1": "123", "new_password2": "123"}, "too short"),
        # Not among the passwords of the world, but of this site.
        (
            {
                "old_password": PASSWORD,
                "new_password1": "Evalsite123",
                "new_password2": "Evalsite123",
            },
            "too common",
        ),
        ({}, "required"),
    ],
)
def test_a_refused_password_answers_422_and_changes_nothing(
    sent: dict[str, str], words: str, viewer: User, viewer_client: Client
) -> None:
    response = viewer_client.post("/account/password/", sent)
    assert response.status_code == 422
    assert words in response.text
    viewer.refresh_from_db()
    assert viewer.check_password(PASSWORD)


def test_a_member_without_a_password_sets_one_without_an_old_one(viewer: User) -> None:
    viewer.set_unusable_password()
    viewer.save()
    client = make_client(viewer)
    assert "Old password" not in client.get("/account/password/").text
    client.post("/account/password/", {"new_password1": NEW, "new_password2": NEW})
    viewer.refresh_from_db()
    assert viewer.check_password(NEW)


def test_a_member_who_is_deactivated_while_a_password_is_changed_stays_out(
    viewer: User, admin: User
) -> None:
    late = User.objects.get(pk=viewer.pk)
    form = SetPasswordForm(
        late, {"new_password1": "a quiet harbour", "new_password2": "a quiet harbour"}
    )
    assert form.is_valid()
    deactivate(viewer, actor=admin)
    change_password(form, revokes_tokens=False)
    assert not User.objects.get(pk=viewer.pk).is_active

"""Tokens of the API: their secret, scopes and end."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from evalsite.access.models import ApiToken, MemberSession
from evalsite.access.roles import ADDED_PERMISSIONS, SCOPE_PERMISSIONS, Role, Scope, role_scopes
from evalsite.access.sessions import SessionStore
from evalsite.access.tokens import (
    ScopeNotAllowedError,
    find_grant,
    make_token,
    revoke_token,
    token_rows,
)
from evaluators.models import AuditEntry
from tests.support.members import make_client, make_member
from tests.support.threads import at_once

NOW = datetime(2026, 5, 12, 9, 0, tzinfo=UTC)
SENT = {"name": "nightly", "expires": "30"}
TOKEN = re.compile(r"evs_[\w-]{43}")


def token_of(owner: User, *, scopes: Collection[Scope] = (), days: int | None = None) -> str:
    expires_at = None if days is None else NOW + timedelta(days=days)
    return make_token(owner=owner, name="nightly", scopes=scopes, expires_at=expires_at)[1]


def test_the_secret_of_a_token_is_shown_once_and_not_stored(
    viewer: User, viewer_client: Client
) -> None:
    shown = viewer_client.post("/account/tokens/", SENT, follow=True)
    (secret,) = TOKEN.findall(shown.text)
    assert "Shown only once" in shown.text
    assert 'data-copy="#new-token"' in shown.text
    again = viewer_client.get("/account/tokens/").text
    assert secret not in again
    assert f"{secret[:8]}…" in again
    token = viewer.api_tokens.get()
    assert secret not in str(vars(token))
    assert token.expires_at is not None
    assert (token.expires_at - token.created_at).days in (29, 30)
    assert find_grant(secret, now=token.created_at) is not None
    entry = AuditEntry.objects.get(action="api_token.made")
    assert (entry.actor, entry.after["scopes"]) == (viewer, "read")
    assert secret not in f"{entry.object_name}{entry.after}"


def test_a_secret_waiting_in_the_session_is_encrypted(
    viewer_client: Client,
) -> None:
    viewer_client.post("/account/tokens/", SENT)
    kept = SessionStore().decode(MemberSession.objects.get().session_data)["access.new_api_token"]
    assert "evs_" not in kept
    viewer_client.head("/account/tokens/")
    assert TOKEN.search(viewer_client.get("/account/tokens/").text)


@pytest.mark.parametrize(
    ("role", "sent", "words"),
    [
        ("viewer", {"scopes": "run"}, "not one of the available choices"),
        ("viewer", {"expires": "never"}, "not one of the available choices"),
        ("editor", {"scopes": "admin"}, "not one of the available choices"),
        ("editor", {"expires": "31"}, "not one of the available choices"),
        ("admin", {"name": ""}, "This field is required"),
        ("admin", {"name": "n" * 101}, "at most 100"),
        ("", {}, "when an admin has given you a role"),
    ],
)
def test_the_form_refuses_invalid_values(
    role: str, sent: dict[str, str], words: str, db: None
) -> None:
    response = make_client(make_member(role)).post("/account/tokens/", SENT | sent)
    assert response.status_code == 422
    assert words in response.text
    assert not ApiToken.objects.exists()


def test_the_form_offers_the_scopes_that_the_role_allows(db: None) -> None:
    for role, offered in (
        ("viewer", []),
        ("reviewer", ["review"]),
        ("editor", ["run", "edit", "review"]),
    ):
        page = make_client(make_member(role, role)).get("/account/tokens/").text
        assert re.findall(r'name="scopes" value="(\w+)"', page) == offered


def test_every_permission_of_a_role_belongs_to_one_scope() -> None:
    in_roles = [name for names in ADDED_PERMISSIONS.values() for name in names]
    in_scopes = [name for names in SCOPE_PERMISSIONS.values() for name in names]
    assert sorted(in_scopes) == sorted(in_roles)
    assert role_scopes(None) == []
    assert role_scopes(Role.ADMIN) == list(Scope)


def test_an_admins_token_need_not_expire(admin: User, admin_client: Client) -> None:
    sent = {**SENT, "scopes": ["edit", "run"], "expires": "never"}
    admin_client.post("/account/tokens/", sent)
    token = admin.api_tokens.get()
    assert (token.scopes, token.expires_at) == ("read run edit", None)


def test_a_member_has_at_most_twenty_tokens_that_work(viewer_client: Client, viewer: User) -> None:
    for number in range(20):
        assert viewer_client.post("/account/tokens/", SENT).status_code == 302, number
    refused = viewer_client.post("/account/tokens/", SENT)
    assert refused.status_code == 422
    assert "You have 20 tokens that work, which is the limit." in refused.text
    revoke_token(viewer.api_tokens.all()[0], actor=viewer, now=timezone.now())
    assert viewer_client.post("/account/tokens/", SENT).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_tokens_that_are_made_at_once_are_no_more_than_a_member_may_have(viewer: User) -> None:
    for _ in range(18):
        token_of(viewer)
    answers = at_once(*[partial(token_of, viewer)] * 4)
    assert sum("20 tokens that work" in str(answer) for answer in answers) == 2
    assert viewer.api_tokens.count() == 20


def test_a_token_has_no_scope_that_its_owner_has_no_use_for(viewer: User) -> None:
    with pytest.raises(ScopeNotAllowedError, match="does not allow the scopes Run, Edit"):
        token_of(viewer, scopes=[Scope.EDIT, Scope.RUN])


def test_a_token_works_until_expiry_revocation_or_deactivation(editor: User, admin: User) -> None:
    secret = token_of(editor, days=30)
    last = NOW + timedelta(days=30)
    assert find_grant(secret, now=last - timedelta(seconds=1)) is not None
    assert find_grant(secret, now=last) is None
    User.objects.filter(pk=editor.pk).update(is_active=False)
    assert find_grant(secret, now=NOW) is None
    User.objects.filter(pk=editor.pk).update(is_active=True)
    assert find_grant(secret, now=NOW) is not None
    assert revoke_token(editor.api_tokens.get(), actor=admin, now=NOW)
    assert find_grant(secret, now=NOW) is None
    assert not revoke_token(editor.api_tokens.get(), actor=admin, now=NOW)
    assert AuditEntry.objects.filter(action="api_token.revoked", actor=admin).count() == 1


@pytest.mark.parametrize("secret", ["", "evs_", "evs_x", "nightly", "é" * 50])
def test_an_invalid_secret_gets_no_grant(secret: str, editor: User) -> None:
    token_of(editor)
    assert find_grant(secret, now=NOW) is None


def test_a_token_has_the_permissions_of_its_scopes(editor: User) -> None:
    reads = find_grant(token_of(editor), now=NOW)
    edits = find_grant(token_of(editor, scopes=[Scope.EDIT]), now=NOW)
    assert reads
    assert edits
    assert (reads.allows("runs.view_run"), edits.allows("runs.view_run")) == (True, True)
    assert (reads.allows("runs.change_suite"), edits.allows("runs.change_suite")) == (False, True)
    assert not edits.allows("runs.start_run")


def test_the_list_shows_when_the_owners_role_limits_a_token(editor: User) -> None:
    token_of(editor, scopes=[Scope.RUN])
    assert [(row.barred, row.is_active) for row in token_rows(now=NOW)] == [([], True)]
    editor.groups.set([Group.objects.get(name="viewer")])
    (row,) = token_rows(now=NOW)
    assert (row.scopes, row.barred, row.is_active) == ([Scope.READ, Scope.RUN], [Scope.RUN], True)
    assert "Not allowed to its member" in make_client(editor).get("/account/tokens/").text
    editor.groups.clear()
    (row,) = token_rows(now=NOW)
    assert (row.barred, row.is_active) == ([Scope.READ, Scope.RUN], False)


def test_a_use_is_recorded_once_a_minute(editor: User) -> None:
    secret = token_of(editor)
    noted = []
    for seconds in (0, 59, 60, 61, 121):
        find_grant(secret, now=NOW + timedelta(seconds=seconds))
        used = editor.api_tokens.get().last_used_at
        assert used
        noted.append((used - NOW).seconds)
    assert noted == [0, 0, 60, 60, 121]


def test_members_manage_their_own_tokens_and_admins_all(
    viewer_client: Client, editor_client: Client, editor: User, admin_client: Client
) -> None:
    token_of(editor, days=3)
    token = editor.api_tokens.get()
    revoke = f"/account/tokens/{token.pk}/revoke/"
    assert "nightly" not in viewer_client.get("/account/tokens/").text
    assert viewer_client.get(revoke).status_code == 404
    assert viewer_client.post(revoke).status_code == 404
    assert "Tokens of other members" in admin_client.get("/account/tokens/").text
    page = editor_client.get(revoke)
    assert "Programs that use it stop working at once" in page.text
    token.refresh_from_db()
    assert token.revoked_at is None
    done = admin_client.post(revoke, follow=True)
    assert "Token nightly is revoked." in done.text
    assert "Revoked" in editor_client.get("/account/tokens/").text
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_the_list_needs_the_same_queries_for_any_number_of_tokens(
    admin: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(12):
        token_of(make_member("viewer", f"m{number}"))
    with django_assert_num_queries(2):
        assert len(token_rows(now=NOW)) == 12


def test_only_those_who_change_members_see_tokens_in_the_audit(
    editor_client: Client, admin_client: Client, viewer: User
) -> None:
    token_of(viewer)
    assert "nightly" not in editor_client.get("/audit/").text
    audit = admin_client.get("/audit/").text
    assert "created" in audit
    assert "nightly" in audit

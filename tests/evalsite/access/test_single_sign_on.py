"""Signing in with a real provider over HTTP: who is let in, with which role, and what is refused."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from pytest_django import Settings

from evalsite.access.apps import create_roles
from evalsite.access.models import MemberIdentity, MemberSession
from evalsite.access.roles import Role, highest_role
from evalsite.access.sessions import CONFIRMED_AT
from evalsite.access.single_sign_on.identity import Identity
from evalsite.access.single_sign_on.provider import CALLS
from evalsite.access.single_sign_on.services import admit
from evalsite.access.single_sign_on.views import COOKIE_SALT
from evaluators.models import AuditEntry
from tests.services.identity_provider import IdentityProvider
from tests.support.identity_provider import go_to_provider, query_of, sign_in
from tests.support.members import PASSWORD, make_client, make_member

pytestmark = pytest.mark.django_db
ONE_DATABASE = pytest.mark.one_database
ADA = {"email": "ada@harbour.example", "email_verified": True}
ROLES = {"evals-admins": "admin", "ml": "editor", "staff": "viewer"}


@pytest.fixture
def ada(provider: IdentityProvider) -> User:
    """A viewer with a verified email address at the provider."""
    provider.know("ada", **ADA)
    member = make_member("viewer", "ada")
    User.objects.filter(pk=member.pk).update(email="Ada@Harbour.example")
    return member


def entries(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=action))


def role_of(member: User) -> Role | None:
    return highest_role(User.objects.get(pk=member.pk))


def is_logged_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def test_an_invited_member_signs_in_and_continues_to_the_requested_page(
    client: Client, ada: User
) -> None:
    response = sign_in(client, "ada", next_path="/account/tokens/")
    assert (response.status_code, response["Location"]) == (302, "/account/tokens/")
    assert "ada" in client.get("/account/").text
    assert MemberSession.objects.filter(user=ada).count() == 1
    (login,) = entries("session.logged_in")
    assert login.after["with"] == "single sign-on"
    assert [entry.object_name for entry in entries("member.linked")] == ["ada"]


def test_the_provider_is_asked_with_pkce_state_and_nonce(
    client: Client, provider: IdentityProvider
) -> None:
    asked = query_of(client.get("/sign-in/")["Location"])
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == "http://testserver/sign-in/return/"
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    assert asked["scope"] == "openid profile email"


@pytest.mark.parametrize("place", ["https://evil.example/", "//evil.example/", "/\\evil.example"])
def test_signing_in_never_leads_to_another_site(client: Client, ada: User, place: str) -> None:
    assert sign_in(client, "ada", next_path=place)["Location"] == "/"


# Characters that cookies or JSON write in several.
@pytest.mark.parametrize("character", ["a", ",", '"', "é", "\N{ANCHOR}"])
@pytest.mark.parametrize("length", [300, 1_990, 7_000])
def test_the_longest_path_leaves_the_cookie_small_enough_for_browsers(
    client: Client, provider: IdentityProvider, settings: Settings, character: str, length: int
) -> None:
    client.get("/sign-in/", {"next": f"/runs/?q={character * length}"})
    cookie = client.cookies[settings.SIGN_IN_COOKIE_NAME]
    assert len(cookie.OutputString()) < 4096


def test_a_path_that_is_too_long_leads_home(client: Client, ada: User) -> None:
    path = "/account/?" + "a" * 1_900
    assert sign_in(client, "ada", next_path=path)["Location"] == path
    assert sign_in(Client(), "ada", next_path=path + "a" * 200)["Location"] == "/"


def test_a_linked_member_is_known_by_the_account_and_no_more_by_the_address(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    sign_in(client, "ada")
    provider.know("ada", email="new@harbour.example", email_verified=True)
    assert sign_in(Client(), "ada").status_code == 302
    assert MemberIdentity.objects.get().user == ada


def test_another_account_with_the_address_of_a_linked_member_is_refused(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    sign_in(client, "ada")
    provider.know("ada", sub="somebody else", **ADA)
    other = Client()
    response = sign_in(other, "ada")
    assert response.status_code == 403
    assert "linked to another account" in response.text
    assert not is_logged_in(other)


def test_after_an_admin_ends_the_link_the_address_counts_again(
    client: Client, ada: User, provider: IdentityProvider, admin_client: Client
) -> None:
    sign_in(client, "ada")
    provider.know("ada", sub="a new account", **ADA)
    assert "Unlink from Harbour ID" in admin_client.get(f"/members/{ada.pk}/").text
    admin_client.post(f"/members/{ada.pk}/unlink/")
    assert not is_logged_in(client)
    assert entries("member.unlinked")
    assert sign_in(Client(), "ada").status_code == 302
    assert MemberIdentity.objects.get().subject == "a new account"


@pytest.mark.parametrize("verified", [False, None, "yes", 1])
def test_an_unverified_address_finds_nobody(
    client: Client, ada: User, provider: IdentityProvider, verified: Any
) -> None:
    provider.know("ada", email="ada@harbour.example", email_verified=verified)
    response = sign_in(client, "ada")
    assert response.status_code == 403
    assert "does not say that your email address is verified" in response.text
    assert not MemberIdentity.objects.exists()


def test_a_site_may_trust_addresses_of_a_provider_that_does_not_verify_them(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_TRUST_EMAIL = True
    provider.know("ada", email="ada@harbour.example")
    assert sign_in(client, "ada").status_code == 302


def test_somebody_who_was_not_invited_is_refused_and_in_the_audit(
    client: Client, provider: IdentityProvider
) -> None:
    provider.know("eve", email="eve@harbour.example", email_verified=True)
    response = sign_in(client, "eve")
    assert response.status_code == 403
    assert "No member of this site has the email address eve@harbour.example" in response.text
    (refused,) = entries("session.sign_in_refused")
    assert refused.object_name == "eve@harbour.example"
    assert refused.after["reason"].startswith("No member of this site")
    assert not User.objects.exists()


def test_an_address_of_two_members_links_neither(client: Client, ada: User) -> None:
    twin = make_member("admin", "ada2")
    User.objects.filter(pk=twin.pk).update(email="ada@harbour.example")
    response = sign_in(client, "ada")
    assert response.status_code == 403
    assert "Several members have the email address" in response.text


def test_a_deactivated_member_stays_out(client: Client, ada: User) -> None:
    sign_in(client, "ada")
    User.objects.filter(pk=ada.pk).update(is_active=False)
    other = Client()
    response = sign_in(other, "ada")
    assert response.status_code == 403
    assert "deactivated" in response.text
    assert not is_logged_in(other)
    assert entries("session.sign_in_refused")[0].object_name == "ada"


def test_a_deactivated_member_is_not_linked(client: Client, ada: User) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert "deactivated" in sign_in(client, "ada").text
    assert not MemberIdentity.objects.exists()


def test_everybody_of_the_provider_becomes_a_viewer_where_everybody_is_let_in(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ADMIT = "everybody"
    make_member("admin", "Mira")
    provider.know(
        "mira", preferred_username="mira", email="mira@harbour.example", email_verified=True
    )
    provider.know("bo", sub="bo", preferred_username="Bo <b>Åse</b>", email="not an address")
    assert sign_in(client, "mira").status_code == sign_in(Client(), "bo").status_code == 302
    added = {user.username: user.email for user in User.objects.exclude(username="Mira")}
    assert added == {"mira-2": "mira@harbour.example", "Bo-b-Åse-b": ""}
    assert {role_of(user) for user in User.objects.exclude(username="Mira")} == {Role.VIEWER}
    assert {entry.actor_name for entry in entries("member.added")} == {"Harbour ID"}


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("MIRA", "MIRA-2"),
        ("\N{FULLWIDTH LATIN SMALL LETTER M}ira", "mira-2"),
        ("  ", "member"),
        ("x" * 200, "x" * 150),
        ("\N{LATIN SMALL LIGATURE FFI}" * 150, "ffi" * 50),
        ("a" + "\N{COMBINING ACUTE ACCENT}" * 10_000, "á"),
    ],
)
def test_a_newcomer_gets_a_name_that_nobody_has(
    client: Client, provider: IdentityProvider, settings: Settings, name: str, becomes: str
) -> None:
    settings.OIDC_ADMIT = "everybody"
    make_member("admin", "mira")
    provider.know("newcomer", preferred_username=name)
    assert sign_in(client, "newcomer").status_code == 302
    assert User.objects.exclude(username="mira").get().username == becomes


def test_an_address_too_long_to_be_stored_is_none(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ADMIT = "everybody"
    address = f"{'b' * 60}@{'a.' * 100}example"
    provider.know("bo", email=address, email_verified=True)
    assert sign_in(client, "bo").status_code == 302
    assert User.objects.get().email == ""


@pytest.mark.parametrize(
    "lookalike", ["m\u0131ke@harbour.example", "mike@harbour.e\u0131", "mi\u212ae@harbour.example"]
)
def test_an_address_that_a_database_takes_for_the_same_finds_nobody(
    client: Client, provider: IdentityProvider, lookalike: str
) -> None:
    mike = make_member("admin", "mike")
    address = lookalike.replace("\u0131", "I").replace("\u212a", "K")
    User.objects.filter(pk=mike.pk).update(email=address)
    provider.know("eve", email=lookalike, email_verified=True)
    assert sign_in(client, "eve").status_code == 403
    assert not MemberIdentity.objects.exists()


def test_an_address_is_verified_only_by_whoever_names_it(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    asked = {"email": "eve@harbour.example", "email_verified": True, "groups": ["staff"]}
    provider.know("eve", email="ada@harbour.example", only_when_asked=asked)
    assert sign_in(client, "eve").status_code == 403
    assert not MemberIdentity.objects.exists()


def test_only_groups_with_a_role_are_let_in_where_groups_decide(
    client: Client, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ADMIT, settings.OIDC_ROLES = "groups", ROLES
    provider.know("ada", groups=["staff", "ml", "others"], **ADA)
    provider.know("bo", groups=["others"])
    provider.know("cy")
    assert sign_in(client, "ada").status_code == 302
    assert role_of(User.objects.get(username="ada")) == Role.EDITOR
    assert "None of your groups may use this site" in sign_in(Client(), "bo").text
    assert "names no group of yours (claim groups)" in sign_in(Client(), "cy").text
    assert User.objects.count() == 1


def test_the_role_follows_the_groups_at_every_login(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    make_member("admin")
    for groups, role in (
        (["ml"], Role.EDITOR),
        (["staff", "evals-admins"], Role.ADMIN),
        (["staff"], Role.VIEWER),
    ):
        provider.know("ada", groups=groups, **ADA)
        assert sign_in(Client(), "ada").status_code == 302
        assert role_of(ada) == role
    changes = [
        (e.actor_name, e.before["role"], e.after["role"]) for e in entries("member.role_changed")
    ]
    assert changes == [
        ("Harbour ID", "admin", "viewer"),
        ("Harbour ID", "editor", "admin"),
        ("Harbour ID", "viewer", "editor"),
    ]


def test_a_lost_group_takes_role_and_sessions_away(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    provider.know("ada", groups=["ml"], **ADA)
    sign_in(client, "ada")
    provider.know("ada", groups=[], **ADA)
    assert sign_in(Client(), "ada").status_code == 403
    assert role_of(ada) is None
    assert not is_logged_in(client)
    assert [entry.after["role"] for entry in entries("member.role_changed")] == [None, "editor"]


def test_the_last_admin_keeps_the_role_and_is_told(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    ada.groups.clear()
    provider.know("ada", groups=["evals-admins"], **ADA)
    sign_in(client, "ada")
    provider.know("ada", groups=["staff"], **ADA)
    member_of = Client()
    assert sign_in(member_of, "ada").status_code == 302
    assert "You are the last admin, so you stay one" in member_of.get("/account/").text
    provider.know("ada", **ADA)
    refused = sign_in(Client(), "ada")
    assert refused.status_code == 403
    assert "You are the last admin, so you stay one" in refused.text
    assert role_of(ada) == Role.ADMIN
    assert [entry.after["groups give"] for entry in entries("member.role_kept")] == [
        "no role",
        "viewer",
    ]


def test_without_groups_in_the_settings_the_provider_changes_no_role(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    provider.know("ada", groups=["evals-admins"], **ADA)
    sign_in(client, "ada")
    assert role_of(ada) == Role.VIEWER


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("realm_access.roles", {"realm_access": {"roles": ["ml"]}}),
        ("https://harbour.example/groups", {"https://harbour.example/groups": "ml"}),
        ("roles", {"roles": {"ml": {"1": "harbour.example"}}}),
        ("roles", {"roles": {"evals-admins": False, "ml": True}}),
    ],
)
def test_groups_are_found_where_providers_put_them(
    client: Client,
    ada: User,
    provider: IdentityProvider,
    settings: Settings,
    name: str,
    claims: Any,
) -> None:
    settings.OIDC_ROLES, settings.OIDC_GROUPS_CLAIM = ROLES, name
    provider.know("ada", **ADA, **claims)
    assert sign_in(client, "ada").status_code == 302
    assert role_of(ada) == Role.EDITOR


def test_claims_that_are_only_told_when_asked_for_count_too(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    provider.know("ada", only_when_asked={**ADA, "groups": ["ml"]})
    assert sign_in(client, "ada").status_code == 302
    assert role_of(ada) == Role.EDITOR


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"_claim_names": {"groups": "src1"}}, "too many"),
        ({"groups": [{"name": "ml"}]}, "not a list of names"),
        ({"groups": 7}, "7"),
    ],
)
def test_groups_that_cannot_be_read_change_no_role(
    client: Client,
    ada: User,
    provider: IdentityProvider,
    settings: Settings,
    claims: Any,
    message: str,
) -> None:
    settings.OIDC_ROLES = ROLES
    provider.know("ada", groups=["ml"], **ADA)
    sign_in(client, "ada")
    provider.know("ada", **ADA, **claims)
    response = sign_in(Client(), "ada")
    assert response.status_code == 502
    assert role_of(ada) == Role.EDITOR


def now_and(seconds: int) -> int:
    return int(time.time()) + seconds


@ONE_DATABASE
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"claims": {"nonce": "of another journey"}}, "nonce"),
        ({"claims": {"nonce": None}}, "nonce"),
        ({"claims": {"aud": "another client"}}, "aud"),
        ({"claims": {"aud": "another client", "azp": "evalsite"}}, "aud"),
        ({"claims": {"aud": None}}, "aud"),
        ({"claims": {"iss": "https://evil.example"}}, "iss"),
        ({"claims": {"exp": now_and(-3600)}}, "expired"),
        ({"claims": {"exp": None}}, "exp"),
        ({"claims": {"iat": now_and(3600)}}, "issued in the future"),
        ({"claims": {"sub": None}}, "sub"),
        ({"claims": {"sub": ""}}, "sub"),
        ({"claims": {"sub": 7}}, "sub"),
        ({"claims": {"sub": "x" * 256}}, "sub"),
        ({"claims": {"sub": "half a \ud83d pair"}}, "sub"),
        ({"signature": "another key"}, "ID token"),
        ({"signature": "secret"}, "ID token"),
        ({"signature": "none"}, "ID token"),
        ({"claims": {"email": None}, "userinfo": {"sub": "somebody else"}}, "another person"),
        ({"answers": {"/o/token/": {"body": "<p>Hello</p>"}}}, "did not confirm"),
        ({"answers": {"/o/token/": {"body": "[]"}}}, "did not confirm"),
        ({"answers": {"/o/token/": {"body": "{}"}}}, "ID token"),
        ({"answers": {"/o/token/": {"body": '{"id_token": 7, "access_token": "x"}'}}}, "ID token"),
        (
            {"answers": {"/o/token/": {"body": '{"error": "invalid_grant"}', "status": 400}}},
            "invalid_grant",
        ),
        ({"answers": {"/o/token/": {"body": "x" * 1000, "times": 1001}}}, "longer than"),
    ],
)
def test_what_a_provider_must_not_say_lets_nobody_in(
    client: Client, ada: User, provider: IdentityProvider, lie: Any, reason: str
) -> None:
    back = go_to_provider(client, "ada")
    provider.lie(**lie)
    response = client.get(back)
    assert response.status_code == 502
    assert "could not sign you in" in response.text
    assert reason in response.text
    assert not is_logged_in(client)
    (refused,) = entries("session.sign_in_refused")
    assert reason in refused.after["reason"]


def test_a_journey_ends_in_the_browser_that_began_it_and_only_once(
    client: Client, ada: User, settings: Settings
) -> None:
    back = go_to_provider(client, "ada")
    stranger = Client()
    assert stranger.get(back).status_code == 400
    go_to_provider(stranger, "ada")
    # An attacker's own code in the browser of somebody else.
    response = stranger.get(back)
    assert response.status_code == 400
    assert "This sign-in is over" in response.text
    assert not is_logged_in(stranger)
    kept = client.cookies[settings.SIGN_IN_COOKIE_NAME].value
    assert client.get(back).status_code == 302
    client.post("/logout/")
    assert client.get(back).status_code == 400
    # Not even with the cookie: the provider takes a code once.
    client.cookies[settings.SIGN_IN_COOKIE_NAME] = kept
    assert client.get(back).status_code == 502


def test_a_changed_cookie_is_none(client: Client, ada: User, settings: Settings) -> None:
    back = go_to_provider(client, "ada")
    kept = client.cookies[settings.SIGN_IN_COOKIE_NAME]
    assert kept["httponly"]
    assert kept["samesite"] == "Lax"
    client.cookies[settings.SIGN_IN_COOKIE_NAME] = kept.value.replace(kept.value[9], "_", 1)
    assert client.get(back).status_code == 400


def test_the_cookie_of_another_version_is_none(client: Client, settings: Settings) -> None:
    settings.OIDC_ISSUER = "https://login.harbour.example"
    kept = signing.dumps({"state": "s"}, salt=COOKIE_SALT)
    client.cookies[settings.SIGN_IN_COOKIE_NAME] = kept
    assert client.get("/sign-in/return/", {"state": "s"}).status_code == 400


def test_codes_of_strangers_are_braked_by_address(
    client: Client, provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalsite.access.logins.MAX_FAILURES_OF_ADDRESS", 3)

    def guess() -> HttpResponse:
        state = query_of(client.get("/sign-in/")["Location"])["state"]
        return client.get("/sign-in/return/", {"state": state, "code": "made-up"})

    assert [guess().status_code for _ in range(4)] == [502, 502, 502, 429]
    assert len(entries("session.sign_in_refused")) == 3


def test_going_back_at_the_provider_is_no_error(client: Client, provider: IdentityProvider) -> None:
    state = query_of(client.get("/sign-in/")["Location"])["state"]
    response = client.get("/sign-in/return/", {"state": state, "error": "access_denied"})
    assert response.status_code == 403
    assert "You did not sign in" in response.text


@ONE_DATABASE
@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (
            {"description": {"issuer": "https://evil.example"}},
            "it is the issuer https://evil.example",
        ),
        ({"description": {"token_endpoint": None}}, "cannot be used"),
        (
            {"description": {"token_endpoint": "ftp://harbour.example/"}},
            "token_endpoint is not https",
        ),
        (
            {"description": {"id_token_signing_alg_values_supported": ["none", "HS256"]}},
            "signs with none of",
        ),
        ({"answers": {"/o/.well-known/openid-configuration": {"body": "[]"}}}, "cannot be used"),
        ({"answers": {"/o/.well-known/openid-configuration": {"body": "", "status": 404}}}, "404"),
        ({"answers": {"/o/.well-known/jwks.json": {"body": "", "status": 500}}}, "500"),
    ],
)
def test_a_provider_that_does_not_fit_is_explained(
    client: Client, provider: IdentityProvider, settings: Settings, lie: Any, message: str
) -> None:
    # Descriptions are kept for an hour, by issuer and client.
    settings.OIDC_CLIENT_ID = message
    provider.lie(**lie)
    response = client.get("/sign-in/")
    assert response.status_code == 502
    assert message in response.text
    assert "Harbour ID" in response.text


def test_a_provider_that_fails_meanwhile_refuses_nobody(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    back = go_to_provider(client, "ada")
    provider.lie(answers={"/o/token/": {"body": "down", "status": 503}})
    response = client.get(back)
    assert response.status_code == 502
    assert "503" in response.text
    assert not is_logged_in(client)
    assert not entries("session.sign_in_refused")


def test_a_provider_that_is_down_is_explained_and_passwords_work_on(
    client: Client, settings: Settings, viewer: User
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_NAME = "http://127.0.0.1:9", "Harbour ID"
    response = client.get("/sign-in/")
    assert response.status_code == 502
    assert "Harbour ID does not answer" in response.text
    sent = {"username": "viewer", "password": PASSWORD}
    assert client.post("/login/", sent).status_code == 302


def test_a_provider_that_hangs_keeps_only_two_threads_waiting(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    back = go_to_provider(client, "ada")
    with CALLS, CALLS:
        returned = client.get(back)
        settings.OIDC_CLIENT_ID = "not read yet"
        sent = Client().get("/sign-in/")
    for answer in (returned, sent):
        assert answer.status_code == 502
        assert "others are waiting for its answers" in answer.text
    assert not entries("session.sign_in_refused")


def test_without_a_provider_there_is_nothing(client: Client, db: None) -> None:
    assert client.get("/sign-in/").status_code == 404
    assert client.get("/sign-in/return/").status_code == 404
    assert "Sign in with" not in client.get("/login/").text


def test_logging_out_offers_to_log_out_of_the_provider_too(client: Client, ada: User) -> None:
    sign_in(client, "ada")
    response = client.post("/logout/")
    assert response.status_code == 200
    assert "Log out of Harbour ID too" in response.text
    assert response["Clear-Site-Data"] == '"cache"'
    assert "/o/logout/?id_token_hint=" in response.text
    assert not is_logged_in(client)
    stored = MemberSession.objects.all()
    assert not any("id_token" in row.session_data for row in stored)


def test_without_passwords_only_the_provider_and_one_time_links_log_in(
    client: Client, ada: User, settings: Settings, admin_client: Client
) -> None:
    settings.PASSWORD_LOGIN = False
    page = client.get("/login/")
    assert 'name="password"' not in page.text
    assert "Sign in with Harbour ID" in page.text
    client.post("/login/", {"username": "ada", "password": PASSWORD})
    assert not is_logged_in(client)
    mine = make_client(ada)
    assert "assword" not in mine.get("/account/").text
    assert mine.get("/account/password/").status_code == 404
    assert admin_client.post(f"/members/{ada.pk}/link/").status_code == 404
    assert "assword" not in admin_client.get(f"/members/{ada.pk}/").text
    sent = {"username": "bo", "email": "bo@harbour.example", "role": "viewer"}
    added = admin_client.post("/members/add/", sent, follow=True)
    assert "Open it to set a password" not in added.text
    assert sign_in(client, "ada").status_code == 302


def test_an_admin_changes_the_address_by_which_a_member_is_found(
    client: Client, provider: IdentityProvider, viewer: User, admin_client: Client
) -> None:
    provider.know("ada", **ADA)
    assert admin_client.post(f"/members/{viewer.pk}/email/", {"email": "nobody"}).status_code == 422
    admin_client.post(f"/members/{viewer.pk}/email/", {"email": "ada@harbour.example"})
    (change,) = entries("member.email_changed")
    assert (change.before, change.after) == ({"email": ""}, {"email": "ada@harbour.example"})
    sign_in(client, "ada")
    assert MemberIdentity.objects.get().user == viewer


def test_deleted_personal_data_include_the_link_and_earlier_refusals(
    client: Client, ada: User, provider: IdentityProvider, admin_client: Client
) -> None:
    User.objects.filter(pk=ada.pk).update(email="")
    sign_in(client, "ada")
    User.objects.filter(pk=ada.pk).update(email=ADA["email"])
    sign_in(client, "ada")
    admin_client.post(f"/members/{ada.pk}/erase/")
    assert not MemberIdentity.objects.exists()
    (refused,) = entries("session.sign_in_refused")
    assert "harbour" not in f"{refused.object_name} {refused.after}"


def make_old(client: Client) -> None:
    """Let the last proof of who the client is be long ago."""
    session = client.session
    session[CONFIRMED_AT] = "2026-01-01T00:00:00+00:00"
    session.save()


def test_a_member_without_password_confirms_by_the_provider_and_loses_nothing(
    client: Client, ada: User
) -> None:
    User.objects.filter(pk=ada.pk).update(password=make_password(None))
    sign_in(client, "ada")
    make_old(client)
    sent = {"name": "weekly report", "role": "viewer", "expires": "30"}
    asked = client.post("/account/tokens/", sent)
    assert "Confirm with Harbour ID" in asked.text
    assert 'name="name" value="weekly report"' in asked.text
    confirmed = client.get(go_to_provider(client, "ada", start="/sign-in/?confirm=1"))
    assert "You are confirmed" in confirmed.text
    assert entries("session.confirmed")[0].after["with"] == "single sign-on"
    assert client.post("/account/tokens/", sent).status_code == 302


def test_another_members_account_confirms_nothing(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    sign_in(client, "ada")
    make_old(client)
    provider.know("bo")
    response = client.get(go_to_provider(client, "bo", start="/sign-in/?confirm=1"))
    assert response.status_code == 403
    assert "not the account that you are logged in with" in response.text
    assert "Confirm it is you" in client.post("/account/tokens/", {}).text


def test_a_member_who_has_left_all_groups_confirms_nothing_and_loses_the_role(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    provider.know("ada", groups=["ml"], **ADA)
    sign_in(client, "ada")
    provider.know("ada", groups=[], **ADA)
    response = client.get(go_to_provider(client, "ada", start="/sign-in/?confirm=1"))
    assert response.status_code == 403
    assert "names no group of yours" in response.text
    assert not is_logged_in(client)
    assert role_of(ada) is None


def test_the_role_follows_the_groups_when_a_member_confirms(
    client: Client, ada: User, provider: IdentityProvider, settings: Settings
) -> None:
    settings.OIDC_ROLES = ROLES
    make_member("admin")
    provider.know("ada", groups=["evals-admins"], **ADA)
    sign_in(client, "ada")
    provider.know("ada", groups=["staff"], **ADA)
    confirmed = client.get(go_to_provider(client, "ada", start="/sign-in/?confirm=1"))
    assert "You are confirmed" in confirmed.text
    assert role_of(ada) == Role.VIEWER


def test_a_provider_that_asked_nobody_again_confirms_nothing(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    sign_in(client, "ada")
    make_old(client)
    for auth_time in (now_and(-3600), None):
        back = go_to_provider(client, "ada", start="/sign-in/?confirm=1")
        provider.lie(claims={"auth_time": auth_time})
        assert "does not confirm a recent login there" in client.get(back).text
        provider.lie()
    assert "Confirm it is you" in client.post("/account/tokens/", {}).text


def test_a_sign_in_without_a_login_there_is_no_proof_of_who_it_is(
    client: Client, ada: User, provider: IdentityProvider
) -> None:
    back = go_to_provider(client, "ada")
    provider.lie(claims={"auth_time": now_and(-36_000)})
    assert client.get(back).status_code == 302
    assert "Confirm it is you" in client.post("/account/tokens/", {}).text


@pytest.mark.django_db(transaction=True)
def test_two_first_sign_ins_at_once_add_one_member(settings: Settings) -> None:
    settings.OIDC_ADMIT = "everybody"
    identity = Identity("https://harbour.example", "sub-ada", name="ada")
    create_roles("default")

    def admit_and_hang_up() -> int:
        try:
            return admit(identity).member.pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as visitors:
        admitted = {
            future.result() for future in [visitors.submit(admit_and_hang_up) for _ in range(4)]
        }
    assert admitted == {User.objects.get().pk}

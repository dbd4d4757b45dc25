"""Second factors: the codes of an app, recovery codes, and who needs one."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from evalsite.access import factors
from evalsite.access.members import erase_member, login_path, password_path
from evalsite.access.models import MemberFactors, Passkey, RecoveryCode
from evalsite.access.tokens import make_token
from evaluators.models import AuditEntry
from tests.support.authenticator import give_app, shown_code
from tests.support.clock import Clock
from tests.support.members import PASSWORD, make_client, make_member
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db
# RFC 6238, appendix B, for SHA-1; codes there have eight digits, of which apps show the last six.
RFC_SECRET = base64.b32encode(b"12345678901234567890").decode()
HERE = "192.0.2.1"


def log_in(client: Client, name: str = "viewer", **sent: str) -> HttpResponse:
    return client.post("/login/", {"username": name, "password": PASSWORD, **sent})


def is_logged_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_codes_are_those_of_rfc_6238(seconds: int, code: str) -> None:
    now = datetime.fromtimestamp(seconds, tz=UTC)
    assert factors.matching_step(RFC_SECRET, code, now=now) == seconds // 30


@pytest.mark.parametrize(("late_s", "is_right"), [(0, True), (30, True), (-30, True), (90, False)])
def test_a_clock_may_be_half_a_minute_wrong(late_s: int, is_right: bool) -> None:
    now = datetime(2026, 5, 1, 12, 0, 10, tzinfo=UTC)
    code = shown_code(RFC_SECRET, now - timedelta(seconds=late_s))
    assert (factors.matching_step(RFC_SECRET, code, now=now) is not None) == is_right


@pytest.mark.parametrize("code", ["", "12345", "٢٨٧٠٨٢", "\ud800", "28 70 83", "-87082"])
def test_odd_codes_are_wrong(code: str) -> None:
    now = datetime.fromtimestamp(59, tz=UTC)
    assert factors.matching_step(RFC_SECRET, code, now=now) is None


def test_setting_up_an_app_shows_key_and_qr_code_and_asks_for_a_code(
    viewer_client: Client, viewer: User
) -> None:
    page = viewer_client.get("/account/factors/app/").text
    key = re.search(r'<code id="app-key">([A-Z2-7 ]+)</code>', page)
    assert key
    assert "<svg" in page
    assert "<script>" not in page
    secret = key[1].replace(" ", "")
    refused = viewer_client.post("/account/factors/app/", {"code": "000000"})
    assert refused.status_code == 422
    assert key[1] in refused.text
    assert not factors.has_factor(viewer)

    answer = viewer_client.post("/account/factors/app/", {"code": shown_code(secret)}, follow=True)

    assert "The authenticator app is set up" in answer.text
    assert len(re.findall(r"\b(?:[a-z2-7]{4}-){5}[a-z2-7]{4}\b", answer.text)) == 10
    stored = MemberFactors.objects.get(user=viewer)
    assert secret not in stored.encrypted_secret
    assert "Shown only once" not in viewer_client.get("/account/factors/").text
    assert "10 left" in viewer_client.get("/account/factors/").text
    assert "App" in viewer_client.get("/account/").text


def test_every_page_of_a_new_app_shows_another_key(viewer_client: Client) -> None:
    keys = [viewer_client.get("/account/factors/app/").text for _ in range(2)]
    first, second = (re.search(r'id="app-key">([A-Z2-7 ]+)<', page) for page in keys)
    assert first
    assert second
    assert first[1] != second[1]
    old = {"code": shown_code(first[1].replace(" ", ""))}
    assert viewer_client.post("/account/factors/app/", old).status_code == 422


def test_a_right_password_alone_does_not_log_in(client: Client, viewer: User, clock: Clock) -> None:
    secret = give_app(viewer, clock)
    answer = log_in(client, next="/account/")
    assert answer["Location"] == "/login/second/"
    assert not is_logged_in(client)
    assert client.get("/login/second/").status_code == 200
    assert client.post("/login/second/", {"code": "000000"}).status_code == 422
    assert client.post("/login/second/", {}).status_code == 422
    assert not is_logged_in(client)

    done = client.post("/login/second/", {"code": shown_code(secret)})

    assert done["Location"] == "/account/"
    assert is_logged_in(client)
    entry = AuditEntry.objects.get(action="session.logged_in")
    assert entry.after["with"] == "password and code"
    assert AuditEntry.objects.filter(action="session.login_failed").count() == 1


def test_no_code_works_twice(client: Client, viewer: User, clock: Clock) -> None:
    secret = give_app(viewer, clock)
    code = shown_code(secret)
    for expected in (302, 422):
        browser = Client()
        log_in(browser)
        assert browser.post("/login/second/", {"code": code}).status_code == expected
    # Nor does an older one that has not been used.
    log_in(client)
    earlier = shown_code(secret, timezone.now() - timedelta(seconds=30))
    assert client.post("/login/second/", {"code": earlier}).status_code == 422


@pytest.mark.django_db(transaction=True)
def test_a_code_that_is_entered_by_four_at_once_works_once(viewer: User, clock: Clock) -> None:
    code = shown_code(give_app(viewer, clock))
    enter = partial(factors.use_code, viewer, code, now=timezone.now())
    assert sorted(at_once(*[enter] * 4)) == [False, False, False, True]


def test_the_code_that_set_up_the_app_logs_nobody_in(client: Client, viewer: User) -> None:
    secret = factors.new_secret()
    code = shown_code(secret)
    factors.add_app(viewer, secret, code, now=timezone.now())
    log_in(client)
    assert client.post("/login/second/", {"code": code}).status_code == 422


def test_ten_wrong_codes_from_ten_addresses_pause_the_app_and_not_the_recovery_codes(
    viewer: User, clock: Clock
) -> None:
    secret = give_app(viewer, clock)
    codes = factors.new_recovery_codes(viewer)
    for number in range(10):
        browser = Client(REMOTE_ADDR=f"192.0.2.{number}")
        log_in(browser)
        assert browser.post("/login/second/", {"code": "000000"}).status_code == 422
    browser = Client(REMOTE_ADDR=HERE)
    log_in(browser)
    clock.advance(minutes=5)
    refused = browser.post("/login/second/", {"code": shown_code(secret)})
    assert refused.status_code == 422
    assert "work again within an hour" in refused.text
    other = Client(REMOTE_ADDR="192.0.2.77")
    log_in(other)
    assert other.post("/login/second/", {"recovery_code": codes[0]}).status_code == 302
    assert "10 wrong authenticator codes were entered" in other.get("/").text
    entry = AuditEntry.objects.get(action="member.codes_paused")
    assert (entry.actor_name, entry.object_name) == ("not logged in", "viewer")
    clock.advance(minutes=61)
    third = Client(REMOTE_ADDR="192.0.2.78")
    log_in(third)
    assert third.post("/login/second/", {"code": shown_code(secret)}).status_code == 302


def test_nobody_without_the_password_keeps_out_a_member_with_a_link(
    client: Client, viewer: User, clock: Clock
) -> None:
    secret = give_app(viewer, clock)
    for number in range(100):
        wrong = {"username": "viewer", "password": "wrong"}
        Client(REMOTE_ADDR=f"198.51.100.{number}").post("/login/", wrong)
    assert log_in(client).status_code == 429
    client.post(login_path(viewer))
    assert client.post("/login/second/", {"code": shown_code(secret)}).status_code == 302


def test_wrong_codes_count_as_failed_logins_of_the_name_and_address(
    client: Client, viewer: User, clock: Clock
) -> None:
    secret = give_app(viewer, clock)
    log_in(client)
    statuses = [client.post("/login/second/", {"code": "000000"}).status_code for _ in range(10)]
    assert statuses == [422] * 9 + [429]
    assert client.post("/login/second/", {"code": shown_code(secret)}).status_code == 429
    assert log_in(Client()).status_code == 429


def test_a_half_finished_login_ends_after_ten_minutes_and_with_the_password(
    client: Client, viewer: User, clock: Clock
) -> None:
    secret = give_app(viewer, clock)
    log_in(client)
    clock.advance(minutes=11)
    answer = client.post("/login/second/", {"code": shown_code(secret)}, follow=True)
    assert "took too long" in answer.text
    log_in(client)
    viewer.set_password("another horse staple")
    viewer.save()
    client.post("/login/second/", {"code": shown_code(secret)})
    assert not is_logged_in(client)


def test_a_recovery_code_works_once_in_any_spelling(viewer: User, clock: Clock) -> None:
    give_app(viewer, clock)
    code = factors.new_recovery_codes(viewer)[0]
    assert not RecoveryCode.objects.filter(code_hash__contains=code).exists()
    for typed, expected in ((f" {code.upper().replace('-', ' ')}", 302), (code, 422)):
        browser = Client()
        log_in(browser)
        answer = browser.post("/login/second/", {"recovery_code": typed})
        assert answer.status_code == expected
    assert AuditEntry.objects.get(action="member.recovery_code_used").after == {"left": "9"}


@pytest.mark.django_db(transaction=True)
def test_of_recovery_codes_that_are_made_at_once_only_one_set_works(
    viewer: User, clock: Clock
) -> None:
    give_app(viewer, clock)
    for _ in range(5):
        at_once(*[partial(factors.new_recovery_codes, viewer)] * 4)
        assert factors.read_factors(viewer).recovery_codes_left == factors.RECOVERY_CODES


def test_recovery_codes_are_their_members_alone(client: Client, viewer: User, clock: Clock) -> None:
    give_app(viewer, clock)
    others = factors.new_recovery_codes(make_member("editor"))
    log_in(client)
    assert client.post("/login/second/", {"recovery_code": others[0]}).status_code == 422


def test_links_ask_for_the_second_factor_too(client: Client, viewer: User, clock: Clock) -> None:
    secret = give_app(viewer, clock)
    assert client.post(login_path(viewer))["Location"] == "/login/second/"
    assert not is_logged_in(client)
    viewer.refresh_from_db()
    new = {"new_password1": "battery horse 9", "new_password2": "battery horse 9"}
    assert client.post(password_path(viewer), new)["Location"] == "/login/second/"
    assert not is_logged_in(client)
    client.post("/login/second/", {"code": shown_code(secret)})
    assert is_logged_in(client)


def test_adding_and_removing_an_app_ends_the_other_sessions(viewer: User, clock: Clock) -> None:
    this, other = make_client(viewer), make_client(viewer)
    secret = re.search(r'id="app-key">([A-Z2-7 ]+)<', this.get("/account/factors/app/").text)
    assert secret
    this.post("/account/factors/app/", {"code": shown_code(secret[1].replace(" ", ""))})
    assert is_logged_in(this)
    assert not is_logged_in(other)
    other = make_client(viewer)
    this.post("/account/factors/app/remove/")
    assert not factors.has_factor(viewer)
    assert is_logged_in(this)
    assert not is_logged_in(other)
    assert not RecoveryCode.objects.exists()


def test_an_admin_removes_the_factor_of_a_member_who_is_told(
    client: Client, admin_client: Client, viewer: User, clock: Clock
) -> None:
    give_app(viewer, clock)
    session = make_client(viewer)
    assert "App" in admin_client.get("/members/").text
    page = admin_client.get(f"/members/{viewer.pk}/").text
    assert "Remove the second factor" in page
    answer = admin_client.post(f"/members/{viewer.pk}/factors/remove/", follow=True)
    assert "viewer has no second factor now" in answer.text
    assert not is_logged_in(session)
    entry = AuditEntry.objects.get(action="member.factors_removed")
    assert (entry.actor_name, entry.object_name) == ("admin", "viewer")

    answer = log_in(client, next="/account/")

    assert answer["Location"] == "/account/"
    assert "admin removed your second factor on" in client.get("/account/").text
    assert "removed your second factor" not in log_in(Client()).text


def test_a_member_whose_factor_is_removed_while_it_is_asked_for_begins_again(
    client: Client, admin: User, viewer: User, clock: Clock
) -> None:
    give_app(viewer, clock)
    log_in(client, next="/account/")
    assert "An admin can remove your second factor" in client.get("/login/second/").text
    factors.remove_factors(viewer, by=admin)

    page = client.get("/login/second/", follow=True)
    assert page.redirect_chain == [("/login/?next=/account/", 302)]
    assert "Your second factor was removed. Log in again." in page.text
    assert log_in(client, next="/account/")["Location"] == "/account/"


def test_admins_remove_their_own_factor_on_their_account_page_alone(
    admin_client: Client, admin: User, clock: Clock
) -> None:
    give_app(admin, clock)
    admin_client.post(f"/members/{admin.pk}/factors/remove/")
    assert factors.has_factor(admin)


@pytest.mark.parametrize(
    ("required", "is_led"), [([], False), (["all"], True), (["viewer"], True), (["admin"], False)]
)
def test_a_required_factor_is_set_up_before_anything_else(
    client: Client, viewer: User, settings: Settings, required: list[str], is_led: bool
) -> None:
    settings.REQUIRE_SECOND_FACTOR = required
    answer = log_in(client, next="/runs/")
    assert answer["Location"] == ("/account/factors/" if is_led else "/runs/")
    if not is_led:
        return
    for path in ("/", "/runs/", "/account/", "/account/tokens/"):
        assert client.get(path)["Location"] == "/account/factors/"
    assert client.get("/api/suites").status_code == 403
    assert "Set up a second factor to continue" in client.get("/account/factors/").text
    key = re.search(r'id="app-key">([A-Z2-7 ]+)<', client.get("/account/factors/app/").text)
    assert key
    code = shown_code(key[1].replace(" ", ""))
    done = client.post("/account/factors/app/", {"code": code}, follow=True)
    assert 'href="/runs/">Continue' in done.text
    assert client.get("/runs/").status_code == 200


def test_the_last_required_factor_cannot_be_removed(
    viewer: User, clock: Clock, settings: Settings
) -> None:
    give_app(viewer, clock)
    settings.REQUIRE_SECOND_FACTOR = ["all"]
    answer = make_client(viewer).post("/account/factors/app/remove/")
    assert answer.status_code == 422
    assert "Set up another one first" in answer.text
    assert factors.has_factor(viewer)


@pytest.mark.django_db(transaction=True)
def test_of_two_required_factors_that_are_removed_at_once_one_stays(
    viewer: User, clock: Clock, settings: Settings
) -> None:
    settings.REQUIRE_SECOND_FACTOR = ["all"]
    for number in range(5):
        give_app(viewer, clock)
        passkey = Passkey.objects.create(
            user=viewer, name="key", credential_id=f"k{number}", credential=b"k"
        )
        answers = at_once(
            partial(factors.remove_app, viewer),
            partial(factors.remove_passkey, viewer, passkey.pk),
        )
        [refusal] = filter(None, answers)
        assert "this is your only one" in str(refusal)
        Passkey.objects.all().delete()


def test_admins_see_who_has_not_set_up_a_required_factor(
    admin_client: Client, viewer: User, settings: Settings
) -> None:
    settings.REQUIRE_SECOND_FACTOR = ["viewer"]
    assert "None, required" in admin_client.get("/members/").text
    assert "required of the role" in admin_client.get(f"/members/{viewer.pk}/").text


def test_tokens_work_without_a_second_factor(
    client: Client, viewer: User, clock: Clock, settings: Settings
) -> None:
    settings.REQUIRE_SECOND_FACTOR = ["all"]
    give_app(viewer, clock)
    _, secret = make_token(owner=viewer, name="report", scopes=(), expires_at=None)
    answer = client.get("/api/suites", headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 200


def test_the_command_line_removes_the_factor_of_a_locked_out_admin(
    client: Client, admin: User, clock: Clock
) -> None:
    give_app(admin, clock)
    out = StringIO()
    call_command("login_link", "admin", remove_second_factor=True, stdout=out)
    path = "/login/" + out.getvalue().strip().partition("/login/")[2]
    client.post(path)
    assert "A command on the server removed your second factor" in client.get("/account/").text
    entry = AuditEntry.objects.get(action="member.factors_removed")
    assert entry.actor is None


def test_erasing_a_member_deletes_factors(admin: User, viewer: User, clock: Clock) -> None:
    give_app(viewer, clock)
    factors.new_recovery_codes(viewer)
    erase_member(viewer, actor=admin)
    assert not MemberFactors.objects.exists()
    assert not RecoveryCode.objects.exists()
    assert not Passkey.objects.exists()


def test_a_secret_that_cannot_be_read_any_more_says_so(
    client: Client, viewer: User, clock: Clock, settings: Any
) -> None:
    secret = give_app(viewer, clock)
    settings.ENCRYPTION_KEY = "A" * 43 + "="
    log_in(client)
    answer = client.post("/login/second/", {"code": shown_code(secret)})
    assert answer.status_code == 422
    assert "cannot be read" in answer.text


def test_no_try_leaves_what_was_typed_in_the_database(
    viewer_client: Client, viewer: User, clock: Clock
) -> None:
    sent = {
        "old_password": "nearly right",
        "new_password1": "a new horse 7",
        "new_password2": "a new horse 7",
    }
    assert viewer_client.post("/account/password/", sent).status_code == 422
    give_app(viewer, clock)
    browser = Client()
    log_in(browser)
    browser.post("/login/second/", {"code": "123123", "recovery_code": "abcd-efgh"})
    stored = " ".join(AccessAttempt.objects.values_list("post_data", flat=True))
    for typed in (*sent.values(), "123123", "abcd"):
        assert typed not in stored

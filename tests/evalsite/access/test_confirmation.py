""" "Confirm it is you" before sensitive actions, with what was typed kept."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from axes.models import AccessAttempt
from django.conf import settings as site_settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import get_resolver
from pytest_django import Settings

from evalsite.access.confirmation import SENSITIVE
from evalsite.access.models import ApiToken
from evaluators.models import AuditEntry, LanguageModel
from runs.models.runs import Run
from runs.models.suites import Target
from tests.support.addresses import all_patterns
from tests.support.authenticator import Authenticator, ask_passkey, give_app, shown_code
from tests.support.clock import Clock
from tests.support.factories import make_case, make_run, make_suite
from tests.support.members import PASSWORD, make_client, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
ASKS = "Confirm it is you"
TOKEN = {"name": "weekly “report” <x>", "role": "viewer", "expires": "30"}


def hidden_fields(page: str) -> dict[str, str]:
    """Return what the form of a page keeps."""
    fields = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page)
    return {unescape(name): unescape(value) for name, value in fields if "csrf" not in name}


def test_a_recent_login_asks_for_nothing(viewer_client: Client, clock: Clock) -> None:
    clock.advance(minutes=29)
    viewer_client.post("/account/tokens/", TOKEN)
    assert ApiToken.objects.count() == 1


def test_a_clock_that_is_set_back_makes_no_login_recent(
    viewer_client: Client, clock: Clock
) -> None:
    clock.advance(minutes=-31)
    assert ASKS in viewer_client.post("/account/tokens/", TOKEN).text


def test_an_old_login_asks_and_keeps_what_was_typed(viewer_client: Client, clock: Clock) -> None:
    clock.advance(minutes=31)
    page = viewer_client.post("/account/tokens/", TOKEN)
    assert ASKS in page.text
    assert page["Cache-Control"] == "private, no-store"
    assert not ApiToken.objects.exists()
    assert hidden_fields(page.text) == TOKEN

    sent = hidden_fields(page.text) | {"identity-password": PASSWORD}
    assert viewer_client.post("/account/tokens/", sent).status_code == 302

    assert ApiToken.objects.get().name == TOKEN["name"]
    assert AuditEntry.objects.get(action="session.confirmed").after["with"] == "password"
    viewer_client.post("/account/tokens/", TOKEN | {"name": "second"})
    assert ApiToken.objects.count() == 2


def test_a_wrong_proof_keeps_what_was_typed_and_counts_as_a_failed_login(
    viewer_client: Client, clock: Clock
) -> None:
    clock.advance(minutes=31)
    sent = TOKEN | {"identity-password": "wrong"}
    statuses = []
    for _ in range(10):
        page = viewer_client.post("/account/tokens/", sent)
        statuses.append(page.status_code)
    assert statuses == [422] * 9 + [429]
    assert not ApiToken.objects.exists()
    assert AuditEntry.objects.filter(action="session.login_failed").count() == 9
    assert AuditEntry.objects.filter(action="session.locked_out").exists()
    locked = viewer_client.post("/account/tokens/", sent | {"identity-password": PASSWORD})
    assert locked.status_code == 429
    login = Client().post("/login/", {"username": "viewer", "password": PASSWORD})
    assert login.status_code == 429


def test_a_key_that_was_typed_is_kept_and_stored_nowhere_else(
    admin_client: Client, clock: Clock
) -> None:
    clock.advance(minutes=31)
    typed = {"name": "Juno", "slug": "juno", "api_key": "sk-very-secret-key", "model_id": "juno-1"}
    page = admin_client.post("/models/new/", typed | {"identity-password": "wrong"})
    assert "sk-very-secret-key" in page.text
    assert not LanguageModel.objects.exists()
    assert "sk-very" not in AccessAttempt.objects.get().post_data


def test_a_code_of_the_app_confirms(viewer: User, clock: Clock) -> None:
    secret = give_app(viewer, clock)
    client = make_client(viewer)
    clock.advance(minutes=31)
    page = client.post("/account/tokens/", TOKEN).text
    assert "identity-code" in page
    sent = TOKEN | {"identity-code": shown_code(secret)}
    assert client.post("/account/tokens/", sent).status_code == 302
    assert AuditEntry.objects.get(action="session.confirmed").after["with"] == "code"


def test_a_passkey_confirms_and_nobody_elses_does(viewer: User, clock: Clock) -> None:
    client, key = make_client(viewer), Authenticator()
    options, state = ask_passkey(client, "/account/factors/passkeys/question/")
    made = {"name": "key", "answer": key.make(options), "state": state}
    client.post("/account/factors/passkeys/", made)
    clock.advance(minutes=31)
    assert "Use a passkey" in client.post("/account/tokens/", TOKEN).text
    stranger = make_client(make_member("editor"))
    options, state = ask_passkey(stranger, "/account/confirm/question/")
    stolen = {"identity-answer": key.answer(options), "identity-state": state}
    refused = client.post("/account/tokens/", TOKEN | stolen)
    assert refused.status_code == 422
    assert hidden_fields(refused.text).items() >= TOKEN.items()
    options, state = ask_passkey(client, "/account/confirm/question/")
    proof = {"identity-answer": key.answer(options), "identity-state": state}
    assert client.post("/account/tokens/", TOKEN | proof).status_code == 302
    assert ApiToken.objects.count() == 1


def test_who_has_nothing_to_confirm_with_is_told_to_log_in_again(
    viewer: User, clock: Clock
) -> None:
    viewer.set_unusable_password()
    viewer.save()
    client = make_client(viewer)
    clock.advance(minutes=31)
    new = {"new_password1": "a new horse 7", "new_password2": "a new horse 7"}
    page = client.post("/account/password/", new)
    assert ASKS in page.text
    assert "Log out and log in again" in page.text
    viewer.refresh_from_db()
    assert not viewer.has_usable_password()
    # Anything sent as a proof proves nothing.
    client.post("/account/password/", new | {"identity-password": ""})
    client.post("/account/password/", new | {"identity-code": "000000"})
    viewer.refresh_from_db()
    assert not viewer.has_usable_password()


def test_changing_a_password_asks_for_the_old_one_alone(
    viewer_client: Client, viewer: User, clock: Clock
) -> None:
    clock.advance(minutes=31)
    sent = {
        "old_password": PASSWORD,
        "new_password1": "a new horse 7",
        "new_password2": "a new horse 7",
    }
    assert viewer_client.post("/account/password/", sent).status_code == 302
    viewer.refresh_from_db()
    assert viewer.check_password("a new horse 7")


def test_deleting_a_run_asks(editor_client: Client, clock: Clock) -> None:
    run = make_run(suite=make_suite(slug="support"))
    clock.advance(minutes=31)
    path = f"/suites/support/runs/{run.number}/delete/"
    assert editor_client.get(path).status_code == 200
    assert ASKS in editor_client.post(path, {"confirm": "1"}).text
    assert Run.objects.count() == 1


def test_an_import_that_may_bring_scripts_asks_before_files_are_chosen(
    admin: User, admin_client: Client, clock: Clock, settings: Settings
) -> None:
    settings.SCRIPTS = True
    clock.advance(minutes=31)
    answer = admin_client.get("/import/")
    assert answer["Location"] == "/account/confirm/?next=%2Fimport%2F"
    file = SimpleUploadedFile("suite.yaml", b"name: x")
    late = admin_client.post("/import/", {"files": file})
    assert "Choose them again" in late.text
    assert ASKS in admin_client.get(answer["Location"]).text
    sent = {"identity-password": PASSWORD, "next": "/import/"}
    for proof in ("", "wrong"):
        refused = admin_client.post("/account/confirm/", sent | {"identity-password": proof})
        assert refused.status_code == 422
    done = admin_client.post("/account/confirm/", sent)
    assert done["Location"] == "/import/"
    assert admin_client.get("/import/").status_code == 200
    elsewhere = sent | {"next": "https://evil.example/"}
    assert admin_client.post("/account/confirm/", elsewhere)["Location"] == "/"


def test_restoring_a_version_asks_where_it_could_bring_scripts_back(
    admin_client: Client, editor_client: Client, clock: Clock, settings: Settings
) -> None:
    make_suite(slug="support")
    clock.advance(minutes=31)
    place = "/suites/support/versions/1/restore/"
    assert ASKS not in admin_client.post(place, {"seen": "1"}).text
    settings.SCRIPTS = True
    assert ASKS in admin_client.post(place, {"seen": "1"}).text
    assert ASKS not in editor_client.post(place, {"seen": "1"}).text


@pytest.mark.parametrize("place", ["new/", "C-1/edit/"])
def test_evaluators_of_a_case_ask_where_they_could_be_scripts(
    admin_client: Client, clock: Clock, settings: Settings, place: str
) -> None:
    settings.SCRIPTS = True
    make_case(suite=make_suite(slug="support"), key="C-1")
    clock.advance(minutes=31)
    sent = {"key": "C-1", "evaluators": "- type: script\n  command: [python, x.py]"}
    assert ASKS in admin_client.post(f"/suites/support/cases/{place}", sent).text
    without = admin_client.post(f"/suites/support/cases/{place}", sent | {"evaluators": " "})
    assert ASKS not in without.text


def test_links_with_outputs_or_comments_ask_and_those_with_figures_do_not(
    editor_client: Client, clock: Clock
) -> None:
    clock.advance(minutes=31)
    for level, asks in (("figures", False), ("outputs", True), ("traces", True)):
        page = editor_client.post("/shares/new/", {"detail_level": level}).text
        assert (ASKS in page) == asks
    figures = {"detail_level": "figures", "comments": "on"}
    assert ASKS in editor_client.post("/shares/new/", figures).text


def test_ending_sessions_and_revoking_ask_nothing(viewer: User, clock: Clock) -> None:
    client = make_client(viewer)
    make_client(viewer)
    clock.advance(minutes=31)
    page = client.post("/account/sessions/end/", follow=True).text
    assert "1 other session ended" in page


def test_the_question_can_be_switched_off(
    viewer_client: Client, clock: Clock, settings: Settings
) -> None:
    settings.CONFIRM_MINUTES = 0
    clock.advance(days=2)
    viewer_client.post("/account/tokens/", TOKEN)
    assert ApiToken.objects.count() == 1


def test_a_proof_that_nobody_asked_for_reaches_no_form(editor_client: Client, clock: Clock) -> None:
    """A field of a proof is taken out of the form before its view sees it."""
    clock.advance(minutes=31)
    sent = {"identity-password": PASSWORD, "name": ""}
    page = editor_client.post("/targets/new/", sent)
    assert page.status_code == 422
    assert PASSWORD not in page.text
    assert not Target.objects.exists()


def test_every_sensitive_address_exists_and_is_posted_by_an_ordinary_form() -> None:
    """The page that asks is a whole page, so no part of a page may be swapped for it."""
    names = {name for name, _ in all_patterns(get_resolver())}
    assert set(SENSITIVE) <= names
    swapped = re.compile(r'hx-post="\{% url "([^"]+)"')
    root = Path(site_settings.BASE_DIR) / "templates"
    posted = {name for path in root.rglob("*.html") for name in swapped.findall(path.read_text())}
    assert posted
    assert not posted & set(SENSITIVE)

"""Passkeys: adding one, logging in by it, and answers that were tampered with."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from fido2.utils import websafe_encode
from fido2.webauthn import AuthenticatorData
from pytest_django import Settings

from evalsite.access import factors, members, passkeys
from evalsite.access.models import Passkey, RecoveryCode
from evalsite.access.passkeys import _note_use
from evaluators.models import AuditEntry
from tests.support.authenticator import Authenticator, ask_passkey
from tests.support.clock import Clock
from tests.support.members import PASSWORD, make_client, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
QUESTION = "/account/factors/passkeys/question/"
PRESENT_ALONE = AuthenticatorData.FLAG.UP


def add(client: Client, key: Authenticator, name: str = "Laptop", **changes: Any) -> HttpResponse:
    options, state = ask_passkey(client, QUESTION)
    sent = {"name": name, "answer": key.make(options, **changes), "state": state}
    return client.post("/account/factors/passkeys/", sent, follow=True)


def log_in(client: Client, key: Authenticator, **changes: Any) -> HttpResponse:
    options, state = ask_passkey(client, "/login/passkey/question/")
    sent = {"answer": key.answer(options, **changes), "state": state, "next": "/account/"}
    return client.post("/login/passkey/", sent)


@pytest.fixture
def key(viewer_client: Client) -> Authenticator:
    """Make a passkey of the viewer."""
    made = Authenticator()
    assert add(viewer_client, made).status_code == 200
    return made


def test_adding_a_passkey_shows_it_and_recovery_codes(viewer_client: Client, viewer: User) -> None:
    other = make_client(viewer)
    page = add(viewer_client, Authenticator(), "Yellow key")
    assert "Yellow key" in page.text
    assert "Your recovery codes" in page.text
    assert RecoveryCode.objects.filter(user=viewer).count() == 10
    assert other.get("/account/").status_code == 302
    assert AuditEntry.objects.get(action="member.passkey_added").after == {"passkey": "Yellow key"}
    assert "1 passkey" in viewer_client.get("/account/").text


def test_a_passkey_logs_in_without_a_password(client: Client, key: Authenticator) -> None:
    answer = log_in(client, key)
    assert answer["Location"] == "/account/"
    assert client.get("/account/").status_code == 200
    entry = AuditEntry.objects.get(action="session.logged_in")
    assert entry.after["with"] == "passkey"
    assert Passkey.objects.get().last_used_at == timezone.now()


def test_a_password_alone_is_not_enough_any_more(client: Client, key: Authenticator) -> None:
    answer = client.post("/login/", {"username": "viewer", "password": PASSWORD})
    assert answer["Location"] == "/login/second/"
    page = client.get("/login/second/").text
    assert "Use a passkey" in page
    assert 'name="code"' not in page
    assert log_in(client, key).status_code == 302
    assert client.get("/account/").status_code == 200


def test_no_answer_works_twice(client: Client, key: Authenticator, clock: Clock) -> None:
    options, state = ask_passkey(client, "/login/passkey/question/")
    sent = {"answer": key.answer(options), "state": state}
    clock.advance(seconds=1)
    later, later_state = ask_passkey(client, "/login/passkey/question/")
    assert client.post("/login/passkey/", sent).status_code == 302
    again = Client().post("/login/passkey/", sent)
    assert again.status_code == 422
    assert "used before" in again.text
    newer = {"answer": key.answer(later), "state": later_state}
    assert Client().post("/login/passkey/", newer).status_code == 302
    # An answer to a question that was asked before the last one that counted.
    assert Client().post("/login/passkey/", sent).status_code == 422


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_is_sent_by_four_at_once_works_once(
    client: Client, key: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, state = ask_passkey(client, "/login/passkey/question/")
    sent, together, note_use = (
        {"answer": key.answer(options), "state": state},
        Barrier(4),
        _note_use,
    )

    def wait(*arguments: Any) -> None:
        together.wait()
        note_use(*arguments)

    monkeypatch.setattr("evalsite.access.passkeys._note_use", wait)

    def send(number: int) -> int:
        try:
            return Client().post("/login/passkey/", sent).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(send, range(4))) == [302, 422, 422, 422]


@pytest.mark.django_db(transaction=True)
def test_of_passkeys_that_are_added_at_once_only_as_many_as_allowed_are_stored(
    viewer_client: Client, viewer: User, key: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passkeys, "MAX_PASSKEYS", 2)
    answers = [(Authenticator(), *ask_passkey(viewer_client, QUESTION)) for _ in range(4)]
    sent = [
        {"name": "key", "answer": made.make(options), "state": state}
        for made, options, state in answers
    ]
    together, read_answer = Barrier(4), passkeys._read_answer

    def wait(answer: str) -> Any:
        together.wait()
        return read_answer(answer)

    monkeypatch.setattr(passkeys, "_read_answer", wait)

    def add_one(fields: dict[str, str]) -> int:
        try:
            return make_client(viewer).post("/account/factors/passkeys/", fields).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(add_one, sent)) == [302, 422, 422, 422]
    assert Passkey.objects.filter(user=viewer).count() == 2


@pytest.mark.parametrize("passwords", [True, False])
def test_the_passkey_of_another_member_is_no_second_factor(
    client: Client, key: Authenticator, settings: Settings, passwords: bool
) -> None:
    settings.PASSWORD_LOGIN = passwords
    first = make_member("editor")
    own = Authenticator()
    add(make_client(first), own)
    client.post(members.login_path(first))
    refused = log_in(client, key)
    assert refused.status_code == 422
    assert "another member" in refused.text
    assert client.get("/account/").status_code == 302
    assert log_in(client, own).status_code == 302
    assert client.get("/account/").context["user"] == first


def test_a_late_answer_is_refused(client: Client, key: Authenticator, clock: Clock) -> None:
    options, state = ask_passkey(client, "/login/passkey/question/")
    clock.advance(minutes=6)
    answer = client.post("/login/passkey/", {"answer": key.answer(options), "state": state})
    assert answer.status_code == 422
    assert "too late" in answer.text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"origin": "http://evil.example"}, "and this site is http://testserver"),
        ({"origin": "http://sub.testserver"}, "and this site is http://testserver"),
        ({"origin": "https://testserver"}, "and this site is http://testserver"),
        ({"challenge": b"another challenge of somebody"}, "Wrong challenge"),
        ({"type": "webauthn.create"}, "Incorrect type"),
        ({"signature": b"nonsense"}, "Invalid signature"),
        ({"flags": PRESENT_ALONE}, "User verification required"),
    ],
)
def test_an_answer_that_does_not_prove_it_is_refused(
    client: Client, key: Authenticator, changes: dict[str, Any], reason: str
) -> None:
    answer = log_in(client, key, **changes)
    assert answer.status_code == 422
    assert reason in answer.text
    assert client.get("/account/").status_code == 302
    assert AuditEntry.objects.filter(action="session.login_failed").count() == 1


def test_a_key_for_another_site_is_refused(viewer_client: Client) -> None:
    page = add(viewer_client, Authenticator(rp_id="evil.example"))
    assert page.status_code == 422
    assert "Wrong RP ID" in page.text
    assert not Passkey.objects.exists()


def test_a_new_passkey_needs_the_fingerprint_or_pin(viewer_client: Client) -> None:
    page = add(viewer_client, Authenticator(), flags=PRESENT_ALONE)
    assert page.status_code == 422
    assert "User verification required" in page.text


def test_a_copied_passkey_is_refused(client: Client, key: Authenticator, clock: Clock) -> None:
    key.counter = 5
    assert log_in(client, key).status_code == 302
    clock.advance(seconds=1)
    refused = log_in(Client(), key)
    assert refused.status_code == 422
    assert "copy" in refused.text
    key.counter = 6
    assert log_in(Client(), key).status_code == 302


def test_states_hold_for_their_purpose_and_member_alone(
    client: Client, viewer: User, key: Authenticator
) -> None:
    browser = make_client(viewer)
    options, state = ask_passkey(browser, "/account/confirm/question/")
    sent = {"answer": key.answer(options), "state": state}
    assert client.post("/login/passkey/", sent).status_code == 422
    other = make_client(make_member("editor"))
    options, state = ask_passkey(other, QUESTION)
    stolen = {"name": "x", "answer": Authenticator().make(options), "state": state}
    assert browser.post("/account/factors/passkeys/", stolen).status_code == 422
    forged = {"answer": key.answer(options), "state": f"{state}x"}
    assert client.post("/login/passkey/", forged).status_code == 422


def test_one_passkey_is_stored_once(viewer_client: Client, key: Authenticator) -> None:
    again = add(viewer_client, key)
    assert again.status_code == 422
    assert "stored already" in again.text
    other = make_client(make_member("editor"))
    assert add(other, key).status_code == 422


def test_a_removed_passkey_logs_nobody_in(
    client: Client, viewer_client: Client, viewer: User, key: Authenticator
) -> None:
    other = make_client(viewer)
    stranger = make_client(make_member("editor"))
    path = f"/account/factors/passkeys/{Passkey.objects.get().pk}/remove/"
    assert stranger.post(path).status_code == 404
    viewer_client.post(path)
    assert other.get("/account/").status_code == 302
    refused = log_in(client, key)
    assert refused.status_code == 422
    assert "does not know the passkey" in refused.text
    assert not factors.has_factor(viewer)


def test_a_deactivated_member_stays_out(client: Client, viewer: User, key: Authenticator) -> None:
    User.objects.filter(pk=viewer.pk).update(is_active=False)
    assert log_in(client, key).status_code == 422


def test_a_passkey_works_while_passwords_are_paused(client: Client, key: Authenticator) -> None:
    for _ in range(10):
        client.post("/login/", {"username": "viewer", "password": "wrong"})
    assert log_in(client, key).status_code == 302


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"rawId": 7}',
        '{"id": "a", "rawId": "b", "type": "public-key", "response": {}}',
        json.dumps({"rawId": "AA", "type": "public-key", "response": {"clientDataJSON": "AA"}}),
        "[" * 300,
        '{"rawId": "' + "A" * 70_000 + '"}',
        '{"a": "\\u0000"}',
    ],
)
def test_malformed_answers_are_refused(client: Client, viewer_client: Client, answer: str) -> None:
    _, state = ask_passkey(client, "/login/passkey/question/")
    refused = client.post("/login/passkey/", {"answer": answer, "state": state})
    assert refused.status_code == 422
    _, state = ask_passkey(viewer_client, QUESTION)
    sent = {"name": "x", "answer": answer, "state": state}
    assert viewer_client.post("/account/factors/passkeys/", sent).status_code == 422


@pytest.mark.parametrize("part", ["clientDataJSON", "authenticatorData", "attestationObject"])
@pytest.mark.parametrize("junk", [b"", b"\xff", b"\x9f" * 5000, b"\xa1" * 300, b"{}"])
def test_malformed_parts_are_refused(
    client: Client, viewer_client: Client, key: Authenticator, part: str, junk: bytes
) -> None:
    for asked, path, make in (
        ("/login/passkey/question/", "/login/passkey/", key.answer),
        (QUESTION, "/account/factors/passkeys/", Authenticator().make),
    ):
        browser = viewer_client if "account" in path else client
        options, state = ask_passkey(browser, asked)
        answer = json.loads(make(options))
        if part not in answer["response"]:
            continue
        answer["response"][part] = websafe_encode(junk)
        sent = {"name": "x", "answer": json.dumps(answer), "state": state}
        assert browser.post(path, sent).status_code == 422


@pytest.mark.parametrize("part", ["clientDataJSON", "authenticatorData", "signature", "rawId"])
def test_a_number_in_place_of_bytes_takes_no_memory(
    client: Client, key: Authenticator, part: str
) -> None:
    options, state = ask_passkey(client, "/login/passkey/question/")
    answer = json.loads(key.answer(options))
    for holder in (answer, answer["response"]):
        holder |= dict.fromkeys(holder.keys() & {part, "id"} if part in holder else (), 10**15)
    sent = {"answer": json.dumps(answer), "state": state}
    refused = client.post("/login/passkey/", sent)
    assert refused.status_code == 422
    assert "is not a text" in refused.text


@pytest.mark.parametrize(
    ("url", "host", "problem"),
    [
        ("", "127.0.0.1:8000", "such as localhost"),
        ("", "[::1]:8000", "such as localhost"),
        ("", "localhost:8000", ""),
        ("http://10.1.2.3", "localhost", "10.1.2.3 is a number"),
        ("http://evals.example.com", "localhost", "only for sites with https"),
        ("https://evals.example.com", "localhost", ""),
    ],
)
def test_the_page_says_where_browsers_keep_no_passkeys(
    viewer_client: Client, settings: Settings, url: str, host: str, problem: str
) -> None:
    settings.SITE_URL = url
    page = viewer_client.get("/account/factors/", headers={"Host": host}).text
    assert problem in page
    assert ("Browsers keep passkeys" in page) == bool(problem)


def test_the_address_of_the_site_is_the_origin_where_it_is_set(
    client: Client, viewer_client: Client, settings: Settings
) -> None:
    settings.SITE_URL = "https://evals.example.com:8443"
    key = Authenticator("https://evals.example.com:8443", rp_id="evals.example.com")
    add(viewer_client, key)
    assert log_in(client, key).status_code == 302
    assert log_in(Client(), key, origin="http://testserver").status_code == 422

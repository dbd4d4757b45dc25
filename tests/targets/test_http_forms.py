"""Agents over HTTP in the form: settings at their fields, secrets that go in and never come out."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from evaluators.model_calls.models import decrypt, encrypt
from evaluators.models import AuditEntry
from runs.models.suites import Target
from tests.support.factories import make_target

pytestmark = pytest.mark.django_db
NEW = reverse("runs:target-new") + "?kind=http"
SECRET = "Bearer t0p-s3cret-value"
BODY = '{\n  "q": "{{input}}"\n}'


def sent(*headers: tuple[str, str, bool], **changes: str) -> dict[str, str]:
    """Return the form as a browser sends it."""
    rows: dict[str, str] = {}
    for number, (name, value, secret) in enumerate((*headers, ("", "", False))):
        rows |= {f"headers-{number}-name": name, f"headers-{number}-value": value}
        rows |= {f"headers-{number}-secret": "on"} if secret else {}
    settings_sent = {
        "name": "desk",
        "url": "https://agent.example/ask",
        "method": "POST",
        "body": BODY,
        "output_path": "answer",
        "timeout_s": "30",
        "tries": "2",
        "concurrency": "4",
    }
    return settings_sent | rows | changes


def edit(target: Target) -> str:
    return reverse("runs:target-edit", args=[target.pk])


def stored() -> Target:
    return Target.objects.get(name="desk")


def test_an_agent_becomes_a_target_and_its_page_shows_it(editor_client: Client) -> None:
    page = editor_client.get(NEW).content.decode()
    for words in ("Content of the reply", "Time and retries", "{{messages}}", "More headers"):
        assert words in page
    response = editor_client.post(
        NEW, sent(("X-Team", "blue", False), ("Authorization", SECRET, True)), follow=True
    )
    page = response.content.decode()
    assert "X-Team: blue" in page
    assert "Authorization: secret, stored encrypted" in page
    target = stored()
    assert target.config["headers"] == [
        {"name": "X-Team", "value": "blue"},
        {"name": "Authorization", "secret": True},
    ]
    assert target.config["body"] == {"q": "{{input}}"}
    assert decrypt(target.encrypted_secrets["authorization"]) == SECRET


def test_the_secret_is_nowhere(editor_client: Client) -> None:
    editor_client.post(NEW, sent(("Authorization", SECRET, True)))
    target = stored()
    pages = [
        editor_client.get(address).content.decode()
        for address in (edit(target), reverse("runs:target", args=[target.pk]))
    ]
    refused = editor_client.post(edit(target), sent(("Authorization", SECRET, True), url="nope"))
    dump = StringIO()
    call_command("dumpdata", stdout=dump)
    for text in (*pages, refused.content.decode(), dump.getvalue()):
        assert "s3cret" not in text
        assert target.encrypted_secrets["authorization"] not in "".join(pages)
    entry = AuditEntry.objects.get(action="add", object_name="desk")
    assert entry.after["secrets_entered"] == ["Authorization"]
    assert "encrypted" not in json.dumps(entry.after)


def test_an_empty_secret_keeps_what_is_stored(editor_client: Client) -> None:
    editor_client.post(NEW, sent(("Authorization", SECRET, True)))
    before = stored().encrypted_secrets
    page = editor_client.get(edit(stored())).content.decode()
    assert "Stored; type to replace it" in page
    editor_client.post(edit(stored()), sent(("Authorization", "", True), timeout_s="9"))
    assert stored().config["timeout_s"] == 9
    assert stored().encrypted_secrets == before
    editor_client.post(edit(stored()), sent(("Authorization", "another-value", True)))
    assert decrypt(stored().encrypted_secrets["authorization"]) == "another-value"
    editor_client.post(edit(stored()), sent())
    assert stored().encrypted_secrets == {}


def test_a_stored_secret_is_not_sent_to_another_server(editor_client: Client) -> None:
    editor_client.post(NEW, sent(("Authorization", SECRET, True)))
    moved = sent(("Authorization", "", True), url="https://elsewhere.example/ask")
    response = editor_client.post(edit(stored()), moved)
    assert response.status_code == 422
    assert "was entered for https://agent.example" in response.content.decode()
    assert stored().config["url"] == "https://agent.example/ask"
    same = sent(("Authorization", "", True), url="https://agent.example/v2")
    assert editor_client.post(edit(stored()), same).status_code == 302


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("Authorization", "Bearer sk-live-0123456789abcdef", True),
        ("cookie", "session=abcdef", True),
        ("X-Api-Key", "abc123", True),
        ("X-Auth-Token", "anything", True),
        ("X-Team", "sk-live-0123456789abcdef", True),
        ("X-Team", "blue", False),
        ("X-Token-Limit", "500", False),
        ("X-Trace", "0f8fad5b-d9cb-469f-a165-70867728950e", False),
    ],
)
def test_a_value_that_looks_like_a_key_is_secret_without_being_told(
    editor_client: Client, name: str, value: str, is_secret: bool
) -> None:
    editor_client.post(NEW, sent((name, value, False)))

    header = {"name": name, "secret": True} if is_secret else {"name": name, "value": value}
    assert stored().config["headers"] == [header]
    entry = AuditEntry.objects.get(object_type="target")
    assert (value in json.dumps(entry.after)) is not is_secret


def test_an_address_in_a_closed_network_is_refused_in_the_form(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "TARGET_NETWORKS", ())

    answer = editor_client.post(NEW, sent(url="http://10.0.0.7/ask"))

    assert answer.status_code == 422
    assert "EVALSITE_TARGET_NETWORKS" in answer.text
    assert editor_client.post(NEW, sent(url="https://agent.example/ask")).status_code == 302


@pytest.mark.parametrize(
    ("headers", "changes", "message"),
    [
        ((), {"url": "http://169.254.169.254/"}, "These are never called"),
        ((), {"url": ""}, "This field is required."),
        ((), {"body": '{\n  "q": \n}'}, "Line 3, character 1, is not JSON"),
        (
            (),
            {"body": '{\n  "a": 1,\n  "q": "{{inptu}}"\n}'},
            "Line 3, q: {{inptu}} is not a variable",
        ),
        ((), {"body": '{"q": "{{expected_output}}"}'}, "never given to the agent"),
        ((), {"body": "7"}, "should be a valid"),
        ((), {"body": '{"a": "\\ud800"}'}, "a text contains a character that cannot be stored"),
        ((), {"body": '{"a\\u0000": ""}'}, "a text contains a character that cannot be stored"),
        ((), {"body": '{"a": 1, "a": 2}'}, "is repeated in one object"),
        ((), {"body": "[" + "1," * 10_000 + "1]"}, "it contains more than 10,000 values"),
        ((), {"body": " " * 200_001}, "200,000 is the limit"),
        ((), {"output_path": "a..b"}, "“a..b” is not a path"),
        ((), {"output_path": "", "cost_path": "usd"}, "Give the path of the output"),
        ((), {"timeout_s": "0"}, "greater than or equal to 1"),
        ((), {"method": "BREW"}, "Select a valid choice"),
        ((("X-A", "", False),), {}, "X-A has no value."),
        ((("", "lost", False),), {}, "A header has a value and no name."),
        ((("X-A", "", True),), {}, "X-A is secret and has no value yet."),
        ((("X-A", "abc", True),), {}, "fewer than 6 characters"),
        ((("X-A", "ü-secret-ü", True),), {}, "use visible ASCII"),
        ((("X A", "b", False),), {}, "is not a header name"),
        ((("X-A", "b", False), ("x-a", "c", False)), {}, "is repeated"),
        ((("X-A", "{{EVALSITE_SECRET_KEY}}", False),), {}, "EVALSITE_TARGET_SECRET_"),
        ((("X-A", "{{EVALSITE_TARGET_SECRET_A}}", True),), {}, "do not mark it as secret"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field_and_kept(
    editor_client: Client,
    headers: tuple[tuple[str, str, bool], ...],
    changes: dict[str, str],
    message: str,
) -> None:
    response = editor_client.post(NEW, sent(*headers, **changes))
    page = response.content.decode()
    assert response.status_code == 422
    assert message in page.replace("&quot;", '"')
    assert 'value="desk"' in page
    assert "ü-secret-ü" not in page
    assert not Target.objects.exists()


def test_a_variable_of_the_server_may_be_named(
    editor_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.TARGET_SECRETS, "EVALSITE_TARGET_SECRET_A", "the-hidden-value")
    named = ("Authorization", "Bearer {{EVALSITE_TARGET_SECRET_A}}", False)
    page = editor_client.post(NEW, sent(named), follow=True).content.decode()
    assert "Bearer {{EVALSITE_TARGET_SECRET_A}}" in page
    assert "the-hidden-value" not in page


def test_two_who_change_a_target_at_once_do_not_overwrite_each_other(
    editor_client: Client, admin_client: Client
) -> None:
    editor_client.post(NEW, sent())
    seen = stored().updated_at.isoformat()
    admin_client.post(edit(stored()), sent(timeout_s="11", seen=seen))
    mine = editor_client.post(edit(stored()), sent(timeout_s="22", seen=seen))
    page = mine.content.decode()
    assert mine.status_code == 422
    assert "This target was changed by admin after you opened the form" in page
    assert 'value="22"' in page
    assert stored().config["timeout_s"] == 11
    now = stored().updated_at.isoformat()
    assert now.replace("+", "+") in page.replace("&#x2B;", "+")
    editor_client.post(edit(stored()), sent(timeout_s="22", seen=now))
    assert stored().config["timeout_s"] == 22


def test_headers_beyond_the_first_rows_are_kept(editor_client: Client) -> None:
    many: list[Any] = [(f"X-{number}", "v", False) for number in range(12)]
    editor_client.post(NEW, sent(*many))
    assert len(stored().config["headers"]) == 12
    assert 'value="X-11"' in editor_client.get(edit(stored())).content.decode()


def test_a_secret_of_another_key_says_so(editor_client: Client) -> None:
    target = make_target(
        name="desk",
        kind="http",
        config={"url": "https://agent.example/ask", "headers": [{"name": "X", "secret": True}]},
        encrypted_secrets={"x": encrypt("something")},
    )
    assert "Stored; type" in editor_client.get(edit(target)).content.decode()

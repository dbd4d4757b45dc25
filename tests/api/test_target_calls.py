"""Reading, adding and changing targets from programs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from evalsite.access.roles import Scope
from runs.models.suites import Target
from tests.api.site import assert_described, assert_refused, get, token_of
from tests.support.factories import STARTED, make_model, make_target, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    token = token_of(make_user(role="editor"), scopes=[Scope.EDIT])
    return Client(headers={"Authorization": f"Bearer {token}"})


def send(client: Client, body: Any, status: int = 201, *, target: int = 0) -> Any:
    """Add a target, or change one, and return the answer."""
    method, at = ("put", f"/api/targets/{target}") if target else ("post", "/api/targets")
    response = getattr(client, method)(at, body, content_type="application/json")
    assert response.status_code == status, response.content
    if status >= 400:
        return assert_refused(response, status)
    path = "/api/targets/{target}" if target else "/api/targets"
    return assert_described(response, path, method=method)


def test_a_target_for_pushed_outputs_needs_only_a_name(client: Client) -> None:
    target = send(client, {"name": "pipeline", "kind": "pushed"})
    assert (target["kind"], target["config"], target["model"]) == ("pushed", {}, None)
    listed = get(client, "/api/targets?kind=pushed", "/api/targets")["results"]
    assert [row["name"] for row in listed] == ["pipeline"]
    assert get(client, f"/api/targets/{target['id']}", "/api/targets/{target}") == target
    problem = send(client, {"name": "pipeline", "kind": "pushed"}, 400)
    assert problem["errors"] == {
        "/name": ["There is already a target “pipeline”. Choose another name."]
    }
    Target.objects.update(archived_at=STARTED)
    problem = send(client, {"name": "renamed", "kind": "pushed"}, 400, target=target["id"])
    assert problem["errors"] == {
        "/": ["This target is archived, so it cannot be changed. Add a new one."]
    }


def test_a_chat_target_has_a_model_and_its_settings(client: Client) -> None:
    make_model(slug="juno")
    body = {
        "name": "bot",
        "kind": "chat",
        "model": "juno",
        "config": {"system_prompt": "Be brief."},
    }
    target = send(client, body)
    assert (target["model"], target["config"]["system_prompt"]) == ("juno", "Be brief.")
    body["config"] = {"system_prompt": "Be kind.", "parameters": {"temperature": 0.5}}
    target = send(client, body, 200, target=target["id"])
    assert target["config"]["parameters"] == {"temperature": 0.5}
    assert send(client, {**body, "model": "nova"}, 400)["errors"] == {
        "/model": ["There is no language model 'nova'."]
    }
    assert "/model" in send(client, {**body, "name": "b", "model": None}, 400)["errors"]


def test_the_values_of_secret_headers_are_taken_and_never_shown(client: Client) -> None:
    header = {"name": "X-Key", "value": "s3cret-of-ours", "secret": True}
    config = {"url": "https://agent.example/ask", "headers": [header]}
    target = send(client, {"name": "agent", "kind": "http", "config": config})
    assert target["config"]["headers"] == [{"name": "X-Key", "secret": True}]
    stored = dict(Target.objects.get().encrypted_secrets)
    assert stored
    # What was read can be sent back: the value stays.
    again = send(
        client,
        {"name": "agent", "kind": "http", "config": target["config"]},
        200,
        target=target["id"],
    )
    assert again["config"] == target["config"]
    assert Target.objects.get().encrypted_secrets == stored


def with_headers(*headers: Any) -> Any:
    config = {"url": "https://agent.example/ask", "headers": list(headers)}
    return {"name": "a", "kind": "http", "config": config}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"name": "a", "kind": "robot"}, "/kind"),
        ({"name": "a", "kind": "recorded"}, "/kind"),
        ({"name": "", "kind": "pushed"}, "/name"),
        ({"name": "a", "kind": "pushed", "config": {"url": "x"}}, "/config/url"),
        ({"name": "a", "kind": "http", "config": {"url": "ftp://x"}}, "/config/url"),
        ({"name": "a", "kind": "http", "config": {}}, "/config/url"),
        ({"name": "a", "kind": "pushed", "colour": 1}, "/colour"),
        (with_headers({"name": ["X-Key"], "value": "a"}), "/config/headers/0/name"),
        (with_headers({"name": "X-Key", "value": 7}), "/config/headers/0/value"),
        (with_headers({"name": "X-Key", "value": "a", "secrte": True}), "/config/headers/0/secrte"),
        (with_headers(*[{"name": "X-Key", "value": "a"}] * 21), "/config/headers"),
    ],
)
def test_a_wrong_target_names_the_place(client: Client, body: Any, place: str) -> None:
    assert place in send(client, body, 400)["errors"]
    assert not Target.objects.exists()


def test_an_answer_repeats_no_more_of_wrong_keys_than_a_reader_needs(client: Client) -> None:
    url = "/api/targets"
    for config in (
        {f"key-{n}": 1 for n in range(20_000)},
        {f"key-{n}": 1 for n in range(900)},
        {"k" * 1_000_000: 1},
    ):
        body = {"kind": "http", "name": "agent", "config": config}
        answer = client.post(url, body, "application/json")
        assert answer.status_code == 400
        assert len(answer.content) < 500 * min(len(config), 1_000) + 5_000
        problem = answer.json()
        if len(config) > 1_000:
            said = "It has 20,000 errors, too many to name each. Correct some, and send it again."
            assert problem["errors"] == {"/": [said]}
        elif len(config) > 1:
            assert len(problem["errors"]) == 900
            assert problem["detail"].endswith("; and 880 more")
    assert not Target.objects.exists()


def test_an_editor_without_the_right_to_run_scripts_adds_no_command(client: Client) -> None:
    body = {"name": "a", "kind": "command", "config": {"command": "rm -rf /"}}
    response = client.post("/api/targets", body, content_type="application/json")
    assert response.status_code in (400, 409), response.content
    assert not Target.objects.exists()


def test_a_viewer_reads_targets_and_changes_none() -> None:
    target = make_target(name="bot")
    token = token_of(make_user(role="viewer"))
    client = Client(headers={"Authorization": f"Bearer {token}"})
    assert get(client, "/api/targets")["results"][0]["name"] == "bot"
    send(client, {"name": "x", "kind": "pushed"}, 403)
    send(client, {"name": "x", "kind": "recorded"}, 403, target=target.pk)

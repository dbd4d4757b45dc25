"""Making, listing and revoking share links from programs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from evalsite.access.roles import Scope
from runs.models.sharing import ShareLink
from runs.models.temporary import IdempotentRequest
from tests.api.site import Program, get
from tests.support.factories import make_case, make_result, make_run, make_suite, make_user

pytestmark = pytest.mark.django_db
RUN = {"kind": "run", "run": "support:1"}


@pytest.fixture(autouse=True)
def runs() -> None:
    suite = make_suite(slug="support")
    case = make_case(suite=suite, key="C-1", title="A refund")
    for score in (0.9, 0.4):
        output = {"text": "Write to ann@example.com"}
        make_result(
            run=make_run(suite=suite), case=case, verdict="pass", score=score, output=output
        )


@pytest.fixture
def editor() -> Program:
    return Program(make_user(role="editor", name="mira"), Scope.EDIT)


def test_a_link_is_made_opened_listed_and_revoked(editor: Program) -> None:
    compared = {"kind": "comparison", "baseline": "support:1", "candidate": "support:2"}
    made = editor.send("post", "/shares", {**compared, "title": "For the lead", "days": 7}, 201)
    path = made["url"].removeprefix("http://testserver")
    assert "For the lead" in Client().get(path).text
    (listed,) = get(editor.client, "/api/shares", "/api/shares")["results"]
    assert (listed["id"], listed["made_by"], listed["views"]) == (made["id"], "mira", 1)
    assert "url" not in listed
    editor.send("delete", "/shares/{share}", None, 204, share=made["id"])
    assert Client().get(path).status_code == 404
    editor.send("delete", "/shares/{share}", None, 404, share=made["id"])


def test_the_secret_of_a_link_is_not_kept_for_those_who_repeat_the_call(editor: Program) -> None:
    def share() -> dict[str, Any]:
        headers = {"Idempotency-Key": "k1"}
        made = editor.client.post(
            "/api/shares", RUN, content_type="application/json", headers=headers
        )
        assert made.status_code == 201
        return dict(made.json())

    first = share()
    secret = first["url"].rpartition("/s/")[2].strip("/")
    assert secret not in str(IdempotentRequest.objects.values())
    assert share() == first


def test_texts_that_look_private_are_shared_only_on_purpose(editor: Program) -> None:
    result = {"kind": "result", "run": "support:1", "case": "C-1", "detail_level": "outputs"}
    assert editor.send("post", "/shares", result, 409)["code"] == "looks_private"
    assert not ShareLink.objects.exists()
    editor.send("post", "/shares", {**result, "accept_private": True}, 201)


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({**RUN, "run": "support:9"}, 409, "That run does not exist"),
        ({"kind": "suite"}, 400, "/kind"),
        ({**RUN, "days": 366}, 400, "/days"),
        ({**RUN, "detail_level": "all"}, 400, "/detail_level"),
        ({"kind": "result", "run": "support:1", "case": "C-2"}, 409, "does not exist"),
        ({"kind": "comparison", "baseline": "support:1", "candidate": "support:1"}, 409, ""),
    ],
)
def test_what_cannot_be_shared_is_refused(
    editor: Program, body: dict[str, object], status: int, where: str
) -> None:
    problem = editor.send("post", "/shares", body, status)
    assert where in (problem["errors"] if status == 400 else problem["detail"])


def test_members_see_and_revoke_their_own_links_and_admins_all(editor: Program) -> None:
    made = editor.send("post", "/shares", RUN, 201)
    other = Program(make_user(role="editor"), Scope.EDIT)
    assert get(other.client, "/api/shares")["results"] == []
    other.send("delete", "/shares/{share}", None, 404, share=made["id"])
    Program(make_user(role="editor"), Scope.RUN).send("post", "/shares", RUN, 403)
    admin = Program(make_user(role="admin"), Scope.EDIT)
    assert len(get(admin.client, "/api/shares")["results"]) == 1
    admin.send("delete", "/shares/{share}", None, 204, share=made["id"])

"""Files that workers prepare, asked for by a program."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from django.contrib.auth.models import User
from django.test import Client

from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from evaluators.models import AuditEntry
from runs.exports.services import ExportWriter
from runs.models.temporary import Export
from runs.tasks import FILE_KINDS
from tests.support.factories import make_scored_run, make_suite
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db

LINES = "/api/runs/support:1/results.jsonl"


@pytest.fixture(autouse=True)
def run() -> None:
    make_scored_run(suite=make_suite(slug="support"), verdicts=("pass", "fail"))


def client_of(owner: User, scopes: Collection[Scope] = ()) -> Client:
    secret = make_token(owner=owner, name="t", scopes=scopes, expires_at=None)[1]
    return Client(headers={"authorization": f"Bearer {secret}"})


def test_a_program_is_told_where_the_state_of_its_file_is_and_then_gets_it() -> None:
    client = client_of(make_member("viewer"))
    answer = client.get(LINES)
    assert answer.status_code == 202
    assert answer["Location"].endswith(answer.json()["status_url"])
    assert answer.json()["state"] == "waiting"
    assert client.get(answer["Location"]).json()["file_url"] is None
    early = client.get(f"{answer['Location']}/file")
    assert early.status_code == 409
    assert early.json()["detail"] == "The file cannot be sent: it is waiting."

    ExportWriter().write_waiting(FILE_KINDS)
    state = client.get(answer["Location"]).json()
    assert (state["state"], state["rows"], state["done"]) == ("ready", 2, 2)
    for address in (state["file_url"], LINES):
        file = client.get(address)
        assert file.status_code == 200
        assert len(file.getvalue()) == state["size_bytes"]
    entries = AuditEntry.objects.filter(action="download", actor_name="viewer")
    assert [entry.object_name for entry in entries] == ["support-1.jsonl"] * 2


def test_a_program_cancels_its_export_and_no_other() -> None:
    client = client_of(make_member("viewer"))
    where = client.get(LINES)["Location"]
    assert client_of(make_member("admin")).delete(where).status_code == 404
    assert Export.objects.exists()
    assert client.delete(where).status_code == 204
    assert not Export.objects.exists()
    assert client.get(where).status_code == 404


def test_a_token_gets_no_file_that_only_its_owner_may_have() -> None:
    admin = make_member("admin")
    AuditEntry.objects.record("change", by=admin, object_type="user", object_name="ada")
    page = make_client(admin).get("/audit/audit.jsonl")["Location"]
    ExportWriter().write_waiting(FILE_KINDS)
    address = f"/api{page}file"
    assert client_of(admin).get(address).status_code == 403
    allowed = client_of(admin, [Scope.EDIT]).get(address)
    assert allowed.status_code == 200
    assert allowed.getvalue()

"""The audit: what an editor reads there, what only an admin does, and how it is narrowed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from evaluators.models import AuditEntry
from runs.audit.queries import changes_between
from tests.support.factories import make_run, make_suite, make_target
from tests.support.members import make_client, make_member
from tests.support.statements import query_plan, statements_reading

pytestmark = pytest.mark.each_database

PAGE = "/audit/"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, {"name": "a"}, ["name: a"]),
        ({"name": "a"}, None, ["name: a → –"]),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["b: 2 → 3"]),
        ({"policy": {"pass": 0.8, "gate": "score"}}, {"policy": {"pass": 0.7, "gate": "score"}},
         ["policy.pass: 0.8 → 0.7"]),
        ({"on": False}, {"on": True, "tags": ["x"]}, ["on: false → true", 'tags: ["x"]']),
        ({"a": None}, {"a": 0}, ["a: 0"]),
        ({"a": {}}, {"a": {"b": 1}}, ["a: {} → –", "a.b: 1"]),
        ({"reason": "long " * 30}, {"reason": "short"}, ["reason: " + ("long " * 8)[:39] + "… → short"]),
        ({"same": 1}, {"same": 1}, []),
        (None, {"role": "viewer", "email": "a@x.org"},
         ["role of the member: viewer", "email address: a@x.org"]),
        (None, {"with": "a passkey", "mentions": ["ada", "bob"]},
         ["method: a passkey", "mentioned members: ada, bob"]),
        (None, {"mentions": []}, ["mentioned members: none"]),
        (None, {"expires_at": "2026-11-03T09:05:00+00:00"}, ["expires: 3 Nov 2026, 09:05"]),
        (None, {"expires_at": "never"}, ["expires: never"]),
        ({"has_stored_key": False}, {"has_stored_key": True}, ["has a stored key: no → yes"]),
        (None, None, []),
    ],
)  # fmt: skip
def test_changes_are_told_value_by_value(before: Any, after: Any, said: list[str]) -> None:
    assert [change.words for change in changes_between(before, after)] == said


def write(actor: User | None = None, **columns: Any) -> AuditEntry:
    name = actor.get_username() if actor else "command line"
    defaults = {"action": "change", "object_type": "target", "object_id": "0", "object_name": "x"}
    return AuditEntry.objects.create(actor=actor, actor_name=name, **{**defaults, **columns})


def read(client: Client, query: str = "", **headers: str) -> str:
    response = client.get(PAGE + query, headers=headers)
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


@pytest.fixture
def editor(db: None) -> User:
    return make_member("editor", "ada")


# PostgreSQL refuses to store such a value.
@pytest.mark.one_database
def test_an_entry_that_cannot_be_written_as_text_breaks_neither_page_nor_file(editor: User) -> None:
    write(before={"body": {"a": "x"}}, after={"body": {"a": "\ud800", "\udc00": "b\0"}})
    write(object_name="later")

    page, client = read(make_client(editor)), make_client(editor)

    assert "body.a: x → �" in page
    assert "later" in page
    lines = [json.loads(line) for line in client.get("/audit/audit.jsonl").getvalue().splitlines()]
    # The first line is the download itself.
    assert lines[2]["after"] == {"body": {"a": "�", "�": "b�"}}


def test_an_entry_names_who_what_and_both_values(editor: User) -> None:
    suite, target = make_suite(slug="support"), make_target(name="agent 2")
    run = make_run(suite=suite, target=target)
    for kind, row, name in (
        ("suite", suite, "support"),
        ("target", target, "agent 2"),
        ("run", run, f"support #{run.number}"),
    ):
        write(
            editor, object_type=kind, object_id=str(row.pk), object_name=name,
            before={"pass_threshold": 0.8}, after={"pass_threshold": "<b>0.7</b>", "note": "why"},
        )  # fmt: skip
    write(object_name="gone", object_id="999999", action="member.role_changed")
    page = read(make_client(editor))
    assert 'changed <a href="/suites/support/">support</a>' in page
    assert f'changed <a href="/targets/{target.pk}/">agent 2</a>' in page
    assert f'<a href="/suites/support/runs/{run.number}/">support #{run.number}</a>' in page
    assert "changed the role of gone<small>" in page
    assert "ada" in page
    assert "command line" in page
    assert "pass_threshold: 0.8 → &lt;b&gt;0.7&lt;/b&gt;, note: why" in page
    assert '<span class="unseen">before: </span>0.8</p>' in page
    assert "<b>0.7" not in page


def test_it_is_narrowed_by_the_address_and_says_when_nothing_matches(editor: User) -> None:
    client = make_client(editor)
    assert "No changes yet" in read(client)
    write(editor, object_name="agent 2")
    write(object_type="suite", object_name="support")
    for query, shown, hidden in (
        ("?kind=suite", "changed support", "changed agent 2"),
        ("?who=ada", "changed agent 2", "changed support"),
        ("?q=AGENT", "changed agent 2", "changed support"),
        ("?after=x&q=sup", "changed support", "changed agent 2"),
    ):
        page = read(client, query)
        assert shown in page
        assert hidden not in page
    assert "No change matches" in read(client, "?q=nobody")
    fragment = read(client, "?kind=suite", **{"HX-Request": "true"})
    assert fragment.startswith('<div id="audit-rows">')


def test_members_are_for_admins_alone(editor: User) -> None:
    write(editor, object_type="user", object_name="grace", action="member.added")
    assert "grace" not in read(make_client(editor))
    assert "Member</option>" not in read(make_client(editor))
    client = make_client(make_member("admin"))
    assert "added grace" in read(client)
    named = [json.loads(line)["object_name"] for line in lines(client)]
    assert named == ["audit.jsonl", "grace"]
    assert not any(b"grace" in line for line in lines(make_client(editor)))


def lines(client: Client, query: str = "") -> list[bytes]:
    response = client.get(f"{PAGE}audit.jsonl{query}")
    assert response.status_code == 200
    return response.getvalue().splitlines()


def test_the_filters_offer_what_is_in_the_entries_that_one_may_see(editor: User) -> None:
    for name, kind in (("zoe", "suite"), ("bob", "user"), ("zoe", "file"), ("bob", "session")):
        AuditEntry.objects.record("change", by=None, nobody=name, object_type=kind)
    AuditEntry.objects.record("start", by=None, nobody="", object_type="run")
    for role, kinds, names in (
        ("editor", ["file", "run", "suite"], ["zoe"]),
        ("admin", ["file", "run", "session", "suite", "user"], ["bob", "zoe"]),
    ):
        page = read(make_client(make_member(role, role)))
        assert options(page, "kind") == ["", *kinds]
        assert options(page, "who") == ["", *names]


def options(page: str, name: str) -> list[str]:
    field = page.partition(f'name="{name}"')[2].partition("</select>")[0]
    return re.findall(r'<option value="([^"]*)"', field)


def test_the_page_reads_no_values_but_those_it_shows(editor: User) -> None:
    AuditEntry.objects.bulk_create(
        AuditEntry(actor_name=f"member {n % 5}", object_type=f"kind {n % 3}", object_name=f"x {n}")
        for n in range(3000)
    )
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE evaluators_auditentry")
    with statements_reading("evaluators_auditentry") as statements:
        assert "No change matches" in read(make_client(editor), "?q=nobody")

    found, offered = (query_plan(*statement) for statement in statements)
    assert '"before"' not in statements[0][0]
    # PostgreSQL reads an index alone once the table was vacuumed.
    assert connection.vendor == "postgresql" or "COVERING INDEX audit_filters" in found
    assert "audit_by_actor" in offered
    assert "SCAN later" not in offered
    assert "Seq Scan" not in offered


def test_pages_follow_each_other_in_a_fixed_number_of_queries(
    editor: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(60):
        write(editor, object_name=f"thing {number:02}")
    client = make_client(editor)
    with django_assert_max_num_queries(10):
        first = read(client)
    assert "thing 59<" in first
    assert "thing 09<" not in first
    address = first.split("/audit/?after=")[1].split('"')[0]
    second = read(client, f"?after={address}")
    assert "thing 09<" in second
    assert "thing 10<" not in second
    assert "Show older changes" not in second
    assert len(lines(client, "?q=thing+0")) == 10

"""How links are made, shown once, listed and revoked."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evalsite.access.models import MemberSession
from evalsite.access.sessions import SessionStore
from evaluators.models import AuditEntry
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from tests.sharing.linked import sent, share, subject
from tests.support.factories import refresh_cases
from tests.support.members import make_client, make_member
from tests.support.white_space import text_of

pytestmark = pytest.mark.django_db


def test_what_looks_private_is_listed_with_its_place_and_shared_only_when_it_was_looked_at(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    output = runs[1].results.get().output
    output.text = "Use sk-proj-4fJ2kQ9sLmX7vT1bR8nW or write to jo@example.com"
    output.save()
    fields = subject(runs, "run")
    address = reverse("runs:share-new")
    quiet = editor_client.get(address, fields | {"detail_level": "figures"})
    assert "No keys and no email addresses" in text_of(quiet)
    page = editor_client.get(address, fields | {"detail_level": "outputs"}).content.decode()
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    assert "2 strings look private" in text
    assert "Key-like string sk-p… (28 characters) in case KEY-mark, answer 1, output" in text
    assert "Email address j…@example.com in case KEY-mark, answer 1, output" in text
    refused = editor_client.post(address, sent(page, fields, detail_level="outputs"))
    assert refused.status_code == 422
    assert "tick that they may be shared" in text_of(refused)
    assert not ShareLink.objects.exists()
    made = editor_client.post(address, sent(page, fields, detail_level="outputs", looked="on"))
    assert made.status_code == 302


def test_only_what_was_shown_is_shared(editor_client: Client, runs: tuple[Run, Run]) -> None:
    fields, address = subject(runs), reverse("runs:share-new")
    page = editor_client.get(address, fields).content.decode()
    deeper = editor_client.post(address, sent(page, fields, detail_level="traces"))
    assert deeper.status_code == 422
    assert "has changed since the preview" in text_of(deeper)
    assert "STEP-OUT-mark" in deeper.content.decode()
    Result.objects.filter(run=runs[1]).update(verdict="pass", score=0.9)
    refresh_cases(runs[1])
    changed = editor_client.post(address, sent(page, fields))
    assert changed.status_code == 422
    assert not ShareLink.objects.exists()
    again = sent(changed.content.decode(), fields)
    assert editor_client.post(address, again).status_code == 302


@pytest.mark.parametrize(
    ("more", "days"),
    [({}, 30), ({"expiry": "7"}, 7), ({"expiry": "90"}, 90), ({"expiry": "date"}, 3)],
)
def test_links_close_after_30_days_or_when_their_maker_says(
    editor_client: Client, runs: tuple[Run, Run], more: dict[str, str], days: int
) -> None:
    if more.get("expiry") == "date":
        more = more | {"until": str(timezone.localdate() + timedelta(days=days))}
    share(editor_client, subject(runs), **more)
    link = ShareLink.objects.get()
    assert link.expires_at is not None
    assert (link.expires_at.date() - link.created_at.date()).days == days


@pytest.mark.parametrize(
    "more",
    [
        {"expiry": "never"},
        {"expiry": "date"},
        {"expiry": "date", "until": "2001-01-01"},
        {"expiry": "date", "until": "2999-01-01"},
        {"expiry": "400"},
        {"detail_level": "everything"},
        {"title": "x" * 201},
        {"title": "  "},
    ],
)
def test_a_form_that_makes_no_sense_makes_no_link(
    editor_client: Client, runs: tuple[Run, Run], more: dict[str, str]
) -> None:
    fields, address = subject(runs), reverse("runs:share-new")
    page = editor_client.get(address, fields).content.decode()
    response = editor_client.post(address, sent(page, fields, **more))
    assert response.status_code == 422
    assert "No link was created" in text_of(response)
    assert not ShareLink.objects.exists()


def test_an_admin_alone_makes_links_without_an_end_and_sees_everybodys(
    admin: User, editor_client: Client, runs: tuple[Run, Run], client: Client
) -> None:
    path = share(editor_client, subject(runs), title="Of the editor")
    admin_client, other = make_client(admin), make_client(make_member("editor", "other"))
    share(admin_client, subject(runs), title="Of the admin", expiry="never")
    assert ShareLink.objects.get(title="Of the admin").expires_at is None
    address = reverse("runs:share-list")
    assert "Of the editor" in text_of(admin_client.get(address))
    assert "Of the admin" not in text_of(editor_client.get(address))
    assert "No share links yet" in text_of(other.get(address))
    link = ShareLink.objects.get(title="Of the editor")
    revoke = reverse("runs:share-revoke", args=[link.pk])
    assert other.post(revoke).status_code == 404
    assert client.get(path).status_code == 200
    assert admin_client.post(revoke).status_code == 302
    assert client.get(path).status_code == 404
    assert "Revoked" in text_of(editor_client.get(address))
    actions = AuditEntry.objects.filter(object_type="share").order_by("pk")
    assert [(one.action, one.actor_name, one.object_name) for one in actions] == [
        ("share", "mia-mark", "Of the editor"),
        ("share", "admin", "Of the admin"),
        ("open", "a visitor", "Of the editor"),
        ("revoke", "admin", "Of the editor"),
    ]
    audit = text_of(admin_client.get(reverse("runs:audit")))
    assert "revoked" in audit
    assert "Share link" in audit


def test_the_link_is_shown_once(editor_client: Client, runs: tuple[Run, Run]) -> None:
    path = share(editor_client, subject(runs))
    assert path not in editor_client.get(reverse("runs:share-list")).text


def test_a_link_that_waits_to_be_shown_cannot_be_read_in_the_database(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    fields, listed = subject(runs, "run"), reverse("runs:share-list")
    page = editor_client.get(reverse("runs:share-new"), fields).text
    editor_client.post(reverse("runs:share-new"), sent(page, fields))
    kept = repr(SessionStore().decode(MemberSession.objects.get().session_data))
    assert "/s/" not in kept
    editor_client.head(listed)
    shown = re.search(r"/s/([\w-]{43})/", editor_client.get(listed).text)
    assert shown
    assert shown[1] not in kept


@pytest.mark.parametrize("role", ["viewer", "reviewer"])
def test_who_may_not_share_gets_no_button_and_a_clear_refusal(
    runs: tuple[Run, Run], role: str
) -> None:
    client = make_client(make_member(role))
    for address in ("/shares/", "/shares/new/", "/shares/preview/"):
        assert client.get(address, subject(runs)).status_code == 403
    slug = runs[0].suite.slug
    pages = (
        f"/compare/?baseline={slug}:1&candidate={slug}:2",
        f"/suites/{slug}/runs/2/",
        f"/suites/{slug}/runs/2/KEY-mark/1/",
    )
    editor = make_client(make_member("editor"))
    for page in pages:
        assert "/shares/" not in client.get(page).text
        found = re.search(r'href="(/shares/new/\?[^"]+)"', editor.get(page).text)
        assert found, page
        shown = editor.get(html.unescape(found[1]))
        assert "Preview: what people with the link see" in text_of(shown)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "from its own page"),
        ({"kind": "run", "run": "nobody:1"}, "does not exist"),
        ({"kind": "run", "run": "x"}, "does not exist"),
        ({"kind": "result", "run": "suite-mark-slug:1", "case": "C-404"}, "does not exist"),
        (
            {
                "kind": "result",
                "run": "suite-mark-slug:1",
                "case": "KEY-mark",
                "repetition": "9" * 30,
            },
            "does not exist",
        ),
        (
            {
                "kind": "comparison",
                "baseline": "suite-mark-slug:1",
                "candidate": "suite-mark-slug:1",
            },
            "the same run",
        ),
    ],
)
def test_what_is_not_there_is_not_shared(
    editor_client: Client, runs: tuple[Run, Run], fields: dict[str, str], reason: str
) -> None:
    assert reason in text_of(editor_client.get(reverse("runs:share-new"), fields))
    assert reason in text_of(editor_client.get(reverse("runs:share-preview"), fields))
    assert editor_client.post(reverse("runs:share-new"), fields).status_code == 422


def test_what_goes_on_is_shared_when_it_is_over(
    editor_client: Client, runs: tuple[Run, Run]
) -> None:
    Run.objects.filter(pk=runs[1].pk).update(status="running")
    page = text_of(editor_client.get(reverse("runs:share-new"), subject(runs, "run")))
    assert "Share it when it has ended" in page


def test_links_are_listed_page_by_page_in_two_queries_at_most(
    editor: User, editor_client: Client, django_assert_max_num_queries: Any
) -> None:
    links = [
        ShareLink(token_hash=str(n), kind="run", title=f"Link {n}", created_by=editor, frozen={})
        for n in range(60)
    ]
    ShareLink.objects.bulk_create(links)
    address = reverse("runs:share-list")
    with django_assert_max_num_queries(9):
        first = editor_client.get(address).text
    assert "Link 59<" in first.replace(" <small", "<")
    later = re.search(r'href="(\?after=\d+)"', first)
    assert later
    second = text_of(editor_client.get(address + later[1]))
    assert "Link 9 run" in second
    assert "Link 10 run" not in second

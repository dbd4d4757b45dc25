"""What a suite can be called, and its tags."""

from __future__ import annotations

import pytest
from django.test import Client

from runs.models.suites import Suite
from tests.support.factories import make_suite

pytestmark = pytest.mark.django_db


def test_a_suite_with_the_short_name_new_has_its_own_page(viewer_client: Client) -> None:
    make_suite(slug="new", title="New customers")
    assert "New customers" in viewer_client.get("/suites/new/").content.decode()


def test_a_tag_that_no_database_stores_is_refused(editor_client: Client) -> None:
    sent = {"title": "Customer support", "start": "verdicts", "tags": "billing, a\0b"}
    page = editor_client.post("/new-suite/", sent)
    assert "A tag has a character that cannot be stored" in page.content.decode()
    assert not Suite.objects.exists()

"""Which tests PostgreSQL repeats, and what SQLite notes for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.backends.utils import CursorWrapper

from runs.models.suites import FileContent, Suite
from tests.support.databases import AT_ONCE, Notes, describe, listen, with_new_statements
from tests.support.factories import make_model
from tests.support.threads import at_once


class Item:
    """What is asked of a test."""

    fixturenames = ("db",)

    def __init__(self, name: str, **marks: dict[str, object]) -> None:
        self.nodeid = name
        self.marks = marks

    def get_closest_marker(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(kwargs=self.marks[name]) if name in self.marks else None


def chosen(items: Any, notes: dict[str, set[str]]) -> list[str]:
    return [each.nodeid for each in with_new_statements(items, notes)]


def test_a_test_that_sends_nothing_new_runs_on_sqlite_only() -> None:
    notes = {"first": {"a", "b"}, "second": {"b"}, "third": {"b", "c"}, "fourth": {"c", "a"}}
    assert chosen([Item(name) for name in notes], notes) == ["first", "third"]


def test_a_test_is_spared_when_later_ones_send_all_that_it_sends() -> None:
    notes = {"first": {"a", "b"}, "second": {"b", "c"}, "third": {"a", "d"}}
    assert chosen([Item(name) for name in notes], notes) == ["second", "third"]


def test_what_commits_beside_others_sends_spares_others_wherever_it_stands() -> None:
    items = [Item("first"), Item("commits", django_db={"transaction": True})]
    assert chosen(items, {"first": {"a"}, "commits": {"a", "b", AT_ONCE}}) == ["commits"]


def test_tests_of_which_nothing_is_noted_run_on_each_database() -> None:
    assert chosen([Item("first"), Item("new")], {"first": {"a"}}) == ["first", "new"]


def test_tests_that_commit_at_the_same_time_or_say_so_run_on_each_database() -> None:
    items = [
        Item("first"),
        Item("commits beside others", django_db={"transaction": True}),
        Item("commits alone", django_db={"transaction": True}),
        Item("rolls back", django_db={"transaction": False}),
        Item("sorts", each_database={}),
    ]
    notes = {each.nodeid: {"a"} for each in items} | {"first": {"b"}}
    notes["commits beside others"] |= {AT_ONCE}
    assert chosen(items, notes) == ["first", "commits beside others", "sorts"]


def test_a_test_of_every_page_runs_for_what_no_other_sends_and_spares_none() -> None:
    items = [Item("every page", every_page={}), Item("first"), Item("second")]
    notes = {each.nodeid: {"a"} for each in items}
    assert chosen(items, notes) == ["first"]
    notes["every page"] |= {"b"}
    assert chosen(items, notes) == ["every page", "first"]


@pytest.mark.parametrize(
    ("first", "second", "are_alike"),
    [
        ("tone", "refund", True),
        ("tone", "Tone", False),
        ("tone", "tône", False),
        ("tone", "", False),
        ("tone", None, False),
        ("tone", "x" * 256, False),
        ("tone", "a\0b", False),
        ("tone", '{"a": 1}', False),
        ('{"a": 1}', '{"a": "\\u0000"}', False),
        (1, 2, True),
        (1, True, False),
        (1, 2**31, False),
        (2**31, 2**63, False),
        (0.5, float("nan"), False),
    ],
)
def test_values_of_another_kind_are_something_new(
    first: object, second: object, are_alike: bool
) -> None:
    asked = "SELECT a FROM b WHERE c = %s"
    assert (describe(asked, [first]) == describe(asked, [second])) is are_alike


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SELECT a FROM b WHERE c IN (%s, %s)", "SELECT a FROM b WHERE c IN (%s, %s, %s)"),
        ("INSERT INTO b (c, d) VALUES (%s, %s), (%s, %s)", "INSERT INTO b (c, d) VALUES (%s, %s)"),
        ("SELECT a FROM b LIMIT 21", "SELECT a FROM b LIMIT 50"),
        ('SAVEPOINT "s1_x1"', 'SAVEPOINT "s1_x2"'),
    ],
)
def test_the_number_of_rows_or_values_is_nothing_new(first: str, second: str) -> None:
    assert describe(first, [1] * first.count("%s")) == describe(second, [1] * second.count("%s"))


@pytest.mark.parametrize(
    "asked",
    ["SELECT a FROM b WHERE c = %s AND d = %s", "INSERT INTO b (c, d) VALUES (%s, %s), (%s, %s)"],
)
def test_kinds_that_were_sent_at_each_place_are_nothing_new_together(asked: str) -> None:
    rows = asked.count("%s") // 2
    sent = describe(asked, [1, None] * rows) | describe(asked, [None, 1] * rows)
    assert describe(asked, [1, 1] * rows) <= sent
    assert not describe(asked, ["tone", 1] * rows) <= sent


@pytest.fixture
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop listening after the test."""
    for name in ("execute", "executemany"):
        monkeypatch.setattr(CursorWrapper, name, getattr(CursorWrapper, name))


@pytest.fixture
def sent(unheard: None) -> list[str]:
    heard: list[str] = []
    listen(heard.extend)
    return heard


@pytest.mark.django_db
def test_what_is_sent_and_refused_is_noted(sent: list[str]) -> None:
    make_model(slug="juno")
    with pytest.raises(IntegrityError), transaction.atomic():
        make_model(slug="juno")
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE runs_suite SET title = %s WHERE slug = %s", [("A", "é"), ("", "b")]
        )

    assert any(line.startswith('INSERT INTO "evaluators_languagemodel"') for line in sent)
    assert any(line.startswith("IntegrityError: INSERT INTO") for line in sent)
    updates = [line for line in sent if line.startswith("UPDATE runs_suite")]
    assert {line.rpartition("= %s")[2] for line in updates} == {
        *("", " 0 text-capitals", " 1 text-unicode"),
        *(" 0 empty", " 1 text"),
    }


@pytest.mark.django_db(transaction=True)
def test_it_is_noted_when_two_connections_are_in_a_transaction(sent: list[str]) -> None:
    at_once(Suite.objects.exists)
    Suite.objects.exists()
    assert AT_ONCE not in sent

    with transaction.atomic():
        Suite.objects.exists()
        at_once(Suite.objects.exists)
    assert AT_ONCE in sent


@pytest.mark.django_db
def test_what_a_test_sends_by_itself_is_not_noted(unheard: None, tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert not Suite.objects.exists()
    assert notes.current == set()

    FileContent.objects.store([b"a file"])
    assert any("runs_filecontent" in line for sent in notes.current for line in sent)

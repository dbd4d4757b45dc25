"""The machine of every list: addresses read back as they were written, and pages without gap or repeat."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.templatetags.figures import thousands
from runs import lists
from runs.lists import LATEST, Key, Keyset, ListQuery, Sort, UnreadablePlaceError, read_integer
from runs.models.suites import Case
from tests.support.factories import make_case, make_suite

COLORS = ("red", "green")
MOMENTS = st.integers(0, 10**10).map(
    lambda second: LATEST - timedelta(microseconds=10**6 * second + second % 9)
)
STORABLE = st.characters(exclude_characters="\0", exclude_categories=["Cs"])


@dataclass(frozen=True, slots=True)
class BoxQuery(ListQuery):
    """Which boxes."""

    room: str = lists.text()
    words: str = lists.search()
    color: str = lists.choice(COLORS)
    shelf: int | None = lists.integer(name="on")
    is_open: bool = lists.flag(name="open")
    since: datetime | None = lists.moment()
    view: str = lists.option(("table", "grid"), "table")
    sort: Sort = lists.sort(("name", "size"), "name")
    after: str = lists.after()
    page: int = lists.page_number()


QUERIES = st.builds(
    BoxQuery,
    room=st.text(STORABLE, max_size=200),
    words=st.text(STORABLE, max_size=200).map(str.strip),
    color=st.sampled_from(("", *COLORS)),
    shelf=st.none() | st.integers(1, lists.MAX_INTEGER),
    is_open=st.booleans(),
    since=st.none() | MOMENTS,
    view=st.sampled_from(("table", "grid")),
    sort=st.builds(Sort, st.sampled_from(("name", "size")), st.booleans()),
    after=st.text(STORABLE, max_size=50),
    page=st.integers(1, 10**5),
)


@given(QUERIES)
def test_a_query_reads_back_as_it_was_written(query: BoxQuery) -> None:
    assert BoxQuery.read(query.parameters()) == query


@given(st.dictionaries(st.sampled_from([p.name for p in BoxQuery.params().values()]), st.text()))
def test_any_query_string_is_read_and_stays_the_same_when_read_again(
    parameters: dict[str, str],
) -> None:
    query = BoxQuery.read(parameters)
    assert BoxQuery.read(query.parameters()) == query


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), None),
        ("9" * 5000, None),
        ("-1", None),
        ("٣", None),
        ("²", None),
        ("1.0", None),
        (" 1", None),
        ("1_0", None),
        ("", None),
        ("--1", None),
    ],
)
def test_numbers_are_plain_digits_within_bounds(text: str, number: int | None) -> None:
    assert read_integer(text) == number
    assert read_integer("-12", minimum=-20) == -12
    assert read_integer("12", maximum=11) is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"room": "a\0b"},
        {"color": "blue"},
        {"on": "0"},
        {"open": "yes"},
        {"since": "yesterday"},
        {"since": "0001-01-01T00:00:00"},
        {"sort": "--name"},
        {"page": "0"},
        {"other": "1"},
    ],
)
def test_what_cannot_be_read_keeps_its_default(parameters: dict[str, str]) -> None:
    assert BoxQuery.read(parameters) == BoxQuery()


def test_an_address_changes_one_value_and_begins_at_the_first_page() -> None:
    query = BoxQuery(room="attic:2", color="red", sort=Sort("size", True), page=3)
    assert query.address(color="") == "?room=attic:2&sort=-size"
    assert query.address(page=4) == "?room=attic:2&color=red&sort=-size&page=4"
    assert query.here == "?room=attic:2&color=red&sort=-size&page=3"
    assert query.unfiltered == BoxQuery(sort=Sort("size", True))
    assert query.hidden("color") == (("room", "attic:2"), ("sort", "-size"))
    assert BoxQuery().at("/boxes/") == "/boxes/"
    assert BoxQuery().at("/boxes/", page=2) == "/boxes/?page=2"


def test_chips_and_heads_lead_where_they_say() -> None:
    query = BoxQuery(color="red", shelf=4, sort=Sort("size"))
    chip = query.chip("Red", 3, value="red", color="red")
    assert (chip.is_on, chip.url, chip.count) == (True, "?color=red&on=4&sort=size", 3)
    assert not query.chip("Open", is_open=True).is_on
    [shelf] = query.removable({"shelf": "Shelf", "room": "Room"})
    assert (shelf.label, shelf.url) == ("Shelf: 4", "?color=red&sort=size")
    size, name = (lists.head_cell(query, one, one, best_first=True) for one in ("size", "name"))
    assert (size.direction, size.url) == ("ascending", "?color=red&on=4&sort=-size")
    assert (name.direction, name.url) == ("", "?color=red&on=4&sort=-name")


def test_of_very_many_options_the_first_and_the_chosen_are_offered() -> None:
    rooms = [(f"room {number}", f"Room {number}") for number in range(2_000)]
    control = BoxQuery(room="room 1500").select("room", "Room", rooms, "All rooms")
    assert control.options[:2] == (
        ("", f"All rooms, first 500 of {thousands(2_000)}"),
        ("room 0", "Room 0"),
    )
    assert control.options[-2:] == (("room 499", "Room 499"), ("room 1500", "Room 1500"))
    assert control.value == "room 1500"
    few = BoxQuery(room="room 1").select("room", "Room", rooms[:2], "All rooms")
    assert few.options == (("", "All rooms"), *rooms[:2])


def test_a_page_past_the_end_is_the_last_one() -> None:
    page = lists.numbered_page(range(25), BoxQuery(color="red", page=9), 10)
    assert (list(page.rows), page.first, page.last, page.pages) == ([20, 21, 22, 23, 24], 21, 25, 3)
    assert (page.earlier_url, page.later_url) == ("?color=red&page=2", "")
    empty = lists.numbered_page((), BoxQuery(), 10, "/boxes/")
    assert (empty.first, empty.last, empty.earlier_url, empty.later_url) == (0, 0, "", "")
    assert lists.numbered_page(range(20), BoxQuery(page=2), 10).earlier_url == "?"


EVERYTHING = Keyset(Key("a", float), Key("b", str), Key("c", datetime), Key("d", int))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
IDS = st.integers(-lists.MAX_INTEGER, lists.MAX_INTEGER)


@given(st.tuples(FINITE, st.text(STORABLE, max_size=40), MOMENTS, IDS))
def test_a_place_reads_back_as_it_was_written(place: tuple[Any, ...]) -> None:
    assert EVERYTHING.read(EVERYTHING.write(place)) == place


@pytest.mark.parametrize("letter", ["~", "%", "é", "語", "😀"])
def test_the_longest_title_is_a_place_in_any_script(letter: str) -> None:
    place = 1.5, letter * 300, LATEST, lists.MAX_INTEGER
    assert EVERYTHING.read(EVERYTHING.write(place)) == place


@pytest.mark.parametrize("space", [" ", "\t", "\n", "\x1f", "\u00a0", "\u3000"])
def test_a_place_survives_that_its_ends_are_stripped(space: str) -> None:
    order = Keyset(Key("name", str))
    place = (f"{space}a{space}",)
    assert order.read(order.write(place).strip()) == place


@pytest.mark.parametrize("text", ["1", "a~b~c", "1~2~3~4", "nan~x~1", "1e999~1~1", "1~1~1~", "~"])
def test_a_place_that_is_none_is_refused_and_pages_begin_anew(text: str) -> None:
    keys = Keyset(Key("a", float), Key("b", int), Key("c", int))
    with pytest.raises(UnreadablePlaceError):
        keys.read(text)


ORDERS = (
    Keyset(Key("position", int), Key("pk", int)),
    Keyset(Key("title", str), Key("position", int, is_descending=True), Key("pk", int)),
    Keyset(Key("created_at", datetime, is_descending=True), Key("pk", int, is_descending=True)),
)


@pytest.mark.django_db
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 3, 20])
def test_pages_lose_nothing_and_repeat_nothing(order: Keyset, size: int) -> None:
    luck, suite = random.Random(size), make_suite()  # a test's choice
    for number in range(10):
        title = luck.choice(("a", "b~c", "é %"))
        make_case(suite=suite, key=f"C-{number}", title=title, position=luck.randrange(3))
    wanted = [case.pk for case in order.order(Case.objects.all())]
    found, after = [], ""
    while True:
        page = order.page(Case.objects.all(), after, size)
        found += [case.pk for case in page.rows]
        assert len(page.rows) <= size
        if not page.after:
            break
        after = page.after
        # Rows that go and come meanwhile move no other.
        Case.objects.filter(pk=found[0]).delete()
        make_case(suite=suite, position=luck.randrange(3))
    assert [pk for pk in found if pk in wanted] == wanted
    assert len(found) == len(set(found))
    assert [case.pk for case in order.page(Case.objects.all(), "?", 1).rows] == [
        case.pk for case in order.order(Case.objects.all())[:1]
    ]

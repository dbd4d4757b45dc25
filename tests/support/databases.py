"""Which tests run on which database.

SQLite runs all tests. PostgreSQL runs with `--database-only`, which leaves out tests that no
database can change: those that use none, and those marked `one_database`. SQLite can note for it by
`--note-statements=FILE` what the product sends in each test; rows that a test makes or reads by itself do
not count. With `--new-statements=FILE`, PostgreSQL then runs only

- tests that commit (`transaction=True`) and during which a connection sent something while another was in
  a transaction, as what happens at the same time is more than its statements,
- tests marked `each_database`: of races and outages, and those whose outcome depends on order, case or
  comparison of stored values,
- tests of which nothing was noted,
- of all others so many that together they send whatever else was sent: every statement, every kind of
  value at each of its places (nothing, a large number, a text with capitals, beyond ASCII, very long,
  JSON …), and every statement that was answered with an error. Those marked `every_page` are asked last:
  they look at little of the answers, so what they send spares no other test.

So forms' wording and pages' structure, which twenty tests check after the same queries, are looked at
on PostgreSQL once.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, islice
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakSet

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

ROOT = Path(__file__).parents[2]
PRODUCT = tuple(f"{ROOT / package}{os.sep}" for package in ("evalsite", "runs", "evaluators"))
TESTS = f"{ROOT / 'tests'}{os.sep}"
SMALL, LARGE = 2**31, 2**63
LONG_TEXT = 255
# Of a statement that stores many rows, those at its beginning.
MAX_VALUES = 60
# What differs from one sending of a statement to the next: names of savepoints, the number of rows
# or of values in a list.
SAVEPOINT = re.compile(r'(SAVEPOINT) "\w+"')
NUMBERS = re.compile(r"\b\d+\b")
LIST = re.compile(r"(%s|0)(, (%s|0))+")
ROWS = re.compile(r"(\((?:%s|0)\))(?:, \1)+")
PLACE = re.compile(r"%s|%\(\w+\)s")
INSERTED_COLUMNS = re.compile(r"INSERT[^(]*\(([^)]*)\) VALUES")

# What is noted when a connection sends something while another is in a transaction.
AT_ONCE = "at the same time"

Sent = set[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that leave out tests on one of the databases."""
    parser.addoption(
        "--database-only",
        action="store_true",
        help="only tests whose outcome the database can change",
    )
    parser.addoption(
        "--note-statements",
        type=Path,
        metavar="FILE",
        help="note what each test sends to the database",
    )
    parser.addoption(
        "--new-statements",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="only tests that, by these notes, send the database something new",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note what tests send, if an option asks for it."""
    if config.option.note_statements:
        config.pluginmanager.register(Notes(config.option.note_statements))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the options leave out."""
    if not config.option.database_only:
        return
    chosen = [item for item in items if depends_on_database(item)]
    if files := config.option.new_statements:
        notes: dict[str, Sent] = {}
        # Without the notes of a group that ended early, its tests run on PostgreSQL as well.
        for file in filter(Path.exists, files):
            notes |= read_notes(file)
        chosen = with_new_statements(chosen, notes)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def depends_on_database(item: pytest.Item) -> bool:
    """Tell whether a test uses the database, by mark or fixture, and could fail on one kind only."""
    if item.get_closest_marker("one_database"):
        return False
    fixtures = {"db", "transactional_db"} & {*getattr(item, "fixturenames", ())}
    return bool(fixtures) or item.get_closest_marker("django_db") is not None


def with_new_statements(items: Sequence[pytest.Item], notes: dict[str, Sent]) -> list[pytest.Item]:
    """Return the tests that always run, and of the others so many that nothing is left that only they send."""
    fixed = {item for item in items if always_runs(item, notes)}
    known = set[str]().union(*(notes.get(item.nodeid, set()) for item in fixed))
    chosen, times = [], Counter[str]()
    for item in items:
        if item in fixed or asks_every_page(item):
            continue
        if not notes[item.nodeid] <= known | times.keys():
            chosen.append(item)
            times.update(notes[item.nodeid] - known)
    spared = set()
    for item in chosen:
        # Those that were chosen later may send what an earlier one was chosen for.
        new = notes[item.nodeid] - known
        if all(times[sent] > 1 for sent in new):
            times.subtract(new)
            spared.add(item)
    kept = fixed | {*chosen} - spared
    known |= times.keys()
    for item in filter(asks_every_page, items):
        if item not in fixed and not notes[item.nodeid] <= known:
            kept.add(item)
            known |= notes[item.nodeid]
    return [item for item in items if item in kept]


def always_runs(item: pytest.Item, notes: dict[str, Sent]) -> bool:
    """Tell whether a test runs on each database whatever it sends."""
    is_marked = item.get_closest_marker("each_database") is not None
    if is_marked or item.nodeid not in notes:
        return True
    return commits(item) and AT_ONCE in notes[item.nodeid]


def asks_every_page(item: pytest.Item) -> bool:
    """Tell whether a test looks at little of what it is answered."""
    return item.get_closest_marker("every_page") is not None


def commits(item: pytest.Item) -> bool:
    """Tell whether others can see what a test stores while it runs."""
    mark = item.get_closest_marker("django_db")
    fixtures = {"transactional_db", "live_server"} & {*getattr(item, "fixturenames", ())}
    return bool(fixtures) or (mark is not None and bool(mark.kwargs.get("transaction")))


class Notes:
    """Notes what the product sends in each test, and writes it to a file at the end.

    The file holds all that was sent, and its numbers by test.
    """

    def __init__(self, file: Path) -> None:
        """Listen to every connection."""
        self.file = file
        self.numbers: dict[str, int] = {}
        self.tests: dict[str, list[int]] = {}
        self.current: set[frozenset[str]] = set()
        listen(self.note)

    def note(self, sent: frozenset[str]) -> None:
        """Note something for the test that is on, unless the test itself sends it."""
        if sent not in self.current and (AT_ONCE in sent or not is_from_test()):
            self.current.add(sent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note for this test what is sent while it is set up, runs and is taken down."""
        self.current = set()
        try:
            return (yield)
        finally:
            every = set[str]().union(*self.current)
            self.tests[item.nodeid] = [
                self.numbers.setdefault(sent, len(self.numbers)) for sent in sorted(every)
            ]

    def pytest_sessionfinish(self) -> None:
        """Write the notes."""
        self.file.write_text(json.dumps({"sent": [*self.numbers], "tests": self.tests}))


def read_notes(file: Path) -> dict[str, Sent]:
    """Read what each test sent."""
    notes = json.loads(file.read_text())
    sent = notes["sent"]
    return {test: {sent[number] for number in numbers} for test, numbers in notes["tests"].items()}


def is_from_test() -> bool:
    """Tell whether a test or what makes its rows sends a statement, and not code of the product that it calls."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PRODUCT):
            return False
        if name.startswith(TESTS) and name != __file__:
            return True
        frame = frame.f_back
    return False


def listen(note: Callable[[frozenset[str]], None]) -> None:
    """Call `note` with every statement and the kinds of its values, and with every one that fails."""
    execute, executemany = CursorWrapper.execute, CursorWrapper.executemany
    transactions = Transactions(note)

    def noting_execute(cursor: CursorWrapper, sql: Any, params: Any = None) -> Any:
        note(describe(sql, params))
        transactions.begin(cursor.db)
        try:
            return execute(cursor, sql, params)
        except Exception as error:
            note(frozenset({f"{type(error).__name__}: {statement(str(sql))}"}))
            raise
        finally:
            transactions.end(cursor.db)

    def noting_executemany(cursor: CursorWrapper, sql: Any, param_list: Any) -> Any:
        rows = list(param_list)
        for params in rows[:MAX_VALUES]:
            note(describe(sql, params))
        transactions.begin(cursor.db)
        try:
            return executemany(cursor, sql, rows)
        finally:
            transactions.end(cursor.db)

    CursorWrapper.execute = noting_execute
    CursorWrapper.executemany = noting_executemany


class Transactions:
    """Notes when two connections are in a transaction at the same time; a statement alone is one too."""

    def __init__(self, note: Callable[[frozenset[str]], None]) -> None:
        """Know no connection yet."""
        self.note = note
        self.lock = threading.Lock()
        self.connections: WeakSet[BaseDatabaseWrapper] = WeakSet()
        self.busy: set[BaseDatabaseWrapper] = set()

    def begin(self, connection: BaseDatabaseWrapper) -> None:
        """Hold the connection to be in a transaction until the end of the statement."""
        with self.lock:
            for other in self.connections:
                if other is not connection and (other in self.busy or other.in_atomic_block):
                    self.note(frozenset({AT_ONCE}))
            self.connections.add(connection)
            self.busy.add(connection)

    def end(self, connection: BaseDatabaseWrapper) -> None:
        """Hold the connection no longer to be in a transaction, unless it says so itself."""
        with self.lock:
            self.busy.discard(connection)


def describe(sql: object, params: Sequence[Any] | Mapping[str, Any] | None) -> frozenset[str]:
    """Return a statement without its values, and beside each of its places the kind of value there."""
    values = params.values() if isinstance(params, Mapping) else params or ()
    return _description(str(sql), tuple(kind(value) for value in islice(values, MAX_VALUES)))


@cache
def _description(sql: str, kinds: tuple[str, ...]) -> frozenset[str]:
    text = statement(sql)
    at_places = zip(places(sql), kinds, strict=False)
    return frozenset({text, *(f"{text} {place} {kind}" for place, kind in at_places)})


def places(sql: str) -> list[int]:
    """Number the places of values; the values of a list share one, as do those of a column in many rows."""
    between = PLACE.split(sql)[1:-1]
    if inserted := INSERTED_COLUMNS.match(sql):
        columns = inserted[1].count(",") + 1
        return [number % columns for number in range(len(between) + 1)]
    return [*accumulate((text != ", " for text in between), initial=0)]


@cache
def statement(sql: str) -> str:
    """Return a statement without what differs from one sending to the next."""
    text = SAVEPOINT.sub(r"\1", sql)
    text = LIST.sub("%s", NUMBERS.sub("0", text))
    return ROWS.sub(r"\1", text)


def kind(value: object) -> str:
    """Return the kind of a value: what databases may treat differently."""
    match value:
        case bool():
            return "bool"
        case str():
            return _kind_of_text(value)
        case int():
            return "int" if abs(value) < SMALL else "bigint" if abs(value) < LARGE else "huge"
        case float():
            return "float" if math.isfinite(value) else "no number"
    return type(value).__name__


def _kind_of_text(text: str) -> str:
    form = "json" if text[:1] in ("{", "[", '"') else "text" if text else "empty"
    has = (
        ("NUL", "\0" in text or "\\u0000" in text),
        ("unicode", not text.isascii()),
        ("capitals", form == "text" and text != text.lower()),
        ("long", len(text) > LONG_TEXT),
    )
    return "-".join((form, *(name for name, is_so in has if is_so)))

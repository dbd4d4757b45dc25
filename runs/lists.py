"""Lists: the parameters of an address, read and written, and one page of the rows that match.

A list declares a frozen dataclass of `ListQuery` with a field for each parameter, and a `Keyset` where its
pages follow an order of the database. Pages ignore values that they cannot read; the API builds strict
parameters from the same fields. `read_integer` reads every number of an address or a form.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, Protocol, Self, TypeVar
from urllib.parse import quote, unquote, urlencode

from django.db.models import Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, StrIndex
from django.http import QueryDict

from evaluators.templatetags.figures import thousands

MAX_INTEGER = 2**63 - 1
MAX_RUN_NUMBER = 2**31 - 1
MAX_TEXT_LENGTH = 200
MAX_PLACE_LENGTH = 1000
# Several runs by their names, joined by commas.
MAX_RUN_NAMES_LENGTH = 1500
PAGE_SIZE = 50
# Tags may be tens of thousands.
MAX_OPTIONS = 500
NUL = "\0"
# Times outside these years cannot be stored in every time zone.
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def read_integer(text: str, *, minimum: int = 0, maximum: int = MAX_INTEGER) -> int | None:
    """Return a whole number from plain digits; None for other texts and numbers out of bounds."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_INTEGER))):
        return None
    number = int(text)
    return number if minimum <= number <= maximum else None


def read_run_name(text: str) -> tuple[str, int] | None:
    """Return the suite's slug and the run's number from `support-agent:12`; None for anything else."""
    slug, _, digits = text.rpartition(":")
    number = read_integer(digits, maximum=MAX_RUN_NUMBER)
    # Text that cannot be printed is never a slug, and a database refuses the character NUL.
    return (slug, number) if slug and slug.isprintable() and number is not None else None


class CaseKeyConverter:
    """Keep the key of a case a single part of a path, for any characters in it.

    Browsers and proxies read slashes, and parts of dots only, as steps in the path.
    """

    regex = "[^/]+"
    # These parts of paths have pages of their own.
    taken = ("new",)

    def to_python(self, value: str) -> str:
        """Return the key of a path part."""
        return unquote(value)

    def to_url(self, value: str) -> str:
        """Return the path part of a key."""
        escaped = value.replace("%", "%25").replace("/", "%2F")
        if escaped in self.taken:
            return f"%{ord(escaped[0]):X}{escaped[1:]}"
        return escaped.replace(".", "%2E") if not escaped.strip(".") else escaped


class ParamType(Protocol):
    """How the text of a parameter becomes a value and back; `read` returns None for an invalid text."""

    def read(self, text: str) -> Any | None:
        """Return the value."""

    def write(self, value: Any) -> str:
        """Return the text."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text up to a length; longer texts are cut."""

    max_length: int = MAX_TEXT_LENGTH
    strips: bool = False

    def read(self, text: str) -> str | None:
        """Return the text, None where it has the character NUL, which databases refuse."""
        text = (text.strip() if self.strips else text)[: self.max_length]
        return None if NUL in text else text

    def write(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    choices: Collection[str]

    def read(self, text: str) -> str | None:
        """Return the value if it is one of the choices."""
        return text if text in self.choices else None

    def write(self, value: str) -> str:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    minimum: int = 0
    maximum: int = MAX_INTEGER

    def read(self, text: str) -> int | None:
        """Return the number if it is within the bounds."""
        return read_integer(text, minimum=self.minimum, maximum=self.maximum)

    def write(self, value: int) -> str:
        """Return its digits."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes, which is written as 1, or no."""

    def read(self, text: str) -> bool | None:
        """Return whether it is set."""
        return text == "1" or None

    def write(self, value: bool) -> str:
        """Return 1 for yes."""
        return "1" if value else ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in ISO 8601, in UTC unless it names a zone."""

    def read(self, text: str) -> datetime | None:
        """Return the time if it can be stored."""
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return None
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
        return value if EARLIEST <= value <= LATEST else None

    def write(self, value: datetime) -> str:
        """Return the time in ISO 8601."""
        return value.isoformat()


@dataclass(frozen=True, slots=True)
class Sort:
    """The column that a list is sorted by."""

    name: str
    is_descending: bool = False

    @property
    def direction(self) -> str:
        """Return the direction as `aria-sort` names it."""
        return "descending" if self.is_descending else "ascending"

    def __str__(self) -> str:
        """Return the name, with a minus sign where it is descending."""
        return f"-{self.name}" if self.is_descending else self.name


@dataclass(frozen=True, slots=True)
class SortType:
    """One of several columns, or any that begins as those of a family do; with a minus sign for descending."""

    names: Collection[str]
    families: tuple[str, ...] = ()

    def read(self, text: str) -> Sort | None:
        """Return the sort if there can be such a column."""
        name = text.removeprefix("-")
        is_own = (
            name.startswith(self.families)
            and name not in self.families
            and len(name) <= MAX_PLACE_LENGTH
            and NUL not in name
        )
        return Sort(name, text.startswith("-")) if name in self.names or is_own else None

    def write(self, value: Sort) -> str:
        """Return the column with its sign."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Names:
    """Some different names in an order, joined by commas; a comma within a name is escaped."""

    max_names: int = 40

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the names, None where one has the character NUL."""
        parts = [part.replace("%2C", ",").replace("%25", "%") for part in text.split(",")]
        names = tuple(dict.fromkeys(name for name in parts if 0 < len(name) <= MAX_PLACE_LENGTH))
        return None if NUL in text else names[: self.max_names]

    def write(self, value: Sequence[str]) -> str:
        """Return the names joined by commas."""
        return ",".join(name.replace("%", "%25").replace(",", "%2C") for name in value)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an address: with `is_filter` it narrows the list, with `is_page` it names a page.

    `help` describes it to users of the API.
    """

    type: ParamType
    name: str = ""
    help: str = ""
    is_filter: bool = False
    is_page: bool = False


def _param(type_: ParamType, default: Any, **facts: Any) -> Any:
    return field(default=default, metadata={"param": Param(type_, **facts)})


def text(*, name: str = "", help: str = "", max_length: int = MAX_TEXT_LENGTH) -> Any:
    """Declare a filter by a text, "" for all."""
    return _param(Text(max_length), "", name=name, help=help, is_filter=True)


def search(*, name: str = "q", help: str = "", max_length: int = MAX_TEXT_LENGTH) -> Any:
    """Declare a search for typed words, "" for all."""
    return _param(Text(max_length, strips=True), "", name=name, help=help, is_filter=True)


def choice(choices: Collection[str], *, name: str = "", help: str = "") -> Any:
    """Declare a filter by one of several values, "" for all."""
    return _param(Choice(choices), "", name=name, help=help, is_filter=True)


def integer(
    default: int | None = None,
    *,
    name: str = "",
    help: str = "",
    maximum: int = MAX_INTEGER,
) -> Any:
    """Declare a filter by a number from 1."""
    return _param(Integer(1, maximum), default, name=name, help=help, is_filter=True)


def flag(*, name: str = "", help: str = "") -> Any:
    """Declare a filter that is on or off."""
    return _param(Flag(), False, name=name, help=help, is_filter=True)


def moment(*, name: str = "", help: str = "") -> Any:
    """Declare a filter by a time."""
    return _param(Moment(), None, name=name, help=help, is_filter=True)


def option(choices: Collection[str], default: str, *, name: str = "") -> Any:
    """Declare one of several ways to show the list, which filters nothing."""
    return _param(Choice(choices), default, name=name)


def setting(*, name: str = "", max_length: int = MAX_TEXT_LENGTH) -> Any:
    """Declare a text that selects what the page shows, which filters nothing."""
    return _param(Text(max_length), "", name=name)


def names() -> Any:
    """Declare names in an order, such as those of the columns to show, which filter nothing."""
    return _param(Names(), ())


def sort(
    names: Collection[str],
    default: str,
    *,
    is_descending: bool = False,
    families: tuple[str, ...] = (),
    help: str = "",
) -> Any:
    """Declare the columns by which the list can be sorted, ascending or descending.

    Names that begin with one of the `families` are columns too: those of a run's evaluators, say.
    """
    return _param(SortType(names, families), Sort(default, is_descending), help=help)


def after() -> Any:
    """Declare the place after which the page begins, "" for the first page."""
    return _param(Text(MAX_PLACE_LENGTH), "", is_page=True)


def page_number() -> Any:
    """Declare the number of the page, from 1."""
    return _param(Integer(1, 10**5), 1, is_page=True)


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter to click, with the number of rows it leaves; `value` is the value it sets."""

    label: str
    url: str
    is_on: bool
    count: int | None = None
    value: str = ""
    icon: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class HeadCell:
    """The head of a column: the address that sorts by it, and its current direction or ""."""

    name: str
    label: str
    url: str
    direction: str
    is_number: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class Control:
    """A field of a filter bar: a choice among `options`, or a text where it has none."""

    name: str
    label: str
    value: str
    options: tuple[tuple[str, str], ...] = ()
    id: str = ""


@cache
def _params(query: type[Any]) -> Mapping[str, Param]:
    """Return the parameters of a list by the names of their fields."""
    named = {field.name: field.metadata["param"] for field in fields(query)}
    return {name: replace(param, name=param.name or name) for name, param in named.items()}


class ListQuery:
    """The parameters of a list. Subclasses are frozen dataclasses of the fields above."""

    __slots__ = ()

    @classmethod
    def params(cls) -> Mapping[str, Param]:
        """Return the parameters by the names of their fields."""
        return _params(cls)  # type: ignore[arg-type]  # a class is hashable

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> Self:
        """Read the parameters of an address; invalid ones keep their default."""
        values = {
            name: param.type.read(text)
            for name, param in cls.params().items()
            if (text := parameters.get(param.name))
        }
        return cls(**{name: value for name, value in values.items() if value is not None})

    def parameters(self) -> dict[str, str]:
        """Return the parameters by their names in the address, without those at their default."""
        usual = type(self)()
        return {
            param.name: param.type.write(getattr(self, name))
            for name, param in self.params().items()
            if getattr(self, name) != getattr(usual, name)
        }

    def changed(self, **changes: Any) -> Self:
        """Return the query with some changes, on the first page."""
        usual = type(self)()
        first = {
            name: getattr(usual, name) for name, param in self.params().items() if param.is_page
        }
        return replace(self, **first | changes)  # type: ignore[type-var]  # subclasses are dataclasses

    def address(self, **changes: Any) -> str:
        """Return the query part of the address with some changes, on the first page."""
        # Runs are named suite:number, and several of them with commas, which reads better unescaped.
        return "?" + urlencode(self.changed(**changes).parameters(), safe=":,")

    def at(self, path: str, **changes: Any) -> str:
        """Return the address of the list under a path."""
        return (path + self.address(**changes)).removesuffix("?")

    @property
    def here(self) -> str:
        """Return the query part of the address of this page, "" where it has none."""
        pages = [name for name, param in self.params().items() if param.is_page]
        return self.at("", **{name: getattr(self, name) for name in pages})

    @property
    def filters(self) -> tuple[str, ...]:
        """Return the names of the filters that are set."""
        usual = type(self)()
        return tuple(
            name
            for name, param in self.params().items()
            if param.is_filter and getattr(self, name) != getattr(usual, name)
        )

    @property
    def is_narrowed(self) -> bool:
        """Tell whether any filter is set."""
        return bool(self.filters)

    @property
    def unfiltered(self) -> Self:
        """Return the query without filters, in the same order."""
        usual = type(self)()
        return self.changed(**{name: getattr(usual, name) for name in self.filters})

    def hidden(self, *shown: str) -> tuple[tuple[str, str], ...]:
        """Return the hidden fields of a form that shows some of the parameters."""
        pairs = self.changed().parameters().items()
        return tuple((name, value) for name, value in pairs if name not in shown)

    def chip(
        self, label: str, count: int | None = None, *, path: str = "", value: str = "", **sets: Any
    ) -> Chip:
        """Return the chip that sets some fields; it is on where they have these values."""
        is_on = all(getattr(self, name) == wanted for name, wanted in sets.items())
        return Chip(label, path + self.address(**sets), is_on, count, value)

    def select(
        self,
        field: str,
        label: str,
        options: Iterable[tuple[Any, str]],
        all: str = "",
        id: str = "",
    ) -> Control:
        """Return the field to choose one of several values, or `all` of them.

        Of very many it has the first, as the text of `all` says, and the chosen one.
        """
        param = self.params()[field]
        offered = [(str(value), text) for value, text in options]
        value = getattr(self, field)
        chosen = "" if value is None else param.type.write(value)
        listed = offered[:MAX_OPTIONS]
        if len(offered) > MAX_OPTIONS:
            listed += [pair for pair in offered[MAX_OPTIONS:] if pair[0] == chosen]
            all = f"{all}, first {MAX_OPTIONS} of {thousands(len(offered))}" if all else ""
        pairs = (("", all), *listed) if all else tuple(listed)
        return Control(param.name, label, chosen, pairs, id)

    def search_box(self, field: str, label: str, id: str = "") -> Control:
        """Return the field for a search."""
        return Control(self.params()[field].name, label, getattr(self, field), id=id)

    def removable(self, labels: Mapping[str, str], *, path: str = "") -> tuple[Chip, ...]:
        """Return the set filters that have a label, each with the address without it."""
        usual = type(self)()
        return tuple(
            Chip(
                f"{labels[name]}: {self.params()[name].type.write(getattr(self, name))}",
                self.at(path, **{name: getattr(usual, name)}) or "?",
                is_on=True,
                value=name,
            )
            for name in self.filters
            if name in labels
        )


def read_display(parameters: QueryDict) -> dict[str, str]:
    """Return the parameters of an address, also where the form for order and columns (`_display.html`) sent them."""
    given = {name: parameters.get(name, "") for name in parameters}
    if "by" in given:
        given["sort"] = ("-" if given.get("order") == "down" else "") + given["by"]
        columns = Names().write(parameters.getlist("column"))
        given["columns"] = "" if columns == given.get("usual") else columns
    return given


def head_cell(
    query: Any,
    name: str,
    label: str,
    *,
    is_number: bool = False,
    best_first: bool = False,
    title: str = "",
) -> HeadCell:
    """Return the head of a column of a list with a `sort`; a second click reverses the order.

    With `best_first` the first click sorts descending.
    """
    is_now = query.sort.name == name
    wanted = Sort(name, not query.sort.is_descending if is_now else best_first)
    direction = query.sort.direction if is_now else ""
    return HeadCell(name, label, query.address(sort=wanted), direction, is_number, title)


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list in its order, and the place after which the next page begins, "" at the end.

    `beyond` is the first row of the next page.
    """

    rows: Sequence[Row]
    after: str
    beyond: Row | None = None

    def next_address(self, query: ListQuery) -> str:
        """Return the query part of the address of the next page, "" at the end."""
        return query.address(after=self.after) if self.after else ""


def cut_page(rows: Sequence[Row], place: Callable[[Row], str], size: int = PAGE_SIZE) -> Page[Row]:
    """Return the first page of some rows."""
    shown = rows[:size]
    return Page(shown, place(shown[-1]), rows[size]) if len(rows) > size else Page(shown, "")


@dataclass(frozen=True, slots=True)
class NumberedPage(Generic[Row]):
    """One page of rows that are all in memory, with the positions of its first and last row from 1."""

    rows: Sequence[Row]
    number: int
    pages: int
    total: int
    first: int
    last: int
    earlier_url: str
    later_url: str


def numbered_page(
    rows: Sequence[Row], query: Any, size: int, path: str = "", *, name: str = "page"
) -> NumberedPage[Row]:
    """Return the page that a query names, by its field `name`; the last page where there are fewer."""
    pages = max(-(-len(rows) // size), 1)
    number = min(getattr(query, name), pages)
    start = (number - 1) * size
    shown = rows[start : start + size]

    def url(page: int) -> str:
        here: str = replace(query, **{name: page}).here
        return path + here

    return NumberedPage(
        rows=shown,
        number=number,
        pages=pages,
        total=len(rows),
        first=start + 1 if shown else 0,
        last=start + len(shown),
        earlier_url=url(number - 1) or "?" if number > 1 else "",
        later_url=url(number + 1) if number < pages else "",
    )


@dataclass(frozen=True, slots=True)
class Key:
    """A column of an order and the type of its values, which are never null."""

    column: str
    type: type
    is_descending: bool = False


Place = tuple[Any, ...]
AnyRow = TypeVar("AnyRow", bound=Any)


class UnreadablePlaceError(ValueError):
    """A place that is not one of this list."""


class Keyset:
    """An order of rows by columns that are unique together, and its pages.

    A page begins after the values of the last row of the page before, so rows that are added or deleted
    meanwhile neither repeat nor drop others.
    """

    def __init__(self, *keys: Key) -> None:
        """Take the columns, the most significant first."""
        self.keys = keys

    def order(self, rows: QuerySet[Any, AnyRow]) -> QuerySet[Any, AnyRow]:
        """Return the rows in order."""
        return rows.order_by(*(f"{'-' * key.is_descending}{key.column}" for key in self.keys))

    def behind(self, rows: QuerySet[Any, AnyRow], place: str) -> QuerySet[Any, AnyRow]:
        """Return the rows after a place in order, all for ""; raises UnreadablePlaceError."""
        ordered = self.order(rows)
        if not place:
            return ordered
        values = self.read(place)
        condition, same = Q(), Q()
        for key, value in zip(self.keys, values, strict=True):
            beyond = "lt" if key.is_descending else "gt"
            condition |= same & Q(**{f"{key.column}__{beyond}": value})
            same &= Q(**{key.column: value})
        if len(self.keys) > 1:
            # It follows from the rest, and lets the database find the place in its index.
            bound = "lte" if self.keys[0].is_descending else "gte"
            condition &= Q(**{f"{self.keys[0].column}__{bound}": values[0]})
        return ordered.filter(condition)

    def page(self, rows: QuerySet[Any, AnyRow], place: str, size: int = PAGE_SIZE) -> Page[AnyRow]:
        """Return the page after a place, the first page for an invalid place; one query."""
        try:
            ordered = self.behind(rows, place)
        except UnreadablePlaceError:
            ordered = self.order(rows)
        return self.cut(ordered, size)

    def cut(self, ordered: QuerySet[Any, AnyRow], size: int) -> Page[AnyRow]:
        """Return the first page of rows in this order; one query."""
        return cut_page(list(ordered[: size + 1]), self.place, size)

    def place(self, row: Model | Mapping[str, Any]) -> str:
        """Return the place of a row as the text of an address."""
        columns = [key.column for key in self.keys]
        if isinstance(row, Mapping):
            return self.write(row[column] for column in columns)
        return self.write(getattr(row, column) for column in columns)

    def write(self, values: Iterable[Any]) -> str:
        """Return the values of a row as the text of an address: `0.5~3~17`."""
        return "~".join(
            _write_value(key.type(value) if key.type is float else value)
            for key, value in zip(self.keys, values, strict=True)
        )

    def read(self, text: str) -> Place:
        """Return the values of a place; raises UnreadablePlaceError."""
        parts = text.split("~")
        if len(parts) != len(self.keys) or len(text) > MAX_PLACE_LENGTH:
            raise UnreadablePlaceError(text)
        pairs = zip(self.keys, parts, strict=True)
        return tuple(_read_value(key.type, part) for key, part in pairs)


NEWEST_FIRST = Keyset(Key("pk", int, is_descending=True))


def _write_value(value: Any) -> str:
    if isinstance(value, str):
        # Any more that is quoted would make a long text in another alphabet too long to be read. White space is
        # quoted because readers of parameters strip it from the ends.
        return re.sub(r"[\s%]", lambda found: quote(found[0]), value).replace("~", "%7E")
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _read_value(type_: type, part: str) -> Any:
    value: Any
    if type_ is int:
        value = read_integer(part, minimum=-MAX_INTEGER)
    elif type_ is float:
        value = _read_float(part)
    elif type_ is datetime:
        value = Moment().read(part)
    else:
        value = Text(MAX_PLACE_LENGTH).read(unquote(part, errors="replace"))
    if value is None:
        raise UnreadablePlaceError(part)
    return value


def _read_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


Rows = TypeVar("Rows", bound=QuerySet[Any, Any])


def with_tag(rows: Rows, tag: str, column: str = "tags") -> Rows:
    """Return the rows whose list of tags, a JSON column, holds a tag."""
    stored: Rows = rows.alias(tags_text=Cast(column, TextField()))
    # One database stores letters of other alphabets unchanged, the other escapes them.
    searchable: Rows = stored.alias(
        tag_plain=StrIndex("tags_text", Value(json.dumps(tag, ensure_ascii=False))),
        tag_escaped=StrIndex("tags_text", Value(json.dumps(tag))),
    )
    return searchable.filter(Q(tag_plain__gt=0) | Q(tag_escaped__gt=0))

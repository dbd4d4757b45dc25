"""The filter language: `tone < 0.5 and tag = billing` read into a tree of conditions, and written back.

A filter is conditions that all must hold; `and` may be left out. `or`, `not` (or a minus sign) and parentheses
combine them. A condition is one of

    refund "card number"     words, which the texts of a case contain; those in quotes in this order
    tone < 0.5               a field, one of = != < <= > >= (a colon means =), and a value
    tag = billing, shipping  several values: any of them
    tone fell by 0.1         how a field changed against the run that this one is compared with

What the fields are is not known here (`runs.filters.fields`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from evaluators.scoring.types import DomainError
from runs.words import words

MAX_LENGTH = 1_000
MAX_CONDITIONS = 20
MAX_DEPTH = 20
COMBINING = ("and", "or", "not")
TOKEN = re.compile(
    r"""\s*(?:
        (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<operator><=|>=|!=|[=<>:])
      | (?P<mark>[(),])
      | (?P<minus>-(?=[^\s)]))
      | (?P<word>[^\s()"<>=!:,][^\s()"<>=!:,]*)
    )""",
    re.VERBOSE,
)
# After an operator a word may contain what would otherwise end it, as in `case = C:1` or `change > -0.1`.
VALUE = re.compile(r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<word>[^\s(),"]+))')
PLAIN_WORD = re.compile(r'[^\s()"<>=!:,\-][^\s()"<>=!:,]*')
PLAIN_VALUE = re.compile(r'[^\s(),"]+')


class Operator(StrEnum):
    """How a value is compared."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


class Direction(StrEnum):
    """How a figure or a verdict changed."""

    FELL = "fell"
    ROSE = "rose"
    CHANGED = "changed"


class FilterError(DomainError):
    """A filter that cannot be read; `start` and `end` are the characters of the part at fault."""

    code = "invalid_filter"

    def __init__(self, message: str, start: int, end: int) -> None:
        """Take what is wrong and what would be right."""
        super().__init__(message)
        self.message, self.start, self.end = message, start, end
        self.text = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Return the filter in three: what precedes the part at fault, this part, and the rest."""
        return self.text[: self.start], self.text[self.start : self.end], self.text[self.end :]


@dataclass(frozen=True, slots=True)
class Words:
    """A word, or words in quotes, that a text of the case contains."""

    text: str
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)

    def __str__(self) -> str:
        """Return it as it is typed."""
        is_plain = PLAIN_WORD.fullmatch(self.text) and self.text.lower() not in COMBINING
        return self.text if is_plain else quote(self.text)


class QuotedValue(str):
    """A value in quotes, which is always a text: `tier = "none"` asks for this text, `tier = none` for no value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A field compared with a value, or with several of which any will do."""

    field: str
    operator: Operator
    values: tuple[str, ...]
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        """Return it as it is typed."""
        values = (
            quote(v) if isinstance(v, QuotedValue) or not PLAIN_VALUE.fullmatch(v) else v
            for v in self.values
        )
        return f"{Words(self.field)} {self.operator} {', '.join(values)}"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that changed against the other run, by at least `by` ("" for any change)."""

    field: str
    direction: Direction
    by: str = ""
    start: int = 0
    end: int = 0

    def __str__(self) -> str:
        """Return it as it is typed."""
        by = f" by {self.by}" if self.by else ""
        return f"{Words(self.field)} {self.direction}{by}"


Leaf = TypeVar("Leaf")


@dataclass(frozen=True, slots=True)
class Not(Generic[Leaf]):
    """The opposite of a condition."""

    condition: Tree[Leaf]

    def __str__(self) -> str:
        """Return it as it is typed."""
        return f"not {_nested(self.condition)}"


@dataclass(frozen=True, slots=True)
class All(Generic[Leaf]):
    """Conditions that all must hold; no condition holds for everything."""

    conditions: tuple[Tree[Leaf], ...] = ()

    def __str__(self) -> str:
        """Return them as they are typed."""
        return " and ".join(map(_nested, self.conditions))


@dataclass(frozen=True, slots=True)
class Some(Generic[Leaf]):
    """Conditions of which at least one must be true."""

    conditions: tuple[Tree[Leaf], ...]

    def __str__(self) -> str:
        """Return them as they are typed."""
        return " or ".join(map(_nested, self.conditions))


Tree: TypeAlias = "Leaf | Not[Leaf] | All[Leaf] | Some[Leaf]"
Typed: TypeAlias = Words | FieldComparison | FieldChange
# A filter as it was typed.
Condition: TypeAlias = "Tree[Typed]"


def _nested(condition: object) -> str:
    return f"({condition})" if isinstance(condition, All | Some) else str(condition)


def quote(text: str) -> str:
    """Return a text in quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def read_filter(text: str) -> All[Typed]:
    """Return the conditions of a filter; `All()` for an empty text. Raises FilterError."""
    if len(text) > MAX_LENGTH:
        raise FilterError(f"A filter has at most {MAX_LENGTH} characters.", MAX_LENGTH, len(text))
    return _Reader(text).read()


def wanted_conditions(condition: Condition) -> Iterator[Typed]:
    """Yield the words, comparisons and changes in a filter, without those after “not”."""
    if isinstance(condition, All | Some):
        for part in condition.conditions:
            yield from wanted_conditions(part)
    elif not isinstance(condition, Not):
        yield condition


def wanted_words(condition: Condition) -> Mapping[str, Sequence[Sequence[str]]]:
    """Return the words that a filter looks for by the name of the text, "" for all texts.

    Conditions that no case on a list need fulfil, those with “not” and !=, are left out.
    """
    found: dict[str, list[Sequence[str]]] = defaultdict(list)
    for part in wanted_conditions(condition):
        if isinstance(part, Words):
            found[""].append(words(part.text))
        elif isinstance(part, FieldComparison) and part.operator == Operator.EQUAL:
            found[part.field.casefold()] += map(words, part.values)
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """Return a word without quotes in small letters, "" for other tokens."""
        return self.text.lower() if self.kind == "word" else ""


END = "end"


class _Reader:
    """Reads one text from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self.text, self.count, self.depth = text, 0, 0
        self.token = self._scan(0, TOKEN)

    def read(self) -> All[Typed]:
        found = self._some()
        if self.token.kind != END:
            raise self._error("This “)” has no “(”.")
        return found if isinstance(found, All) else All((found,))

    def _some(self) -> Condition:
        parts = [self._all()]
        while self.token.keyword == "or":
            if not _is_any(parts[-1]):
                raise self._error("Write a condition before “or”.")
            operator = self._next()
            parts.append(self._all())
            if not _is_any(parts[-1]):
                raise FilterError("Write a condition after “or”.", operator.start, operator.end)
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _all(self) -> Condition:
        parts: list[Condition] = []
        awaited: _Token | None = None
        while not self._is_over():
            if self.token.keyword == "and":
                if awaited or not parts:
                    raise self._error("Write a condition before “and”.")
                awaited = self._next()
                continue
            parts.append(self._one())
            awaited = None
        if awaited:
            raise FilterError("Write a condition after “and”.", awaited.start, awaited.end)
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _is_over(self) -> bool:
        return self.token.kind == END or self._is_closing() or self.token.keyword == "or"

    def _is_closing(self) -> bool:
        return self.token.kind == "mark" and self.token.text == ")"

    def _one(self) -> Condition:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error(f"Parentheses and “not” go at most {MAX_DEPTH} deep.")
        found = self._negated() or self._group() or self._condition()
        self.depth -= 1
        return found

    def _negated(self) -> Condition | None:
        if self.token.kind != "minus" and self.token.keyword != "not":
            return None
        sign = self._next()
        if self._is_over() or self.token.keyword == "and":
            message = f"Write a condition after “{sign.text}”."
            raise FilterError(message, sign.start, sign.end)
        return Not(self._one())

    def _group(self) -> Condition | None:
        if self.token.text != "(" or self.token.kind != "mark":
            return None
        opening = self._next()
        inside = self._some()
        if not self._is_closing():
            raise FilterError("This “(” has no “)”.", opening.start, opening.end)
        self._next()
        if not _is_any(inside):
            raise FilterError("There is nothing in the parentheses.", opening.start, opening.end)
        return inside

    def _condition(self) -> Condition:
        self.count += 1
        if self.count > MAX_CONDITIONS:
            raise self._error(f"A filter has at most {MAX_CONDITIONS} conditions.")
        if self.token.kind not in ("word", "quoted"):
            raise self._error(
                f"Write the name of a field before “{self.token.text}”, as in tone < 0.5."
            )
        name = self._next()
        if self.token.kind == "operator":
            return self._comparison(name)
        if self.token.keyword in [*Direction]:
            return self._change(name)
        if not name.text:
            raise FilterError("There are no words between the quotes.", name.start, name.end)
        return Words(name.text, name.start, name.end)

    def _comparison(self, name: _Token) -> FieldComparison:
        operator = self.token
        sign = Operator.EQUAL if operator.text == ":" else Operator(operator.text)
        values, at = [], operator
        while True:
            value = self._scan(at.end, VALUE)
            if value.kind == END:
                message = f"Write a value after “{name.text} {at.text if at is operator else ','}”."
                raise FilterError(message, name.start, at.end)
            values.append(QuotedValue(value.text) if value.kind == "quoted" else value.text)
            at = self.token = self._scan(value.end, TOKEN)
            if at.text != "," or at.kind != "mark":
                break
        if len(values) > 1 and sign not in (Operator.EQUAL, Operator.UNEQUAL):
            message = f"{name.text} {sign} takes one value, not {len(values)}."
            raise FilterError(message, name.start, value.end)
        return FieldComparison(name.text, sign, tuple(values), name.start, value.end)

    def _change(self, name: _Token) -> FieldChange:
        direction = self._next()
        if self.token.keyword != "by":
            return FieldChange(
                name.text, Direction(direction.keyword), start=name.start, end=direction.end
            )
        by = self._scan(self.token.end, VALUE)
        if by.kind == END:
            message = "Write a number after “by”, as in tone fell by 0.1."
            raise FilterError(message, name.start, self.token.end)
        self.token = self._scan(by.end, TOKEN)
        return FieldChange(name.text, Direction(direction.keyword), by.text, name.start, by.end)

    def _next(self) -> _Token:
        passed = self.token
        self.token = self._scan(passed.end, TOKEN)
        return passed

    def _scan(self, at: int, pattern: re.Pattern[str]) -> _Token:
        match = pattern.match(self.text, at)
        if match is None:
            rest = self.text[at:]
            start = at + len(rest) - len(rest.lstrip())
            if pattern is TOKEN and rest.strip():
                raise self._unreadable(start)
            return _Token(END, "", start, len(self.text))
        kind = match.lastgroup or ""
        text = match[kind]
        if kind == "quoted":
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        return _Token(kind, text, match.start(kind), match.end())

    def _unreadable(self, start: int) -> FilterError:
        if self.text[start] == '"':
            return FilterError("This quote is never closed.", start, len(self.text))
        return FilterError(
            f"“{self.text[start]}” means nothing here. “Not equal” is written !=.", start, start + 1
        )

    def _error(self, message: str) -> FilterError:
        return FilterError(message, self.token.start, self.token.end)


def _is_any(condition: Condition) -> bool:
    return condition != All()

"""What can be typed next in a filter: names of fields, operators for the field, values it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from runs.filters.fields import EXAMPLES, MARK, NOTHING, SHARES, Field, Source, Vocabulary
from runs.filters.language import Direction, Words, quote

MAX_SUGGESTIONS = 12
# The condition that is being typed, up to the caret: a name, perhaps an operator, perhaps the start of a value.
NAME = r'(?P<name>"(?:[^"\\]|\\.)*"|[^\s()"<>=!:,\-][^\s()"<>=!:,]*)'
SPACE, LATER = r"\s+", r"\s*"
WORD = r'(?P<typed>"?(?:[^\s()<>=!:,"\-][^\s()<>=!:,"]*)?)'
VALUE = r'(?P<typed>"[^"]*|[^\s(),"]*)'
OPERATOR = r"(?P<operator><=|>=|!=|[=<>:])"
EARLIER = r'(?:(?:"[^"]*"|[^\s(),"]+)\s*,\s*)*'
AFTER_OPERATOR = re.compile(f"{NAME}{LATER}{OPERATOR}{LATER}{EARLIER}{VALUE}$")
AFTER_NAME = re.compile(f"{NAME}{SPACE}(?P<typed>[a-z]*|[<>=!:]?)$", re.IGNORECASE)
AT_NAME = re.compile(f"(?:^|[\\s(]|(?<=[\\s(])-|^-){WORD}$")
SIGNS = ("=", "!=", "<", "<=", ">", ">=")
COMBINING = ("and", "or")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that takes the place of the characters from `start` to the caret; `help` says what it means."""

    text: str
    help: str
    start: int


def suggest(text: str, caret: int, vocabulary: Vocabulary) -> Sequence[Suggestion]:
    """Return what could be typed at the caret, the best first, at most twelve."""
    before = text[:caret]
    for pattern, offers in (
        (AFTER_OPERATOR, _values),
        (AFTER_NAME, _operators),
        (AT_NAME, _names),
    ):
        if match := pattern.search(before):
            typed = match["typed"]
            found = offers(match, vocabulary)
            fitting = _fitting(found, typed.strip('"').casefold())
            return [
                Suggestion(offer, help, match.start("typed"))
                for offer, help in fitting
                if offer != typed
            ][:MAX_SUGGESTIONS]
    return ()


Offers = Iterable[tuple[str, str]]


def _values(match: re.Match[str], vocabulary: Vocabulary) -> Offers:
    field = vocabulary.find(match["name"].strip('"'))
    if isinstance(field, str):
        return
    for value in field.choices or vocabulary.suggested.get(field.name, ()):
        yield (value if re.fullmatch(r'[^\s(),"]+', value) else quote(value)), field.name
    if field.is_number and not match["typed"]:
        example = EXAMPLES[field.kind]
        yield example.split(" ")[0].rstrip(","), f"such as {example}"
    if field.pass_mark is not None:
        yield MARK, f"its pass mark, {field.pass_mark:g}"
    if field.has_none:
        yield NOTHING, "no value"


def _operators(match: re.Match[str], vocabulary: Vocabulary) -> Offers:
    name = match["name"].strip('"')
    field = vocabulary.find(name)
    if isinstance(field, Field) and name.lower() not in (*COMBINING, "not"):
        yield from ((sign, field.name) for sign in (SIGNS if field.is_number else SIGNS[:2]))
        if vocabulary.compares and field.can_change:
            yield from ((direction.value, "against the baseline") for direction in Direction)
        return
    yield from _combining(name)
    yield from _fields(vocabulary)


def _combining(name: str) -> Iterator[tuple[str, str]]:
    if name.lower() not in (*COMBINING, "not"):
        yield "and", "both must be true"
        yield "or", "one must be true"
    yield "not", "the opposite"


def _names(match: re.Match[str], vocabulary: Vocabulary) -> Offers:
    yield from _fields(vocabulary)
    if match["typed"]:
        yield from _combining("")


def _fields(vocabulary: Vocabulary) -> Offers:
    pairs = [field for field in vocabulary.own_fields if field.source == Source.PAIRWISE]
    scores = [field for field in vocabulary.own_fields if field not in pairs]
    names = [field.key.rpartition("/")[2] for field in scores]
    for field, last in zip(scores, names, strict=True):
        is_short = field.source not in SHARES or names.count(last) == 1
        yield str(Words(last if is_short else field.key)), field.help
    yield from ((str(Words(field.name)), field.help) for field in pairs)
    yield from ((field.name, field.help) for field in vocabulary.fields)


def _fitting(offers: Offers, typed: str) -> list[tuple[str, str]]:
    """Return offers that contain what was typed, those that begin with it first."""
    known = list(dict.fromkeys(offers))
    begin = [offer for offer in known if offer[0].strip('"').casefold().startswith(typed)]
    contain = [offer for offer in known if typed in offer[0].casefold() and offer not in begin]
    return begin + contain

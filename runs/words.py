"""Words of texts as search compares them: small letters without accents, found by how they begin.

The same rule cuts the texts that are stored for search, what people look for, and what is marked in a text. It
gives both databases the same words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaluators.reading.combining import cut_marks

# What lies beyond is not searched. A database stores at most a megabyte of words for a text.
MAX_SEARCHED = 200_000
MAX_WORD = 100
# These scripts put no spaces between words, so each of their characters is one.
UNSPACED = "぀-ヿ㐀-䶿一-鿿가-힣"
PLAIN = re.compile("[a-z0-9]+")
WORD = re.compile(f"[{UNSPACED}]|(?:[^\\W_{UNSPACED}]|[\\u0300-\\u036f])+")
BEFORE, AFTER = 24, 120
# A word may have as many letters as the text; of a longer hit the rest is cut off.
MAX_HIT = 400


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text; `is_hit` for what was looked for."""

    text: str
    is_hit: bool = False


def words(text: str) -> Sequence[str]:
    """Return the words at the beginning of a text, in order."""
    text = text[:MAX_SEARCHED]
    if text.isascii():
        return [word[:MAX_WORD] for word in PLAIN.findall(text.lower())]
    return [word for word, _, _ in _places(text)]


def searchable(text: str) -> str:
    """Return the words of a text with a space between them, as they are stored for search."""
    # Some characters become many letters.
    return " ".join(words(text))[:MAX_SEARCHED]


def contains(text: str, wanted: Sequence[str]) -> bool:
    """Tell whether a text has words in this order; the last may go on."""
    return bool(wanted) and f" {' '.join(wanted)}" in f" {' '.join(words(text))}"


def hits(text: str, wanted: Sequence[Sequence[str]]) -> Iterator[tuple[int, int]]:
    """Yield start and end of every place where a text has one of several phrases, from left to right."""
    text = text[:MAX_SEARCHED]
    if text.isascii():
        phrases = "|".join("[^a-z0-9]+".join(map(re.escape, phrase)) for phrase in wanted)
        found = re.finditer(f"(?<![a-z0-9])(?:{phrases})[a-z0-9]*", text.lower())
        yield from (match.span() for match in found)
        return
    places = list(_places(text))
    end = 0
    for at, (_, start, _) in enumerate(places):
        for phrase in wanted:
            part = places[at : at + len(phrase)]
            if start >= end and _begins([word for word, _, _ in part], phrase):
                end = part[-1][2]
                yield start, end


def mark_hits(text: str, wanted: Sequence[Sequence[str]]) -> Sequence[Piece]:
    """Return a whole text in pieces, with what was looked for as hits."""
    pieces, last = [], 0
    for start, end in hits(text, wanted):
        pieces += [Piece(text[last:start]), Piece(text[start:end], is_hit=True)]
        last = end
    return [piece for piece in (*pieces, Piece(text[last:])) if piece.text]


def snippet(text: str, wanted: Sequence[Sequence[str]]) -> Sequence[Piece]:
    """Return the part of a text around the first hit in one line, "…" where it was cut; nothing without a hit."""
    found = next(hits(text, wanted), None)
    if found is None:
        return ()
    last = min(found[1], found[0] + MAX_HIT)
    start, end = max(0, found[0] - BEFORE), min(len(text), last + AFTER)
    if start:
        # Begin with a whole word.
        start = next((m.end() for m in re.finditer(r"\s+", text[start : found[0]])), 0) + start
    line = " ".join(text[start:end].split())
    return [
        *([Piece("… ")] if start else []),
        *mark_hits(line, wanted),
        *([Piece(" …")] if end < len(text) else []),
    ]


def _begins(found: Sequence[str], phrase: Sequence[str]) -> bool:
    return (
        len(found) == len(phrase)
        and found[:-1] == list(phrase[:-1])
        and found[-1].startswith(phrase[-1])
    )


def _places(text: str) -> Iterator[tuple[str, int, int]]:
    for match in WORD.finditer(text):
        if word := _fold(match[0]):
            yield word, match.start(), match.end()


def _fold(word: str) -> str:
    plain = unicodedata.normalize("NFKD", cut_marks(word)).casefold()
    marks = (char for char in plain if char.isalnum())
    return unicodedata.normalize("NFC", "".join(marks))[:MAX_WORD]

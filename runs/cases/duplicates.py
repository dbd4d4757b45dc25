"""Which new cases repeat others: exactly, or nearly. Pure.

Two cases are compared by what their users say, without regard to capitals, punctuation and white space. They are the
same if nothing differs then. They are nearly the same if they share at least half of their words and rapidfuzz's
`fuzz.ratio` is at least NEAR: 200 times the length of the longest common subsequence of characters over the sum of both
lengths (normalised indel similarity). The words of texts with fewer than FEW_WORDS do not count, and of a long text its
beginning and its end are compared.

Where a script has no spaces between words, as in Chinese, Japanese and Thai, each pair of neighbouring characters is a
word, and so it is in a word of more than MAX_WORD_LENGTH. A text is compared with those that share most of its words,
up to MAX_COMPARED characters of them: among very many that are alike, a near repetition can be missed, an exact one
never.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz, process

from evaluators.reading.combining import cut_marks

NEAR, EXACT = 85.0, 100.0
FEW_WORDS = 4
COMPARED_LENGTH = 500
MAX_COMPARED = 200_000
MAX_NAMED = 3
MAX_WORD_LENGTH = 40
# Vowels of Hindi and Thai are marks, which differ between words; `\w` leaves them out.
MARKS = "".join(
    mark for mark in map(chr, range(0x300, 0xAC00)) if unicodedata.category(mark) in ("Mn", "Mc")
)
NOT_WORDS = re.compile(rf"(?:[^\w{MARKS}]|_)+")
ASCII_NOT_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}
# Thai, Lao, Burmese, Khmer, Japanese and Chinese.
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
WORDS = re.compile(
    rf"(?P<unbroken>[{NO_SPACES}]+|[^\s{NO_SPACES}]{{{MAX_WORD_LENGTH + 1},}})|[^\s{NO_SPACES}]+"
)
UNBROKEN = re.compile(f"[{NO_SPACES}]")
# An odd number, by which the number of a pair depends on the order of its characters.
SPREAD = np.uint32(2_654_435_761)


@dataclass(frozen=True, slots=True)
class RepeatedCase:
    """A case that another repeats: its key, and how alike they are, from NEAR to EXACT."""

    key: str
    ratio: float = EXACT

    @property
    def is_exact(self) -> bool:
        """Tell whether nothing differs."""
        return self.ratio == EXACT


def compared_text(turns: Sequence[Mapping[str, Any]]) -> str:
    """Return what a case is compared by, "" for a case that says nothing."""
    own = [turn for turn in turns if turn.get("role") == "user"] or turns
    text = " ".join(str(turn.get("content") or "") for turn in own)
    if text.isascii():
        # Most texts are; this is the same, and several times faster.
        plain = text.lower()
        return " ".join(plain.translate(ASCII_NOT_WORDS).split()) or plain.strip()
    plain = unicodedata.normalize("NFKC", cut_marks(text)).casefold()
    return NOT_WORDS.sub(" ", plain).strip() or plain.strip()


class KnownTexts:
    """Texts of cases by their words, in which those that a text repeats are found without comparing it with each."""

    def __init__(self, keys: Sequence[str], texts: Sequence[str]) -> None:
        """Note which texts are the same."""
        self._keys = keys
        self._exact: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            self._exact.setdefault(text, []).append(place)
        self._short = [*map(_shorten, texts)]

    @cached_property
    def _words(self) -> _Words:
        """The words of the texts, read when something is first compared with them."""
        words = [*map(_word_codes, self._short)]
        counts = np.array([*map(len, words)], dtype=np.int64)
        codes = np.array([*chain.from_iterable(words)], dtype=np.uint32)
        order = np.argsort(codes, kind="stable")
        places = np.repeat(np.arange(len(words), dtype=np.int32), counts)[order]
        lengths = np.array([*map(len, self._short)], dtype=np.int64)
        return _Words(codes[order], places, counts, lengths)

    def has_other(self, text: str, key: str) -> bool:
        """Tell whether a case with another key has exactly this text."""
        return bool(text) and any(self._keys[place] != key for place in self._exact.get(text, ()))

    def repeated_by(self, text: str, *, most: int = MAX_NAMED) -> list[RepeatedCase]:
        """Return the cases that a text repeats, those that are most alike first."""
        if not text or not self._keys:
            return []
        exact = dict.fromkeys(self._exact.get(text, ()))
        short = _shorten(text)
        places = [place for place in self._candidates(short) if place not in exact]
        ratios = process.cdist(
            [short],
            [self._short[place] for place in places],
            scorer=fuzz.ratio,
            score_cutoff=NEAR,
            dtype=np.float64,
        )[0]
        near = [
            # What differs only in the middle of a long text is nearly the same.
            RepeatedCase(self._keys[place], min(ratio, EXACT - 0.1))
            for place, ratio in zip(places, ratios.tolist(), strict=True)
            if ratio >= NEAR
        ]
        near.sort(key=lambda repeated: -repeated.ratio)
        return [*(RepeatedCase(self._keys[place]) for place in [*exact][:most]), *near][:most]

    def _candidates(self, short: str) -> list[int]:
        """Return the places of texts that share half of the words, and of those with few words: the best ones."""
        known, words = self._words, np.array([*_word_codes(short)], dtype=np.uint32)
        starts, ends = (np.searchsorted(known.codes, words, side) for side in ("left", "right"))
        rows = [known.places[start:end] for start, end in zip(starts, ends, strict=True)]
        shared = np.bincount(np.concatenate(rows), minlength=len(self._keys))
        longer = np.maximum(known.counts, len(words))
        is_few = known.counts < FEW_WORDS if len(words) >= FEW_WORDS else longer < 2 * FEW_WORDS
        # With other lengths, no ratio reaches NEAR.
        shortest, both = np.minimum(known.lengths, len(short)), known.lengths + len(short)
        can_be_near = 2 * EXACT * shortest >= NEAR * both
        places = np.flatnonzero(can_be_near & ((2 * shared >= longer) | is_few))
        places = places[np.argsort(-shared[places] / longer[places], kind="stable")]
        compared: list[int] = places[known.lengths[places].cumsum() <= MAX_COMPARED].tolist()
        return compared


@dataclass(frozen=True, slots=True)
class _Words:
    """Each word of each text as a code, in the order of the codes, and the place of its text; words and length of each."""

    codes: npt.NDArray[np.uint32]
    places: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]


def _word_codes(short: str) -> set[int]:
    """Return a number for each different word."""
    longest = max(map(len, short.split()), default=0)
    if longest <= MAX_WORD_LENGTH and (short.isascii() or not UNBROKEN.search(short)):
        return {*map(zlib.crc32, short.encode().split())}
    codes: set[int] = set()
    for found in WORDS.finditer(short):
        word = found[0]
        if found["unbroken"] and len(word) > 1:
            characters = np.frombuffer(word.encode("utf-32-le"), dtype=np.uint32)
            codes.update((characters[:-1] * SPREAD + characters[1:]).tolist())
        else:
            codes.add(zlib.crc32(word.encode()))
    return codes


def _shorten(text: str) -> str:
    if len(text) <= 2 * COMPARED_LENGTH:
        return text
    return f"{text[:COMPARED_LENGTH]}{text[-COMPARED_LENGTH:]}"

"""Which drafted cases repeat others: exactly, or nearly. Pure.

Two cases are compared by what their users say, without regard to capitals, punctuation and white space. They are the
same if nothing differs then. They are nearly the same if they share at least half of their words and rapidfuzz's
`fuzz.ratio` is at least NEAR: 200 times the length of the longest common subsequence of characters over the sum of both
lengths (normalised indel similarity). The words of texts with fewer than FEW_WORDS do not count, and of a long text its
beginning and its end are compared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process

NEAR, EXACT = 85.0, 100.0
FEW_WORDS = 4
COMPARED_LENGTH = 500
MAX_NAMED = 3
NOT_WORDS = re.compile(r"[\W_]+")


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
    said = [turn for turn in turns if turn.get("role") == "user"] or turns
    text = " ".join(str(turn.get("content") or "") for turn in said)
    plain = unicodedata.normalize("NFKC", text).casefold()
    return NOT_WORDS.sub(" ", plain).strip() or plain.strip()


class KnownTexts:
    """Texts of cases by their words, in which those that a text repeats are found without comparing it with each."""

    def __init__(self, keys: Sequence[str], texts: Sequence[str]) -> None:
        """Note which words each text has."""
        self._keys, self._texts = keys, texts
        self._short = [*map(_shorten, texts)]
        places: dict[str, list[int]] = {}
        counts = []
        for place, text in enumerate(texts):
            words = set(text.split())
            counts.append(len(words))
            for word in words:
                places.setdefault(word, []).append(place)
        self._places = {word: np.array(found) for word, found in places.items()}
        self._counts = np.array(counts, dtype=np.int64)

    def repeated_by(self, text: str, *, most: int = MAX_NAMED) -> list[RepeatedCase]:
        """Return the cases that a text repeats, those that are most alike first."""
        if not text or not self._texts:
            return []
        places = self._candidates(set(text.split()))
        ratios = process.cdist(
            [_shorten(text)],
            [self._short[place] for place in places],
            scorer=fuzz.ratio,
            score_cutoff=NEAR,
            dtype=np.float64,
        )[0]
        found = [
            RepeatedCase(self._keys[place], EXACT)
            if self._texts[place] == text
            # What differs only in the middle of a long text is nearly the same.
            else RepeatedCase(self._keys[place], min(ratio, EXACT - 0.1))
            for place, ratio in zip(places, ratios.tolist(), strict=True)
            if ratio >= NEAR
        ]
        return sorted(found, key=lambda duplicate: -duplicate.ratio)[:most]

    def _candidates(self, words: set[str]) -> list[int]:
        """Return the places of texts that share half of the words, and of those with few words."""
        known = [self._places[word] for word in words if word in self._places]
        shared = np.bincount(
            np.concatenate(known) if known else np.array([], dtype=np.int64),
            minlength=len(self._texts),
        )
        longer = np.maximum(self._counts, len(words))
        is_few = self._counts < FEW_WORDS if len(words) >= FEW_WORDS else longer < 2 * FEW_WORDS
        places: list[int] = np.flatnonzero((2 * shared >= longer) | is_few).tolist()
        return places


def _shorten(text: str) -> str:
    if len(text) <= 2 * COMPARED_LENGTH:
        return text
    return f"{text[:COMPARED_LENGTH]}{text[-COMPARED_LENGTH:]}"

"""Measures of how alike two texts are, each by its published formula and from 0 to 1."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rapidfuzz.distance import LCSseq, Levenshtein

WORD = re.compile(r"[^\W_]+")
PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


class NothingToCompareError(Exception):
    """The expected text has none of the words that a measure counts."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """How alike two texts are, and the figures that it follows from, by their labels."""

    score: float
    figures: Mapping[str, float] = field(default_factory=dict)


def levenshtein(expected: str, text: str) -> Similarity:
    """Return 1 − edits ÷ length of the longer text; an edit adds, removes or replaces a character."""
    edits, longest = Levenshtein.distance(expected, text), max(len(expected), len(text))
    score = 1 - edits / longest if longest else 1.0
    return Similarity(score, {"Edits": edits, "Characters of the longer text": longest})


def token_f1(expected: str, text: str) -> Similarity:
    """Return the F1 of the words as SQuAD counts them: lower case, without punctuation and English articles."""
    wanted, found = (_answer_words(each) for each in (expected, text))
    if not wanted:
        raise NothingToCompareError
    return _overlap(Counter(wanted), Counter(found))


def _answer_words(text: str) -> list[str]:
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def rouge_n(expected: str, text: str, length: int) -> Similarity:
    """Return ROUGE-N: the F1 of the sequences of `length` words."""
    wanted, found = (_sequences(_words(each), length) for each in (expected, text))
    if not wanted:
        raise NothingToCompareError
    return _overlap(wanted, found)


def rouge_l(expected: str, text: str) -> Similarity:
    """Return ROUGE-L of the whole texts: the F1 of their longest common subsequence of words."""
    wanted, found = _words(expected), _words(text)
    if not wanted:
        raise NothingToCompareError
    return _f1(LCSseq.similarity(wanted, found), len(wanted), len(found))


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _sequences(parts: Sequence[Hashable], length: int) -> Counter[Hashable]:
    """Count the sequences of `length` neighbours."""
    return Counter(zip(*(parts[start:] for start in range(length)), strict=False))


def _overlap(wanted: Counter[Hashable], found: Counter[Hashable]) -> Similarity:
    return _f1((wanted & found).total(), wanted.total(), found.total())


def _f1(shared: int, wanted: int, found: int) -> Similarity:
    precision, recall = shared / found if found else 0.0, shared / wanted
    # Equal to 2 × precision × recall ÷ (precision + recall), and defined where both are 0.
    return Similarity(2 * shared / (wanted + found), {"Precision": precision, "Recall": recall})


BLEU_LENGTH = 4
REPLACED = (
    *(("<skipped>", ""), ("-\n", ""), ("\n", " ")),
    *(("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")),
)
# How the campaigns of NIST part words from punctuation; a point or comma inside a number stays.
MARKS = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def bleu(expected: str, text: str) -> Similarity:
    """Return BLEU of one text: the geometric mean of the precisions of 1 to 4 words, lowered for a short text.

    A precision of 0 counts as half the least, a quarter the next time and so on; lengths that the text is too
    short for are left out.
    """
    wanted, found = _bleu_tokens(expected), _bleu_tokens(text)
    if not wanted:
        raise NothingToCompareError
    pairs = [(_sequences(wanted, n), _sequences(found, n)) for n in range(1, BLEU_LENGTH + 1)]
    shared = [(expecting & finding).total() for expecting, finding in pairs]
    precisions: list[float] = []
    least = 1.0
    for hits, (_, finding) in zip(shared, pairs, strict=True):
        if not finding:
            break
        least = least if hits else least / 2
        precisions.append((hits or least) / finding.total())
    penalty = min(1.0, math.exp(1 - len(wanted) / len(found))) if found else 0.0
    mean = math.exp(math.fsum(map(math.log, precisions)) / len(precisions)) if any(shared) else 0.0
    figures = {f"Precision of {n}": each for n, each in enumerate(precisions, 1)}
    return Similarity(min(1.0, penalty * mean), {**figures, "Brevity penalty": penalty})


def _bleu_tokens(text: str) -> list[str]:
    for written, meant in REPLACED:
        text = text.replace(written, meant)
    spaced = f" {text} "
    for pattern, replacement in MARKS:
        spaced = pattern.sub(replacement, spaced)
    return spaced.split()


CHRF_LENGTH = 6
CHRF_BETA_SQUARED = 4


def chrf(expected: str, text: str) -> Similarity:
    """Return chrF: the F2 of the mean precision and mean recall of 1 to 6 characters, without white space."""
    wanted, found = ("".join(each.split()) for each in (expected, text))
    if not wanted:
        raise NothingToCompareError
    shares = []
    for length in range(1, CHRF_LENGTH + 1):
        expecting, finding = _sequences(wanted, length), _sequences(found, length)
        if expecting and finding:
            shared = (expecting & finding).total()
            shares.append((shared / finding.total(), shared / expecting.total()))
    precision, recall = (
        (math.fsum(part) / len(shares) for part in zip(*shares, strict=True))
        if shares
        else (0.0, 0.0)
    )
    weighted = CHRF_BETA_SQUARED * precision + recall
    score = (1 + CHRF_BETA_SQUARED) * precision * recall / weighted if weighted else 0.0
    return Similarity(min(1.0, score), {"Precision": precision, "Recall": recall})


MEASURES: Mapping[str, Callable[[str, str], Similarity]] = {
    "levenshtein": levenshtein,
    "token_f1": token_f1,
    "rouge_1": lambda expected, text: rouge_n(expected, text, 1),
    "rouge_2": lambda expected, text: rouge_n(expected, text, 2),
    "rouge_l": rouge_l,
    "bleu": bleu,
    "chrf": chrf,
}
LABELS = {
    "levenshtein": "Levenshtein similarity",
    "token_f1": "Token F1",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "bleu": "BLEU",
    "chrf": "chrF",
}

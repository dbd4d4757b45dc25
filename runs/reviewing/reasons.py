"""Why an execution waits for a person."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Reason(StrEnum):
    """Why an execution waits for a person, the weightiest first; the label is what pages say."""

    ASKED_FOR = "asked_for", "Added by hand"
    BORDERLINE = "borderline", "Borderline"
    DISAGREEMENT = "disagreement", "Gate and score disagree"
    ONE_MISSED = "one_missed", "All outcomes met but one"
    SPLIT_PANEL = "split_panel", "Panel split"
    SAMPLES = "samples", "Judge's samples differ"
    REPETITIONS = "repetitions", "Repetitions differ"
    NEAR_THRESHOLD = "near_threshold", "Near a threshold"
    REQUIRED = "required", "Requirement missed narrowly"
    VERDICT_LIKE = "verdict_like", "Reads like a verdict"
    AUDIT = "audit", "Random audit"

    label: str

    def __new__(cls, value: str, label: str) -> Reason:
        """Give each word the label shown to users."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    @property
    def rank(self) -> int:
        """Return the place in the queue: 0 comes first."""
        return RANKS[self]


RANKS = {reason: rank for rank, reason in enumerate(Reason)}


def in_order(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the reasons, each once, the weightiest first."""
    return tuple(sorted(set(reasons), key=RANKS.__getitem__))


def named(words: str) -> tuple[Reason, ...]:
    """Return the reasons whose words stand in a text with spaces between them, the weightiest first."""
    found = set(words.split())
    return tuple(reason for reason in Reason if reason.value in found)

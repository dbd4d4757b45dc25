"""Marking guides: what an answer to a case has to say, and what it must not, as people wrote it down.

One JSON object a line, for one case: `points` are met when one of their `needs` stands in the answer,
`flaws` are found when one of `when` does; `tool:NAME` looks for a call of a tool instead, `left:WORDS` for
words in calls, files and results of checks. `part` names the metric or dimension that either
tells of, `cost` how many of its points a miss takes away, `weight` how much a point counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripted.asking import Asked

CALLED, LEFT = "tool:", "left:"
MIN_SENTENCE = 8
MAX_QUOTE_LENGTH = 90


@dataclass(frozen=True, slots=True)
class Point:
    """One thing an answer has to hold; `said` and `missed` are the sentences for either way."""

    needs: tuple[str, ...]
    said: str
    missed: str
    part: str = ""
    weight: float = 1.0
    cost: float = 2.0


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong where it stands; `share` of the whole is what it costs."""

    when: tuple[str, ...]
    says: str
    part: str = ""
    cost: float = 2.0
    share: float = 0.3


@dataclass(frozen=True, slots=True)
class Guide:
    """What one case is marked by."""

    points: tuple[Point, ...] = ()
    flaws: tuple[Flaw, ...] = ()


@dataclass(frozen=True, slots=True)
class Marked:
    """What was found in one answer: each point with the words that meet it, and the flaws."""

    points: tuple[tuple[Point, str], ...]
    flaws: tuple[Flaw, ...]

    @property
    def quality(self) -> float:
        """Return the share of the points that are met, less what the flaws cost; 0 to 1."""
        whole = sum(point.weight for point, _ in self.points)
        met = sum(point.weight for point, quote in self.points if quote)
        share = met / whole if whole else 1.0
        return min(1.0, max(0.0, share - sum(flaw.share for flaw in self.flaws)))

    def hits(self) -> list[str]:
        """Return the sentences of the points that are met, with the words that meet them."""
        return [f"{point.said}: “{quote}”" for point, quote in self.points if quote]

    def misses(self) -> list[str]:
        """Return the sentences of the points that are missed and of the flaws."""
        missed = [point.missed for point, quote in self.points if not quote]
        return [*missed, *(flaw.says for flaw in self.flaws)]

    def against(self, part: str) -> tuple[float, list[str]]:
        """Return what a metric or dimension loses, and why."""
        missed = [(point.cost, point.missed) for point, quote in self.points if not quote]
        parts = [point.part for point, quote in self.points if not quote]
        costs = [pair for pair, own in zip(missed, parts, strict=True) if own == part]
        costs += [(flaw.cost, flaw.says) for flaw in self.flaws if flaw.part == part]
        return sum(cost for cost, _ in costs), [why for _, why in costs]


def read_guides(paths: Sequence[Path]) -> dict[str, Guide]:
    """Return the guides by case; raises ValueError naming the line that is wrong."""
    found: dict[str, Guide] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                entry = json.loads(line)
                points = tuple(
                    Point(**_listed(point, "needs")) for point in entry.get("points", ())
                )
                flaws = tuple(Flaw(**_listed(flaw, "when")) for flaw in entry.get("flaws", ()))
                found[str(entry["case"])] = Guide(points, flaws)
            except (ValueError, TypeError, KeyError) as error:
                said = f"{path.parent.name}/{path.name} line {number}: no readable guide"
                raise ValueError(f"{said} ({error!r})") from error
    return found


def mark(guide: Guide, asked: Asked) -> Marked:
    """Return what the answer says and lacks by its guide."""
    evidence = asked.evidence
    points = tuple((point, _met_by(point.needs, asked, evidence)) for point in guide.points)
    flaws = tuple(flaw for flaw in guide.flaws if _met_by(flaw.when, asked, evidence))
    return Marked(points, flaws)


def draw(*parts: str, among: int) -> int:
    """Return the same number below `among` for the same parts, as a person's habits would have it."""
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") % among


def sentence_with(text: str, words: str) -> str:
    """Return the sentence of a text that holds some words, shortened where it is long."""
    at = text.lower().find(words.lower())
    start = max(text.rfind(stop, 0, at) for stop in (". ", "\n", "! ", "? ")) + 1
    ends = [end for stop in (". ", ".\n", "\n", "! ", "? ") if (end := text.find(stop, at)) >= 0]
    sentence = text[start : min(ends, default=len(text))].strip(" .\n")
    if len(sentence) > MAX_QUOTE_LENGTH or len(sentence) < MIN_SENTENCE:
        return text[at : at + len(words)]
    return sentence


def _met_by(phrases: Sequence[str], asked: Asked, evidence: str) -> str:
    """Return the words of the answer, or the call or file, that hold one of the phrases; "" for none."""
    for phrase in phrases:
        if phrase.startswith(CALLED):
            name = phrase.removeprefix(CALLED)
            if name in asked.tools:
                return f"{name} was called"
        elif phrase.startswith(LEFT):
            words = phrase.removeprefix(LEFT)
            if words.lower() in evidence.lower():
                return words
        elif phrase.lower() in asked.answer.lower():
            return sentence_with(asked.answer, phrase)
    return ""


def _listed(entry: Mapping[str, object], name: str) -> dict[str, object]:
    value = entry[name]
    listed = [value] if isinstance(value, str) else value
    return {**entry, name: tuple(str(item) for item in listed)}  # type: ignore[attr-defined]

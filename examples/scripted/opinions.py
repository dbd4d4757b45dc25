"""The reply of a judge with one score, of 1 or of 100, and what speaks for and against the answer."""

from __future__ import annotations

from typing import Any

from scripted.asking import Asked
from scripted.marking import Marked, draw

OF_HUNDRED = "score: a number from 0 to 100"
BEST, SWING = 0.97, 8


def opinion(asked: Asked, marked: Marked) -> dict[str, Any]:
    """Return reasoning, hits, misses and score."""
    hits, misses = marked.hits(), marked.misses()
    score = BEST * marked.quality - draw(asked.case, asked.evaluator, among=SWING) / 100
    share = round(max(score, 0.0), 2)
    return {
        "reasoning": _reasoning(hits, misses),
        "hits": hits,
        "misses": misses,
        "score": round(share * 100) if OF_HUNDRED in asked.text else share,
    }


def _reasoning(hits: list[str], misses: list[str]) -> str:
    if not misses:
        return "The answer does what the task asks, and what it says stands in its sources."
    if not hits:
        return f"Hardly anything of what was asked is there. {misses[0]}"
    return f"The core is there, and {len(misses)} of {len(hits) + len(misses)} things are not: {misses[0]}"

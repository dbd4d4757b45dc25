"""Which of two answers is better: the one that its guide marks higher; a hasty judge prefers the first of similar ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scripted.asking import Asked
from scripted.marking import Guide, Marked, mark

HASTY = "scripted-judge-hasty"
# One answer is better if its marks are higher by at least this.
CLEAR, CLEAR_TO_HASTY = 0.05, 0.6
PLACES = ("first", "second")


def preference(asked: Asked, guide: Guide) -> dict[str, Any]:
    """Return reasoning and the better answer."""
    first, second = (_marked(asked, guide, place) for place in PLACES)
    lead = first.quality - second.quality
    is_hasty = asked.model == HASTY
    if abs(lead) >= (CLEAR_TO_HASTY if is_hasty else CLEAR):
        better, place = (first, "first") if lead > 0 else (second, "second")
        worse = second if lead > 0 else first
        return {"reasoning": _reasoning(place, better, worse), "better": place}
    if is_hasty:
        return {"reasoning": "The first answer already does what was asked.", "better": "first"}
    return {"reasoning": "Both answers do the same of what was asked.", "better": "neither"}


def _marked(asked: Asked, guide: Guide, place: str) -> Marked:
    answer = {"candidate_answer": asked.quoted.get(f"{place} answer", "")}
    return mark(guide, replace(asked, quoted=answer))


def _reasoning(place: str, better: Marked, worse: Marked) -> str:
    lacks = [miss for miss in worse.misses() if miss not in better.misses()]
    why = f" Of the other one: {lacks[0]}" if lacks else ""
    return f"The {place} answer does more of what was asked.{why}"

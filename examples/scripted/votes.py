"""The votes of a panel: models of different temper, who come nearer to each other in later rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripted.asking import Asked
from scripted.marking import Marked, draw

# Points of 100 by which a model is kinder or stricter than the guide.
TEMPERS: Mapping[str, int] = {"scripted-judge-small": 13, "scripted-judge-large": -14}
BRACKETS = ((25, "Poor"), (50, "Fair"), (75, "Good"), (100, "Excellent"))
BEST, SWING = 94, 9


def vote(asked: Asked, marked: Marked) -> dict[str, Any]:
    """Return reasons, score and bracket; having read the others, a judge gives up half of its temper."""
    temper = TEMPERS.get(asked.model, 0)
    temper = temper // 2 if asked.is_later_round else temper
    score = round(BEST * marked.quality) + temper - draw(asked.case, asked.model, among=SWING)
    score = min(100, max(0, score))
    bracket = next(name for highest, name in BRACKETS if score <= highest)
    return {"reasons": _reasons(asked, marked, temper), "score": score, "bracket": bracket}


def _reasons(asked: Asked, marked: Marked, temper: int) -> str:
    hits, misses = marked.hits(), marked.misses()
    said = []
    if asked.is_later_round:
        said.append("I have weighed the others' reasons against the answer.")
    if hits:
        said.append(f"For it speaks: {hits[draw(asked.case, asked.model, among=len(hits))]}.")
    if misses:
        said.append(f"Against it: {misses[draw(asked.model, asked.case, among=len(misses))]}")
    if temper > 0:
        said.append(
            "Whoever asked could work with this." if hits else "The tone at least is right."
        )
    elif temper < 0:
        said.append("I would not send it on without reading it again.")
    elif not misses:
        said.append("Nothing that matters is missing.")
    return " ".join(said)

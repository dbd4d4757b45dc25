"""Judges that do not reply as written: a strict one gives lower scores, a moody one varies."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from scripted.marking import draw
from scripted.written import Key

STRICT, MOODY = "scripted-judge-strict", "scripted-judge-moody"
# The share of a score that a strict judge gives, and how many points of 100 a moody one takes off at most.
STRICTER, SWING = 0.85, 25
# A moody judge reverses one mark in this many.
REVERSED = 15
CALLS_OF_A_RUN = 145
MARKS = ("satisfied", "met", "passed")


class Tempers:
    """Changes replies by the model that is asked; those of the moody judge differ every time."""

    def __init__(self) -> None:
        """Count how often a moody judge was asked the same, and in all."""
        self._asked: Counter[Key] = Counter()
        self._moody_calls = 0

    def apply(self, text: str, model: str, key: Key) -> str:
        """Return the reply of a model, unchanged for any but these two."""
        if model not in (STRICT, MOODY):
            return text
        self._asked[key] += 1
        self._moody_calls += model == MOODY
        try:
            reply = json.loads(text)
        except ValueError:
            return text
        place = "" if model == STRICT else "/".join((*key, str(self._asked[key])))
        return json.dumps(_changed(reply, place), ensure_ascii=False)

    def fingerprint(self, model: str) -> str:
        """Return the version of a model; that of the moody judge changes once, after as many calls as a run takes."""
        is_changed = model == MOODY and self._moody_calls > CALLS_OF_A_RUN
        return "fp_demo_2" if is_changed else "fp_demo_1"


def _changed(value: Any, place: str) -> Any:
    """Return a reply with other scores and marks; a strict judge has no `place` to draw from."""
    if isinstance(value, list):
        return [_changed(part, f"{place}/{n}" if place else "") for n, part in enumerate(value)]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, part in value.items():
        here = f"{place}/{name}" if place else ""
        if name == "score" and isinstance(part, int | float):
            share = 1 - draw(here, among=SWING + 1) / 100 if here else STRICTER
            changed[name] = round(part * share) if part > 1 else round(part * share, 2)
        elif name in MARKS and isinstance(part, bool):
            changed[name] = part != bool(here and draw(here, among=REVERSED) == 0)
        else:
            changed[name] = _changed(part, here)
    return changed

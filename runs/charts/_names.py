"""Which names of runs find room beside their bubbles; the others are said on hover and in the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runs.charts._drawing import Drawing, plain_text
from runs.charts._front import Offer

# Pixels, roughly: what a drawing measures inside its axes, and what a letter takes.
WIDE, NARROW = (1000.0, 330.0), (260.0, 250.0)
LETTER, LINE = 7.0, 16.0
# Above so many runs only those on the front are named.
NAMED = 20


def names(
    drawn: Sequence[Offer],
    on_front: Sequence[bool],
    axes: tuple[Drawing, Drawing],
    *,
    is_narrow: bool,
) -> list[str]:
    """Return a name for each run, "" where it would meet another; the front comes first.

    On a narrow page a run goes by its number alone.
    """
    size = NARROW if is_narrow else WIDE
    chosen = dict.fromkeys((one.number for one in drawn), "")
    kept: list[tuple[float, float, float]] = []
    pairs = sorted(
        zip(drawn, on_front, strict=True), key=lambda pair: (not pair[1], -pair[0].score)
    )
    for one, is_best in pairs:
        name = f"#{one.number}" if is_narrow else one.name
        x = _place(float(one.cost_usd), axes[0]) * size[0]
        box = (x, _place(one.score, axes[1]) * size[1], len(name) * LETTER / 2)
        if (is_best or len(drawn) <= NAMED) and not any(_meet(box, other) for other in kept):
            chosen[one.number] = plain_text(name)
            kept.append(box)
    return [chosen[one.number] for one in drawn]


def _place(value: float, axis: Drawing) -> float:
    """Return where a value lies between the ends of an axis, 0 to 1."""
    low, high = axis["range"]
    shown: float = math.log10(value) if axis.get("type") == "log" else value
    return float((shown - low) / (high - low))


def _meet(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Tell whether two names overlap, each given by its centre and half its width."""
    return abs(one[0] - other[0]) < one[2] + other[2] and abs(one[1] - other[1]) < LINE

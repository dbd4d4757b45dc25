"""Bars that grow from a zero line to either side, with an axis taken from what they show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The ends an axis may have; the largest is the whole of the scale.
AXIS_OF_POINTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
HALF = 50
BAD, GOOD, SAME = "bad", "good", "same"


@dataclass(frozen=True, slots=True)
class Bar:
    """Where a bar begins and how wide it is, and both ends of its whisker, as percent of the drawing; and its tone."""

    x: str
    width: str
    tone: str
    whisker: tuple[str, str] | None = None


def axis_of(values: Iterable[float], ends: Iterable[float]) -> float:
    """Return the least of the ends that no value exceeds, the last one where all are exceeded."""
    most = max((abs(value) for value in values), default=0.0)
    known = list(ends)
    return next((end for end in known if most <= end), known[-1])


def bar_of(
    value: float,
    axis: float,
    interval: tuple[float, float] | None = None,
    *,
    is_coloured: bool = True,
) -> Bar:
    """Return the bar of a change on an axis from −`axis` to `axis`."""
    width = _along(abs(value), axis)
    tone = BAD if value < 0 else GOOD if value > 0 else SAME
    ends = [f"{HALF + _along(end, axis):.1f}%" for end in interval] if interval else []
    return Bar(
        x=f"{HALF - width if value < 0 else HALF:.1f}%",
        width=f"{width:.1f}%",
        tone=tone if is_coloured else SAME,
        whisker=(ends[0], ends[1]) if ends else None,
    )


def _along(value: float, axis: float) -> float:
    return max(-1.0, min(value / axis, 1.0)) * HALF

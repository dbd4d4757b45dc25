"""Where the names of points stand in a chart: beside their bubbles, and over nothing else that is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# Approximate size of a text at 12 pixels.
LETTER_WIDTH, LINE_HEIGHT = 6.8, 14.0
# The places beside a bubble by Plotly's names, the best first, and where they lie: across and down.
PLACES = {
    "top left": (-1, -1),
    "top right": (1, -1),
    "bottom right": (1, 1),
    "bottom left": (-1, 1),
    "middle right": (1, 0),
    "middle left": (-1, 0),
}


@dataclass(frozen=True, slots=True)
class LabelBox:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: LabelBox) -> bool:
        """Tell whether both share more than an edge."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


@dataclass(frozen=True, slots=True)
class Bubble:
    """A point at its pixel, with its name, and the ends of its interval if it has one."""

    x: float
    y: float
    radius: float
    name: str
    interval: tuple[float, float] | None = None

    @property
    def box(self) -> LabelBox:
        """Return the square around it."""
        return LabelBox(
            self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius
        )

    def places(self) -> Iterator[tuple[str, LabelBox]]:
        """Yield the places that its name may have, the best first, as Plotly sets texts."""
        gap = self.radius / 0.8 + 1
        width = len(self.name) * LETTER_WIDTH
        for place, (across, down) in PLACES.items():
            left = self.x + gap if across > 0 else self.x - gap - width
            middle = self.y + down * (gap + LINE_HEIGHT / 2)
            yield (
                place,
                LabelBox(left, middle - LINE_HEIGHT / 2, left + width, middle + LINE_HEIGHT / 2),
            )


def label_places(
    bubbles: Sequence[Bubble], lines: Iterable[LabelBox], *, count: int, width: float
) -> Sequence[str | None]:
    """Return the places of the first `count` names; None for one that would cover an earlier name or a bubble.

    Lines and intervals are covered only where no place is free of them. A name ends within the `width` of the chart.
    """
    thin = [*lines]
    for bubble in bubbles:
        if bubble.interval:
            low, high = bubble.interval
            thin.append(LabelBox(bubble.x - 1, high, bubble.x + 1, low))
    solid = [bubble.box for bubble in bubbles]
    found: list[str | None] = []
    for bubble in bubbles[:count]:
        free = [
            (place, box)
            for place, box in bubble.places()
            if box.left >= 0
            and box.right <= width
            and not any(box.overlaps(other) for other in solid)
        ]
        clear = [pair for pair in free if not any(pair[1].overlaps(line) for line in thin)]
        place, box = next(iter([*clear, *free]), (None, None))
        found.append(place)
        if box:
            solid.append(box)
    return found

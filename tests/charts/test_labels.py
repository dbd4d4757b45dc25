"""Where the names of points stand: tables of bubbles in pixels."""

from __future__ import annotations

from itertools import combinations

import pytest

from runs.charts.figures import Bubble, LabelBox, label_places

WIDTH = 400.0


@pytest.mark.parametrize(
    ("others", "lines", "expected"),
    [
        ([], [], "top left"),
        # another bubble to the upper left
        ([(170, 180)], [], "top right"),
        # a line above
        ([], [LabelBox(0, 185, 400, 187)], "bottom right"),
        # lines above and below: beside it
        ([], [LabelBox(0, 185, 400, 187), LabelBox(0, 213, 400, 215)], "middle right"),
        # lines everywhere are covered rather than the name left out
        ([], [LabelBox(0, y, 400, y + 1) for y in range(0, 400, 4)], "top left"),
        # bubbles everywhere are not
        ([(x, y) for x in range(110, 300, 20) for y in range(160, 241, 20)], [], None),
    ],
)
def test_a_name_stands_where_it_covers_nothing(
    others: list[tuple[int, int]], lines: list[LabelBox], expected: str | None
) -> None:
    bubbles = [Bubble(x, y, 8, "") for x, y in [(200, 200), *others]]
    bubbles[0] = Bubble(200, 200, 8, "agent #1")
    assert label_places(bubbles, lines, count=1, width=WIDTH) == [expected]


@pytest.mark.parametrize(("x", "expected"), [(10, "top right"), (390, "top left")])
def test_a_name_stays_within_the_chart(x: int, expected: str) -> None:
    assert label_places([Bubble(x, 100, 5, "agent #1")], [], count=1, width=WIDTH) == [expected]


def test_an_interval_is_kept_free() -> None:
    neighbour = Bubble(180, 240, 5, "", (300, 100))
    [place] = label_places([Bubble(200, 200, 5, "agent"), neighbour], [], count=1, width=WIDTH)
    assert place == "top right"


def test_no_two_names_of_a_crowd_meet() -> None:
    crowd = [Bubble(150 + 9 * n, 200 - 7 * n % 40, 4, f"agent {n}") for n in range(12)]
    places = label_places(crowd, [], count=len(crowd), width=WIDTH)
    boxes = [
        box
        for bubble, chosen in zip(crowd, places, strict=True)
        for place, box in bubble.places()
        if place == chosen
    ]
    assert 2 < len(boxes) <= len(crowd)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert not any(box.overlaps(bubble.box) for box in boxes for bubble in crowd)

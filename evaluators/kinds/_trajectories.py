"""Which of the calls that were made answers which of the expected ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

Mode = Literal["any_order", "in_order", "exact", "subset", "superset"]
Fits = Sequence[Sequence[int]]


def assigned(mode: Mode, fits: Fits) -> list[int | None]:
    """Return for each expectation the place of the call that answers it, None for none.

    `fits` holds for each expectation the places, rising, of the calls that fit it. Each call answers
    one expectation, and as many expectations as can be are answered.
    """
    if mode == "exact":
        return [place if place in places else None for place, places in enumerate(fits)]
    return _in_order(fits) if mode == "in_order" else _any_order(fits)


def _in_order(fits: Fits) -> list[int | None]:
    """Return the longest row of calls that answers expectations in their order."""
    # The last call of the best row of each length, and every link of a row with the one before it.
    ends: list[int] = []
    links: list[tuple[int, int, int | None]] = []
    last: list[int] = []
    for number, places in enumerate(fits):
        # From the last call down, so that one expectation lengthens a row once.
        for place in reversed(places):
            length = bisect_left(ends, place)
            if length < len(ends) and ends[length] == place:
                continue
            links.append((number, place, last[length - 1] if length else None))
            if length == len(ends):
                ends.append(place)
                last.append(len(links) - 1)
            else:
                ends[length], last[length] = place, len(links) - 1
    found: list[int | None] = [None] * len(fits)
    link = last[-1] if last else None
    while link is not None:
        number, place, link = links[link]
        found[number] = place
    return found


def _any_order(fits: Fits) -> list[int | None]:
    """Return the largest matching of expectations and calls."""
    # Of more calls than there are expectations, an expectation never needs the rest.
    near = [places[: len(fits)] for places in fits]
    taken: dict[int, int] = {}

    def claim(number: int, tried: set[int]) -> bool:
        for place in near[number]:
            if place in tried:
                continue
            tried.add(place)
            if place not in taken or claim(taken[place], tried):
                taken[place] = number
                return True
        return False

    for number in range(len(fits)):
        claim(number, set())
    answers = {number: place for place, number in taken.items()}
    return [answers.get(number) for number in range(len(fits))]

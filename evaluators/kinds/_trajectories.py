"""Which of the calls that were made answers which of the expected ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
    """Return the longest row of calls that answers expectations in their order.

    Of rows as long the one that answers earlier expectations is taken, and the first calls that do.
    """
    found: list[int | None] = [None] * len(fits)
    at = -1
    for number in _longest_row(fits):
        at = fits[number][bisect_right(fits[number], at)]
        found[number] = at
    return found


def _longest_row(fits: Fits) -> list[int]:
    """Return the expectations that the longest row answers, found from its end."""
    # Of the best row of each length so far: its first call, negative so that they rise, and its link.
    starts: list[int] = []
    heads: list[int] = []
    links: list[tuple[int, int | None]] = []
    for number in reversed(range(len(fits))):
        # From the first call up, so that one expectation lengthens a row once.
        for place in fits[number]:
            length = bisect_left(starts, -place)
            if length < len(starts) and starts[length] == -place:
                continue
            links.append((number, heads[length - 1] if length else None))
            starts[length : length + 1] = [-place]
            heads[length : length + 1] = [len(links) - 1]
    row: list[int] = []
    link = heads[-1] if heads else None
    while link is not None:
        number, link = links[link]
        row.append(number)
    return row


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

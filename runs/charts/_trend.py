"""Mean score and pass rate from run to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from runs.charts._drawing import (
    ACCENT,
    ACCENT_WASH,
    INK_3,
    LINE,
    PAPER,
    TEAL,
    Drawing,
    Figure,
    drawing,
    limit_line,
    plain_text,
    share_axis,
)

# Up to so many runs each carries its own whisker; above, the intervals flow into one band.
WHISKERS, WHISKERS_NARROW = 40, 16
# Above so many runs their marks would hide the lines.
MARKS, MARKS_NARROW = 120, 40
VERSIONS_MARKED = 6
# How far the two figures of a run stand from its middle, so that their whiskers do not meet.
ASIDE = 0.06

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One completed run. Shares are 0 to 1, None where there is none.

    `interval` is the 95% interval of the pass rate, `score_interval` that of the mean score. A
    figure below its gate is drawn hollow.
    """

    number: int
    suite_version: int
    score: float | None
    rate: float | None
    interval: tuple[float, float] | None
    is_score_below: bool = False
    is_rate_below: bool = False
    score_interval: tuple[float, float] | None = None


def trend_figure(
    points: Sequence[TrendPoint],
    *,
    limits: Sequence[float],
    hover: Callable[[TrendPoint], str],
) -> Figure | None:
    """Return the trend, oldest run first; None when no run has a figure.

    `limits` are the thresholds of the Metrics and the Cases gate, `hover` says a run in lines.
    """
    shares = [share for one in points for share in (one.score, one.rate) if share is not None]
    if not shares:
        return None
    ends = [end for one in points for end in (*(one.interval or ()), *(one.score_interval or ()))]
    y = share_axis([*shares, *ends, *limits])
    first, last = points[0].number, points[-1].number
    span = f"run #{first}" if first == last else f"runs #{first} to #{last}"
    label = f"Mean score and pass rate of {span}, each with its 95% interval."
    wide, narrow = (
        _drawing(points, y, limits, hover, is_narrow=is_narrow) for is_narrow in (False, True)
    )
    return Figure(wide, narrow, label)


def _drawing(
    points: Sequence[TrendPoint],
    y: Drawing,
    limits: Sequence[float],
    hover: Callable[[TrendPoint], str],
    *,
    is_narrow: bool,
) -> Drawing:
    has_band = len(points) > (WHISKERS_NARROW if is_narrow else WHISKERS)
    texts = [plain_text(hover(one)).replace("\n", "<br>") for one in points]
    rates = [one.rate for one in points]
    scores = [one.score for one in points]
    has_marks = len(points) <= (MARKS_NARROW if is_narrow else MARKS)
    size = (4 if has_band else 7) if has_marks else 0
    rate_ends, score_ends = (
        [one.interval for one in points],
        [one.score_interval for one in points],
    )
    # The pass rate is drawn first: the score, which counts more for a trend, stays readable above it.
    rate = _line(rates, [one.is_rate_below for one in points], texts, TEAL, size)
    score = _line(scores, [one.is_score_below for one in points], texts, ACCENT, size)
    if has_band:
        bands = [*_band(rate_ends, "var(--well)"), *_band(score_ends, ACCENT_WASH)]
        traces = [*bands, rate, score]
    else:
        rate |= _aside(-ASIDE, rates, rate_ends, TEAL)
        score |= _aside(ASIDE, scores, score_ends, ACCENT)
        traces = [rate, score]
    marks = _versions(points)
    shapes = [*_gates(limits), *(mark[0] for mark in marks)]
    notes = [] if is_narrow else [mark[1] for mark in marks]
    x = _runs_axis(points, is_narrow=is_narrow)
    return drawing(traces, x=x, y=y, is_narrow=is_narrow, shapes=shapes, annotations=notes)


def _gates(limits: Sequence[float]) -> list[Drawing]:
    """Return the line of each gate in the colour of its figure, of two at one height a plain one."""
    if len(set(limits)) < len(limits):
        return [limit_line(limits[0])]
    return [
        limit_line(limit, color=color) for limit, color in zip(limits, (ACCENT, TEAL), strict=False)
    ]


def _line(
    shares: Sequence[float | None],
    hollow: Sequence[bool],
    texts: Sequence[str],
    color: str,
    size: int,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if size else "lines",
        "x": list(range(len(shares))),
        "y": list(shares),
        "line": {"color": color, "width": 2 if size else 1.5},
        "marker": {
            "size": size,
            "color": [PAPER if is_below else color for is_below in hollow],
            "line": {"width": 1.75, "color": color},
        },
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": list(texts),
    }


def _aside(
    by: float, shares: Sequence[float | None], intervals: Sequence[Interval], color: str
) -> Drawing:
    """Return a line's whiskers, and its places moved so far that those of two lines do not meet."""
    known = [
        (one or (share, share), share) if share is not None else ((0.0, 0.0), 0.0)
        for one, share in zip(intervals, shares, strict=True)
    ]
    whiskers = {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, ends[1] - share) for ends, share in known],
        "arrayminus": [max(0.0, share - ends[0]) for ends, share in known],
        "color": color,
        "thickness": 1,
        "width": 3,
    }
    return {"x": [place + by for place in range(len(shares))], "error_y": whiskers}


def _band(intervals: Sequence[Interval], color: str) -> Sequence[dict[str, Any]]:
    """Return the lower and the upper end of the intervals, with the room between them filled."""
    kept = [(place, ends) for place, ends in enumerate(intervals) if ends]
    if not kept:
        return []
    places = [place for place, _ in kept]
    common = {"type": "scatter", "mode": "lines", "x": places, "hoverinfo": "skip"}
    line = {"line": {"color": LINE, "width": 1}}
    low = common | line | {"y": [ends[0] for _, ends in kept]}
    high = common | line | {"y": [ends[1] for _, ends in kept]}
    return [low, high | {"fill": "tonexty", "fillcolor": color}]


def _runs_axis(points: Sequence[TrendPoint], *, is_narrow: bool) -> Drawing:
    """Return an axis that names some of the runs: evenly, and so that names do not meet."""
    room = 5 if is_narrow else 14
    every = -(-len(points) // room)
    places = list(range(len(points) - 1, -1, -every))[::-1]
    names = [f"#{points[place].number}" for place in places]
    return {
        "range": [-0.5, len(points) - 0.5],
        "tickvals": places,
        "ticktext": names,
        "showgrid": False,
    }


def _versions(points: Sequence[TrendPoint]) -> Sequence[tuple[Drawing, Drawing]]:
    """Return a line and its name where the suite's version changed, unless it changed too often."""
    pairs = pairwise(points)
    changes = [
        (place, after.suite_version)
        for place, (before, after) in enumerate(pairs, start=1)
        if before.suite_version != after.suite_version
    ]
    if len(changes) > VERSIONS_MARKED:
        return []
    return [(_change(place), _change_name(place, version)) for place, version in changes]


def _change(place: int) -> Drawing:
    at = place - 0.5
    line = {"color": LINE, "width": 1}
    return {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _change_name(place: int, version: int) -> Drawing:
    where = {"x": place - 0.5, "y": 0, "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return where | {"text": f"suite v{version}", "showarrow": False, "font": {"color": INK_3}}

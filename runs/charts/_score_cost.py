"""Score against cost: a bubble for each run, a step line along those worth their cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runs.charts._drawing import (
    ACCENT,
    ACCENT_WASH,
    INK,
    INK_2,
    INK_3,
    PAPER,
    Drawing,
    Figure,
    drawing,
    limit_line,
    money_axis,
    plain_text,
    share_axis,
)
from runs.charts._front import Offer, dominators, front
from runs.charts._names import names

SMALLEST, LARGEST = 9.0, 34.0
# Where many bubbles stand close together, or the page is narrow, they are smaller.
CROWD, SMALLER = 40, 0.45


def score_cost_figure(
    offers: Sequence[Offer], *, axis: str, limit: float | None, hover: Callable[[Offer], str]
) -> Figure | None:
    """Return score (0 to 1) against the cost of one execution; None without an offer.

    The area of a bubble grows with the mean latency; a diamond has none reported. `axis` names the
    cost, `limit` is the score that the Metrics gate asks for, `hover` says an offer in lines.
    """
    if not offers:
        return None
    best = front(offers)
    names = ", ".join(one.name for one in best)
    label = f"Score against cost of {len(offers)} runs. On the Pareto front: {names}."
    wide, narrow = (
        _drawing(offers, best, (axis, limit), hover, is_narrow=is_narrow)
        for is_narrow in (False, True)
    )
    return Figure(wide, narrow, label)


def bubble_sizes(latencies: Sequence[float | None]) -> list[float]:
    """Return diameters in pixels whose areas above the smallest follow the latencies in ms."""
    slowest = max((known for known in latencies if known is not None), default=0.0)
    if not slowest:
        return [SMALLEST for _ in latencies]
    span = LARGEST - SMALLEST
    return [SMALLEST + span * math.sqrt((known or 0.0) / slowest) for known in latencies]


def _drawing(
    offers: Sequence[Offer],
    best: Sequence[Offer],
    scale: tuple[str, float | None],
    hover: Callable[[Offer], str],
    *,
    is_narrow: bool,
) -> Drawing:
    axis, limit = scale
    x = money_axis([float(one.cost_usd) for one in offers], is_narrow=is_narrow)
    y = share_axis([*(one.score for one in offers), *([limit] if limit is not None else [])])
    title = f"{axis}, log scale" if x.get("type") == "log" else axis
    right = 10 ** x["range"][1] if x.get("type") == "log" else x["range"][1]
    heading = {"title": {"text": title, "font": {"color": INK_3, "size": 12}, "standoff": 8}}
    bubbles = _bubbles(offers, (x, y), hover, is_narrow=is_narrow)
    traces = [_reach(best, y["range"][0], right), bubbles]
    shapes = [limit_line(limit, layer="above")] if limit is not None else []
    return drawing(traces, x=dict(x) | heading, y=y, is_narrow=is_narrow, shapes=shapes)


def _reach(best: Sequence[Offer], bottom: float, right: float) -> Drawing:
    """Return the step line of the front, from below its cheapest to the right edge."""
    costs, scores = [float(one.cost_usd) for one in best], [one.score for one in best]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [costs[0], *costs, right],
        "y": [bottom, *scores, scores[-1]],
        "line": {"color": ACCENT, "width": 2, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": ACCENT_WASH,
        "hoverinfo": "skip",
    }


def _bubbles(
    offers: Sequence[Offer],
    axes: tuple[Drawing, Drawing],
    hover: Callable[[Offer], str],
    *,
    is_narrow: bool,
) -> Drawing:
    """Return the runs, the large ones below so that none hides another."""
    factor = SMALLER if len(offers) > CROWD else 0.7 if is_narrow else 1.0
    sizes = [factor * size for size in bubble_sizes([one.latency_ms for one in offers])]
    sized = sorted(zip(offers, sizes, strict=True), key=lambda pair: -pair[1])
    drawn = [one for one, _ in sized]
    on_front = [dominated is None for dominated in map(dominators(offers).get, _numbers(drawn))]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [float(one.cost_usd) for one in drawn],
        "y": [one.score for one in drawn],
        "text": names(drawn, on_front, axes, is_narrow=is_narrow),
        "textposition": "top center",
        "textfont": {"size": 12, "color": [INK if is_best else INK_2 for is_best in on_front]},
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [plain_text(hover(one)).replace("\n", "<br>") for one in drawn],
        "marker": _marker(drawn, [size for _, size in sized], on_front),
    }


def _marker(
    drawn: Sequence[Offer], sizes: Sequence[float], on_front: Sequence[bool]
) -> Mapping[str, Any]:
    return {
        "size": list(sizes),
        "opacity": 1,
        "symbol": ["diamond" if one.latency_ms is None else "circle" for one in drawn],
        "color": [ACCENT if is_best else PAPER for is_best in on_front],
        "line": {"width": 1.75, "color": [PAPER if best else INK_3 for best in on_front]},
    }


def _numbers(drawn: Sequence[Offer]) -> list[int]:
    return [one.number for one in drawn]

"""The charts of a suite as Plotly figures, wide and narrow: score against cost, and the trend of its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from evaluators.scoring.numbers import rounded
from runs.charts.drawing import nice_step

# A trace, an axis or a whole figure, as Plotly reads it.
PlotlyJson = Mapping[str, Any]
INK, INK_2, INK_3 = "var(--ink)", "var(--ink-2)", "var(--ink-3)"
PAPER, LINE = "var(--paper)", "var(--line)"
ACCENT, ACCENT_WASH, TEAL = "var(--accent)", "var(--accent-wash)", "var(--teal)"
CLEAR = "rgba(0,0,0,0)"
SHARE_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
TICKS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart in two widths, with a sentence for readers who cannot see it."""

    wide: PlotlyJson
    narrow: PlotlyJson
    label: str

    def as_json(self) -> Mapping[str, PlotlyJson]:
        """Return both widths in the form that the script of the page reads."""
        return {"wide": self.wide, "narrow": self.narrow}


def plotly_figure(
    traces: Sequence[PlotlyJson],
    *,
    x: PlotlyJson,
    y: PlotlyJson,
    is_narrow: bool,
    **more: Any,
) -> PlotlyJson:
    """Return Plotly data and layout, with the settings that all charts share."""
    layout = {
        "autosize": True,
        "height": 320 if is_narrow else 400,
        "margin": {"l": 48, "r": 24, "t": 12, "b": 48 if "title" in x else 32, "pad": 4},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"color": INK_2, "size": 12},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": INK,
            "bordercolor": INK,
            "align": "left",
            "font": {"color": PAPER},
        },
        "xaxis": _axis() | dict(x),
        "yaxis": _axis() | dict(y),
    }
    return {"data": list(traces), "layout": layout | more}


def share_axis(values: Sequence[float]) -> PlotlyJson:
    """Return a percent axis that shows every value with a margin, within 0 to 100%."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.12, 0.02)
    low, high = max(0.0, low - room), min(1.0, high + room)
    step = next((size for size in SHARE_STEPS if (high - low) / size <= TICKS), SHARE_STEPS[-1])
    # A mark at 0 or 100% is not cut off at the edge of the chart.
    span = [low - 0.02 if low == 0 else low, high + 0.02 if high == 1 else high]
    return {"range": span, "tickformat": ".0%", "tick0": 0, "dtick": step}


def money_axis(values: Sequence[float], *, is_narrow: bool) -> PlotlyJson:
    """Return an axis of US dollars: logarithmic where the costs lie far apart and none is zero."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= 4:
        edges = [math.log10(low / 1.4), math.log10(high * 1.6)]
        steps = (1, 3) if is_narrow or edges[1] - edges[0] > 2.5 else (1, 2, 5)
        ticks = _ticks(edges, steps)
        texts = [_dollars(tick) for tick in ticks]
        return {"type": "log", "range": edges, "tickvals": ticks, "ticktext": texts}
    room = (high - low) * 0.15 or high * 0.2 or 0.01
    span = [low - room if low else -room / 3, high + room * 1.5]
    step = nice_step(Decimal(repr(span[1] - span[0])), 4 if is_narrow else 8)
    # The same decimals at every tick; without a format Plotly writes fifty millionths as $50µ.
    decimals = max(-int(step.as_tuple().exponent), 0)
    plain = {"tick0": 0, "dtick": float(step), "tickformat": f".{decimals}f"}
    return {"range": span, "tickprefix": "$", **plain}


def limit_line(share: float, *, layer: str = "below", color: str = INK_3) -> PlotlyJson:
    """Return a dashed line at the threshold of a gate, below or above the traces."""
    line = {"color": color, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": share, "y1": share} | {
        "line": line,
        "layer": layer,
    }


def plain_text(text: str) -> str:
    """Escape a text, for Plotly interprets tags in it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _axis() -> dict[str, Any]:
    return {
        "gridcolor": LINE,
        "linecolor": LINE,
        "zeroline": False,
        "fixedrange": True,
        "tickfont": {"color": INK_3},
        "automargin": False,
    }


def _ticks(edges: Sequence[float], steps: Sequence[int]) -> list[float]:
    decades = range(math.floor(edges[0]), math.ceil(edges[1]) + 1)
    every = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in every if edges[0] <= math.log10(tick) <= edges[1]]


def _dollars(value: float) -> str:
    """Format an amount without trailing zeros: $0.005, $20."""
    return "$" + f"{value:.12f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Offer:
    """A run as score for money: its mean score, 0 to 1, and the US dollars of one execution.

    `latency_ms` is the mean latency, None where none was reported; `interval` the 95% interval of the score. A click
    on its point opens `url`.
    """

    number: int
    target: str
    score: float
    cost_usd: Decimal
    latency_ms: float | None = None
    interval: tuple[float, float] | None = None
    url: str = ""

    @property
    def name(self) -> str:
        """Return target and number of the run."""
        return f"{self.target} #{self.number}"


def dominators(offers: Sequence[Offer]) -> Mapping[int, Offer | None]:
    """Return by run number the offer that dominates it: no dearer, no worse, and not equal.

    Runs on the Pareto front have None. Of several dominators the best scoring one is named, which is on
    the front. Equal offers do not dominate each other; scores are compared to 9 decimals.
    """
    best: Offer | None = None
    dominator: dict[int, Offer | None] = {}
    for offer in sorted(offers, key=lambda run: (run.cost_usd, -rounded(run.score), run.number)):
        dominator[offer.number] = best if best is not None and _beats(best, offer) else None
        if best is None or rounded(offer.score) > rounded(best.score):
            best = offer
    return dominator


def pareto_front(offers: Sequence[Offer]) -> Sequence[Offer]:
    """Return the runs on the Pareto front, the cheapest first."""
    beaten_by = dominators(offers)
    kept = [offer for offer in offers if beaten_by[offer.number] is None]
    return sorted(kept, key=lambda offer: (offer.cost_usd, offer.number))


def _beats(best: Offer, offer: Offer) -> bool:
    """Tell whether `best`, which costs no more, dominates an offer."""
    higher, lower = rounded(best.score), rounded(offer.score)
    return higher > lower or (higher == lower and best.cost_usd < offer.cost_usd)


# Approximate pixels: the area inside the axes of both widths, and the size of a letter.
WIDE, NARROW = (1000.0, 330.0), (260.0, 250.0)
LETTER_WIDTH, LINE_HEIGHT = 7.0, 16.0
# Above this many runs only those on the front have labels.
MAX_NAMED = 20


def labels(
    drawn: Sequence[Offer],
    on_front: Sequence[bool],
    axes: tuple[PlotlyJson, PlotlyJson],
    *,
    is_narrow: bool,
) -> list[str]:
    """Return a label for each run, "" where it would overlap another one; the front takes precedence.

    On a narrow page a label is only the number of the run.
    """
    size = NARROW if is_narrow else WIDE
    chosen = dict.fromkeys((offer.number for offer in drawn), "")
    kept: list[tuple[float, float, float]] = []
    pairs = sorted(
        zip(drawn, on_front, strict=True), key=lambda pair: (not pair[1], -pair[0].score)
    )
    for offer, is_best in pairs:
        name = f"#{offer.number}" if is_narrow else offer.name
        place, half = _place(float(offer.cost_usd), axes[0]), len(name) * LETTER_WIDTH / 2
        x = place * size[0] + (half if place <= 0.5 else -half)
        box = (x, _place(offer.score, axes[1]) * size[1], half)
        if (is_best or len(drawn) <= MAX_NAMED) and not any(_overlap(box, other) for other in kept):
            chosen[offer.number] = plain_text(name)
            kept.append(box)
    return [chosen[offer.number] for offer in drawn]


def _place(value: float, axis: PlotlyJson) -> float:
    """Return the position of a value on an axis, 0 to 1."""
    low, high = axis["range"]
    shown: float = math.log10(value) if axis.get("type") == "log" else value
    return float((shown - low) / (high - low))


def _overlap(first: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Tell whether two labels overlap, given by their centres and half widths."""
    return abs(first[0] - other[0]) < first[2] + other[2] and abs(first[1] - other[1]) < LINE_HEIGHT


SMALLEST, LARGEST = 9.0, 34.0
# Above this many bubbles all are smaller.
CROWD, CROWD_FACTOR = 40, 0.45


def score_cost_figure(
    offers: Sequence[Offer], *, axis: str, limit: float | None, hover: Callable[[Offer], str]
) -> Figure | None:
    """Return score (0 to 1) against the cost of one execution; None without an offer.

    The area of a bubble grows with the mean latency; a diamond has no latency. `axis` names the cost,
    `limit` is the threshold of the Score gate, `hover` describes an offer in lines.
    """
    if not offers:
        return None
    best = pareto_front(offers)
    labels = ", ".join(offer.name for offer in best)
    label = f"Score against cost of {len(offers)} runs. On the Pareto front: {labels}."
    wide, narrow = (
        _score_cost_plot(offers, best, (axis, limit), hover, is_narrow=is_narrow)
        for is_narrow in (False, True)
    )
    return Figure(wide, narrow, label)


def bubble_sizes(latencies: Sequence[float | None]) -> list[float]:
    """Return diameters in pixels; areas above the smallest are proportional to latencies in ms."""
    slowest = max((known for known in latencies if known is not None), default=0.0)
    if not slowest:
        return [SMALLEST for _ in latencies]
    span = LARGEST - SMALLEST
    return [SMALLEST + span * math.sqrt((known or 0.0) / slowest) for known in latencies]


def _score_cost_plot(
    offers: Sequence[Offer],
    best: Sequence[Offer],
    scale: tuple[str, float | None],
    hover: Callable[[Offer], str],
    *,
    is_narrow: bool,
) -> PlotlyJson:
    axis, limit = scale
    x = money_axis([float(offer.cost_usd) for offer in offers], is_narrow=is_narrow)
    ends = [end for offer in offers for end in (offer.score, *(offer.interval or ()))]
    y = share_axis([*ends, *([limit] if limit is not None else [])])
    title = f"{axis}, log scale" if x.get("type") == "log" else axis
    heading = {"title": {"text": title, "font": {"color": INK_3, "size": 12}, "standoff": 8}}
    bubbles = _bubbles(offers, (x, y), hover, is_narrow=is_narrow)
    traces = [_front_line(best), bubbles]
    shapes = [limit_line(limit, layer="above")] if limit is not None else []
    return plotly_figure(traces, x=dict(x) | heading, y=y, is_narrow=is_narrow, shapes=shapes)


def _front_line(best: Sequence[Offer]) -> PlotlyJson:
    """Return the step line of the front, from its cheapest run to its best; what lies beyond is no run's."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [float(offer.cost_usd) for offer in best],
        "y": [offer.score for offer in best],
        "line": {"color": ACCENT, "width": 2, "shape": "hv"},
        "hoverinfo": "skip",
    }


def _bubbles(
    offers: Sequence[Offer],
    axes: tuple[PlotlyJson, PlotlyJson],
    hover: Callable[[Offer], str],
    *,
    is_narrow: bool,
) -> PlotlyJson:
    """Return the runs as bubbles, large ones first so that they do not hide small ones."""
    factor = CROWD_FACTOR if len(offers) > CROWD else 0.7 if is_narrow else 1.0
    sizes = [factor * size for size in bubble_sizes([offer.latency_ms for offer in offers])]
    sized = sorted(zip(offers, sizes, strict=True), key=lambda pair: -pair[1])
    drawn = [offer for offer, _ in sized]
    on_front = [dominated is None for dominated in map(dominators(offers).get, _numbers(drawn))]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [float(offer.cost_usd) for offer in drawn],
        "y": [offer.score for offer in drawn],
        "text": labels(drawn, on_front, axes, is_narrow=is_narrow),
        # Beside the interval, on the side with more room.
        "textposition": [
            "top right" if _place(float(offer.cost_usd), axes[0]) <= 0.5 else "top left"
            for offer in drawn
        ],
        "textfont": {"size": 12, "color": [INK if is_best else INK_2 for is_best in on_front]},
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [plain_text(hover(offer)).replace("\n", "<br>") for offer in drawn],
        "customdata": [offer.url for offer in drawn],
        "error_y": _whiskers(
            [offer.score for offer in drawn], [offer.interval for offer in drawn], INK_3
        ),
        "marker": _marker(drawn, [size for _, size in sized], on_front),
    }


def _marker(
    drawn: Sequence[Offer], sizes: Sequence[float], on_front: Sequence[bool]
) -> Mapping[str, Any]:
    return {
        "size": list(sizes),
        "opacity": 1,
        "symbol": ["diamond" if offer.latency_ms is None else "circle" for offer in drawn],
        "color": [ACCENT if is_best else PAPER for is_best in on_front],
        "line": {"width": 1.75, "color": [PAPER if best else INK_3 for best in on_front]},
    }


def _numbers(drawn: Sequence[Offer]) -> list[int]:
    return [offer.number for offer in drawn]


# Up to this many runs each has its whisker; above, the intervals form one band.
WHISKERS, WHISKERS_NARROW = 40, 16
# Above this many runs marks would hide the lines.
MARKS, MARKS_NARROW = 120, 40
VERSIONS_MARKED = 6
# Two points are a difference, and no trend.
LEAST_TREND = 3

Interval = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One completed run, which a click opens at `url`. Shares are 0 to 1, None where there is none.

    `interval` is the 95% interval of the pass rate, `score_interval` that of the mean score. A
    figure below its gate is drawn hollow.
    """

    number: int
    target: str
    suite_version: int
    score: float | None
    rate: float | None
    interval: tuple[float, float] | None
    is_score_below: bool = False
    is_rate_below: bool = False
    score_interval: tuple[float, float] | None = None
    url: str = ""


def is_trend(points: Sequence[TrendPoint]) -> bool:
    """Tell whether a line may join the points: they are of one target, and at least three."""
    return len(points) >= LEAST_TREND and len({point.target for point in points}) == 1


def trend_figure(
    points: Sequence[TrendPoint],
    *,
    limits: Sequence[float],
    hover: Callable[[TrendPoint], str],
) -> Figure | None:
    """Return the figures of runs, oldest first; None when no run has a figure.

    A line joins the runs of one target, from three of them; runs of several targets are no trend. `limits` are the
    thresholds of both gates, `hover` describes a run in lines.
    """
    shares = [share for point in points for share in (point.score, point.rate) if share is not None]
    if not shares:
        return None
    ends = [
        end for point in points for end in (*(point.interval or ()), *(point.score_interval or ()))
    ]
    y = share_axis([*shares, *ends, *limits])
    first, last = points[0].number, points[-1].number
    span = f"run #{first}" if first == last else f"runs #{first} to #{last}"
    label = f"Mean score and pass rate of {span}, each with its 95% interval."
    wide, narrow = (
        _trend_plot(points, y, limits, hover, is_narrow=is_narrow) for is_narrow in (False, True)
    )
    return Figure(wide, narrow, label)


def _trend_plot(
    points: Sequence[TrendPoint],
    y: PlotlyJson,
    limits: Sequence[float],
    hover: Callable[[TrendPoint], str],
    *,
    is_narrow: bool,
) -> PlotlyJson:
    is_joined = is_trend(points)
    is_crowded = len(points) > (WHISKERS_NARROW if is_narrow else WHISKERS)
    texts = [plain_text(hover(point)).replace("\n", "<br>") for point in points]
    rates = [point.rate for point in points]
    scores = [point.score for point in points]
    has_marks = not is_joined or len(points) <= (MARKS_NARROW if is_narrow else MARKS)
    size = (4 if is_crowded else 7) if has_marks else 0
    mode = "+".join((*(["lines"] if is_joined else ()), *(["markers"] if has_marks else ())))
    rate_ends, score_ends = (
        [point.interval for point in points],
        [point.score_interval for point in points],
    )
    # The score matters more for a trend, so it is drawn above the pass rate.
    rate = _line(rates, [point.is_rate_below for point in points], texts, TEAL, size, mode)
    score = _line(scores, [point.is_score_below for point in points], texts, ACCENT, size, mode)
    if is_crowded:
        bands = (*_band(rate_ends, "var(--well)"), *_band(score_ends, ACCENT_WASH))
        traces = [*(bands if is_joined else ()), rate, score]
    else:
        rate["error_y"] = _whiskers(rates, rate_ends, TEAL)
        score["error_y"] = _whiskers(scores, score_ends, ACCENT)
        traces = [rate, score]
    for trace in (rate, score):
        trace["customdata"] = [point.url for point in points]
    marks = _versions(points)
    shapes = [*_gates(limits), *(mark[0] for mark in marks)]
    notes = [] if is_narrow else [mark[1] for mark in marks]
    x = _runs_axis(points, is_narrow=is_narrow)
    return plotly_figure(traces, x=x, y=y, is_narrow=is_narrow, shapes=shapes, annotations=notes)


def _gates(limits: Sequence[float]) -> list[PlotlyJson]:
    """Return a line for each gate in the colour of its figure, or one plain line where both are equal."""
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
    mode: str,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": mode,
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


def _whiskers(
    shares: Sequence[float | None], intervals: Sequence[Interval], color: str
) -> dict[str, Any]:
    """Return the intervals of points as Plotly draws them, around the points."""
    known = [
        (ends or (share, share), share) if share is not None else ((0.0, 0.0), 0.0)
        for ends, share in zip(intervals, shares, strict=True)
    ]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, ends[1] - share) for ends, share in known],
        "arrayminus": [max(0.0, share - ends[0]) for ends, share in known],
        "color": color,
        "thickness": 1,
        "width": 3,
    }


def _band(intervals: Sequence[Interval], color: str) -> Sequence[dict[str, Any]]:
    """Return the lower and the upper ends of the intervals with a filled band between them."""
    kept = [(place, ends) for place, ends in enumerate(intervals) if ends]
    if not kept:
        return []
    places = [place for place, _ in kept]
    common = {"type": "scatter", "mode": "lines", "x": places, "hoverinfo": "skip"}
    line = {"line": {"color": LINE, "width": 1}}
    low = common | line | {"y": [ends[0] for _, ends in kept]}
    high = common | line | {"y": [ends[1] for _, ends in kept]}
    return [low, high | {"fill": "tonexty", "fillcolor": color}]


def _runs_axis(points: Sequence[TrendPoint], *, is_narrow: bool) -> PlotlyJson:
    """Return an axis that labels some of the runs evenly, without overlaps."""
    room = 5 if is_narrow else 14
    every = -(-len(points) // room)
    places = list(range(len(points) - 1, -1, -every))[::-1]
    labels = [f"#{points[place].number}" for place in places]
    return {
        "range": [-0.5, len(points) - 0.5],
        "tickvals": places,
        "ticktext": labels,
        "showgrid": False,
    }


def _versions(points: Sequence[TrendPoint]) -> Sequence[tuple[PlotlyJson, PlotlyJson]]:
    """Return a line with a label for each change of the suite version, none where there are too many."""
    pairs = pairwise(points)
    changes = [
        (place, after.suite_version)
        for place, (before, after) in enumerate(pairs, start=1)
        if before.suite_version != after.suite_version
    ]
    if len(changes) > VERSIONS_MARKED:
        return []
    return [(_change(place), _change_name(place, version)) for place, version in changes]


def _change(place: int) -> PlotlyJson:
    at = place - 0.5
    line = {"color": LINE, "width": 1}
    return {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _change_name(place: int, version: int) -> PlotlyJson:
    where = {"x": place - 0.5, "y": 0, "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    return where | {"text": f"suite v{version}", "showarrow": False, "font": {"color": INK_3}}

"""Score against cost of runs as a Plotly figure: which are on the Pareto front, and where their names stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from evaluators.scoring.numbers import rounded
from evaluators.templatetags.figures import threshold

# A trace, an axis or a whole figure, as Plotly reads it.
PlotlyJson = Mapping[str, Any]
INK, INK_2, INK_3 = "var(--ink)", "var(--ink-2)", "var(--ink-3)"
PAPER, LINE = "var(--paper)", "var(--line)"
ACCENT = "var(--accent)"
CLEAR = "rgba(0,0,0,0)"
GATE_WIDTH = 76
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
        # The name of a gate stands at the right.
        "margin": {"l": 48, "r": GATE_WIDTH, "t": 12, "b": 48, "pad": 4},
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


def nice_step(span: Decimal, most: int) -> Decimal:
    """Return the smallest of 1, 2 and 5 times a power of ten that divides a span into at most so many parts."""
    if span <= 0:
        raise ValueError(f"a span of {span} has no parts")
    unit = Decimal(10) ** (math.floor(math.log10(float(span))) - 2)
    while True:
        for factor in (1, 2, 5):
            if unit * factor * most >= span:
                return (unit * factor).normalize()
        unit *= 10


def money_axis(values: Sequence[float], *, is_narrow: bool) -> PlotlyJson:
    """Return an axis of US dollars: logarithmic where the costs lie far apart and none is zero."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= 4:
        edges = [math.log10(low / 1.4), math.log10(high * 1.6)]
        steps = (1, 3) if is_narrow or edges[1] - edges[0] > 2.5 else (1, 2, 5)
        ticks = _ticks(edges, steps)
        # Costs below a dollar have the same decimals: $0.005, $0.010.
        digits = max((len(_dollars(tick)) for tick in ticks), default=0) if high < 1 else 0
        texts = [_dollars(tick).ljust(digits, "0") for tick in ticks]
        return {"type": "log", "range": edges, "tickvals": ticks, "ticktext": texts}
    room = (high - low) * 0.15 or high * 0.2 or 0.01
    span = [low - room if low else -room / 3, high + room * 1.5]
    step = nice_step(Decimal(repr(span[1] - span[0])), 4 if is_narrow else 8)
    # The same decimals at every tick; without a format Plotly writes fifty millionths as $50µ.
    decimals = max(-int(step.as_tuple().exponent), 0)
    plain = {"tick0": 0, "dtick": float(step), "tickformat": f".{decimals}f"}
    return {"range": span, "tickprefix": "$", **plain}


def limit_line(share: float) -> PlotlyJson:
    """Return a dashed line at the threshold of a gate."""
    across = {"xref": "paper", "x0": 0, "x1": 1, "y0": share, "y1": share}
    line = {"color": INK_3, "width": 1, "dash": "dot"}
    return {"type": "line", "name": "limit", "layer": "above", "line": line} | across


def limit_name(share: float) -> PlotlyJson:
    """Return the name of a gate behind the end of its line, where no run is."""
    place = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 4, "y": share}
    words = {"text": f"gate {threshold(share)}", "font": {"color": INK_3, "size": 12}}
    return {"name": "limit", "showarrow": False, "borderpad": 0} | place | words


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
class Trend:
    """The mean scores, 0 to 1, of the last three to twelve completed runs against one target, oldest first."""

    target: str
    scores: Sequence[float]

    @property
    def change(self) -> float:
        """Return the change since the run before, as a difference of shares."""
        return self.scores[-1] - self.scores[-2]


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


SMALLEST, LARGEST = 9.0, 24.0
# Above this many bubbles all are smaller.
CROWD, CROWD_FACTOR = 40, 0.6
# The least pixels inside the axes of both widths.
WIDE, NARROW = (440.0, 340.0), (210.0, 260.0)
# Above this many runs only those on the front have names.
MAX_NAMED = 20


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
    traces = [_front_line(best), *_bubbles(offers, best, (x, y), hover, is_narrow=is_narrow)]
    gates = [] if limit is None else [limit]
    return plotly_figure(
        traces,
        x=dict(x) | heading,
        y=y,
        is_narrow=is_narrow,
        shapes=[limit_line(gate) for gate in gates],
        annotations=[limit_name(gate) for gate in gates],
    )


def _front_line(best: Sequence[Offer]) -> PlotlyJson:
    """Return the step line of the front, from its cheapest run to its best; what lies beyond is no run's."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "front",
        "x": [float(offer.cost_usd) for offer in best],
        "y": [offer.score for offer in best],
        "line": {"color": ACCENT, "width": 2, "shape": "hv"},
        "hoverinfo": "skip",
    }


def _bubbles(
    offers: Sequence[Offer],
    best: Sequence[Offer],
    axes: tuple[PlotlyJson, PlotlyJson],
    hover: Callable[[Offer], str],
    *,
    is_narrow: bool,
) -> Iterator[PlotlyJson]:
    """Yield the runs as bubbles, those on the front last and so above; large ones first, so that they hide none."""
    factor = CROWD_FACTOR if len(offers) > CROWD else 0.7 if is_narrow else 1.0
    diameters = bubble_sizes([offer.latency_ms for offer in offers])
    sizes = {offer.number: factor * size for offer, size in zip(offers, diameters, strict=True)}
    names = _names(offers, best, axes, sizes, is_narrow=is_narrow)
    on_front = {offer.number for offer in best}
    for series in ("dominated", "front"):
        is_best = series == "front"
        drawn = [offer for offer in offers if (offer.number in on_front) == is_best]
        drawn.sort(key=lambda offer: -sizes[offer.number])
        yield {
            "type": "scatter",
            "mode": "markers+text",
            "name": series,
            "x": [float(offer.cost_usd) for offer in drawn],
            "y": [offer.score for offer in drawn],
            "text": [names[offer.number][0] for offer in drawn],
            "textposition": [names[offer.number][1] for offer in drawn],
            "textfont": {"size": 12, "color": INK if is_best else INK_2},
            "cliponaxis": False,
            "hoverinfo": "text",
            "hovertext": [plain_text(hover(offer)).replace("\n", "<br>") for offer in drawn],
            "customdata": [offer.url for offer in drawn],
            "error_y": _whiskers(drawn),
            "marker": {
                "size": [sizes[offer.number] for offer in drawn],
                "opacity": 1,
                "symbol": ["diamond" if offer.latency_ms is None else "circle" for offer in drawn],
                "color": ACCENT if is_best else PAPER,
                "line": {"width": 1.75, "color": PAPER if is_best else INK_3},
            },
        }


def _names(
    offers: Sequence[Offer],
    best: Sequence[Offer],
    axes: tuple[PlotlyJson, PlotlyJson],
    sizes: Mapping[int, float],
    *,
    is_narrow: bool,
) -> Mapping[int, tuple[str, str]]:
    """Return the name of each run by its number and where it stands, "" where it has no room; the front comes first.

    On a narrow page a name is only the number of the run.
    """
    width, height = NARROW if is_narrow else WIDE

    def across(cost_usd: Decimal) -> float:
        return _place(float(cost_usd), axes[0]) * width

    def down(score: float) -> float:
        return (1 - _place(score, axes[1])) * height

    on_front = {offer.number for offer in best}
    ordered = sorted(offers, key=lambda run: (run.number not in on_front, -run.score))
    named = ordered if len(offers) <= MAX_NAMED else ordered[: len(best)]
    bubbles = [
        Bubble(
            across(offer.cost_usd),
            down(offer.score),
            sizes[offer.number] / 2,
            f"#{offer.number}" if is_narrow else offer.name,
            (down(offer.interval[0]), down(offer.interval[1])) if offer.interval else None,
        )
        for offer in ordered
    ]
    steps = []
    for cheap, dear in pairwise(best):
        left, right = across(cheap.cost_usd), across(dear.cost_usd)
        low, high = down(cheap.score), down(dear.score)
        steps += [
            LabelBox(left, low - 1, right, low + 1),
            LabelBox(right - 1, high, right + 1, low),
        ]
    places = label_places(bubbles, steps, count=len(named), width=width + GATE_WIDTH)
    names = dict.fromkeys((offer.number for offer in offers), ("", "top left"))
    for offer, bubble, place in zip(named, bubbles, places, strict=False):
        if place:
            names[offer.number] = plain_text(bubble.name), place
    return names


def _place(value: float, axis: PlotlyJson) -> float:
    """Return the position of a value on an axis, 0 to 1."""
    low, high = axis["range"]
    shown: float = math.log10(value) if axis.get("type") == "log" else value
    return float((shown - low) / (high - low))


def _whiskers(offers: Sequence[Offer]) -> Mapping[str, Any]:
    """Return the intervals of scores as Plotly draws them, around the points."""
    known = [(offer.interval or (offer.score, offer.score), offer.score) for offer in offers]
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - score) for (_, high), score in known],
        "arrayminus": [max(0.0, score - low) for (low, _), score in known],
        "color": INK_3,
        "thickness": 1,
        "width": 3,
    }


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

"""What both charts are drawn with: colours, axes, and room for a wide and a narrow page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Drawing = Mapping[str, Any]
INK, INK_2, INK_3 = "var(--ink)", "var(--ink-2)", "var(--ink-3)"
PAPER, LINE = "var(--paper)", "var(--line)"
ACCENT, ACCENT_WASH, TEAL = "var(--accent)", "var(--accent-wash)", "var(--teal)"
CLEAR = "rgba(0,0,0,0)"
SHARE_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
TICKS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart in both drawings, and what it shows in a sentence for those who do not see it."""

    wide: Drawing
    narrow: Drawing
    label: str

    def as_json(self) -> Mapping[str, Drawing]:
        """Return both drawings as the page's script takes them."""
        return {"wide": self.wide, "narrow": self.narrow}


def drawing(
    traces: Sequence[Drawing], *, x: Drawing, y: Drawing, is_narrow: bool, **more: Any
) -> Drawing:
    """Return one drawing: plotly's data and layout, with all that every chart has in common."""
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


def share_axis(values: Sequence[float]) -> Drawing:
    """Return a percent axis that shows every value with some room, and nothing outside 0 to 100%."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.12, 0.02)
    low, high = max(0.0, low - room), min(1.0, high + room)
    step = next((size for size in SHARE_STEPS if (high - low) / size <= TICKS), SHARE_STEPS[-1])
    # A mark at 0 or 100% keeps its whole shape inside the drawing.
    reach = [low - 0.02 if low == 0 else low, high + 0.02 if high == 1 else high]
    return {"range": reach, "tickformat": ".0%", "tick0": 0, "dtick": step}


def money_axis(values: Sequence[float], *, is_narrow: bool) -> Drawing:
    """Return an axis of US dollars: logarithmic where the costs lie far apart and none is zero."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= 4:
        edges = [math.log10(low / 1.4), math.log10(high * 1.6)]
        steps = (1, 3) if is_narrow or edges[1] - edges[0] > 2.5 else (1, 2, 5)
        ticks = _ticks(edges, steps)
        texts = [_dollars(tick) for tick in ticks]
        return {"type": "log", "range": edges, "tickvals": ticks, "ticktext": texts}
    room = (high - low) * 0.15 or high * 0.2 or 0.01
    reach = [low - room if low else -room / 3, high + room * 1.5]
    # Else plotly writes fifty millionths as $50µ.
    plain = {"tickprefix": "$", "exponentformat": "none"}
    return {"range": reach, **plain, "nticks": 4 if is_narrow else 8}


def limit_line(share: float, *, layer: str = "below", color: str = INK_3) -> Drawing:
    """Return the dashed line of a gate's threshold across the drawing, below or above the traces."""
    line = {"color": color, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": share, "y1": share} | {
        "line": line,
        "layer": layer,
    }


def plain_text(text: str) -> str:
    """Return a text that plotly shows as it stands: it would take tags in it for its own."""
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
    """Return a round amount with no more digits than it has: $0.005, $20."""
    return "$" + f"{value:.12f}".rstrip("0").rstrip(".")

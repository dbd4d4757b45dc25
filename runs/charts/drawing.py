"""Pictures as the server draws them: shapes, what can be clicked, and the table of the same figures.

Across, places are in percent of the width; down, in pixels. So one drawing serves every width, texts keep their size,
nothing needs a script, and every shape can be a link. `figures` describes the two charts that Plotly draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runs.formats.tables import csv_text

# The shapes of verdicts and other points, around their middle, by the half of their size in pixels.
SYMBOLS = {
    "circle": "M-{0} 0a{0} {0} 0 1 0 {1} 0a{0} {0} 0 1 0 -{1} 0z",
    "square": "M-{0} -{0}h{1}v{1}h-{1}z",
    "diamond": "M0 -{0}L{0} 0L0 {0}L-{0} 0z",
    "triangle": "M0 -{0}L{0} {0}h-{1}z",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A shape or a text: its name in SVG, where it is, and what gives it its look.

    `at` are attributes; `symbol` is the path of a point, which stands at x and y.
    """

    shape: str
    at: Sequence[tuple[str, str]]
    kind: str = ""
    verdict: str = ""
    text: str = ""
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Spot:
    """Marks that belong together: a column or a point. `label` describes it; "" as `url` is no link."""

    label: str
    url: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The marks below the spots, the spots from left to right, and the marks above; `height` in pixels."""

    height: int
    below: Sequence[Mark]
    spots: Sequence[Spot]
    above: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class PictureColumn:
    """A column of the table: its heading, and its name in the file."""

    label: str
    name: str
    is_number: bool = True


# Not frozen: a table has a row for each of twenty thousand cases.
@dataclass(slots=True)
class PictureRow:
    """A row of the table: texts for readers, values for the file; `url` is the link of its first cell.

    A row that the page does not list has values only.
    """

    cells: Sequence[str]
    values: Sequence[object]
    url: str = ""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """An entry of the legend: the look of what it names, a text, and for points the path of their symbol."""

    kind: str
    text: str
    symbol: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its title, a sentence for those who cannot see it, and its table.

    `note` says how many cases it shows; `rest_url` lists those it does not. Without a drawing, `empty` says why.
    The page lists the first `listed` rows of the table, the file all.
    """

    name: str
    title: str
    note: str = ""
    label: str = ""
    drawing: Drawing | None = None
    empty: str = ""
    caption: str = ""
    legend: Sequence[LegendEntry] = ()
    columns: Sequence[PictureColumn] = ()
    rows: Sequence[PictureRow] = field(default=())
    rest: str = ""
    rest_url: str = ""
    listed: int | None = None

    @property
    def listed_rows(self) -> Iterator[tuple[str, Iterator[tuple[str, object, PictureColumn]]]]:
        """Yield the rows that the page lists: the link, and for each column the text and the value to sort by."""
        for row in self.rows[: self.listed]:
            yield row.url, zip(row.cells, row.values, self.columns, strict=True)

    def as_csv(self) -> str:
        """Return the table with exact values."""
        return csv_text([column.name for column in self.columns], (row.values for row in self.rows))


def percent(share: float) -> str:
    """Return a place across as an attribute; `share` is 0 to 1 of the width."""
    return f"{share * 100:.2f}%"


def rect(
    left: float, right: float, top: float, bottom: float, *, kind: str = "", verdict: str = ""
) -> Mark:
    """Return a rectangle; left and right are shares of the width, top and bottom pixels."""
    at = (
        *(("x", percent(left)), ("width", percent(right - left))),
        *(("y", f"{top:.1f}"), ("height", f"{bottom - top:.1f}")),
    )
    return Mark("rect", at, kind, verdict)


def line(start: tuple[float, float], end: tuple[float, float], kind: str) -> Mark:
    """Return a line between two places, each a share of the width and pixels."""
    at = (
        *(("x1", percent(start[0])), ("y1", f"{start[1]:.1f}")),
        *(("x2", percent(end[0])), ("y2", f"{end[1]:.1f}")),
    )
    return Mark("line", at, kind)


def text(
    x: float, y: float, words: str, *, kind: str = "tick", anchor: str = "middle", shift: int = 0
) -> Mark:
    """Return a text; `shift` moves it right by pixels."""
    at = [("x", percent(x)), ("y", f"{y:.1f}"), ("text-anchor", anchor)]
    return Mark("text", [*at, *([("dx", str(shift))] if shift else [])], kind, text=words)


def point(
    x: float, y: float, size: float, *, symbol: str, kind: str = "", verdict: str = ""
) -> Mark:
    """Return a point; `size` is half its width in pixels."""
    path = SYMBOLS[symbol].format(f"{size:g}", f"{2 * size:g}")
    return Mark("point", (("x", percent(x)), ("y", f"{y:.1f}")), kind, verdict, symbol=path)


def flag(x: float, row: int, words: str) -> Mark:
    """Return the label of an upright line, beside it on the side with more room, in one of the rows above."""
    on_left = x > 0.5
    return text(
        x,
        9 + 13 * row,
        words,
        kind="strong",
        anchor="end" if on_left else "start",
        shift=-5 if on_left else 5,
    )

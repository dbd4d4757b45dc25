"""The measurements as lines of one table."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

HEADERS = (
    *("row", "yardstick", "work", "limit", "goal", "before", "measured"),
    *("÷ before", "÷ limit", "÷ goal"),
    *("CPU before", "CPU", "CPU a case", "CPU ÷ goal", "peak"),
)
NOTHING = "–"
YARDSTICK_TIMES = 5_000


class Figures(NamedTuple):
    """What was measured of a line, as `save` keeps it."""

    measured: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True)
class Line:
    """One line of the table; a part that makes no sense for the work is left out.

    `limit` is the least that the work can take, however fast we are. Measured, limit and goal are in
    the same unit, seconds unless `unit` says otherwise; CPU is in seconds and counts for `cases`.
    """

    work: str
    measured: float
    unit: str = "s"
    limit: float | None = None
    goal: float | None = None
    cpu_s: float | None = None
    goal_cpu_s: float | None = None
    cases: int | None = None
    peak_mb: float | None = None
    remark: str = ""

    def cells(self, before: Figures | None = None) -> tuple[str, ...]:
        """Return the cells of the line, beside what was measured before."""
        before = before or Figures()
        goals = [f"≤ {format_figure(self.goal, self.unit)}"] if self.goal is not None else []
        goals += [f"≤ {self.goal_cpu_s:g} s CPU"] if self.goal_cpu_s is not None else []
        each_ms = self.cpu_s / self.cases * 1000 if self.cpu_s and self.cases else None
        remark = f" ({self.remark})" if self.remark else ""
        return (
            self.work,
            format_figure(self.limit, self.unit),
            ", ".join(goals) or NOTHING,
            format_figure(before.measured, self.unit),
            format_figure(self.measured, self.unit) + remark,
            ratio(self.measured, before.measured),
            ratio(self.measured, self.limit),
            ratio(self.measured, self.goal),
            format_figure(before.cpu_s),
            format_figure(self.cpu_s),
            NOTHING if each_ms is None else f"{each_ms:.2f} ms",
            ratio(self.cpu_s, self.goal_cpu_s),
            NOTHING if self.peak_mb is None else f"{self.peak_mb:.0f} MB",
        )


def format_figure(value: float | None, unit: str = "s") -> str:
    """Return a figure with its unit: seconds to hundredths, anything else without decimals."""
    if value is None:
        return NOTHING
    return f"{value:.2f} s" if unit == "s" else f"{value:.0f} {unit}"


def ratio(value: float | None, to: float | None) -> str:
    """Return the ratio of two figures."""
    return f"{value / to:.2f}" if value is not None and to else NOTHING


class Measured(NamedTuple):
    """A line, with the number of its row and the yardstick before it."""

    row: int
    yardstick_ms: float
    line: Line


def table(found: Iterable[Measured], before: Mapping[str, Figures]) -> str:
    """Return what was measured as a Markdown table; `before` is by the work of a line."""
    rule = tuple("---" for _ in HEADERS)
    cells = (
        (str(row), f"{yardstick:.0f} ms", *line.cells(before.get(line.work)))
        for row, yardstick, line in found
    )
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADERS, rule, *cells))


def save(lines: Iterable[Line], file: Path) -> None:
    """Keep the figures for a later table."""
    figures = {line.work: Figures(line.measured, line.cpu_s) for line in lines}
    file.write_text(json.dumps(figures, indent=2, ensure_ascii=False), encoding="utf-8")


def read(file: Path) -> dict[str, Figures]:
    """Return figures that were saved, by the work of their lines."""
    saved = json.loads(file.read_text(encoding="utf-8"))
    return {work: Figures(*figures) for work, figures in saved.items()}


def middle(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(values, n=20, method="inclusive")[-1]


def yardstick_ms() -> float:
    """Return how long this machine takes over a fixed piece of plain Python, the best of five times.

    Machines differ, and virtual ones from hour to hour: figures of two tables are compared by it.
    """
    body = {"messages": [{"role": "user", "content": "where is my refund? " * 20}], "n": [1, 2.5]}

    def once() -> float:
        started = time.perf_counter()
        for _ in range(YARDSTICK_TIMES):
            text = json.dumps(body, sort_keys=True)
            hashlib.sha256(text.encode()).hexdigest()
            json.loads(text)
        return (time.perf_counter() - started) * 1000

    return min(once() for _ in range(5))

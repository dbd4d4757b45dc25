"""What changed between two runs, as a share link freezes it: each case, and each measured figure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

from evaluators.templatetags.figures import delta, score
from runs.reports.comparison import Compared
from runs.reports.comparison_metrics import MetricGroup
from runs.reports.comparison_query import EVERY, ComparisonQuery
from runs.reports.comparison_rows import ChangeRow, change_table
from runs.reports.diverging import Bar


def changes(found: Compared, query: ComparisonQuery) -> Iterator[ChangeRow]:
    """Yield every case, the most harmful change first, whatever the page was narrowed to."""
    whole = replace(query, show=EVERY, cell="", text="")
    for number in count(1):
        table = change_table(found, replace(whole, page=number))
        yield from table.rows
        if not table.later_url:
            return


def case_of(number: int, row: ChangeRow, scale: int) -> dict[str, Any]:
    """Return one case: its place in the order, both sides and what changed between them."""
    one = row.change
    before, after = one.baseline, one.candidate
    return {
        "place": number,
        "key": one.case,
        "title": row.title,
        "label": row.label,
        "icon": row.icon,
        "tone": row.tone,
        "before": row.states[0],
        "after": row.states[1],
        **{
            name: said.people if said else ""
            for name, said in zip(("before_people", "after_people"), row.reviewed, strict=True)
        },
        "only": "" if before and after else "candidate" if after else "baseline",
        "before_score": score(before.mean_score, scale) if before else "",
        "after_score": score(after.mean_score, scale) if after else "",
        "change": delta(one.score_change, "pts"),
        **_bar(row.bar),
        "met": row.met,
        "cost": delta(row.cost, "pct"),
        "latency": delta(row.latency, "pct"),
    }


def group_of(group: MetricGroup) -> dict[str, Any]:
    """Return the measured figures of one kind, each with its bar."""
    return {
        "title": group.title,
        "scale": group.scale,
        "axis": group.axis,
        "rows": [
            {
                "name": row.name,
                "path": row.path,
                "means": row.means,
                "change": row.change,
                "tone": row.tone,
                "said": row.said,
                "note": row.note,
                **_bar(row.bar),
            }
            for row in group.rows
        ],
    }


def _bar(bar: Bar | None) -> dict[str, str]:
    if bar is None:
        return {}
    low, high = bar.whisker or ("", "")
    return {"x": bar.x, "width": bar.width, "bar_tone": bar.tone, "low": low, "high": high}

"""What of a campaign is asked for: how its leaderboard is sorted, by which cost, which cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from runs.reports.charts_query import COSTS

# The columns of the leaderboard by name: what they are called, and whether more is better.
COLUMNS: Mapping[str, tuple[str, bool]] = {
    "rank": ("Rank", False),
    "target": ("Target", False),
    "state": ("State", False),
    "rate": ("Pass rate", True),
    "score": ("Mean score", True),
    "verdicts": ("Verdicts", True),
    "latency": ("Mean latency", False),
    "target_cost": ("Run cost", False),
    "evaluation_cost": ("Evaluation cost", False),
    "cost": ("Total cost", False),
    "passed_case": ("Per passed case", False),
    "front": ("Pareto front", False),
}
DIFFER, ALL_FAILED, ERRORED = "differ", "failed", "errored"
SHOWN: Mapping[str, str] = {
    "": "All",
    DIFFER: "They differ",
    ALL_FAILED: "All failed",
    ERRORED: "Errored",
}
LONGEST_NUMBER = 18


@dataclass(frozen=True, slots=True)
class CampaignQuery:
    """What is asked for; it lives in the address of the page. `after` is the place of a case."""

    sort: str = "rank"
    is_descending: bool = False
    cost: str = "total"
    shown: str = ""
    after: int | None = None

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> CampaignQuery:
        """Read the parameters of an address; what makes no sense is left at its default."""
        sort, cost = parameters.get("sort", "rank"), parameters.get("cost", "")
        shown, after = parameters.get("cases", ""), parameters.get("after", "")
        name = sort.removeprefix("-")
        return cls(
            sort=name if name in COLUMNS else "rank",
            is_descending=sort.startswith("-") and name in COLUMNS,
            cost=cost if cost in COSTS else "total",
            shown=shown if shown in SHOWN else "",
            after=int(after) if after.isdecimal() and len(after) < LONGEST_NUMBER else None,
        )

    def address(self, **changes: Any) -> str:
        """Return the query part of the address with some of it changed, cases from the first on."""
        asked = replace(self, **{"after": None} | changes)
        sort = f"-{asked.sort}" if asked.is_descending else asked.sort
        named = {
            "sort": "" if sort == "rank" else sort,
            "cost": "" if asked.cost == "total" else asked.cost,
            "cases": asked.shown,
            "after": "" if asked.after is None else str(asked.after),
        }
        return "?" + urlencode({name: value for name, value in named.items() if value})

    @property
    def points(self) -> str:
        """Return which runs are points of the chart: those of a campaign all are."""
        return "every"

    @property
    def cost_label(self) -> str:
        """Return the chosen cost as pages name it."""
        return COSTS[self.cost]

    def direction(self, name: str) -> str:
        """Return how the leaderboard is sorted by a column, "" when it is sorted by another."""
        if self.sort != name:
            return ""
        return "descending" if self.is_descending else "ascending"

    def sorted_by(self, name: str) -> str:
        """Return the address that sorts by a column, its best first; once more turns that round."""
        best_first = COLUMNS[name][1]
        turned = not self.is_descending if self.sort == name else best_first
        return self.address(sort=name, is_descending=turned)

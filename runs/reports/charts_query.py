"""Which runs the charts of a suite show and by which cost; it lives in the address of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

COSTS: Mapping[str, str] = {
    "total": "Total cost",
    "target": "Run cost",
    "evaluation": "Evaluation cost",
}
POINTS: Mapping[str, str] = {"latest": "Latest run of each target", "every": "Every run"}
LAST = (12, 30, 100, 200)
LAST_BY_DEFAULT = 30


@dataclass(frozen=True, slots=True)
class ChartsQuery:
    """What is asked for: a target ("" for all), how many completed runs, which cost, which points."""

    target: str = ""
    last: int = LAST_BY_DEFAULT
    cost: str = "total"
    points: str = "latest"

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> ChartsQuery:
        """Read the parameters of an address; what makes no sense is left at its default."""
        last = parameters.get("last", "")
        cost, points = parameters.get("cost", ""), parameters.get("points", "")
        return cls(
            target=parameters.get("target", ""),
            last=int(last) if last in map(str, LAST) else LAST_BY_DEFAULT,
            cost=cost if cost in COSTS else "total",
            points=points if points in POINTS else "latest",
        )

    @property
    def address(self) -> str:
        """Return the query part of the address, without what is at its default."""
        named = {"target": self.target, "last": str(self.last)}
        named |= {"cost": self.cost, "points": self.points}
        default = {"last": str(LAST_BY_DEFAULT), "cost": "total", "points": "latest", "target": ""}
        changed = {name: value for name, value in named.items() if value != default[name]}
        return f"?{urlencode(changed)}" if changed else ""

    @property
    def cost_label(self) -> str:
        """Return the chosen cost as pages name it."""
        return COSTS[self.cost]

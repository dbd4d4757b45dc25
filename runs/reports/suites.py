"""The home page: the suites that are asked for, a stretch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.db.models import Max

from runs.models import Suite
from runs.reports.suite_rows import SuiteRow, suite_rows

PAGE = 50
SORTS = ("name", "run", "cost")
SHOWN = ("failed", "running")


@dataclass(frozen=True, slots=True)
class SuiteFilter:
    """Which suites are asked for; it lives in the address of the page."""

    search: str = ""
    show: str = ""
    sort: str = "name"
    after: str = ""

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> SuiteFilter:
        """Read the parameters of an address; what it does not know, it leaves out."""
        show, sort = parameters.get("show", ""), parameters.get("sort", "")
        return cls(
            search=parameters.get("q", "").strip(),
            show=show if show in SHOWN else "",
            sort=sort if sort in SORTS else SORTS[0],
            after=parameters.get("after", ""),
        )

    def address(self, **changes: str) -> str:
        """Return the query part of the address with some of it changed, from the first page on."""
        asked = replace(self, **{"after": "", **changes})
        sort = "" if asked.sort == SORTS[0] else asked.sort
        named = {"q": asked.search, "show": asked.show, "sort": sort, "after": asked.after}
        return "?" + urlencode({name: value for name, value in named.items() if value})


@dataclass(frozen=True, slots=True)
class Chip:
    """One way to narrow the table, with what it would show."""

    label: str
    url: str
    count: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """The suites that match, one stretch of them, and every suite there is."""

    asked: SuiteFilter
    rows: Sequence[SuiteRow]
    chips: Sequence[Chip]
    matching: int
    shown: int
    next_address: str
    every: Sequence[SuiteRow]
    changed_at: datetime | None

    @property
    def total(self) -> int:
        """Return how many suites there are."""
        return len(self.every)

    @property
    def cases(self) -> int:
        """Return how many cases they have together."""
        return sum(row.cases for row in self.every)

    @property
    def first(self) -> int:
        """Return the place of the first row among those that match, from 1."""
        return self.shown - len(self.rows) + 1

    @property
    def is_live(self) -> bool:
        """Tell whether any suite has a run at work."""
        return any(row.is_running for row in self.every)

    @property
    def here(self) -> str:
        """Return the query part of this very address."""
        return self.asked.address(after=self.asked.after)

    @property
    def sorts(self) -> Mapping[str, str]:
        """Return the addresses of the same suites in another order."""
        return {sort: self.asked.address(sort=sort) for sort in SORTS}

    @property
    def nothing(self) -> str:
        """Say what was looked for in vain."""
        kind = {"failed": "suite with a failed gate", "running": "running suite"}
        noun = kind.get(self.asked.show, "suite")
        search = self.asked.search
        return f"No {noun} matches “{search}”" if search else f"No {noun}"


def suite_table(asked: SuiteFilter) -> SuiteTable:
    """Return one stretch of the suites, in a fixed number of queries."""
    every = suite_rows()
    named = [row for row in every if _matches(row, asked.search)]
    chosen = sorted((row for row in named if _is_shown(row, asked.show)), key=_order(asked.sort))
    slugs = [row.slug for row in chosen]
    start = slugs.index(asked.after) + 1 if asked.after in slugs else 0
    rows = chosen[start : start + PAGE]
    is_more = start + PAGE < len(chosen)
    return SuiteTable(
        asked=asked,
        rows=rows,
        chips=_chips(asked, named),
        matching=len(chosen),
        shown=start + len(rows),
        next_address=asked.address(after=rows[-1].slug) if is_more else "",
        every=every,
        changed_at=Suite.objects.aggregate(at=Max("updated_at"))["at"],
    )


def _chips(asked: SuiteFilter, named: Sequence[SuiteRow]) -> Sequence[Chip]:
    labels = {"": "All", "failed": "Gate failed", "running": "Running"}
    return [
        Chip(
            label=label,
            url=asked.address(show=show),
            count=sum(_is_shown(row, show) for row in named),
            is_on=asked.show == show,
        )
        for show, label in labels.items()
    ]


def _matches(row: SuiteRow, search: str) -> bool:
    wanted = search.casefold()
    return any(wanted in text.casefold() for text in (row.title, row.slug, *row.tags))


def _is_shown(row: SuiteRow, show: str) -> bool:
    return {"failed": row.is_gate_failed, "running": row.is_running}.get(show, True)


def _order(sort: str) -> Any:
    """Return the key of an order; a suite that never ran to its end comes last."""
    orders = {
        "name": lambda row: (row.title.casefold(), row.slug),
        "run": lambda row: -(row.latest.created_at.timestamp() if row.latest else 0.0),
        "cost": lambda row: -_known_cost(row),
    }
    return orders[sort]


def _known_cost(row: SuiteRow) -> Decimal:
    """Return the latest run's cost; one that is not known comes after all others."""
    total = row.latest.costs.total_usd if row.latest else None
    return Decimal(-1) if total is None else total

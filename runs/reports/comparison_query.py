"""What a comparison is asked for; all of it lives in the address of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from runs.models import Run

SHARED = "shared"
CHANGED, EVERY, FLIPPED = "changed", "all", "flipped"
REGRESSED, IMPROVED, UNCHANGED, ERRORED = "regressed", "improved", "unchanged", "errored"
ADDED, REMOVED = "added", "removed"
SHOWS = (CHANGED, REGRESSED, IMPROVED, UNCHANGED, ERRORED, ADDED, REMOVED, FLIPPED, EVERY)
LIMITS = ("max_pass_rate_drop", "max_avg_score_drop", "max_latency_increase_pct")
BY_CASE, BY_SCORE, BY_COST, BY_LATENCY = "case", "score", "cost", "latency"
SORTS = (BY_CASE, BY_SCORE, BY_COST, BY_LATENCY)
LONGEST_TEXT, LONGEST_LIMIT, LONGEST_PAGE = 200, 24, 6


def run_word(run: Run) -> str:
    """Return how an address names a run: its suite and its number, `support-agent:12`."""
    return f"{run.suite.slug}:{run.number}"


@dataclass(frozen=True, slots=True)
class ComparisonQuery:
    """Two runs, whether their shared cases alone count, which rows are shown, and other tolerances.

    `sort` is case, score, cost or latency, "" by harm. `cell` is one of the matrix, as `pass-fail`. Tolerances stand as they were written, in the units
    of the command line: a share, points of 100, and percent.
    """

    baseline: str = ""
    candidate: str = ""
    cases: str = ""
    show: str = CHANGED
    cell: str = ""
    text: str = ""
    sort: str = ""
    page: int = 1
    limits: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, values: Mapping[str, str]) -> ComparisonQuery:
        """Return the query of an address; what cannot be read is left out."""
        page, show = values.get("page", ""), values.get("show", "")
        return cls(
            baseline=values.get("baseline", ""),
            candidate=values.get("candidate", ""),
            cases=SHARED if values.get("cases") == SHARED else "",
            show=show if show in SHOWS else CHANGED,
            cell=values.get("cell", "")[:40],
            text=values.get("q", "").strip()[:LONGEST_TEXT],
            sort=values.get("sort", "") if values.get("sort") in SORTS else "",
            page=max(int(page), 1) if page.isdecimal() and len(page) < LONGEST_PAGE else 1,
            limits=tuple(
                (name, values[name][:LONGEST_LIMIT]) for name in LIMITS if values.get(name)
            ),
        )

    def address(self, **changes: Any) -> str:
        """Return the query part of the address with some of it changed, from the first page on."""
        asked = replace(self, **{"page": 1} | changes)
        named = {
            "baseline": asked.baseline,
            "candidate": asked.candidate,
            "cases": asked.cases,
            **dict(asked.limits),
            "show": "" if asked.show == CHANGED else asked.show,
            "cell": asked.cell,
            "q": asked.text,
            "sort": asked.sort,
            "page": str(asked.page) if asked.page > 1 else "",
        }
        kept = {name: value for name, value in named.items() if value}
        return "?" + urlencode(kept, safe=":")

    @property
    def hidden(self) -> tuple[tuple[str, str], ...]:
        """Return the fields that every form of the page sends again: the runs and their cases."""
        pairs = (("baseline", self.baseline), ("candidate", self.candidate), ("cases", self.cases))
        return tuple(pair for pair in pairs if pair[1])

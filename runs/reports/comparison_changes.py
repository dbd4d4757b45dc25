"""The part of a comparison that its filters change: the matrix of verdicts and the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.reports.compared import Compared
from runs.reports.comparison_filters import Cell, matrix
from runs.reports.comparison_query import BY_CASE, BY_COST, BY_LATENCY, BY_SCORE, ComparisonQuery
from runs.reports.comparison_rows import ChangeTable, change_table


@dataclass(frozen=True, slots=True)
class SortLink:
    """The head of a column: where its order is asked for, and whether the rows stand so."""

    name: str
    label: str
    url: str
    direction: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The matrix, the table, and the heads of the columns that can be sorted, by name."""

    found: Compared
    query: ComparisonQuery
    matrix: Sequence[tuple[str, Sequence[Cell]]]
    table: ChangeTable
    heads: dict[str, SortLink]

    @property
    def flips(self) -> int:
        """Return how many shared cases have another verdict than before."""
        return sum(cell.count for _, row in self.matrix for cell in row if not cell.is_same)

    @property
    def out_of_grid(self) -> int:
        """Return how many cases of both have no verdict on a side."""
        return self.found.in_both - self.found.shared


def changes_of(found: Compared, query: ComparisonQuery) -> Changes:
    """Return what the address asks for; one query."""
    labels = {
        "": ("Change", "descending"),
        BY_CASE: ("Case", "ascending"),
        BY_SCORE: ("Difference", "ascending"),
        BY_COST: ("Cost", "descending"),
        BY_LATENCY: ("Latency", "descending"),
    }
    heads = {
        name or "harm": SortLink(
            name or "harm", label, query.address(sort=name), direction if query.sort == name else ""
        )
        for name, (label, direction) in labels.items()
    }
    return Changes(found, query, matrix(found, query), change_table(found, query), heads)

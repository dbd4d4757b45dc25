"""The columns of the table of changed cases: which there are, and what they show of a case in both runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.compare.rules import CaseChange, rounded_change
from runs.filters.fields import find_field
from runs.filters.matching import ResultRows
from runs.models.run_cases import RunCase
from runs.models.runs import Run
from runs.results.case_rows import COLUMNS as RUN_COLUMNS
from runs.results.case_rows import Column

BY_HARM, BY_CASE, BY_DIFFERENCE = "change", "case", "difference"
BY_COST, BY_LATENCY = "cost", "latency"
# What only a comparison has, or calls otherwise; the rest is named as in the table of a run.
OWN = (
    Column(BY_HARM, "Change", "change"),
    Column("score", "Mean score", "score"),
    Column(BY_DIFFERENCE, "Difference", "difference", "Change of the mean score"),
    Column("outcomes", "Outcomes met", "outcomes", "Expected outcomes that were met"),
)
USUAL = (BY_HARM, BY_CASE, "verdict", "score", BY_DIFFERENCE, "outcomes", BY_COST, BY_LATENCY)
OTHERS = (
    "spread",
    "metrics",
    "target_cost",
    "judge_cost",
    "tokens",
    "tag",
    "tool",
    "error",
    "review",
)
KNOWN = {**RUN_COLUMNS, **{column.name: column for column in OWN}}
COLUMNS: Mapping[str, Column] = {name: KNOWN[name] for name in (*USUAL, *OTHERS)}
# Each of these sorts by its change, as the columns of evaluators, metrics and dimensions do.
SORTS = (
    *(BY_HARM, BY_CASE, BY_DIFFERENCE, "outcomes", "spread", "metrics", BY_COST, BY_LATENCY),
    *("target_cost", "judge_cost", "tokens"),
)
# What the row of a case has anyway, by the names of the columns.
OF_SIDE: Mapping[str, str] = {
    "score": "mean_score",
    BY_DIFFERENCE: "mean_score",
    BY_COST: "cost_usd",
    BY_LATENCY: "latency_ms",
    "target_cost": "run_cost_usd",
    "judge_cost": "evaluation_cost_usd",
}
# Drawn from the row of a case, though some sort by values of their own.
DRAWN = (BY_HARM, BY_CASE, "verdict", "outcomes")
# These grow by a share of what they were; scores differ by points.
GROWING = ("duration", "money", "count")
FEW_CASES = 1000


@dataclass(frozen=True, slots=True)
class Sides:
    """What a column shows of a case in both runs, None for no value, with the change of a number."""

    before: Any
    after: Any
    change: Any = None


def column_sides(
    runs: tuple[Run, Run], changes: Sequence[CaseChange], columns: Sequence[Column]
) -> Mapping[str, Mapping[str, Sides]]:
    """Return by column and case what some columns show; a query or two for each that no row of a case has."""
    found = {
        column.name: {
            change.case: _sides(
                column,
                *(getattr(side, attribute, None) for side in (change.baseline, change.candidate)),
            )
            for change in changes
        }
        for column in columns
        if (attribute := OF_SIDE.get(column.name))
    }
    read = [
        (column, field)
        for column in columns
        if column.name not in found and (field := find_field(column.name))
    ]
    if not read or not changes:
        return found
    stored = RunCase.objects.filter(run__in=runs).order_by()
    only = None
    if len(changes) <= FEW_CASES:
        stored = stored.filter(case__key__in=[change.case for change in changes])
        only = list(stored.values_list("case_id", flat=True))
    rows = ResultRows(runs, only=only)
    places = {(run, key): pk for pk, run, key in stored.values_list("pk", "run_id", "case__key")}
    for column, field in read:
        values = rows.values(field) if field.is_number else rows.names(field)
        found[column.name] = {
            change.case: _sides(
                column, *(values.get(places.get((run.pk, change.case), 0)) for run in runs)
            )
            for change in changes
        }
    return found


def _sides(column: Column, before: Any, after: Any) -> Sides:
    if not column.is_number or before is None or after is None:
        return Sides(before, after)
    if column.shape not in GROWING:
        return Sides(before, after, rounded_change(before, after))
    return Sides(before, after, after / before - 1 if before else None)

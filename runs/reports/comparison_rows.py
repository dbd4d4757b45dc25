"""The cases of a comparison as its page lists them: the most harmful first or in another order, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runs.comparison import CaseChange, CaseSide, by_harm
from runs.models import Result
from runs.reports.compared import Compared
from runs.reports.comparison_filters import KINDS, ChangeChip, chips, is_shown
from runs.reports.comparison_query import (
    BY_CASE,
    BY_COST,
    BY_LATENCY,
    BY_SCORE,
    ComparisonQuery,
)
from runs.reports.diverging import AXIS_OF_POINTS, Bar, axis_of, bar_of
from runs.reports.overrides import Override, override_of_side

ON_A_PAGE = 100
STATES = {"not_run": "cancelled"}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One case: how it changed, both sides, and how far latency and cost moved as shares."""

    change: CaseChange
    title: str
    label: str
    icon: str
    tone: str
    states: tuple[str, str]
    reviewed: tuple[Override | None, Override | None]
    met: str
    latency: float | None
    cost: Decimal | None
    error: str
    bar: Bar | None

    @property
    def is_bare(self) -> bool:
        """Tell whether one run alone has the case."""
        return self.change.baseline is None or self.change.candidate is None

    @property
    def only(self) -> CaseSide | None:
        """Return the side that there is of a case of one run alone."""
        return self.change.candidate or self.change.baseline


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """A page of the cases with the filters; a bar reaches as far as `axis`, a share of the scale."""

    query: ComparisonQuery
    rows: Sequence[ChangeRow]
    chips: Sequence[ChangeChip]
    total: int
    first: int
    last: int
    earlier_url: str
    later_url: str
    axis: float


def change_table(found: Compared, query: ComparisonQuery) -> ChangeTable:
    """Return the page of cases an address asks for; one query."""
    asked = cases_asked(found, query)
    last = max(-(-len(asked) // ON_A_PAGE), 1)
    page = min(query.page, last)
    start = (page - 1) * ON_A_PAGE
    shown = asked[start : start + ON_A_PAGE]
    # Every page of one comparison has the same axis, so that its bars can be held against each other.
    axis = axis_of((one.score_change or 0.0 for one in found.cases), AXIS_OF_POINTS)
    errors = _errors(found, shown)
    return ChangeTable(
        query=query,
        rows=[_row(found, one, errors.get(one.case, ""), axis) for one in shown],
        chips=chips(found, query),
        total=len(asked),
        first=start + 1 if shown else 0,
        last=start + len(shown),
        earlier_url=query.address(page=page - 1) if page > 1 else "",
        later_url=query.address(page=page + 1) if page < last else "",
        axis=axis,
    )


def cases_asked(found: Compared, query: ComparisonQuery) -> Sequence[CaseChange]:
    """Return the cases an address asks for, those of all its pages, in its order."""
    text = query.text.casefold()
    return [
        one
        for one in _in_order(found.cases, query.sort)
        if is_shown(one, query)
        and (text in one.case.casefold() or text in found.title(one.case).casefold())
    ]


def _in_order(cases: Sequence[CaseChange], sort: str) -> Sequence[CaseChange]:
    """Return the cases as asked; those without the figure stand last, equal ones by harm."""
    figures: Mapping[str, Callable[[CaseChange], Any]] = {
        BY_SCORE: lambda one: one.score_change,
        BY_COST: lambda one: _negative(_dearer(one.baseline, one.candidate)),
        BY_LATENCY: lambda one: _negative(_slower(one.baseline, one.candidate)),
    }
    if sort == BY_CASE:
        return sorted(cases, key=lambda one: one.case)
    harmful = by_harm(cases)
    if sort not in figures:
        return harmful
    figure = figures[sort]
    known = sorted((one for one in harmful if figure(one) is not None), key=figure)
    return [*known, *(one for one in harmful if figure(one) is None)]


def _negative(figure: Any) -> Any:
    return None if figure is None else -figure


def _errors(found: Compared, shown: Sequence[CaseChange]) -> Mapping[str, str]:
    runs = found.baseline.run.pk, found.candidate.run.pk
    broken = [one.case for one in shown if one.score_change is None]
    results = Result.objects.filter(run__in=runs, case__key__in=broken).exclude(error="")
    rows = results.order_by("repetition").values_list("run_id", "case__key", "error")
    # The candidate's error is what is asked for, whichever of the two is the older run.
    return {key: error for _, key, error in sorted(rows, key=lambda row: row[0] == runs[1])}


def _row(found: Compared, one: CaseChange, error: str, axis: float) -> ChangeRow:
    _, label, icon, tone = KINDS[one.status]
    before, after = one.baseline, one.candidate
    return ChangeRow(
        change=one,
        title=found.title(one.case),
        label=label,
        icon=icon,
        tone=tone,
        states=(_state(before), _state(after)),
        reviewed=(
            override_of_side(before, is_counted=found.baseline.reviews > 0),
            override_of_side(after, is_counted=found.candidate.reviews > 0),
        ),
        met=_met(before, after),
        latency=_slower(before, after),
        cost=_dearer(before, after),
        error=error,
        bar=None if one.score_change is None else bar_of(one.score_change, axis),
    )


def _state(side: CaseSide | None) -> str:
    return STATES.get(side.state, side.state) if side else ""


def _slower(before: CaseSide | None, after: CaseSide | None) -> float | None:
    """Return by which share the latency grew; None without a base."""
    if before is None or after is None or not before.latency_ms or after.latency_ms is None:
        return None
    return after.latency_ms / before.latency_ms - 1


def _dearer(before: CaseSide | None, after: CaseSide | None) -> Decimal | None:
    """Return by which share the cost grew; None without a base."""
    if before is None or after is None or not before.cost_usd or after.cost_usd is None:
        return None
    return after.cost_usd / before.cost_usd - 1


def _met(before: CaseSide | None, after: CaseSide | None) -> str:
    """Return how many outcomes every repetition met, before and now: `4/4 → 3/4`."""
    sides = [
        f"{side.outcomes_met}/{side.outcomes}" if side and side.outcomes else ""
        for side in (before, after)
    ]
    return " → ".join(side or "–" for side in sides) if any(sides) else ""

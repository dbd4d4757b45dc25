"""The cases of a comparison as its page lists them: filtered, counted, the most harmful first, a page at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Q

from evaluators.scoring.types import Verdict
from runs.comparison import CaseChange, CaseSide, by_harm
from runs.models import Result
from runs.reports.comparison import Compared
from runs.reports.comparison_query import (
    ADDED,
    CHANGED,
    ERRORED,
    EVERY,
    FLIPPED,
    IMPROVED,
    REGRESSED,
    REMOVED,
    UNCHANGED,
    ComparisonQuery,
)

ON_A_PAGE = 100
KINDS = {
    "regression": (REGRESSED, "Regressed", "i-drop", "bad"),
    "improvement": (IMPROVED, "Improved", "i-rise", "good"),
    "unchanged": (UNCHANGED, "Unchanged", "i-same", "same"),
    "error": (ERRORED, "Errored", "v-error", "error"),
    "added": (ADDED, "Added", "i-plus", "same"),
    "removed": (REMOVED, "Removed", "i-minus", "same"),
}
STATES = {"not_run": "cancelled"}
VERDICTS = (Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL)
DEPTHS = {verdict: place for place, verdict in enumerate(VERDICTS)}
# A fall or rise of half the scale fills its side of the bar.
FULL_BAR = 0.5


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One case: how it changed, both sides, and how far latency and cost moved as shares."""

    change: CaseChange
    title: str
    label: str
    icon: str
    tone: str
    states: tuple[str, str]
    met: str
    latency: float | None
    cost: Decimal | None
    error: str

    @property
    def is_bare(self) -> bool:
        """Tell whether one run alone has the case."""
        return self.change.baseline is None or self.change.candidate is None

    @property
    def only(self) -> CaseSide | None:
        """Return the side that there is of a case of one run alone."""
        return self.change.candidate or self.change.baseline

    @property
    def bar(self) -> tuple[str, str] | None:
        """Return where the bar of the score's change begins and how wide it is, in percent."""
        moved = self.change.score_change
        if moved is None:
            return None
        width = min(abs(moved) / FULL_BAR, 1.0) * 50
        return f"{50 - width if moved < 0 else 50:.1f}%", f"{width:.1f}%"

    @property
    def bar_tone(self) -> str:
        """Return the tone of the bar."""
        moved = self.change.score_change or 0
        return "bad" if moved < 0 else "good" if moved > 0 else "same"


@dataclass(frozen=True, slots=True)
class ChangeChip:
    """A filter, how many cases it leaves and where it leads."""

    label: str
    count: int
    url: str
    is_on: bool
    icon: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the matrix: how many cases, the tone of the change, and its filter."""

    count: int
    tone: str
    is_same: bool
    url: str
    is_on: bool
    words: str


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """A page of the cases, the filters, and the matrix of verdicts."""

    query: ComparisonQuery
    rows: Sequence[ChangeRow]
    chips: Sequence[ChangeChip]
    total: int
    first: int
    last: int
    earlier_url: str
    later_url: str


def change_table(found: Compared, query: ComparisonQuery) -> ChangeTable:
    """Return the page of cases an address asks for, in two queries at most."""
    asked = [one for one in by_harm(found.cases) if _is_shown(one, query)]
    if query.text:
        known = _matching(found, query.text)
        asked = [one for one in asked if one.case in known]
    last = max(-(-len(asked) // ON_A_PAGE), 1)
    page = min(query.page, last)
    start = (page - 1) * ON_A_PAGE
    shown = asked[start : start + ON_A_PAGE]
    return ChangeTable(
        query=query,
        rows=_rows(found, shown),
        chips=_chips(found, query),
        total=len(asked),
        first=start + 1 if shown else 0,
        last=start + len(shown),
        earlier_url=query.address(page=page - 1) if page > 1 else "",
        later_url=query.address(page=page + 1) if page < last else "",
    )


def matrix(found: Compared, query: ComparisonQuery) -> Sequence[tuple[str, Sequence[Cell]]]:
    """Return a row a verdict of the baseline with a cell a verdict of the candidate."""
    counts = Counter(_cell(one) for one in found.cases)
    return [
        (before.value, [_matrix_cell(before, after, counts, query) for after in VERDICTS])
        for before in VERDICTS
    ]


def _matrix_cell(
    before: Verdict, after: Verdict, counts: Mapping[str, int], query: ComparisonQuery
) -> Cell:
    name, moved = f"{before.value}-{after.value}", DEPTHS[after] - DEPTHS[before]
    is_on, count = query.cell == name, counts.get(name, 0)
    return Cell(
        count=count,
        tone="" if not count or not moved else "bad" if moved > 0 else "good",
        is_same=not moved,
        url=query.address(cell="" if is_on else name, show=CHANGED if is_on else EVERY),
        is_on=is_on,
        words=f"{before.value} before, {after.value} now",
    )


def _cell(one: CaseChange) -> str:
    before, after = one.baseline, one.candidate
    if before is None or after is None or before.verdict is None or after.verdict is None:
        return ""
    return f"{before.verdict.value}-{after.verdict.value}"


def _is_shown(one: CaseChange, query: ComparisonQuery) -> bool:
    if query.cell and _cell(one) != query.cell:
        return False
    kind = KINDS[one.status][0]
    if query.show == CHANGED:
        return kind != UNCHANGED
    return query.show == EVERY or kind == query.show or (query.show == FLIPPED and _is_flip(one))


def _is_flip(one: CaseChange) -> bool:
    before, _, after = _cell(one).partition("-")
    return before != after


def _chips(found: Compared, query: ComparisonQuery) -> list[ChangeChip]:
    counts = Counter(KINDS[one.status][0] for one in found.cases)
    total = len(found.cases)

    def chip(label: str, show: str, count: int, icon: str = "", tone: str = "") -> ChangeChip:
        is_on = query.show == show and not query.cell
        return ChangeChip(label, count, query.address(show=show, cell=""), is_on, icon, tone)

    return [
        chip("Changed", CHANGED, total - counts[UNCHANGED]),
        *(
            chip(label, show, counts[show], icon, "" if tone == "same" else tone)
            for show, label, icon, tone in KINDS.values()
        ),
        chip("Verdict flips", FLIPPED, sum(map(_is_flip, found.cases))),
        chip("All", EVERY, total),
    ]


def _matching(found: Compared, text: str) -> set[str]:
    runs = found.baseline.run, found.candidate.run
    named = Q(case__key__icontains=text) | Q(case__title__icontains=text)
    results = Result.objects.filter(named, run__in=runs).order_by()
    return set(results.values_list("case__key", flat=True).distinct())


def _rows(found: Compared, shown: Sequence[CaseChange]) -> list[ChangeRow]:
    before, after = found.baseline.run.pk, found.candidate.run.pk
    columns = ("run_id", "case__key", "case__title", "outcome_marks", "error")
    results = Result.objects.filter(
        run__in=(before, after), case__key__in=[one.case for one in shown]
    ).order_by("repetition")
    titles: dict[str, str] = {}
    marks: dict[tuple[int, str], list[str]] = defaultdict(list)
    errors: dict[str, str] = {}
    for run, key, title, outcomes, error in results.values_list(*columns):
        if run == after or key not in titles:
            titles[key] = title
        if outcomes:
            marks[run, key].append(outcomes)
        if error:
            errors[key] = error
    return [
        _row(
            one,
            titles.get(one.case, ""),
            _met(marks.get((before, one.case)), marks.get((after, one.case))),
            errors.get(one.case, ""),
        )
        for one in shown
    ]


def _row(one: CaseChange, title: str, met: str, error: str) -> ChangeRow:
    _, label, icon, tone = KINDS[one.status]
    before, after = one.baseline, one.candidate
    return ChangeRow(
        change=one,
        title=title,
        label=label,
        icon=icon,
        tone=tone,
        states=(_state(before), _state(after)),
        met=met,
        latency=_slower(before, after),
        cost=_dearer(before, after),
        error=error,
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


def _met(before: Sequence[str] | None, after: Sequence[str] | None) -> str:
    """Return how many outcomes every repetition met, before and now: `4/4 → 3/4`."""
    sides = [_met_always(marks) for marks in (before, after)]
    return " → ".join(side or "–" for side in sides) if any(sides) else ""


def _met_always(marks: Sequence[str] | None) -> str:
    if not marks:
        return ""
    met = sum(set(column) == {"1"} for column in zip(*marks, strict=False))
    return f"{met}/{len(marks[0])}"

"""The page of a comparison: what differs first, then what changed, and every case by harm; as files too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from evaluators.scoring.types import Verdict
from runs.compare.cases import CaseChange, CaseSide, by_harm
from runs.compare.comparison import (
    ADDED,
    BY_CASE,
    BY_COST,
    BY_LATENCY,
    BY_SCORE,
    CHANGED,
    EVERY,
    FLIPPED,
    REMOVED,
    SHOW_ERRORED,
    SHOW_IMPROVED,
    SHOW_REGRESSED,
    SHOW_UNCHANGED,
    Compared,
    ComparisonQuery,
    ComparisonSide,
    override_of_side,
)
from runs.compare.comparison import SHOW_IMPROVED as IMPROVED_CASES
from runs.compare.comparison import SHOW_REGRESSED as REGRESSED_CASES
from runs.compare.conclusion import (
    INCONCLUSIVE,
    NO_REGRESSION,
    REGRESSION,
    Conclusion,
    conclude,
)
from runs.compare.documents import CaseSideDoc, comparison_document
from runs.compare.evidence import REGRESSED
from runs.compare.measures import (
    AXIS_OF_POINTS,
    ConfigurationComparison,
    IntervalBar,
    Measure,
    MetricGroup,
    axis_of,
    bar_of,
    configuration_comparison,
    headline_measures,
    metric_groups,
)
from runs.formats.tables import csv_parts
from runs.lists import Chip, HeadCell, NumberedPage, numbered_page
from runs.models.results import Result
from runs.models.runs import RunStatus
from runs.results.overrides import Override

KINDS = {
    "regression": (SHOW_REGRESSED, "Regressed", "i-drop", "bad"),
    "improvement": (SHOW_IMPROVED, "Improved", "i-rise", "good"),
    "unchanged": (SHOW_UNCHANGED, "Unchanged", "i-same", "same"),
    "error": (SHOW_ERRORED, "Errored", "v-error", "error"),
    "added": (ADDED, "Added", "i-plus", "same"),
    "removed": (REMOVED, "Removed", "i-minus", "same"),
}
VERDICTS = (Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL)
DEPTHS = {verdict: place for place, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True)
class TransitionCell:
    """A cell of the matrix: how many cases, the tone of the change, and its filter."""

    count: int
    tone: str
    is_same: bool
    url: str
    is_on: bool
    words: str


def is_shown(one: CaseChange, query: ComparisonQuery) -> bool:
    """Tell whether a filter leaves a case; the text that is searched for is another question."""
    if query.cell and _cell(one) != query.cell:
        return False
    kind = KINDS[one.status][0]
    if query.show == CHANGED:
        return kind != SHOW_UNCHANGED
    return query.show == EVERY or kind == query.show or (query.show == FLIPPED and _is_flip(one))


def chips(found: Compared, query: ComparisonQuery) -> list[Chip]:
    """Return the filters in the order of harm, with the changed ones first and all last."""
    counts = Counter(KINDS[one.status][0] for one in found.cases)
    total = len(found.cases)

    def chip(label: str, show: str, count: int, icon: str = "", tone: str = "") -> Chip:
        is_on = query.show == show and not query.cell
        url = query.address(show=show, cell="")
        return Chip(label, url, is_on, count, show, icon, tone)

    return [
        chip("Changed", CHANGED, total - counts[SHOW_UNCHANGED]),
        *(
            chip(label, show, counts[show], icon, "" if tone == "same" else tone)
            for show, label, icon, tone in KINDS.values()
        ),
        chip("Verdict flips", FLIPPED, sum(map(_is_flip, found.cases))),
        chip("All", EVERY, total),
    ]


def matrix(
    found: Compared, query: ComparisonQuery
) -> Sequence[tuple[str, Sequence[TransitionCell]]]:
    """Return a row a verdict of the baseline with a cell a verdict of the candidate."""
    counts = Counter(_cell(one) for one in found.cases)
    return [
        (before.value, [_matrix_cell(before, after, counts, query) for after in VERDICTS])
        for before in VERDICTS
    ]


def _matrix_cell(
    before: Verdict, after: Verdict, counts: Mapping[str, int], query: ComparisonQuery
) -> TransitionCell:
    name, moved = f"{before.value}-{after.value}", DEPTHS[after] - DEPTHS[before]
    is_on, count = query.cell == name, counts.get(name, 0)
    return TransitionCell(
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


def _is_flip(one: CaseChange) -> bool:
    before, _, after = _cell(one).partition("-")
    return before != after


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
    bar: IntervalBar | None

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
    chips: Sequence[Chip]
    pages: NumberedPage[CaseChange]
    axis: float
    hidden: tuple[tuple[str, str], ...]


def change_table(found: Compared, query: ComparisonQuery) -> ChangeTable:
    """Return the page of cases an address asks for; one query."""
    pages = numbered_page(listed_changes(found, query), query, ON_A_PAGE)
    # Every page of one comparison has the same axis, so that its bars can be held against each other.
    axis = axis_of((one.score_change or 0.0 for one in found.cases), AXIS_OF_POINTS)
    errors = _errors(found, pages.rows)
    return ChangeTable(
        query=query,
        rows=[_change_row(found, one, errors.get(one.case, ""), axis) for one in pages.rows],
        chips=chips(found, query),
        pages=pages,
        axis=axis,
        hidden=query.hidden("q"),
    )


def listed_changes(found: Compared, query: ComparisonQuery) -> Sequence[CaseChange]:
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


def _change_row(found: Compared, one: CaseChange, error: str, axis: float) -> ChangeRow:
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


@dataclass(frozen=True, slots=True)
class Changes:
    """The matrix, the table, and the heads of the columns that can be sorted, by name."""

    found: Compared
    query: ComparisonQuery
    matrix: Sequence[tuple[str, Sequence[TransitionCell]]]
    table: ChangeTable
    heads: dict[str, HeadCell]

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
        name or "harm": HeadCell(
            name or "harm",
            label,
            query.address(sort=name),
            direction if query.sort == name else "",
            is_number=name in (BY_COST, BY_LATENCY),
        )
        for name, (label, direction) in labels.items()
    }
    return Changes(found, query, matrix(found, query), change_table(found, query), heads)


# The shape beside the heading: an inconclusive comparison is neither passed nor failed.
SHAPES = {REGRESSION: "fail", NO_REGRESSION: "pass", INCONCLUSIVE: "borderline"}


@dataclass(frozen=True, slots=True)
class ComparisonPage:
    """Everything the page of a comparison shows."""

    found: Compared
    query: ComparisonQuery
    conclusion: Conclusion
    measures: Sequence[Measure]
    metrics: Sequence[MetricGroup]
    counts: tuple[Mapping[str, int], Mapping[str, int]]
    changes: Changes
    unfinished: Sequence[str]
    configuration: ConfigurationComparison

    @property
    def shape(self) -> str:
        """Return the verdict whose shape the heading has; what fails a gate has not passed."""
        if self.conclusion.state == NO_REGRESSION and self.conclusion.gates:
            return SHAPES[INCONCLUSIVE]
        return SHAPES[self.conclusion.state]

    @property
    def tone(self) -> str:
        """Return the tone of the conclusion: good only where gates passed and nothing shows worse cases."""
        if self.conclusion.state != NO_REGRESSION:
            return "bad" if self.conclusion.state == REGRESSION else "warn"
        if self.conclusion.gates:
            return "warn"
        said = self.found.evidence
        return "" if REGRESSED in (said.pass_rate.change, said.mean_score.change) else "good"

    @property
    def matrix(self) -> Sequence[tuple[str, Sequence[TransitionCell]]]:
        """Return the cases by verdict before and now."""
        return self.changes.matrix

    @property
    def table(self) -> ChangeTable:
        """Return the cases as the address asks for them."""
        return self.changes.table

    @property
    def worse(self) -> Chip:
        """Return the filter of the cases that got worse, with their count."""
        return self._chip(REGRESSED_CASES)

    @property
    def better(self) -> Chip:
        """Return the filter of the cases that got better, with their count."""
        return self._chip(IMPROVED_CASES)

    def _chip(self, show: str) -> Chip:
        return next(chip for chip in self.table.chips if chip.value == show)

    @property
    def flips(self) -> int:
        """Return how many shared cases have another verdict than before."""
        return self.changes.flips

    @property
    def out_of_grid(self) -> int:
        """Return how many cases of both have no verdict on a side."""
        return self.changes.out_of_grid

    @property
    def is_of_one_suite(self) -> bool:
        """Tell whether both runs are of the same suite."""
        return self.found.baseline.run.suite_id == self.found.candidate.run.suite_id

    @property
    def is_shared(self) -> bool:
        """Tell whether the figures are those of the shared cases alone."""
        return self.found.is_of_shared_cases

    @property
    def is_rescoring(self) -> bool:
        """Tell whether a run is still being made of the scores of another."""
        runs = self.found.baseline.run, self.found.candidate.run
        return any(run.is_active and run.source_run_id for run in runs)

    @property
    def has_other_cases(self) -> bool:
        """Tell whether a case is in one run alone."""
        return self.found.in_both < len(self.found.cases)


def comparison_page(found: Compared, query: ComparisonQuery) -> ComparisonPage:
    """Return the page; beside what was compared it takes one query."""
    sides = found.baseline, found.candidate
    return ComparisonPage(
        found=found,
        query=query,
        conclusion=conclude(found),
        measures=headline_measures(found),
        metrics=metric_groups(found),
        counts=(_counts(found.baseline), _counts(found.candidate)),
        changes=changes_of(found, query),
        unfinished=[_unfinished(one) for one in sides if one.run.status != RunStatus.COMPLETED],
        configuration=configuration_comparison(found.baseline.run, found.candidate.run),
    )


def _counts(side: ComparisonSide) -> Mapping[str, int]:
    return Counter(STATES.get(case.state, case.state) for case in side.cases.values())


def _unfinished(side: ComparisonSide) -> str:
    status = RunStatus(side.run.status).label.lower()
    return f"Run #{side.run.number} of {side.run.suite.title} is not completed ({status})"


FIGURES = (
    *(
        "verdict",
        "state",
        "machine_verdict",
        "reviewed_verdict",
        "mean_score",
        "passed",
        "scored",
        "executions",
        "flaky",
    ),
    *("outcomes_met", "outcomes", "latency_ms"),
    *("run_cost_usd", "evaluation_cost_usd", "total_cost_usd"),
)
ROLES = ("baseline", "candidate")
COLUMNS = (
    *("case", "title", "status", "has_flipped", "score_change"),
    *(f"{role}_{figure}" for figure in FIGURES for role in ROLES),
)


def comparison_csv(found: Compared, query: ComparisonQuery) -> Iterator[str]:
    """Return a table of the cases in parts: what is missing is empty, and no digit is left out.

    Both sides of a figure stand beside each other. Scores are 0 to 1, changes candidate minus
    baseline, latencies milliseconds, costs US dollars, each a mean or sum over the repetitions.
    """
    lines = (_line(one, found.title(one.case)) for one in listed_changes(found, query))
    return csv_parts(COLUMNS, lines, digits=None)


def comparison_jsonl(found: Compared, query: ComparisonQuery) -> Iterator[str]:
    """Yield the comparison's document without its cases, then each case that is asked for as a line.

    `listed` says which cases those are; every figure above them is of the whole comparison.
    """
    document = comparison_document(found).as_json()
    cases = {case["case"]: case for case in document.pop("cases")}
    asked = listed_changes(found, query)
    filters = {"show": query.show, "cell": query.cell, "text": query.text, "sort": query.sort}
    listed = {**filters, "cases": len(asked), "of": len(cases)}
    yield _json({**document, "listed": listed})
    yield from (_json(cases[one.case]) for one in asked)


def _json(values: Any) -> str:
    return f"{json.dumps(values, ensure_ascii=False, allow_nan=False)}\n"


def _line(one: CaseChange, title: str) -> Sequence[Any]:
    sides = [_figures(side) for side in (one.baseline, one.candidate)]
    return (
        *(one.case, title, one.status, _yes(one.has_flipped), one.score_change),
        *(side.get(figure) for figure in FIGURES for side in sides),
    )


def _figures(side: CaseSide | None) -> dict[str, Any]:
    figures = {} if side is None else dict(CaseSideDoc.model_validate(side))
    return {**figures, **({"flaky": _yes(figures["flaky"])} if figures else {})}


def _yes(value: bool) -> str:
    return "yes" if value else "no"

"""A comparison as files: a table of its cases, and a document with a line for each case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runs.compare.changes import ComparisonQuery, listed_changes
from runs.compare.comparison import Comparison, SameRunError, build_comparison
from runs.compare.documents import (
    CaseChangeDoc,
    CaseFigureDoc,
    CaseSideDoc,
    case_change_document,
    comparison_document,
)
from runs.compare.evidence import EVALUATOR, SCALES, MeasuredFigure, MeasuredPair, measured_pairs
from runs.compare.page import tolerances_form
from runs.compare.rules import CaseChange, rounded_change
from runs.exports.specs import ExportSpec, file_kind
from runs.filters.fields import read_checked
from runs.filters.queries import run_vocabulary
from runs.formats.tables import csv_parts
from runs.requests import SHARED, get_named_run_or_404
from runs.results.files import SCORE, run_fingerprint

FIGURES = (
    *(
        "verdict",
        "state",
        "machine_verdict",
        "reviewed_verdict",
        "mean_score",
        "passed",
        "scored",
        "results",
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


def comparison_csv(comparison: Comparison, query: ComparisonQuery) -> Iterator[str]:
    """Return a table of the cases in parts, with all digits and with empty cells for missing values.

    Both sides of a figure are neighbours. Scores are 0 to 1, changes candidate minus baseline, latencies
    milliseconds, costs US dollars, each a mean or sum over the repetitions. Three columns each follow for
    the metrics (0 to 5), dimensions (0 to 10) and scores (0 to 1, after negation) of all evaluators, named
    as in the table of a run.
    """
    matching = listed_changes(comparison, query)
    names = [_column(pair.figure) for pair in measured_pairs(*comparison.measured, [])]
    lines = (
        (
            *_line(case_change_document(comparison, change)),
            *_measured_cells(figures, columns=len(names)),
        )
        for change, figures in _with_figures(comparison, matching)
    )
    sides = (*ROLES, "change")
    columns = (*COLUMNS, *(f"{side}_{name}" for name in names for side in sides))
    return csv_parts(columns, lines, digits=None)


# The figures of so many cases are laid beside each other; of thousands of cases each may have figures of its own.
CASES_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class CaseFigure:
    """A figure that a case has in one run or both, and its column among those of all figures."""

    column: int
    pair: MeasuredPair
    before: float | None
    after: float | None


def _with_figures(
    comparison: Comparison, changes: Sequence[CaseChange]
) -> Iterator[tuple[CaseChange, Sequence[CaseFigure]]]:
    """Yield each case with what evaluators measured in it."""
    for start in range(0, len(changes), CASES_AT_ONCE):
        some = changes[start : start + CASES_AT_ONCE]
        pairs = measured_pairs(*comparison.measured, [change.case for change in some])
        known = [(column, pair) for column, pair in enumerate(pairs) if pair.is_known]
        for place, change in enumerate(some):
            figures = (CaseFigure(column, pair, *pair.of_case(place)) for column, pair in known)
            yield change, [one for one in figures if (one.before, one.after) != (None, None)]


def _measured_cells(figures: Sequence[CaseFigure], *, columns: int) -> Sequence[float | None]:
    """Return both sides and the change of each figure of one case."""
    cells: list[float | None] = [None] * (3 * columns)
    for one in figures:
        at = 3 * one.column
        cells[at : at + 3] = one.before, one.after, rounded_change(one.before, one.after)
    return cells


def _column(figure: MeasuredFigure) -> str:
    kind = SCORE if figure.kind == EVALUATOR else figure.kind
    return f"{kind}:{figure.path}/{figure.key}" if figure.key else f"{kind}:{figure.path}"


def comparison_jsonl(comparison: Comparison, query: ComparisonQuery) -> Iterator[str]:
    """Yield the document of the comparison without its cases, then a line for each case that matches.

    `listed` in the document describes the filter; the figures are of the whole comparison. A case has
    what evaluators measured in it.
    """
    document = comparison_document(comparison).as_json()
    cases = {case["case"]: case for case in document.pop("cases")}
    matching = listed_changes(comparison, query)
    filters = {"show": query.show, "cell": query.cell, "text": query.text, "sort": str(query.sort)}
    listed = {**filters, "cases": len(matching), "of": len(cases)}
    yield _json({**document, "listed": listed})
    for change, figures in _with_figures(comparison, matching):
        measured = [_figure_document(one).as_json() for one in figures]
        yield _json({**cases[change.case], "measured": measured})


def _figure_document(one: CaseFigure) -> CaseFigureDoc:
    figure = one.pair.figure
    return CaseFigureDoc(
        kind=figure.kind,
        evaluator=figure.path,
        key=figure.key,
        name=one.pair.name,
        scale=SCALES[figure.kind],
        baseline=one.before,
        candidate=one.after,
        change=rounded_change(one.before, one.after),
    )


def _json(values: Any) -> str:
    return f"{json.dumps(values, ensure_ascii=False, allow_nan=False)}\n"


def _line(case: CaseChangeDoc) -> Sequence[Any]:
    sides = [_figures(side) for side in (case.baseline, case.candidate)]
    return (
        *(case.case, case.title, case.status, _yes(case.has_flipped), case.score_change),
        *(side.get(figure) for figure in FIGURES for side in sides),
    )


def _figures(side: CaseSideDoc | None) -> dict[str, Any]:
    return {} if side is None else {**dict(side), "flaky": _yes(side.flaky)}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# What a case takes in each file.
CASE_BYTES = {"jsonl": 2_200, "csv": 400}
WRITERS: Mapping[str, Callable[[Comparison, ComparisonQuery], Iterator[str]]] = {
    "csv": comparison_csv,
    "jsonl": comparison_jsonl,
}


@file_kind("comparison")
def comparison_file(*, query: Mapping[str, str], form: str) -> ExportSpec:
    """Describe a file, `csv` or `jsonl`, of the comparison that the parameters of an address name.

    Raises Http404 for a run that is not there, SameRunError, and FilterError.
    """
    wanted = ComparisonQuery.read(query)
    baseline = get_named_run_or_404(wanted.baseline)
    candidate = get_named_run_or_404(wanted.candidate)
    if baseline == candidate:
        raise SameRunError
    if wanted.text:
        read_checked(wanted.text, run_vocabulary(candidate, baseline, compares=True))
    tolerances = tolerances_form(wanted, candidate).tolerances

    def write() -> Iterator[str]:
        only_shared = wanted.cases == SHARED
        comparison = build_comparison(baseline, candidate, tolerances, only_shared=only_shared)
        return WRITERS[form](comparison, wanted)

    names = (f"{run.suite.slug}-{run.number}" for run in (baseline, candidate))
    return ExportSpec(
        name=f"{'-'.join(names)}.{form}",
        rows=max(baseline.case_count, candidate.case_count),
        row_bytes=CASE_BYTES[form],
        write=write,
        fingerprint=(*run_fingerprint(baseline), *run_fingerprint(candidate)),
        suites=tuple({baseline.suite_id, candidate.suite_id}),
    )

"""A comparison as files: the cases its address asks for as a table, and everything as JSON Lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from runs.comparison import CaseChange, CaseSide
from runs.reports.comparison import Compared, comparison_document
from runs.reports.comparison_query import ComparisonQuery
from runs.reports.comparison_rows import cases_asked
from runs.reports.csv_text import csv_parts

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
    lines = (_line(one, found.title(one.case)) for one in cases_asked(found, query))
    return csv_parts(COLUMNS, lines, digits=None)


def comparison_jsonl(found: Compared, query: ComparisonQuery) -> Iterator[str]:
    """Yield the comparison's document without its cases, then each case that is asked for as a line.

    `listed` says which cases those are; every figure above them is of the whole comparison.
    """
    document = comparison_document(found)
    cases = {one["case"]: one for one in document.pop("cases")}
    asked = cases_asked(found, query)
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
    return {} if side is None else {**side.as_json(), "flaky": _yes(side.is_flaky)}


def _yes(value: bool) -> str:
    return "yes" if value else "no"

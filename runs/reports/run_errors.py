"""The errors of a run, those alike together, so that one cause reads as one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min
from django.urls import reverse

from runs.models import ResultStatus, Run

MOST_ERRORS = 5


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Results that ended in the same error, with the first of them."""

    text: str
    stage: str
    count: int
    like: int
    key: str
    url: str


def run_errors(run: Run) -> tuple[ErrorGroup, ...]:
    """Return the most frequent errors of a run."""
    if not run.error_count:
        return ()
    errored = run.results.filter(status=ResultStatus.ERROR).order_by()
    groups = errored.values("error_stage", "error").annotate(total=Count("id"), first=Min("id"))
    rows = list(groups.order_by("-total", "first")[:MOST_ERRORS])
    firsts = run.results.select_related("case").in_bulk([row["first"] for row in rows])
    return tuple(_group(run, row, firsts) for row in rows)


def _group(run: Run, row: Mapping[str, Any], firsts: Mapping[int, Any]) -> ErrorGroup:
    first = firsts[row["first"]]
    place = {"slug": run.suite.slug, "number": run.number, "key": first.case.key}
    return ErrorGroup(
        text=row["error"],
        stage=row["error_stage"],
        count=row["total"],
        like=row["first"],
        key=first.case.key,
        url=reverse("runs:result", kwargs=place | {"repetition": first.repetition}),
    )


def ids_with_error_of(run: Run, result_id: int) -> list[int]:
    """Return the results of the run that ended in the same error as that one, itself among them."""
    errored = run.results.filter(status=ResultStatus.ERROR)
    like = errored.filter(pk=result_id).values("error_stage", "error").first()
    return list(errored.filter(**like).values_list("pk", flat=True)) if like else []

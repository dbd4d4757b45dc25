"""One repetition of a case as a mark that leads to its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from evaluators.scoring.policy import Policy
from runs.models import Run
from runs.reports.case_groups import ENDED

STATUS_MARKS = {"pending": "waiting", "skipped": "cancelled"}


@dataclass(frozen=True, slots=True)
class RepetitionMark:
    """One repetition: its number, the address of its result, the state it is shown in, its score."""

    number: int
    url: str
    state: str
    score: float | None


def mark_of_row(row: Mapping[str, Any], policy: Policy) -> str:
    """Return the state a result is shown in: the verdict that counts, or how far the work is."""
    if policy.count_reviews and row["reviewed_verdict"] and row["status"] in ENDED:
        return str(row["reviewed_verdict"])
    return str(row["verdict"] or STATUS_MARKS.get(row["status"], row["status"]))


def result_url(run: Run, key: str, repetition: int) -> str:
    """Return the address of one result."""
    place = {"slug": run.suite.slug, "number": run.number, "key": key, "repetition": repetition}
    return reverse("runs:result", kwargs=place)

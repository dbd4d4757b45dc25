"""One repetition of a case as a mark that leads to its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from evaluators.scoring.policy import Policy
from runs.models import Run
from runs.reports.case_groups import ENDED
from runs.summary import CaseSummary

STATUS_MARKS = {"pending": "waiting", "skipped": "cancelled"}


@dataclass(frozen=True, slots=True)
class RepetitionMark:
    """One repetition: its number, the address of its result, the state it is shown in, its score.

    `people` is the verdict that people gave, "" where none is settled.
    """

    number: int
    url: str
    state: str
    score: float | None
    people: str = ""


def people_of_row(row: Mapping[str, Any]) -> str:
    """Return the verdict that people gave of a result, "" where none is settled or its work goes on."""
    return str(row["reviewed_verdict"]) if row["status"] in ENDED else ""


def mark_of_row(row: Mapping[str, Any], policy: Policy) -> str:
    """Return the state a result is shown in: the verdict that counts, or how far the work is."""
    if policy.count_reviews and row["reviewed_verdict"] and row["status"] in ENDED:
        return str(row["reviewed_verdict"])
    return str(row["verdict"] or STATUS_MARKS.get(row["status"], row["status"]))


def result_url(run: Run, key: str, repetition: int) -> str:
    """Return the address of one result."""
    return result_address(run.suite.slug, run.number, key, repetition)


def result_address(slug: str, number: int, key: str, repetition: int) -> str:
    """Return the address of one result of a run that is known by its suite and number."""
    place = {"slug": slug, "number": number, "key": key, "repetition": repetition}
    return reverse("runs:result", kwargs=place)


def passed_words(found: CaseSummary) -> str:
    """Say how many of several repetitions passed and whether they differ; "" of one."""
    if found.executions == 1 or not found.scored:
        return ""
    told = f"{found.passed} of {found.scored} passed"
    return f"{told}, flaky" if found.is_flaky else told

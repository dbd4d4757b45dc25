"""What stands beside one result: its other repetitions, and the cases before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from runs.models import Result, Run
from runs.reports.repetition_marks import STATUS_MARKS, result_url


@dataclass(frozen=True, slots=True)
class Repetition:
    """One execution of the same case in the same run."""

    number: int
    url: str
    state: str
    score: float | None
    outcomes: str
    latency_ms: int | None
    is_this: bool


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The case before or after this one in the run."""

    key: str
    url: str


def mark_of(result: Result) -> str:
    """Return the state a result is shown in: its verdict, or how far the work is."""
    return result.verdict or STATUS_MARKS.get(result.status, result.status)


def repetitions_of(run: Run, result: Result) -> tuple[Repetition, ...]:
    """Return every repetition of the same case in the run."""
    columns = ("run", "repetition", "status", "verdict", "score", "outcome_marks", "latency_ms")
    rows = run.results.filter(case=result.case).order_by("repetition").only(*columns)
    return tuple(
        Repetition(
            number=row.repetition,
            url=result_url(run, result.case.key, row.repetition),
            state=mark_of(row),
            score=row.score,
            outcomes=row.outcome_marks,
            latency_ms=row.latency_ms,
            is_this=row.repetition == result.repetition,
        )
        for row in rows
    )


def neighbour(run: Run, result: Result, *, back: bool) -> Neighbour | None:
    """Return the case before or after this one in the run, None at the end."""
    here = {f"position__{'lt' if back else 'gt'}": result.position}
    rows = run.results.filter(**here).order_by("-position" if back else "position", "repetition")
    row = rows.values_list("case__key", "repetition").first()
    return Neighbour(row[0], result_url(run, row[0], 1 if back else row[1])) if row else None

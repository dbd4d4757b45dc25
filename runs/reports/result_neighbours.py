"""What stands beside one result: its other repetitions, and the cases before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.scoring.policy import Policy
from runs.models import Result, Run
from runs.reports.case_groups import state_of_rows
from runs.reports.overrides import Override, override_of_case
from runs.reports.repetition_marks import STATUS_MARKS, mark_of_row, result_url


@dataclass(frozen=True, slots=True)
class Repetition:
    """One execution of the same case in the same run, in the state that counts."""

    number: int
    url: str
    state: str
    score: float | None
    outcomes: str
    latency_ms: int | None
    is_this: bool
    override: Override | None

    @property
    def word(self) -> str:
        """Return the word for the state."""
        return "errored" if self.state == "error" else self.state


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The case before or after this one in the run."""

    key: str
    url: str


def mark_of(result: Result) -> str:
    """Return the state a result is shown in: its verdict, or how far the work is."""
    return result.verdict or STATUS_MARKS.get(result.status, result.status)


def repetitions_of(run: Run, result: Result, policy: Policy) -> tuple[tuple[Repetition, ...], str]:
    """Return every repetition of the same case in the run, and the state of the case; one query."""
    columns = ("repetition", "status", "verdict", "reviewed_verdict", "score", "is_forced")
    rows = list(
        run.results.filter(case=result.case)
        .order_by("repetition")
        .values(*columns, "outcome_marks", "latency_ms")
    )
    repetitions = tuple(
        Repetition(
            number=row["repetition"],
            url=result_url(run, result.case.key, row["repetition"]),
            state=mark_of_row(row, policy),
            score=row["score"],
            outcomes=row["outcome_marks"],
            latency_ms=row["latency_ms"],
            is_this=row["repetition"] == result.repetition,
            override=override_of_case([row], policy),
        )
        for row in rows
    )
    return repetitions, state_of_rows(rows, policy)


def neighbour(run: Run, result: Result, *, back: bool) -> Neighbour | None:
    """Return the case before or after this one in the run, None at the end."""
    here = {f"position__{'lt' if back else 'gt'}": result.position}
    rows = run.results.filter(**here).order_by("-position" if back else "position", "repetition")
    row = rows.values_list("case__key", "repetition").first()
    return Neighbour(row[0], result_url(run, row[0], 1 if back else row[1])) if row else None

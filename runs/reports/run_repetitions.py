"""What the repetitions of a run tell on its page: all k, any of k, flaky cases, spread (SCORING §8)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from runs.models import Run
from runs.reports.case_groups import repetition_figures
from runs.summary import RepetitionFigures

NAMES = tuple(one.name for one in fields(RepetitionFigures))


@dataclass(frozen=True, slots=True)
class Part:
    """A count of cases and of how many; `share` is from 0 to 1, None of none."""

    count: int
    total: int

    @property
    def share(self) -> float | None:
        """Return the count as a share of all."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class RunRepetitions:
    """What repetitions tell; `cases` is how many the run has, so that what is still open shows."""

    each: int
    cases: int
    all_passed: Part
    any_passed: Part
    flaky: Part
    spread: float | None
    spread_cases: int

    @property
    def is_whole(self) -> bool:
        """Tell whether every repetition of every case was carried out."""
        return self.all_passed.total == self.cases


def repetitions_of_run(run: Run) -> RunRepetitions | None:
    """Return what the repetitions of a run tell so far; None where each case runs once.

    One query, none for a run that has its summary.
    """
    if run.repetitions == 1:
        return None
    found = _figures(run)
    return RunRepetitions(
        each=run.repetitions,
        cases=run.case_count,
        all_passed=Part(found.all_passed, found.settled),
        any_passed=Part(found.any_passed, found.settled),
        flaky=Part(found.flaky, found.comparable),
        spread=found.spread,
        spread_cases=found.spread_cases,
    )


def _figures(run: Run) -> RepetitionFigures:
    summed: dict[str, Any] = run.summary or {}
    if all(name in summed for name in NAMES):
        return RepetitionFigures(**{name: summed[name] for name in NAMES})
    return repetition_figures(run)

"""What a run came to, as it is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class StoredResult(NamedTuple):
    """One execution as it was recorded; `marks` has a character for each expected outcome, 1 met and 0 missed."""

    id: int
    case: int
    repetition: int
    status: str
    verdict: str
    score: float | None
    is_forced: bool
    reviewed: str
    marks: str
    decided_by: str
    error: str


@dataclass(frozen=True, slots=True)
class StoredCase:
    """A case in the revision that ran: how many outcomes it expects, and evaluators of its own."""

    key: str
    expected: int = 0
    evaluators: Mapping[str, Any] | None = None
    append: bool = False


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The executions of a run in the order of the suite, with what every evaluator said.

    `scores` holds by result one entry for each of the `columns`, which are found by path: the
    score before negation, False where the evaluator could not score, None where it was not run,
    [score, required parts missed] where it missed some. `overalls` holds by path and result the
    judge's own overall score, 0 to 1, where it gave one. `is_completed` tells whether nothing was left out.
    """

    results: Sequence[StoredResult]
    cases: Mapping[int, StoredCase]
    columns: Mapping[str, int]
    scores: Mapping[int, Sequence[Any]]
    overalls: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    is_completed: bool = True

    def is_answered(self, result_id: int) -> bool:
        """Tell whether an evaluator saw an output of this execution."""
        return any(said is not None for said in self.scores.get(result_id, ()))

"""The values that what-if takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runs.summary.figures import GateResult


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


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many of the reviewed executions that have a verdict have the reviewer's."""

    agreed: int
    reviewed: int


@dataclass(frozen=True, slots=True)
class WhatIfSide:
    """A run by one set of rules.

    `distribution` counts cases by state: pass, borderline, fail, error, and waiting where new calls
    would tell. Of `executions`, `scored` have a verdict and `passed` pass; `open` need new calls.
    `mean_score` (0 to 1) is over the `with_score`. The gates stay open while anything is.
    """

    executions: int
    scored: int
    passed: int
    errors: int
    open: int
    distribution: Mapping[str, int]
    mean_score: float | None
    with_score: int
    metrics_gate: GateResult
    cases_gate: GateResult
    agreement: Agreement

    @property
    def cases(self) -> int:
        """Return how many cases the distribution counts."""
        return sum(self.distribution.values())


@dataclass(frozen=True, slots=True)
class Stand:
    """How an execution or a case stands: `state` is a verdict, error, waiting or not_run; `score` is 0 to 1."""

    state: str
    score: float | None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionFlip:
    """One execution whose verdict changes.

    `reviewed` is the verdict of a human review or "". `review` is contradicted where the machine
    agreed with it and would no more, agreed where it would now, still_contradicted where neither
    does, "" without a review.
    """

    result: int
    repetition: int
    before: Stand
    after: Stand
    reviewed: str = ""
    review: str = ""


@dataclass(frozen=True, slots=True)
class CaseFlip:
    """One case whose verdict changes, or that of one of its executions; scores are means over them.

    `is_flip` tells whether the case's own does. `executions` are those that change.
    """

    case: int
    key: str
    before: Stand
    after: Stand
    executions: tuple[ExecutionFlip, ...]

    @property
    def is_flip(self) -> bool:
        """Tell whether the case's verdict changes, not only that of an execution."""
        return self.before.state != self.after.state

    @property
    def review(self) -> str:
        """Return what matters most of the reviews: contradicted, agreed, still_contradicted or ""."""
        found = {flip.review for flip in self.executions}
        order = ("contradicted", "agreed", "still_contradicted")
        return next((word for word in order if word in found), "")


@dataclass(frozen=True, slots=True)
class Stale:
    """An evaluator whose change the stored scores cannot follow in `results` of `total` executions.

    `instead` is kept where the stored score stands in, open where there is none and the execution
    waits. `asks` tells what scoring it anew takes: judge for new model calls, script for a program, "" for
    a new scoring pass alone.
    """

    path: str
    name: str
    kind: str
    why: str
    instead: str
    asks: str
    results: int
    total: int


@dataclass(frozen=True, slots=True)
class Bin:
    """The executions with a score from `low` up to `high`, the last bin with its upper end."""

    low: float
    high: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Band:
    """A limit of the case gate, 0 to 1: pass, borderline or fallback."""

    name: str
    limit: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """The scores of the executions before and after, with the bands of both."""

    bins: tuple[Bin, ...]
    bands_before: tuple[Band, ...]
    bands_after: tuple[Band, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A run by its own rules and by others, on stored scores alone.

    `before` is what is stored. `flips` are in the order of the suite. `told` executions carry a
    verdict that the run's own rules do not give, as files of results may tell one: it is kept.
    `cases_kept` have a verdict and keep it; `cases_without` have none on either side.
    `unanswered` ones had no output to score and stay as they are. `scores_changed` counts
    executions whose score moves, whatever becomes of the verdict.
    """

    before: WhatIfSide
    after: WhatIfSide
    flips: tuple[CaseFlip, ...]
    histogram: Histogram
    stale: tuple[Stale, ...]
    cases_flipped: int
    cases_kept: int
    cases_without: int
    executions_flipped: int
    scores_changed: int
    contradicted: int
    agreed: int
    told: int
    unanswered: int

    @property
    def is_exact(self) -> bool:
        """Tell whether the stored scores answer the question whole, so that a run can be made of them."""
        return not self.stale

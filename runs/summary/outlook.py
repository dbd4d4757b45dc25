"""Say while a run is on whether its gates can still be passed, and what that takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evaluators.scoring.numbers import is_at_least, rounded
from evaluators.scoring.policy import Policy

ON_COURSE, AT_RISK, OUT_OF_REACH = "on_course", "at_risk", "out_of_reach"
TENTHS = 1000


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a gate stands. `state` is on_course, at_risk or out_of_reach.

    `needed` is what the rest must average (0 to 1) or how many of the `remaining` must pass; None
    when nothing remains. `text` says it in a sentence.
    """

    state: str
    so_far: float | None
    needed: float | None
    remaining: int
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, in executions; `repetitions` of every case."""

    total: int
    ended: int
    passed: int
    score_sum: float
    score_count: int
    repetitions: int = 1

    @property
    def remaining(self) -> int:
        """Return how many executions are still to end."""
        return self.total - self.ended


def metrics_outlook(progress: Progress, policy: Policy) -> Outlook:
    """Return how the metrics gate stands if every remaining execution gets a score."""
    limit, left = policy.metrics_pass_threshold, progress.remaining
    so_far = progress.score_sum / progress.score_count if progress.score_count else None
    reached = so_far is not None and is_at_least(so_far, limit)
    if left <= 0:
        return Outlook(_settled(reached), so_far, None, 0, "Every execution has ended")
    needed = rounded((limit * (progress.score_count + left) - progress.score_sum) / left)
    what = _units(progress)
    if needed > 1:
        text = f"Out of reach: the remaining {what} would have to average {_percent(needed)}"
        return Outlook(OUT_OF_REACH, so_far, needed, left, text)
    state = ON_COURSE if reached or so_far is None else AT_RISK
    if needed <= 0:
        verb = "score" if what.endswith("s") else "scores"
        return Outlook(state, so_far, 0.0, left, f"Passed whatever the remaining {what} {verb}")
    return Outlook(
        state, so_far, needed, left, f"The remaining {what} must average {_percent(needed)}"
    )


def cases_outlook(progress: Progress, policy: Policy) -> Outlook:
    """Return how the cases gate stands; errored executions have not passed."""
    limit, left = policy.cases_pass_threshold, progress.remaining
    so_far = progress.passed / progress.ended if progress.ended else None
    reached = so_far is not None and is_at_least(so_far, limit)
    if left <= 0:
        return Outlook(_settled(reached), so_far, None, 0, "Every execution has ended")
    needed = max(0, math.ceil(rounded(limit * progress.total)) - progress.passed)
    if needed > left:
        text = f"Out of reach: {needed} more must pass, {left} {'is' if left == 1 else 'are'} left"
        return Outlook(OUT_OF_REACH, so_far, needed, left, text)
    state = ON_COURSE if reached or so_far is None else AT_RISK
    if needed == 0:
        return Outlook(ON_COURSE, so_far, 0, left, "Enough have passed already")
    return Outlook(state, so_far, needed, left, f"{needed} of the last {left} must pass")


def _settled(reached: bool) -> str:
    return ON_COURSE if reached else OUT_OF_REACH


def _units(progress: Progress) -> str:
    """Name what remains: whole cases where the repetitions allow it, else executions."""
    whole, rest = divmod(progress.remaining, progress.repetitions)
    count, unit = (progress.remaining, "execution") if rest else (whole, "case")
    return f"{count} {unit}s" if count != 1 else unit


def _percent(share: float) -> str:
    """Return a share in percent, rounded up to tenths, so that reaching it is enough."""
    return f"{math.ceil(rounded(rounded(share) * TENTHS)) / 10:.1f}%"

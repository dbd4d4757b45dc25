"""Which finished executions enter the review queue, by which rules, and how likely that was (SCORING §4.6)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import is_at_least, rounded
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.reviewing.reasons import Reason, in_order

OUTCOMES_GATE = "expected_outcomes"
MET, MISSED = "1", "0"
FAR = 1.0
DRAWS = 2**64


@dataclass(frozen=True, slots=True)
class Missed:
    """A requirement that was missed: its score and minimum, 0 to 1, and the least step that scores differ by."""

    score: float
    minimum: float
    step: float = 0.0


@dataclass(frozen=True, slots=True)
class Finished:
    """One execution that has a verdict, as the rules look at it.

    `score` is 0 to 1, None where only the outcomes could be judged. `outcome_marks` is one character
    per expected outcome, 1 met and 0 missed. `samples` are of each judge that was asked several times its
    scores (0 to 1), `votes` of each panel the brackets of its last round. `missed` are the requirements
    with a minimum that stayed below it. `says` is what in the output reads like a verdict.
    """

    result: int
    case: int
    verdict: Verdict
    score: float | None = None
    is_forced: bool = False
    outcome_marks: str = ""
    samples: tuple[tuple[float, ...], ...] = ()
    votes: tuple[tuple[str, ...], ...] = ()
    missed: tuple[Missed, ...] = ()
    says: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One execution for the queue: why, and with which probability (above 0, to 1) the rules bring such a one in.

    `distance` is how far its score is from the nearest threshold that could have decided, 0 to 1.
    """

    result: int
    reasons: tuple[Reason, ...]
    sampling_rate: float
    distance: float = FAR


def entries_of(
    executions: Iterable[Finished], policy: Policy, *, run: int, draws: bool = True
) -> Iterator[Entry]:
    """Yield what of a run's executions enters the queue.

    What a rule brings in has the sampling rate 1. Of the rest passes and fails are drawn, each by itself, with the
    policy's share as its probability: the same run and result give the same draw, so that asking again changes
    nothing. With `draws` off none is.
    """
    finished = list(executions)
    differing = _differing(finished) if policy.review_repetitions else set()
    for one in finished:
        found = reasons_of(one, policy)
        if one.case in differing:
            found = in_order((*found, Reason.REPETITIONS))
        rate = 1.0 if found else _share(one, policy) if draws else 0.0
        if not found and is_drawn(run, one.result, rate):
            found = (Reason.AUDIT,)
        if found:
            yield Entry(one.result, found, rate, distance_of(one, policy))


def reasons_of(one: Finished, policy: Policy) -> tuple[Reason, ...]:
    """Return why an execution enters by what it is itself, the weightiest reason first."""
    by_outcomes = policy.case_gate == OUTCOMES_GATE
    found = {
        Reason.BORDERLINE: policy.review_borderline and one.verdict is Verdict.BORDERLINE,
        Reason.DISAGREEMENT: policy.review_disagreement and by_outcomes and _disagree(one, policy),
        Reason.ONE_MISSED: policy.review_one_missed and by_outcomes and _lacks_one(one),
        Reason.SPLIT_PANEL: policy.review_split_panel
        and any(len(set(votes)) > 1 for votes in one.votes),
        Reason.SAMPLES: policy.review_samples
        and any(_lie_apart(scores, policy) for scores in one.samples),
        Reason.NEAR_THRESHOLD: policy.review_near_threshold
        and distance_of(one, policy) <= rounded(policy.review_distance),
        Reason.REQUIRED: policy.review_required
        and any(_is_narrow(missed, policy) for missed in one.missed),
        Reason.VERDICT_LIKE: policy.review_verdict_like and bool(one.says),
    }
    return in_order(reason for reason, applies in found.items() if applies)


def distance_of(one: Finished, policy: Policy) -> float:
    """Return how far the score is from the nearest threshold that decides, 0 to 1; 1 where none does.

    Under the score gate these are the bands. Under the outcomes gate it is the fallback, and that alone where
    there are no outcomes. A fail that a rule forced is decided by no threshold.
    """
    if one.score is None or one.is_forced:
        return FAR
    if policy.case_gate == OUTCOMES_GATE:
        limits = [] if one.outcome_marks else [policy.fallback_threshold]
    else:
        limits = [policy.pass_threshold, policy.borderline_threshold]
    return min((abs(rounded(one.score - limit)) for limit in limits), default=FAR)


def is_drawn(run: int, result: int, rate: float) -> bool:
    """Tell whether the audit draws a result: with probability `rate`, the same whenever it is asked."""
    digest = hashlib.sha256(f"review {run} {result}".encode()).digest()
    return int.from_bytes(digest[:8]) < rate * DRAWS


def _share(one: Finished, policy: Policy) -> float:
    if one.verdict is Verdict.PASS:
        return policy.review_pass_sample
    return policy.review_fail_sample if one.verdict is Verdict.FAIL else 0.0


def _differing(finished: Sequence[Finished]) -> set[int]:
    """Return the cases whose repetitions have different verdicts."""
    verdicts: dict[int, set[Verdict]] = defaultdict(set)
    for one in finished:
        verdicts[one.case].add(one.verdict)
    return {case for case, found in verdicts.items() if len(found) > 1}


def _disagree(one: Finished, policy: Policy) -> bool:
    """Tell whether the gate passed below the fallback threshold, or failed at or above it."""
    if one.score is None:
        return False
    return (one.verdict is Verdict.PASS) is not is_at_least(one.score, policy.fallback_threshold)


def _lacks_one(one: Finished) -> bool:
    """Tell whether all outcomes but one were met; of one outcome that is missed nothing was met."""
    return one.outcome_marks.count(MISSED) == 1 and MET in one.outcome_marks


def _is_narrow(missed: Missed, policy: Policy) -> bool:
    """Tell whether a requirement was missed by no more than the distance, or by a single step of its scores."""
    return rounded(missed.minimum - missed.score) <= rounded(
        max(policy.review_distance, missed.step)
    )


def _lie_apart(scores: Sequence[float], policy: Policy) -> bool:
    """Tell whether a judge's samples fall into different bands."""
    return len({policy.verdict_of(score) for score in scores}) > 1

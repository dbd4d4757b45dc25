"""What a result's page keeps from a person who is to decide on it independently (SCORING §4.6)."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from evaluators.scoring.policy import Policy
from runs.models import Result, Review, ReviewItem, Run
from runs.reports.case_groups import policy_of
from runs.reports.review_choices import MAY_REVIEW

MAY_LOOK = "runs.change_suite"


@dataclass(frozen=True, slots=True)
class Kept:
    """What of a result is kept from a person.

    `machine` is its verdict with scores and reasons, `people` what others decided. `may_look` tells whether the
    person may ask for the machine's part all the same, as who mends evaluators has to.
    """

    machine: bool = False
    people: bool = False
    may_look: bool = False


def kept_from(user: User, result: Result, item: ReviewItem | None, policy: Policy) -> Kept:
    """Return what the page of a result keeps from a person, nothing where they decided or are not to decide.

    In a blind suite the machine's part is kept while the result waits for review, and what others decided for
    good; in others what they decided is kept while it waits. One query, none where no item is in the queue.
    """
    if item is None or not user.has_perm(MAY_REVIEW):
        return Kept()
    is_waiting, is_blind = item.closed_at is None, policy.review_blind
    if not (is_waiting or is_blind):
        return Kept()
    standing = Review.objects.standing().filter(result=result)
    deciders = set(standing.values_list("reviewer", flat=True))
    if user.pk in deciders:
        return Kept()
    return Kept(
        machine=is_waiting and is_blind,
        people=bool(deciders),
        may_look=user.has_perm(MAY_LOOK),
    )


def keeps_machine(user: User, run: Run, key: str, repetition: int) -> bool:
    """Tell whether what judges said of an execution is kept from a person, who may not ask for it either."""
    rows = ReviewItem.objects.filter(
        result__run=run, result__case__key=key, result__repetition=repetition
    )
    item = rows.select_related("result").first()
    if item is None:
        return False
    kept = kept_from(user, item.result, item, policy_of(run))
    return kept.machine and not kept.may_look

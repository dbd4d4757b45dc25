"""A decision just made, beside what the machine had said."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.scoring.types import Verdict
from runs.models import Review, ReviewItem
from runs.reports.repetition_marks import result_url
from runs.reviewing import Settled, settle


@dataclass(frozen=True, slots=True)
class Told:
    """A decision just made beside the machine's; `settled` says what all decisions on it come to."""

    key: str
    title: str
    url: str
    person: str
    machine: str
    score: float | None
    scale: int
    settled: Settled
    decided: int

    @property
    def is_same(self) -> bool:
        """Tell whether both said the same."""
        return self.person == self.machine


def told(review: Review | None) -> Told | None:
    """Return a decision beside the machine's, None for one that is withdrawn or gone."""
    if review is None or review.withdrawn_at or review.stale_at:
        return None
    result = review.result
    reviewers = ReviewItem.objects.values_list("wanted", flat=True).get(result=result)
    verdicts = Review.objects.standing().filter(result=result).order_by("id")
    said = [Verdict(verdict) for verdict in verdicts.values_list("verdict", flat=True)]
    return Told(
        key=result.case.key,
        title=result.case.title,
        url=result_url(result.run, result.case.key, result.repetition),
        person=review.verdict,
        machine=review.machine_verdict or "error",
        score=review.machine_score,
        scale=result.run.scale,
        settled=settle(said, reviewers),
        decided=len(said),
    )

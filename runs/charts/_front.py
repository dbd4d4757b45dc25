"""Which runs are worth their cost: nobody else scores as much for less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from evaluators.scoring.numbers import rounded


@dataclass(frozen=True, slots=True)
class Offer:
    """What a run offers: a mean score of 0 to 1 for the US dollars that one execution cost.

    `latency_ms` is the mean of its executions, None where none was reported.
    """

    number: int
    target: str
    score: float
    cost_usd: Decimal
    latency_ms: float | None = None

    @property
    def name(self) -> str:
        """Return the target with the run that was measured."""
        return f"{self.target} #{self.number}"


def dominators(offers: Sequence[Offer]) -> Mapping[int, Offer | None]:
    """Return by run number who beats it: one that costs no more and scores no less, and differs.

    None for the runs on the Pareto front. Of several the best scoring is named, which is on the
    front itself. Two that offer the same do not beat each other; scores are compared to 9 decimals.
    """
    best: Offer | None = None
    found: dict[int, Offer | None] = {}
    for offer in sorted(offers, key=lambda one: (one.cost_usd, -rounded(one.score), one.number)):
        found[offer.number] = best if best is not None and _beats(best, offer) else None
        if best is None or rounded(offer.score) > rounded(best.score):
            best = offer
    return found


def front(offers: Sequence[Offer]) -> Sequence[Offer]:
    """Return the runs that nobody beats, the cheapest first."""
    beaten_by = dominators(offers)
    kept = [offer for offer in offers if beaten_by[offer.number] is None]
    return sorted(kept, key=lambda one: (one.cost_usd, one.number))


def _beats(best: Offer, offer: Offer) -> bool:
    """Tell whether `best`, which costs no more, offers more."""
    ours, theirs = rounded(best.score), rounded(offer.score)
    return ours > theirs or (ours == theirs and best.cost_usd < offer.cost_usd)

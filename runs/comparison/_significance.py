"""What the shared cases of two runs say of their difference, beside the tolerances (SCORING §9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runs.comparison._cases import ADDED, ERROR, REMOVED, CaseChange
from runs.comparison._evidence import LEVEL, evidence
from runs.comparison._measured import MeasuredChange, MeasuredPair
from runs.comparison._paired import Paired, paired_figures, raised
from runs.comparison._resampling import RESAMPLES


@dataclass(frozen=True, slots=True)
class Significance:
    """Pass rate, mean score and every measured figure of the shared cases, each p raised by Holm's rule.

    SCORING §9 has Holm over the metrics. Pass rate and mean score, which answer whether a run is worse,
    are one family; the `measured` figures, which tell where, are another: a tree with many evaluators
    makes neither of the two harder to tell from chance.
    """

    pass_rate: Paired
    mean_score: Paired
    measured: tuple[MeasuredChange, ...] = ()
    is_exact: bool = True
    seed: int = 0

    @property
    def test(self) -> str:
        """Return by which test the pass rates were told apart."""
        return "exact McNemar test" if self.is_exact else "paired permutation test"

    @property
    def measured_tested(self) -> int:
        """Return for how many measured figures Holm's rule raised each of their ps."""
        return sum(one.said.p is not None for one in self.measured)

    def as_json(self) -> dict[str, Any]:
        """Return the pass rate, the mean score and how they were tested as plain JSON values."""
        return {
            "pass_rate": self.pass_rate.as_json(),
            "mean_score": self.mean_score.as_json(),
            "pass_rate_test": self.test,
            "other_test": "paired sign-flip permutation test",
            "interval": "95% bootstrap over cases",
            "level": LEVEL,
            "resamples": RESAMPLES,
            "seed": self.seed,
            "correction": "Holm",
            "metrics_tested": self.measured_tested,
        }


def shared_changes(changes: Sequence[CaseChange]) -> tuple[CaseChange, ...]:
    """Return the cases that have a verdict on both sides: the ones evidence is made of."""
    return tuple(one for one in changes if one.status not in (ERROR, ADDED, REMOVED))


def significance(
    shared: Sequence[CaseChange], pairs: Sequence[MeasuredPair], *, seed: int
) -> Significance:
    """Return the evidence over shared cases; `pairs` hold their figures in the same order."""
    shares = [_share_change(one) for one in shared]
    scores = [one.score_change for one in shared]
    rate, score, *others = paired_figures(
        [shares, scores, *(pair.differences for pair in pairs)], seed=seed
    )
    known = [share for share in shares if share is not None]
    rate = replace(rate, p=evidence(Counter(known), seed=seed).p)
    rate, score = raised([rate, score])
    return Significance(
        pass_rate=rate,
        mean_score=score,
        measured=tuple(pair.change(said) for pair, said in zip(pairs, raised(others), strict=True)),
        is_exact=set(known) <= {-1.0, 0.0, 1.0},
        seed=seed,
    )


def _share_change(one: CaseChange) -> float | None:
    before, after = one.baseline, one.candidate
    if before is None or after is None or before.pass_share is None or after.pass_share is None:
        return None
    return after.pass_share - before.pass_share

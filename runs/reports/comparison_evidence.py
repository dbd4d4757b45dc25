"""What the shared cases of two runs say of their difference, beside the tolerances (SCORING §9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from runs.comparison import ADDED, ERROR, REMOVED, Evidence, Paired, evidence, holm, paired
from runs.reports.comparison import Compared


@dataclass(frozen=True, slots=True)
class ComparisonEvidence:
    """The pass rate and the mean score of the shared cases; both p are raised by Holm's rule."""

    pass_rate: Paired
    mean_score: Paired
    is_exact: bool

    @property
    def test(self) -> str:
        """Return by which test the pass rates were told apart."""
        return "exact McNemar test" if self.is_exact else "paired permutation test"


def evidence_of(found: Compared) -> ComparisonEvidence:
    """Return the evidence over cases that have a verdict on both sides, seeded from both runs."""
    seed = found.baseline.run.pk * 1_000_003 + found.candidate.run.pk
    shares, scores = [], []
    for change in found.cases:
        before, after = change.baseline, change.candidate
        if change.status in (ERROR, ADDED, REMOVED) or before is None or after is None:
            continue
        if before.pass_share is not None and after.pass_share is not None:
            shares.append(after.pass_share - before.pass_share)
        if change.score_change is not None:
            scores.append(change.score_change)
    tested = evidence(Counter(shares), seed=seed)
    rate, score = paired(shares, seed=seed, tested=tested), paired(scores, seed=seed)
    raised = holm([Evidence(one.cases, one.p) for one in (rate, score)])
    is_exact = set(shares) <= {-1.0, 0.0, 1.0}
    return ComparisonEvidence(replace(rate, p=raised[0].p), replace(score, p=raised[1].p), is_exact)

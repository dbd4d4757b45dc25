"""The verdict that counts of one execution, and that of a case with the rule that decided it (SCORING §8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import SCALE_DIGITS, mean, rounded, spelt, spelt_limit
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import Verdict
from runs.summary.figures import SCORED, Execution

BY_SCORE, BY_FORCE, BY_OUTCOMES, BY_REVIEWS = "mean_score", "forced_fail", "outcomes", "reviews"


@dataclass(frozen=True, slots=True)
class CaseDecision:
    """The verdict of a case, the rule that gave it, and its numbers in a few words.

    Without a scored repetition there is no verdict, and the rule is "".
    """

    verdict: Verdict | None = None
    rule: str = ""
    text: str = ""


def verdict_of(row: Execution, policy: Policy) -> Verdict | None:
    """Return the verdict that counts: the machine's, or a reviewed one where the policy counts it."""
    if policy.count_reviews and row.reviewed_verdict is not None and row.is_ended:
        return row.reviewed_verdict
    return row.verdict if row.status == SCORED else None


def case_verdict(group: Sequence[Execution], policy: Policy) -> Verdict | None:
    """Return a case's verdict from its scored repetitions; None when none has a verdict."""
    return case_decision(group, policy, has_words=False).verdict


def case_decision(
    group: Sequence[Execution], policy: Policy, *, has_words: bool = True
) -> CaseDecision:
    """Return how a case came to its verdict from its scored repetitions, in words if these are asked for.

    Score gate: the band of the mean score, and fail when any repetition's fail was forced.
    Outcomes gate: pass when all passed, fail when none did, else borderline. Where a review
    overrules the machine, the score cannot decide and the verdicts do: all alike that one, else
    borderline; a forced fail that no review lifted still fails the case.
    """
    scored = [row for row in group if verdict_of(row, policy) is not None]
    if not scored:
        return CaseDecision()
    verdicts = [verdict for row in scored if (verdict := verdict_of(row, policy)) is not None]
    is_overruled = any(_is_overruled(row, policy) for row in scored)
    if is_overruled and len(set(verdicts)) == 1:
        text = (
            f"with reviews, {f'all {len(scored)} ' if len(scored) > 1 else ''}{verdicts[0].value}"
        )
        return CaseDecision(verdicts[0], BY_REVIEWS, text)
    if policy.case_gate == "expected_outcomes":
        return _by_outcomes(verdicts)
    forced = sum(row.is_forced and not _is_overruled(row, policy) for row in scored)
    if forced:
        text = f"fail forced in {forced} of {len(scored)} repetitions"
        return CaseDecision(Verdict.FAIL, BY_FORCE, text)
    if is_overruled:
        return CaseDecision(Verdict.BORDERLINE, BY_REVIEWS, "with reviews, verdicts differ")
    scores = [row.score for row in scored if row.score is not None]
    return _by_score(scores, policy, has_words=has_words)


def count_reviews(rows: Iterable[Execution], policy: Policy) -> int:
    """Return how many reviewed verdicts count in the machine's place."""
    return sum(
        policy.count_reviews and row.is_ended and row.reviewed_verdict is not None for row in rows
    )


def _by_outcomes(verdicts: Sequence[Verdict]) -> CaseDecision:
    passed, total = verdicts.count(Verdict.PASS), len(verdicts)
    if passed == total:
        return CaseDecision(Verdict.PASS, BY_OUTCOMES, f"outcomes: all of {total} passed")
    if passed:
        text = f"outcomes: some passed, {passed} of {total}"
        return CaseDecision(Verdict.BORDERLINE, BY_OUTCOMES, text)
    return CaseDecision(Verdict.FAIL, BY_OUTCOMES, f"outcomes: none of {total} passed")


def _by_score(scores: Sequence[float], policy: Policy, *, has_words: bool) -> CaseDecision:
    score = mean(scores)
    if score is None:
        return CaseDecision(Verdict.FAIL, BY_SCORE, "no repetition has a score")
    verdict = policy.verdict_of(score)
    if not has_words:
        # Words take longer than the verdict, and ten thousand cases are asked for theirs at once.
        return CaseDecision(verdict, BY_SCORE)
    bands = (policy.borderline_threshold, policy.pass_threshold)
    low, high = (spelt_limit(band, scale=policy.scale) for band in bands)
    said = f"mean {_distinct(score, policy)}"
    texts = {
        Verdict.PASS: f"{said} ≥ {high}",
        Verdict.BORDERLINE: f"{low} ≤ {said} < {high}",
        Verdict.FAIL: f"{said} < {low}",
    }
    return CaseDecision(verdict, BY_SCORE, texts[verdict])


def _distinct(score: float, policy: Policy) -> str:
    """Return the score on the suite's scale, with as many digits as tell it from both bands."""
    limits = [rounded(policy.pass_threshold), rounded(policy.borderline_threshold)]
    for digits in range(SCALE_DIGITS[policy.scale], 9):
        text = spelt(score, digits, scale=policy.scale)
        shown = rounded(float(text) / policy.scale)
        if all((shown >= limit) == (rounded(score) >= limit) for limit in limits):
            return text
    return spelt(score, 9, scale=policy.scale)


def _is_overruled(row: Execution, policy: Policy) -> bool:
    """Tell whether a reviewed verdict counts that is another than the machine's."""
    return verdict_of(row, policy) is not (row.verdict if row.status == SCORED else None)

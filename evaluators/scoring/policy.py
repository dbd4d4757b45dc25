"""The policy of a suite: bands, gates, thresholds and tolerances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, ValidationInfo, field_validator, model_validator

from evaluators.scoring.numbers import rounded
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError, Spec, Verdict

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "case_gate": ("score", "expected_outcomes"),
    "final_score": ("aggregate", "judge_overall"),
    "on_unscored": ("error", "exclude", "zero"),
    "judge_outcomes": ("auto", "always", "never"),
    "scale": (1, 5, 10, 100),
}
SHARES = (
    "pass_threshold",
    "borderline_threshold",
    "fallback_threshold",
    "metrics_pass_threshold",
    "cases_pass_threshold",
    "max_pass_rate_drop",
    "max_avg_score_drop",
    "review_distance",
    "review_pass_sample",
    "review_fail_sample",
)
# The rules that put an execution into the review queue, each on or off.
REVIEW_RULES = (
    "review_borderline",
    "review_disagreement",
    "review_one_missed",
    "review_split_panel",
    "review_samples",
    "review_repetitions",
    "review_near_threshold",
    "review_required",
    "review_verdict_like",
)
FLAGS = ("count_reviews", *REVIEW_RULES, "review_blind")
MAX_REVIEWERS = 9


class UnknownPolicyError(DomainError):
    """A setting of the policy is not one of its choices."""

    code = "unknown_policy"


class PolicySpec(Spec):
    """The rules that turn scores into verdicts and decide the gates of a run (SCORING §4, §8, §9).

    Thresholds and drops are shares from 0 to 1; `max_latency_increase_pct` is in percent.

    `judge_outcomes` says where expected outcomes are judged although the score decides: `always`, `never`,
    or `auto` where an evaluator asks a judge anyway. Where the outcomes decide, they always are (SCORING §5).

    The settings named `review_…` say what people review: the rules by which an execution enters the
    review queue (SCORING §4.6), how near a threshold counts as near (`review_distance`, 0 to 1), the
    share of the other passes and fails drawn at random (`review_pass_sample`, `review_fail_sample`),
    how many people decide each (`review_reviewers`), and whether the machine's verdict is hidden from
    them until they have decided (`review_blind`). None of them changes a verdict of the machine.

    Raises ScoreOutOfRangeError or UnknownPolicyError naming the field and the value.
    """

    model_config = ConfigDict(extra="forbid")

    pass_threshold: float = 0.8
    borderline_threshold: float = 0.6
    case_gate: str = "score"
    fallback_threshold: float = 0.75
    final_score: str = "aggregate"
    on_unscored: str = "error"
    judge_outcomes: str = "auto"
    metrics_pass_threshold: float = 0.8
    cases_pass_threshold: float = 1.0
    max_pass_rate_drop: float = 0.0
    max_avg_score_drop: float = 0.05
    max_latency_increase_pct: float = 20.0
    count_reviews: bool = False
    scale: int = 1
    review_borderline: bool = True
    review_disagreement: bool = True
    review_one_missed: bool = True
    review_split_panel: bool = True
    review_samples: bool = True
    review_repetitions: bool = True
    review_near_threshold: bool = True
    review_required: bool = True
    review_verdict_like: bool = True
    review_distance: float = 0.02
    review_pass_sample: float = 0.05
    review_fail_sample: float = 0.05
    review_reviewers: int = 1
    review_blind: bool = False

    @field_validator(*CHOICES, mode="before")
    @classmethod
    def _check_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse unknown choices before types are checked, so that the error names the choices."""
        name = str(info.field_name)
        if value not in CHOICES[name]:
            choices = ", ".join(map(str, CHOICES[name]))
            raise UnknownPolicyError(f"{name} {value!r} is not one of {choices}")
        return value

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        """Refuse bands and thresholds outside 0 ≤ borderline ≤ pass ≤ 1 (SCORING §1)."""
        for name in SHARES:
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a number from 0 to 1")
        if self.borderline_threshold > self.pass_threshold:
            raise ScoreOutOfRangeError(
                f"borderline_threshold {self.borderline_threshold!r} is above "
                f"pass_threshold {self.pass_threshold!r}"
            )
        increase = self.max_latency_increase_pct
        if not (math.isfinite(increase) and increase >= 0):
            raise ScoreOutOfRangeError(f"max_latency_increase_pct {increase!r} is not 0 or more")
        if not 1 <= self.review_reviewers <= MAX_REVIEWERS:
            raise ScoreOutOfRangeError(
                f"review_reviewers {self.review_reviewers!r} is not 1 to {MAX_REVIEWERS}"
            )
        return self

    @property
    def outcomes_decide(self) -> bool:
        """Tell whether expected outcomes decide the verdict of an execution, not the score (SCORING §4.3)."""
        return self.case_gate == "expected_outcomes"

    def verdict_for(self, score: float) -> Verdict:
        """Return the band a score from 0 to 1 falls into (SCORING §4.3)."""
        value = rounded(score)
        if value >= rounded(self.pass_threshold):
            return Verdict.PASS
        if value >= rounded(self.borderline_threshold):
            return Verdict.BORDERLINE
        return Verdict.FAIL

"""The policy of a suite: bands, gates, thresholds and tolerances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evaluators.scoring.numbers import rounded
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError, Verdict

WORDS = {
    "case_gate": ("score", "expected_outcomes"),
    "final_score": ("aggregate", "judge_overall"),
    "on_unscored": ("error", "exclude", "zero"),
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
)


class UnknownPolicyError(DomainError):
    """A setting of the policy has a word that none of its choices is."""

    code = "unknown_policy"


@dataclass(frozen=True, slots=True)
class Policy:
    """What turns scores into verdicts and runs into passed or failed gates (SCORING §4, §8, §9).

    Thresholds and drops are shares from 0 to 1; `max_latency_increase_pct` is in percent.
    Raises ScoreOutOfRangeError or UnknownPolicyError naming the field and the value.
    """

    pass_threshold: float = 0.8
    borderline_threshold: float = 0.6
    case_gate: str = "score"
    fallback_threshold: float = 0.75
    final_score: str = "aggregate"
    on_unscored: str = "error"
    metrics_pass_threshold: float = 0.8
    cases_pass_threshold: float = 1.0
    max_pass_rate_drop: float = 0.0
    max_avg_score_drop: float = 0.05
    max_latency_increase_pct: float = 20.0
    count_reviews: bool = False
    scale: int = 1

    def __post_init__(self) -> None:
        """Refuse bands and thresholds outside 0 ≤ borderline ≤ pass ≤ 1, and unknown words (SCORING §1)."""
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
        for name, words in WORDS.items():
            if getattr(self, name) not in words:
                choices = ", ".join(str(word) for word in words)
                raise UnknownPolicyError(f"{name} {getattr(self, name)!r} is none of {choices}")

    def verdict_of(self, score: float) -> Verdict:
        """Return the band a score from 0 to 1 falls into (SCORING §4.3)."""
        seen = rounded(score)
        if seen >= rounded(self.pass_threshold):
            return Verdict.PASS
        if seen >= rounded(self.borderline_threshold):
            return Verdict.BORDERLINE
        return Verdict.FAIL

    def as_json(self) -> dict[str, Any]:
        """Return the policy as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy that as_json wrote."""
        return cls(**values)

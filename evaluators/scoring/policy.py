"""The policy of a suite: bands, gates, thresholds and tolerances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from evaluators.scoring.types import ScoreOutOfRangeError


@dataclass(frozen=True, slots=True)
class Policy:
    """What turns scores into verdicts and runs into passed or failed gates (SCORING §4, §8, §9).

    Thresholds and drops are shares from 0 to 1; `max_latency_increase_pct` is in percent.
    Raises ScoreOutOfRangeError naming the field and the value.
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
        """Refuse bands and thresholds outside 0 ≤ borderline ≤ pass ≤ 1 (SCORING §1)."""
        for name in (
            "pass_threshold",
            "borderline_threshold",
            "fallback_threshold",
            "metrics_pass_threshold",
            "cases_pass_threshold",
            "max_pass_rate_drop",
            "max_avg_score_drop",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a number from 0 to 1")
        if self.borderline_threshold > self.pass_threshold:
            raise ScoreOutOfRangeError(
                f"borderline_threshold {self.borderline_threshold!r} is above "
                f"pass_threshold {self.pass_threshold!r}"
            )
        if not (math.isfinite(self.max_latency_increase_pct) and self.max_latency_increase_pct >= 0):
            raise ScoreOutOfRangeError(
                f"max_latency_increase_pct {self.max_latency_increase_pct!r} is not 0 or more"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the policy as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy that as_json wrote."""
        return cls(**values)

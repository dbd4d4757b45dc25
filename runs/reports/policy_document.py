"""A policy as files and the API spell it: the seeds' names and units (SCORING §1)."""

from __future__ import annotations

from typing import Any

from evaluators.scoring.numbers import percent
from evaluators.scoring.policy import Policy


def policy_document(policy: Policy) -> dict[str, Any]:
    """Return the policy as plain JSON values.

    The two bands and `max_pass_rate_drop` are shares from 0 to 1; thresholds and `max_avg_score_drop`
    are points of 100, `max_latency_increase_pct` percent. `pass_threshold` is what the overall score
    has to reach where a case has no expected outcomes (SCORING §4.3).
    """
    return {
        "pass_band": policy.pass_threshold,
        "borderline_band": policy.borderline_threshold,
        "case_gate": policy.case_gate,
        "final_score": policy.final_score,
        "on_unscored": policy.on_unscored,
        "pass_threshold": percent(policy.fallback_threshold),
        "metrics_pass_threshold": percent(policy.metrics_pass_threshold),
        "cases_pass_threshold": percent(policy.cases_pass_threshold),
        "max_pass_rate_drop": policy.max_pass_rate_drop,
        "max_avg_score_drop": percent(policy.max_avg_score_drop),
        "max_latency_increase_pct": policy.max_latency_increase_pct,
        "count_reviews": policy.count_reviews,
        "scale": policy.scale,
    }

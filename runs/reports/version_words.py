"""Say on pages what a version changes: its values by the names and spellings of the suite's pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evaluators.kinds import all_kinds
from evaluators.templatetags import figures
from runs.drafting.facts import AGGREGATOR, CONFIG
from runs.models import CaseGate, FinalScore, OnUnscored
from runs.reports.trees import COMBINES

NAMES: Mapping[str, str] = {
    "title": "Title",
    "description": "Description",
    "tags": "Tags",
    "judge": "Judge",
    "pass_threshold": "Pass from",
    "borderline_threshold": "Borderline from",
    "case_gate": "Case gate",
    "fallback_threshold": "Without outcomes, pass from",
    "final_score": "Final score",
    "on_unscored": "Unscored evaluator",
    "metrics_pass_threshold": "Metrics gate, at least",
    "cases_pass_threshold": "Cases gate, at least",
    "max_pass_rate_drop": "Pass rate may drop by",
    "max_avg_score_drop": "Mean score may drop by",
    "max_latency_increase_pct": "Latency may grow by",
    "count_reviews": "Reviews count in the gates",
    "scale": "Scores from 0 to",
    "review_borderline": "Review what is borderline",
    "review_disagreement": "Review where gate and score disagree",
    "review_one_missed": "Review where one outcome is missed",
    "review_split_panel": "Review split panels",
    "review_samples": "Review where a judge's samples differ",
    "review_repetitions": "Review where repetitions differ",
    "review_near_threshold": "Review what is near a threshold",
    "review_required": "Review requirements missed narrowly",
    "review_verdict_like": "Review answers that read like a verdict",
    "review_distance": "Near means within",
    "review_pass_sample": "Passes drawn for review",
    "review_fail_sample": "Fails drawn for review",
    "review_reviewers": "Reviewers of each",
    "review_blind": "The judge is hidden until decided",
    "weight": "Weight",
    "required": "Required",
    "negate": "Negated",
    "gate": "Gate of the composite",
    "kind": "Kind",
    f"{AGGREGATOR}type": "Combines by",
    f"{AGGREGATOR}gate_threshold": "Gates must reach",
    f"{AGGREGATOR}remainder": "Averages",
    f"{AGGREGATOR}threshold": "Each must reach",
    f"{AGGREGATOR}share": "Share that must pass",
}
BANDS = {
    *("pass_threshold", "borderline_threshold", "fallback_threshold"),
    *(f"{AGGREGATOR}gate_threshold", f"{AGGREGATOR}threshold", "review_distance"),
}
RATES = {
    *("metrics_pass_threshold", "cases_pass_threshold", f"{AGGREGATOR}share"),
    *("review_pass_sample", "review_fail_sample"),
}
DROPS = {"max_pass_rate_drop", "max_avg_score_drop"}
CHOICES: Mapping[str, Any] = {
    "case_gate": CaseGate,
    "final_score": FinalScore,
    "on_unscored": OnUnscored,
}


def name_of(fact: str) -> str:
    """Return a value's name as pages say it: a setting of a kind by its own name."""
    known = NAMES.get(fact)
    return (
        known or fact.removeprefix(AGGREGATOR).removeprefix(CONFIG).replace("_", " ").capitalize()
    )


def spelt(fact: str, value: Any, scale: int = 1) -> str | None:
    """Return a value as pages spell it, scores on the suite's scale; None where there is none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "above 0" if fact == "required" and value else "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(fact, value, scale)
    if isinstance(value, str):
        return _word(fact, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "none"
    return json.dumps(value, ensure_ascii=False, indent=1)


def _word(fact: str, value: str) -> str:
    if fact in CHOICES and value in CHOICES[fact].values:
        return str(CHOICES[fact](value).label)
    if fact == "kind" and value in all_kinds():
        return all_kinds()[value].label
    return COMBINES.get(value, value) if fact == f"{AGGREGATOR}type" else value or "none"


def _number(fact: str, value: float, scale: int) -> str:
    if fact == "required":
        return f"{figures.bound(value, scale)} or more"
    if fact in BANDS:
        return figures.bound(value, scale)
    if fact in RATES:
        return figures.threshold(value)
    if fact in DROPS:
        return figures.points(value)
    if fact == "max_latency_increase_pct":
        return f"{figures.plain(value)}%"
    return f"×{figures.plain(value)}" if fact == "weight" else figures.plain(value)

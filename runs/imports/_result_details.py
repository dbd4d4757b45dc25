"""What evaluators of a file said in parts, as their kinds keep it, so that pages show it all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runs.formats.results import EvaluatorLine


def details_of(one: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return the metrics, or the final evaluation, of an evaluator; nothing where it told of neither."""
    if one.metrics:
        return _of_metrics(one, supplies_outcomes=supplies_outcomes)
    if one.final_evaluation:
        return _of_evaluation(one.final_evaluation)
    return {}


def _of_metrics(one: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    scores = {metric["key"]: metric["score"] for metric in one.metrics}
    # Means of several samples tell of none of them, and only whole scores can be weighed anew.
    is_one_sample = all(score == int(score) for score in scores.values())
    samples = [{key: int(score) for key, score in scores.items()}] if is_one_sample else []
    return {
        "reasoning": one.reasoning,
        "supplies_outcomes": supplies_outcomes,
        "metrics": [dict(metric) for metric in one.metrics],
        "samples": samples,
    }


def _of_evaluation(found: Mapping[str, Any]) -> dict[str, Any]:
    overall = found["judge_overall"]
    return {
        "final_evaluation": dict(found),
        "judge_overall": overall,
        "overall_scores": [overall["score"]],
        "evidence": overall["evidence"],
        "dimensions": [
            {
                "key": key,
                "name": key.replace("_", " ").capitalize(),
                "policy": "judge_only",
                "deterministic": found["deterministic_dimensions"].get(key),
                "judge": found["judge_dimensions"].get(key),
                "final": score,
            }
            for key, score in found["final_dimensions"].items()
        ],
    }

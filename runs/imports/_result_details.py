"""What evaluators of a file said in parts, as their kinds keep it, so that pages show it all the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.kinds import kind_of, read_config
from evaluators.scoring.types import DomainError
from runs.formats.results import EvaluatorLine
from runs.plan import DELIBERATION_KIND

# How far a file's figure may lie from ours: others round theirs.
NEAR = 1e-6


def details_of(one: EvaluatorLine, *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return the metrics, final evaluation or votes of an evaluator; nothing where it told of none."""
    if one.metrics:
        return _of_metrics(one, supplies_outcomes=supplies_outcomes)
    if one.final_evaluation:
        return _of_evaluation(one.final_evaluation)
    return _of_rounds(one) if one.rounds else {}


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


def _of_rounds(one: EvaluatorLine) -> dict[str, Any]:
    """Return every vote, and what they came to where that is the score that is told."""
    votes = {"rounds": [dict(held) for held in one.rounds]}
    told = one.score if one.score is None or not one.is_negated else 1.0 - one.score
    if told is None:
        return votes
    last = one.rounds[-1]["votes"]
    slugs = [vote["slug"] for vote in last]
    panel = {"models": slugs} if all(slugs) else {"judges": len(slugs)}
    asked = sum(not held["breaks_tie"] for held in one.rounds)
    rescore = kind_of(DELIBERATION_KIND).rescore
    for way in ("midpoint", "mean"):
        settings = {**panel, "rounds": asked, "score_by": way}
        try:
            found = rescore(read_config(DELIBERATION_KIND, settings), votes) if rescore else None
        except DomainError:
            return votes
        if found is not None and abs(found.score - told) <= NEAR:
            return dict(found.details)
    return votes

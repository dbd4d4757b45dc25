"""One score of what a judge says, once or in several samples, with what it found (SCORING §7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluators.kinds._base import Context, JudgeQuestion
from evaluators.kinds._samples import Joining, ask_samples
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Finding, Score, Unscored

OPINION_SCHEMA = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "hits": {"type": "array", "items": {"type": "string"}},
        "misses": {"type": "array", "items": {"type": "string"}},
        "score": {"type": "number"},
    },
    "required": ["reasoning", "hits", "misses", "score"],
    "additionalProperties": False,
}


async def opinion(
    context: Context,
    question: JudgeQuestion,
    *,
    samples: int,
    samples_by: Joining,
    scale: float = 1.0,
) -> Score | Unscored:
    """Return the score of the samples, each 0 to `scale`; all of them are in the details under `samples`."""
    asked = await ask_samples(context, question, samples)
    if isinstance(asked, Unscored):
        return asked
    found = joined_opinions(
        [_kept(reply.content) for reply in asked.replies], samples_by, scale=scale
    )
    details = {"model": asked.replies[0].model, **found.details}
    return replace(found, details=details, usage=asked.usage, warnings=asked.warnings)


def joined_opinions(
    samples: Sequence[Mapping[str, Any]], way: Joining, *, scale: float = 1.0
) -> Score:
    """Return one score of stored samples; reasoning and findings are those of the sample nearest to it."""
    combined = combine_samples([float(one["score"]) for one in samples], way)
    said = min(samples, key=lambda one: abs(float(one["score"]) - combined.score))
    return Score(
        combined.score / scale,
        raw_score=None if scale == 1 else combined.score,
        scale=scale,
        reasoning=str(said["reasoning"]),
        findings=(
            *(Finding(text, True) for text in said["hits"]),
            *(Finding(text, False) for text in said["misses"]),
        ),
        details={
            "samples": list(samples),
            "samples_by": way,
            "sample_scores": [score / scale for score in combined.samples],
            "spread": combined.spread / scale,
        },
    )


def without_single_sample(score: Score) -> Score:
    """Return the score with no more details than its model where one sample says it all."""
    if len(score.details["samples"]) > 1:
        return score
    return replace(score, details={"model": score.details["model"]})


def scale_problem(reply: Mapping[str, Any], top: float) -> str:
    """Return what is wrong with a reply that satisfies the schema, or ""."""
    given = reply["score"]
    return "" if 0 <= given <= top else f"score is {given}, not a number from 0 to {top:g}"


def _kept(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "score": float(content["score"]),
        "reasoning": str(content["reasoning"]),
        "hits": [str(text) for text in content.get("hits", ())],
        "misses": [str(text) for text in content.get("misses", ())],
    }

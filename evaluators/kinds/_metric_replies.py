"""Metrics as a judge replies with them, and as a score keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from evaluators.kinds._base import JudgeReply, PartsMissingError
from evaluators.kinds._outcomes import OUTCOMES_SCHEMA
from evaluators.scoring.metrics import HIGHEST, Metric, metric_label, metric_score
from evaluators.scoring.numbers import rounded
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Finding

HIT_FROM, MISS_TO = 4, 2
MOST_SHAPES = 64
JUSTIFICATIONS = "justifications"

# Key of each metric, and whether it is passed or failed instead of scored.
Shape = tuple[tuple[str, bool], ...]


@lru_cache(maxsize=MOST_SHAPES)
def schema_of(shape: Shape, *, has_outcomes: bool) -> Mapping[str, Any]:
    """Return the schema of a reply: every metric by its key, and the outcomes where there are some."""
    outcomes = {"outcomes": OUTCOMES_SCHEMA} if has_outcomes else {}
    return _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape), **outcomes})


@lru_cache(maxsize=MOST_SHAPES)
def least_schema_of(shape: Shape) -> Mapping[str, Any]:
    """Return the schema of a reply whose metrics are complete and which gives no outcomes at all."""
    nothing = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    found = _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape)})
    return {**found, "properties": {**found["properties"], "outcomes": nothing}}


def details_of(replies: Sequence[JudgeReply], *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return what the replies said, as a score is computed of it: the first speaks for them all."""
    first = replies[0].content
    return {
        "model": replies[0].model,
        "reasoning": str(first["reasoning"]),
        "supplies_outcomes": supplies_outcomes,
        "metrics": [
            {
                "key": key,
                "binary": "passed" in said,
                JUSTIFICATIONS: [
                    str(reply.content["metrics"][key]["justification"]) for reply in replies
                ],
            }
            for key, said in first["metrics"].items()
        ],
        "samples": [
            {key: _whole(said) for key, said in reply.content["metrics"].items()}
            for reply in replies
        ],
    }


def judged_parts(
    metrics: Sequence[Metric], details: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """Return by key what is stored of each metric.

    Raises PartsMissingError for a metric that was not judged, or not on this scale.
    """
    if not details.get("samples"):
        raise PartsMissingError("What the judge replied is not kept in this result.")
    judged = {str(part["key"]): part for part in details.get("metrics", ())}
    for metric in metrics:
        if metric.key not in judged:
            raise PartsMissingError(f"The metric {metric.key!r} was not judged in this result.")
        if bool(judged[metric.key]["binary"]) != metric.binary:
            scale = "passed or failed" if metric.binary else "0 to 5"
            raise PartsMissingError(
                f"The metric {metric.key!r} was not judged {scale} in this result."
            )
    return judged


def part_of(
    metric: Metric, judged: Mapping[str, Any], samples: Sequence[Mapping[str, int]], way: str
) -> dict[str, Any]:
    """Return one metric as it is kept and shown; its score is 0 to 5, its weight 0 to 1.

    The justification is that of the sample nearest to the score.
    """
    scores = [metric_score(metric, sample[metric.key]) for sample in samples]
    combined = combine_samples([float(score) for score in scores], way).score
    nearest = min(range(len(scores)), key=lambda n: abs(scores[n] - combined))
    said = judged.get(JUSTIFICATIONS) or [judged["justification"]]
    return {
        "key": metric.key,
        "name": metric.name,
        "tier": metric.tier,
        "weight": rounded(metric.weight),
        "binary": metric.binary,
        "score": rounded(combined),
        "label": metric_label(combined, binary=metric.binary),
        "justification": said[nearest],
        **({JUSTIFICATIONS: said} if len(said) > 1 else {}),
    }


def by_tier(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics with those of a tier together, otherwise in their order."""
    tiers = list(dict.fromkeys(metric.tier for metric in metrics))
    return sorted(metrics, key=lambda metric: tiers.index(metric.tier))


def findings_of(parts: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return the metrics that are good as hits and those that are poor as misses; the rest is neither."""
    return tuple(
        Finding(_words(part), part["score"] >= HIT_FROM, str(part["justification"]))
        for part in parts
        if not MISS_TO < part["score"] < HIT_FROM
    )


def _words(part: Mapping[str, Any]) -> str:
    label = str(part["label"]).replace("_", " ")
    shown = "" if part["binary"] else f" ({part['score']:g} of {HIGHEST})"
    return f"{part['name']}: {label}{shown}"


def _whole(said: Mapping[str, Any]) -> int:
    if "passed" in said:
        return HIGHEST if said["passed"] else 0
    return int(said["score"])


def _metrics(shape: Shape) -> dict[str, Any]:
    return _object({key: _metric(is_binary=is_binary) for key, is_binary in shape})


def _metric(*, is_binary: bool) -> dict[str, Any]:
    scored = {"score": {"type": "integer", "enum": list(range(HIGHEST + 1))}}
    said = {"passed": {"type": "boolean"}} if is_binary else scored
    return _object({"justification": {"type": "string"}, **said})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }

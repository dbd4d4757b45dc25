"""The metrics a judge scores: how files write them, and how replies and stored scores hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import JudgeReply, PartsMissingError
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.outcomes import OUTCOMES_SCHEMA
from evaluators.scoring.metrics import (
    DEFAULT_METRICS,
    HIGHEST,
    Metric,
    metric_label,
    metric_score,
    normalize,
)
from evaluators.scoring.numbers import rounded
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Finding

MAX_METRICS = 40
MAX_KEY_LENGTH = 60
WEIGHT_OF_OWN = 0.1
MAX_WEIGHT = 1_000_000
KEY_SPELLINGS = ("key", "metric", "id", "name")
KNOWN = {metric.key: metric for metric in DEFAULT_METRICS}
TASK_COMPLETION = Metric(
    "task_completion", "Task Completion", WEIGHT_OF_OWN, "Delivery",
    "What the user came for is done by the end.", binary=True,
)  # fmt: skip
FACTS = {**KNOWN, TASK_COMPLETION.key: TASK_COMPLETION}


class MetricSetting(BaseModel):
    """One metric: one of the eight by its key, or one of the suite's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    key: str = Field(
        min_length=1, max_length=MAX_KEY_LENGTH, description="Short name, unique in the set."
    )
    name: str = Field(max_length=100, description="How it is called on pages.")
    weight: float = Field(
        ge=0, le=MAX_WEIGHT, description="Weight before all are made to sum to 1."
    )
    tier: str = Field("", max_length=60, description="The group it is shown in.")
    binary: bool = Field(description="Passed or failed, 5 or 0, instead of 0 to 5.")
    description: str = Field("", max_length=2000, description="What the judge looks at.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Fill in what the eight metrics say of themselves; a metric may be written as its key."""
        given = {"key": values} if isinstance(values, str) else values
        if not isinstance(given, Mapping):
            return given
        if not isinstance(given.get("key"), str):
            # Only the key is missing then: what follows from it is not worth a complaint of its own.
            return {"name": "", "weight": 0.0, "binary": False, **given}
        key = metric_key(given["key"])
        usual = FACTS.get(key)
        title = key.replace("_", " ").title()
        blank: dict[str, Any] = {"name": title, "weight": WEIGHT_OF_OWN, "binary": False}
        if usual is not None:
            blank = {name: getattr(usual, name) for name in (*blank, "tier", "description")}
        said = {name: value for name, value in given.items() if value not in (None, "")}
        return {**blank, **said, "key": key}

    def __str__(self) -> str:
        """Return the key, as lists of settings show it."""
        return self.key

    def as_metric(self) -> Metric:
        """Return the metric as the arithmetic knows it."""
        return Metric(self.key, self.name, self.weight, self.tier, self.description, self.binary)


def default_metrics() -> tuple[MetricSetting, ...]:
    """Return the eight metrics with their weights and tiers (SCORING §5)."""
    return tuple(MetricSetting.model_validate(metric.key) for metric in DEFAULT_METRICS)


def weighted(settings: Sequence[MetricSetting]) -> tuple[Metric, ...]:
    """Return the metrics with weights that sum to 1; raises MetricsError for a set that cannot be scored."""
    return normalize([setting.as_metric() for setting in settings])


def metric_key(text: str) -> str:
    """Return a name as the key of a metric: `Tool Routing` is tool_routing."""
    return re.sub(r"\W+", "_", normal_spelling(text)).strip("_")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings a suite file means by its several spellings of a set of metrics.

    `metrics` may be a list, or weights by key; `weights` changes weights of the set and nothing else.
    Raises ValueError for a weight of a metric that is not in the set.
    """
    found = dict(mapping)
    if "metrics" in found:
        found["metrics"] = _listed(found["metrics"])
    weights = found.pop("weights", None)
    if weights is not None:
        found["metrics"] = _with_weights(found.get("metrics"), weights)
    return found


def _listed(metrics: Any) -> Any:
    if isinstance(metrics, Mapping):
        return [
            {"key": str(key), **_spelt(facts)}
            if isinstance(facts, Mapping)
            else {"key": str(key), "weight": facts}
            for key, facts in metrics.items()
        ]
    if not isinstance(metrics, list):
        return metrics
    return [_spelt(one) if isinstance(one, Mapping) else one for one in metrics]


def _spelt(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a metric with its key under that name."""
    found = {normal_spelling(str(name)): value for name, value in facts.items()}
    spelling = next((name for name in KEY_SPELLINGS if name in found), None)
    if spelling is None or spelling == "key":
        return found
    key = found[spelling] if spelling == "name" else found.pop(spelling)
    return {"key": key, **found}


def _with_weights(metrics: Any, weights: Any) -> Any:
    if not isinstance(weights, Mapping):
        raise ValueError("weights: is no mapping; write weights by the key of their metric")
    listed = [metric.key for metric in DEFAULT_METRICS] if metrics is None else metrics
    if not isinstance(listed, list):
        return metrics
    given = {metric_key(str(key)): weight for key, weight in weights.items()}
    keyed = [{"key": one} if isinstance(one, str) else one for one in listed]
    known = {metric_key(str(one.get("key"))) for one in keyed if isinstance(one, Mapping)}
    if unknown := sorted(given.keys() - known):
        raise ValueError(
            f"weights: {unknown[0]!r} is not one of the metrics {', '.join(sorted(known))}"
        )
    return [
        {**one, "weight": given[metric_key(str(one.get("key")))]}
        if isinstance(one, Mapping) and metric_key(str(one.get("key"))) in given
        else one
        for one in keyed
    ]


HIT_FROM, MISS_TO = 4, 2
MAX_SHAPES = 64
JUSTIFICATIONS = "justifications"

# Key of each metric, and whether it is passed or failed instead of scored.
MetricShape = tuple[tuple[str, bool], ...]


@lru_cache(maxsize=MAX_SHAPES)
def metrics_schema(shape: MetricShape, *, has_outcomes: bool) -> Mapping[str, Any]:
    """Return the schema of a reply: every metric by its key, and the outcomes where there are some."""
    outcomes = {"outcomes": OUTCOMES_SCHEMA} if has_outcomes else {}
    return _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape), **outcomes})


@lru_cache(maxsize=MAX_SHAPES)
def least_metrics_schema(shape: MetricShape) -> Mapping[str, Any]:
    """Return the schema of a reply whose metrics are complete and which gives no outcomes at all."""
    nothing = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    found = _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape)})
    return {**found, "properties": {**found["properties"], "outcomes": nothing}}


def metrics_details(replies: Sequence[JudgeReply], *, supplies_outcomes: bool) -> dict[str, Any]:
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


def metric_part(
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


def metric_findings(parts: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
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


def _metrics(shape: MetricShape) -> dict[str, Any]:
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

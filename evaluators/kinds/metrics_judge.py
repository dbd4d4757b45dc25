"""Score how an agent worked with metrics from 0 to 5, and check the expected outcomes in the same call.

One judge call scores every metric from 0 to 5 with a justification, and says whether each expected outcome of
the case was met. The score is Σ (metric ÷ 5 × weight), shown as 0 to 100: all fives make 100, all threes 60.
No metric passes or fails a case by itself. The expected outcomes decide if the suite's case gate is
`expected_outcomes`; they are never part of the score.

- **Execution**: `tool_routing` 15%, `parameter_extraction` 15%, `result_interpretation` 15%.
- **Knowledge**: `grounding_fidelity` 12.5%, `instruction_compliance` 12.5%.
- **Process**: `information_gathering` 10%, `conversation_management` 10%.
- **Delivery**: `response_delivery` 10%.

You can change the set:

- **Fewer metrics**: list the keys to keep. The weights are scaled to sum to 1 after any change.
- **Other weights**: `weights: {tool_routing: 0.3}`, or a `weight` in the list.
- **Your own metrics**: a `key` with `name`, `description`, `tier` and `weight`.
- **Pass or fail**: `binary: true` makes a metric 5 or 0. `task_completion` is binary already.
- **Samples**: the judge is asked several times. The score is the median, the mean or the most frequent of
  the samples, an outcome is met if more than half of them say so, and the page shows the spread.

The labels only describe: 0 critical fail, 1 fail, 2 poor, 3 acceptable, 4 good, 5 excellent.
The judge is asked again if its reply omits or invents a metric, uses anything but the whole numbers 0 to 5,
or answers only some of the outcomes. If the second reply is no better, the evaluator is unscored, never 0. If
it has all metrics but no outcomes, the metrics count and the score decides the case.

Good: a metric whose description says what to look at and what a low score looks like.

Bad: "Quality". It overlaps with every other metric and counts the same flaw twice.

```yaml
name: metrics
type: metrics_judge
metrics:
  - tool_routing
  - grounding_fidelity
  - {key: response_delivery, weight: 0.3}
  - {key: task_completion, weight: 0.5}
  - key: empathy
    name: Empathy
    tier: Delivery
    weight: 0.2
    description: The answer takes the customer's trouble seriously without flattery.
```
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import (
    Context,
    JudgeQuestion,
    JudgeReply,
    KindConfig,
    PartsMissingError,
    kind,
)
from evaluators.kinds._judging import (
    JUDGE_RULES,
    Joining,
    ask_samples,
    judge_instructions,
    judge_model,
    judge_samples,
    judge_timeout,
    sample_combination,
)
from evaluators.kinds._prompts import fill, prompt_text
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.outcomes import (
    OUTCOMES_SCHEMA,
    combine_outcomes,
    outcome_results,
    outcomes_problem,
)
from evaluators.scoring.metrics import (
    DEFAULT_METRICS,
    HIGHEST,
    Metric,
    MetricsError,
    metric_label,
    metric_score,
    normalize,
    overall_score,
)
from evaluators.scoring.numbers import rounded
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

PROMPT_VERSION = 1
NO_OUTCOMES = "no outcomes produced"

TASK = """\
You assess how an AI agent worked on one task and what it answered, metric by metric.

The task it was given: {{input}}
What was said while it worked: {{messages}}
What its tools were asked and returned: {{tool_calls}}
The answer under test: {{candidate_answer}}
A reference answer written by people, one way of being right among others: {{reference_answer}}
What its authors expect of a good answer, as background: {{criteria}}"""

METRICS = """\
The metrics, each by its key:
{metrics}

Scores of a metric are whole numbers:
5: nothing to correct. 4: a slip that costs nobody anything. 3: does its job with a flaw that shows. \
2: a flaw that matters. 1: mostly wrong. 0: wrong or missing where it does harm.
Judge each metric by itself and count a flaw under the one metric it belongs to. A metric about \
something that this task does not call for and the agent rightly left alone scores 5."""

BINARY = "{description} Passed or failed."

OUTCOMES = """\
The expected outcomes, each by its number. They are apart from the metrics:
{outcomes}"""

OWN = """\
What the team that owns the agent adds. It does not change the metrics, the scale or the form of reply:

{instructions}"""

REPLY = """\
What to reply, in this order:
- reasoning: two to four sentences on what the agent did and where that helped or hurt.
- metrics: every metric above by its key, none left out and none added:
  - justification: one or two sentences with the words, tool call or result that settle it.
  - score: a whole number from 0 to 5; for a metric that is passed or failed, passed: true or false. In \
doubt the lower one."""

REPLY_OUTCOMES = """\
- outcomes: one entry for each expected outcome, by its number, none left out and none added:
  - justification: one or two sentences with the words of the answer or the tool call that settle it.
  - passed: true only when the whole statement holds. Judge each by itself, in doubt it is false."""


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
    """One metric: one of the eight by its key, or a new one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    key: str = Field(
        min_length=1, max_length=MAX_KEY_LENGTH, description="Short name, unique in the set."
    )
    name: str = Field(max_length=100, description="Its name on pages.")
    weight: float = Field(
        ge=0, le=MAX_WEIGHT, description="Weight; all weights are scaled to a sum of 1."
    )
    tier: str = Field("", max_length=60, description="The group in which it is shown.")
    binary: bool = Field(description="Pass or fail (5 or 0) instead of 0 to 5.")
    description: str = Field("", max_length=2000, description="What the judge looks at.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Add the settings of the eight metrics; a metric may be written as its key."""
        settings = {"key": values} if isinstance(values, str) else values
        if not isinstance(settings, Mapping):
            return settings
        if not isinstance(settings.get("key"), str):
            # Complain only about the missing key, not about the settings that follow from it.
            return {"name": "", "weight": 0.0, "binary": False, **settings}
        key = metric_key(settings["key"])
        default = FACTS.get(key)
        title = key.replace("_", " ").title()
        blank: dict[str, Any] = {"name": title, "weight": WEIGHT_OF_OWN, "binary": False}
        if default is not None:
            blank = {name: getattr(default, name) for name in (*blank, "tier", "description")}
        values_set = {name: value for name, value in settings.items() if value not in (None, "")}
        return {**blank, **values_set, "key": key}

    def __str__(self) -> str:
        """Return the key, as lists of settings show it."""
        return self.key

    def as_metric(self) -> Metric:
        """Return the metric in the form that scoring uses."""
        return Metric(self.key, self.name, self.weight, self.tier, self.description, self.binary)


def default_metrics() -> tuple[MetricSetting, ...]:
    """Return the eight metrics with their weights and tiers (SCORING §5)."""
    return tuple(MetricSetting.model_validate(metric.key) for metric in DEFAULT_METRICS)


def scale_weights(settings: Sequence[MetricSetting]) -> tuple[Metric, ...]:
    """Return the metrics with weights that sum to 1; raises MetricsError if they cannot be scored."""
    return normalize([setting.as_metric() for setting in settings])


def metric_key(text: str) -> str:
    """Return the key of a metric from its name: `Tool Routing` is tool_routing."""
    return re.sub(r"\W+", "_", normal_spelling(text)).strip("_")


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the metrics in a suite file under their own names.

    `metrics` may be a list, or weights by key; `weights` only changes weights.
    Raises ValueError for the weight of an unknown metric.
    """
    settings = dict(mapping)
    if "metrics" in settings:
        settings["metrics"] = _listed(settings["metrics"])
    weights = settings.pop("weights", None)
    if weights is not None:
        settings["metrics"] = _with_weights(settings.get("metrics"), weights)
    return settings


def _listed(metrics: Any) -> Any:
    if isinstance(metrics, Mapping):
        return [
            {"key": str(key), **_with_key(facts)}
            if isinstance(facts, Mapping)
            else {"key": str(key), "weight": facts}
            for key, facts in metrics.items()
        ]
    if not isinstance(metrics, list):
        return metrics
    return [_with_key(metric) if isinstance(metric, Mapping) else metric for metric in metrics]


def _with_key(metric: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a metric with its key under `key`."""
    settings = {normal_spelling(str(name)): value for name, value in metric.items()}
    spelling = next((name for name in KEY_SPELLINGS if name in settings), None)
    if spelling is None or spelling == "key":
        return settings
    key = settings[spelling] if spelling == "name" else settings.pop(spelling)
    return {"key": key, **settings}


def _with_weights(metrics: Any, weights: Any) -> Any:
    if not isinstance(weights, Mapping):
        raise ValueError("weights: is not a mapping; write weights by the key of their metric")
    listed = [metric.key for metric in DEFAULT_METRICS] if metrics is None else metrics
    if not isinstance(listed, list):
        return metrics
    weight_by_key = {metric_key(str(key)): weight for key, weight in weights.items()}
    keyed = [{"key": metric} if isinstance(metric, str) else metric for metric in listed]
    known = {metric_key(str(metric.get("key"))) for metric in keyed if isinstance(metric, Mapping)}
    if unknown := sorted(weight_by_key.keys() - known):
        raise ValueError(
            f"weights: {unknown[0]!r} is not one of the metrics {', '.join(sorted(known))}"
        )
    return [
        {**metric, "weight": weight_by_key[metric_key(str(metric.get("key")))]}
        if isinstance(metric, Mapping) and metric_key(str(metric.get("key"))) in weight_by_key
        else metric
        for metric in keyed
    ]


class MetricsJudgeConfig(KindConfig):
    """The metrics and the judge."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("instructions",)

    metrics: tuple[MetricSetting, ...] = Field(
        default_metrics(),
        min_length=1,
        max_length=MAX_METRICS,
        description="The metrics: keys, or key, name, description, tier, weight, binary.",
        json_schema_extra={"widget": "table"},
    )
    instructions: str = judge_instructions()
    model: str = judge_model()
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = judge_timeout()

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        try:
            scale_weights(self.metrics)
        except MetricsError as error:
            raise ValueError(f"metrics: {error}") from error
        return self

    def judged_settings(self) -> Mapping[str, object]:
        """Return the text of each metric, the instructions and the number of samples."""
        texts = {
            f"metric {metric.key}": (metric.name, metric.description) for metric in self.metrics
        }
        return {"instructions": self.instructions, "samples": self.samples, **texts}


def rescore(config: MetricsJudgeConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored metrics with these weights (SCORING §5).

    Raises PartsMissingError for a metric that was not judged, or not on this scale.
    """
    metrics = scale_weights(config.metrics)
    judged = judged_parts(metrics, details)
    samples = [
        {metric.key: int(sample[metric.key]) for metric in metrics} for sample in details["samples"]
    ]
    overall = combine_samples(
        [overall_score(metrics, metric) for metric in samples], config.samples_by
    )
    parts = [
        metric_part(metric, judged[metric.key], samples, config.samples_by)
        for metric in by_tier(metrics)
    ]
    return Score(
        overall.score,
        raw_score=overall.score * 100,
        scale=100.0,
        reasoning=str(details.get("reasoning", "")),
        findings=metric_findings(parts),
        details={
            **details,
            "metrics": parts,
            "samples_by": config.samples_by,
            "overall_scores": [score * 100 for score in overall.samples],
            "spread": overall.spread,
        },
    )


@kind(
    label="Metrics judge",
    icon="e-metrics",
    config=MetricsJudgeConfig,
    rescore=rescore,
    uses_judge=True,
    supplies_outcomes=True,
    spellings={"metrics": {}, "metric_judge": {}},
    read=read,
)
async def score(config: MetricsJudgeConfig, context: Context) -> Outcome:
    """Return the weighted score of the metrics, with each expected outcome met or missed."""
    try:
        added = prompt_text(config.instructions, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    sampled = await ask_samples(context, _question(config, context, added), config.samples)
    if isinstance(sampled, Unscored):
        return sampled
    expected = context.case.expected_outcomes
    judged = (outcome_results(expected, reply.content) for reply in sampled.replies)
    outcomes = combine_outcomes([results for results in judged if results is not None])
    details = metrics_details(sampled.replies, supplies_outcomes=outcomes is not None)
    missing = (NO_OUTCOMES,) if expected and outcomes is None else ()
    return replace(
        rescore(config, details),
        outcomes=outcomes,
        usage=sampled.usage,
        warnings=(*sampled.warnings, *missing),
    )


def _question(config: MetricsJudgeConfig, context: Context, added: str) -> JudgeQuestion:
    expected = context.case.expected_outcomes
    filled = fill(TASK, context)
    numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(expected, 1))
    lines = "\n".join(_line(metric) for metric in scale_weights(config.metrics))
    parts = [
        filled.instructions,
        METRICS.replace("{metrics}", lines),
        OUTCOMES.replace("{outcomes}", numbered) if expected else "",
        OWN.replace("{instructions}", added) if added else "",
        JUDGE_RULES,
        f"{REPLY}\n{REPLY_OUTCOMES}" if expected else REPLY,
    ]
    shape = tuple((metric.key, metric.binary) for metric in config.metrics)
    return JudgeQuestion(
        purpose="metrics_judge",
        instructions="\n\n".join(part for part in parts if part),
        quoted=filled.quoted,
        schema=metrics_schema(shape, has_outcomes=bool(expected)),
        check=(lambda reply: outcomes_problem(len(expected), reply)) if expected else None,
        least=least_metrics_schema(shape) if expected else None,
        model=config.model,
        timeout_s=config.timeout_s,
    )


def _line(metric: Metric) -> str:
    description = metric.description or metric.name
    text = BINARY.replace("{description}", description) if metric.binary else description
    return f"- {metric.key} ({metric.name}): {text}"


HIT_FROM, MISS_TO = 4, 2
MAX_SHAPES = 64

# The key of each metric, and whether it is binary.
MetricShape = tuple[tuple[str, bool], ...]


@lru_cache(maxsize=MAX_SHAPES)
def metrics_schema(shape: MetricShape, *, has_outcomes: bool) -> Mapping[str, Any]:
    """Return the schema of a reply: every metric by its key, and the outcomes if there are any."""
    outcomes = {"outcomes": OUTCOMES_SCHEMA} if has_outcomes else {}
    return _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape), **outcomes})


@lru_cache(maxsize=MAX_SHAPES)
def least_metrics_schema(shape: MetricShape) -> Mapping[str, Any]:
    """Return the schema of a reply with all metrics and no outcomes."""
    nothing = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    schema = _object({"reasoning": {"type": "string"}, "metrics": _metrics(shape)})
    return {**schema, "properties": {**schema["properties"], "outcomes": nothing}}


def metrics_details(replies: Sequence[JudgeReply], *, supplies_outcomes: bool) -> dict[str, Any]:
    """Return the details of a score from the replies; the reasoning is that of the first."""
    first = replies[0].content
    return {
        "model": replies[0].model,
        "reasoning": str(first["reasoning"]),
        "supplies_outcomes": supplies_outcomes,
        "metrics": [
            {
                "key": key,
                "binary": "passed" in part,
                "justifications": [
                    str(reply.content["metrics"][key]["justification"]) for reply in replies
                ],
            }
            for key, part in first["metrics"].items()
        ],
        "samples": [
            {key: _whole(part) for key, part in reply.content["metrics"].items()}
            for reply in replies
        ],
    }


def judged_parts(
    metrics: Sequence[Metric], details: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the stored part of each metric by key.

    Raises PartsMissingError for a metric that was not judged, or not on this scale.
    """
    if not details.get("samples"):
        raise PartsMissingError("This result does not keep the judge's replies.")
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
    """Return one metric as it is stored and shown; its score is 0 to 5, its weight 0 to 1.

    The justification is that of the sample nearest to the score.
    """
    scores = [metric_score(metric, sample[metric.key]) for sample in samples]
    combined = combine_samples([float(score) for score in scores], way).score
    nearest = min(range(len(scores)), key=lambda n: abs(scores[n] - combined))
    justifications = judged.get("justifications") or [judged["justification"]]
    return {
        "key": metric.key,
        "name": metric.name,
        "tier": metric.tier,
        "weight": rounded(metric.weight),
        "binary": metric.binary,
        "score": rounded(combined),
        "label": metric_label(combined, binary=metric.binary),
        "justification": justifications[nearest],
        **({"justifications": justifications} if len(justifications) > 1 else {}),
    }


def by_tier(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics grouped by tier, otherwise in their order."""
    tiers = list(dict.fromkeys(metric.tier for metric in metrics))
    return sorted(metrics, key=lambda metric: tiers.index(metric.tier))


def metric_findings(parts: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return good metrics as hits and poor ones as misses; the others are neither."""
    return tuple(
        Finding(_words(part), part["score"] >= HIT_FROM, str(part["justification"]))
        for part in parts
        if not MISS_TO < part["score"] < HIT_FROM
    )


def _words(part: Mapping[str, Any]) -> str:
    label = str(part["label"]).replace("_", " ")
    shown = "" if part["binary"] else f" ({part['score']:g} of {HIGHEST})"
    return f"{part['name']}: {label}{shown}"


def _whole(part: Mapping[str, Any]) -> int:
    if "passed" in part:
        return HIGHEST if part["passed"] else 0
    return int(part["score"])


def _metrics(shape: MetricShape) -> dict[str, Any]:
    return _object({key: _metric(is_binary=is_binary) for key, is_binary in shape})


def _metric(*, is_binary: bool) -> dict[str, Any]:
    scored = {"score": {"type": "integer", "enum": list(range(HIGHEST + 1))}}
    verdict = {"passed": {"type": "boolean"}} if is_binary else scored
    return _object({"justification": {"type": "string"}, **verdict})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }

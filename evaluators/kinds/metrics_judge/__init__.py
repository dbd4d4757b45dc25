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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, JudgeQuestion, KindConfig, kind
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
from evaluators.kinds.metrics_judge.metrics import (
    MAX_METRICS,
    MetricSetting,
    by_tier,
    default_metrics,
    judged_parts,
    least_metrics_schema,
    metric_findings,
    metric_part,
    metrics_details,
    metrics_schema,
    read,
    weighted,
)
from evaluators.kinds.outcomes import combine_outcomes, outcome_results, outcomes_problem
from evaluators.scoring.metrics import Metric, MetricsError, overall_score
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Outcome, Score, Unscored

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


class MetricsJudgeConfig(KindConfig):
    """The metrics and who judges them."""

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
            weighted(self.metrics)
        except MetricsError as error:
            raise ValueError(f"metrics: {error}") from error
        return self

    def stands_on(self) -> Mapping[str, object]:
        """Return what the judge was asked: each metric in its words, and how often."""
        asked = {f"metric {one.key}": (one.name, one.description) for one in self.metrics}
        return {"instructions": self.instructions, "samples": self.samples, **asked}


def rescore(config: MetricsJudgeConfig, details: Mapping[str, Any]) -> Score:
    """Return the score that the stored metrics give with these weights (SCORING §5).

    Raises PartsMissingError for a metric that was not judged, or not in this way.
    """
    metrics = weighted(config.metrics)
    judged = judged_parts(metrics, details)
    samples = [{one.key: int(said[one.key]) for one in metrics} for said in details["samples"]]
    overall = combine_samples([overall_score(metrics, one) for one in samples], config.samples_by)
    parts = [
        metric_part(one, judged[one.key], samples, config.samples_by) for one in by_tier(metrics)
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
    """Return the weighted metrics the judge gives, with each expected outcome met or missed."""
    try:
        added = prompt_text(config.instructions, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    asked = await ask_samples(context, _question(config, context, added), config.samples)
    if isinstance(asked, Unscored):
        return asked
    expected = context.case.expected_outcomes
    judged = (outcome_results(expected, reply.content) for reply in asked.replies)
    outcomes = combine_outcomes([results for results in judged if results is not None])
    details = metrics_details(asked.replies, supplies_outcomes=outcomes is not None)
    unanswered = (NO_OUTCOMES,) if expected and outcomes is None else ()
    return replace(
        rescore(config, details),
        outcomes=outcomes,
        usage=asked.usage,
        warnings=(*asked.warnings, *unanswered),
    )


def _question(config: MetricsJudgeConfig, context: Context, added: str) -> JudgeQuestion:
    expected = context.case.expected_outcomes
    written = fill(TASK, context)
    numbered = "\n".join(f"{n}. {text}" for n, text in enumerate(expected, 1))
    lines = "\n".join(_line(metric) for metric in weighted(config.metrics))
    parts = [
        written.instructions,
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
        quoted=written.quoted,
        schema=metrics_schema(shape, has_outcomes=bool(expected)),
        check=(lambda reply: outcomes_problem(len(expected), reply)) if expected else None,
        least=least_metrics_schema(shape) if expected else None,
        model=config.model,
        timeout_s=config.timeout_s,
    )


def _line(metric: Metric) -> str:
    said = metric.description or metric.name
    text = BINARY.replace("{description}", said) if metric.binary else said
    return f"- {metric.key} ({metric.name}): {text}"

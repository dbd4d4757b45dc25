"""Let programs check what they can and a judge score the rest, dimension by dimension, from 0 to 10.

The checks run first. Each passes, fails or has no result, and belongs to one or more dimensions. The judge
then reads the task, the answer, the tool calls, the results of the checks and the expectations. It writes
down its evidence and scores every dimension and the whole from 0 to 10. **The score is the judge's overall
score**, not a sum of the dimensions; the dimensions show where an agent is strong or weak.

The dimensions are `task`, `process`, `autonomy`, `closeness`, `efficiency` and `spark`, unless you name your
own. The checks of a dimension give its deterministic score: the mean of 10 for each that passed and 0 for each
that failed.

| check | passes when |
|---|---|
| `contains`, `equals`, `regex`, `json_schema`, … | the answer passes that text check |
| `final_response_present` | the agent answered at all |
| `tool_call_count` | `tool`, or any tool, was called from `min` to `max` times |
| `file_exists`, `file_contains` | the agent left a file at `path`; the file contains `value` |
| `status_is` | the agent ended with that `status`, which is `success` for an agent that answered |
| `script` | the script gives the full score; its settings are those of the type `script`, including files of the suite |

`negate: true` inverts a check. A check that cannot be made, such as counting the calls of a target that
reports none, is left out with a warning. It is neither a failure nor an error of the result.

**Expectations**, hard and soft, are written here or in the metadata of a case (`hard_expectations`,
`soft_expectations`). The judge says whether each was met. A missed hard expectation shows a badge and
influences the judge, but does not cap the score.

- **Iterations** (`samples`): the judge is asked several times, and the median counts for each dimension and
  for the whole. Iterations without a readable reply are counted and left out.
- **Policies** of a dimension: `judge_only`, `deterministic_only`, or `weighted`, where `judge_weight` is
  the judge's share. If one side has no score, the other counts, with a warning.
- `score_from: dimension_weights` computes the score from the final dimensions and their weights instead. It is
  refused where the suite's `final_score` is `judge_overall`, for a result has one final score.

The judge never learns which model it judges. The exact text that it saw is kept.

Good: a check for what a file must contain, and the judge for whether the answer is any good.

Bad: twenty checks for words in one dimension. The judge reads the same thing twenty times.

```yaml
name: overall
type: hybrid_judge
samples: 3
checks:
  - {name: says which order, type: contains, value: TW-1, dimensions: [task]}
  - {name: looked it up once, type: tool_call_count, tool: find_order, min: 1, max: 1, dimensions: [process, efficiency]}
hard_expectations:
  - The customer learns when the parcel comes.
soft_expectations:
  - The answer offers a pick-up point.
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import Context, JudgeQuestion, KindConfig, PartsMissingError, kind
from evaluators.kinds._judging import (
    JUDGE_RULES,
    ask_samples,
    judge_instructions,
    judge_model,
    judge_samples,
    judge_timeout,
)
from evaluators.kinds._prompts import fill, prompt_text
from evaluators.kinds.hybrid_judge.checks import (
    MAX_CHECKS,
    CheckSetting,
    read,
    run_check,
    runs_programs,
    score_checks,
    stored_checks,
)
from evaluators.kinds.hybrid_judge.opinions import (
    MAX_DIMENSIONS,
    DimensionSetting,
    Expectation,
    combine_expectations,
    default_dimensions,
    dimension_part,
    dimension_policies,
    dimensions_problem,
    hybrid_findings,
    judge_packet,
    nearest,
    read_expectations,
    read_iteration,
    reply_problem,
    reply_schema,
    stored_opinion,
)
from evaluators.scoring.hybrid import SCALE, FinalEvaluation, evaluate_hybrid
from evaluators.scoring.types import Outcome, Score, Unscored

PROMPT_VERSION = 1

TASK = """\
You assess what an AI agent did with one task. Programs have checked what can be checked; you read the \
evidence and judge the rest.

The evidence:
- The task: {{input}}
- The answer: {{candidate_answer}}
- What tools were asked and returned: {{tool_calls}}
- A reference answer written by people, one way of being right among others: {{reference_answer}}
- What its authors expect of a good answer, as background: {{criteria}}
- Files the agent left: [quoted text: files]
- What the checks found, with the dimensions each tells of: [quoted text: check_results]
- What is expected, each by its number, hard or soft: [quoted text: expectations]"""

WEIGHING = """\
How to weigh it:
- A check that failed is strong evidence in the dimensions it tells of. Say so where you still score \
one of them high. A check without a result says nothing either way.
- Passed checks show that something is there, not that it is good.
- A hard expectation that is not met means that the agent missed what it was asked for. A soft one \
that is not met is a flaw. Neither caps a score: how much it costs is yours to judge."""

DIMENSIONS = """\
The dimensions, each by its key:
{dimensions}

Scores are numbers from 0 to 10, halves allowed. 10: nothing to correct. 8: good, with a flaw that \
costs little. 6: does, with a flaw that shows. 4: a flaw that matters. 2: mostly wrong. 0: wrong or \
missing where it does harm. A dimension that this task gives no occasion to show scores as its absence \
deserves: high when nothing was missed."""

OWN = """\
What the team that owns the agent adds. It does not change the scale or the form of reply:

{instructions}"""

REPLY = """\
What to reply, in this order:
- reasoning: two to five sentences on what the agent did and where that helped or hurt.
{expectations}- dimensions: every dimension above by its key, none left out and none added:
  - evidence: the words, tool call, file or check that settle it.
  - score: a number from 0 to 10.
- overall: your verdict on the whole. It is no mean of the dimensions:
  - evidence: one to five short sentences, each a fact the overall score rests on.
  - score: a number from 0 to 10."""

REPLY_EXPECTATIONS = """\
- expectations: one entry for each expectation, by its number, none left out and none added:
  - evidence: the words or the tool call that settle it, or what is missing.
  - met: true only when the whole statement holds. In doubt it is false.
"""


class HybridJudgeConfig(KindConfig):
    """The checks, the expectations, the dimensions and the judge."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("instructions",)

    checks: tuple[CheckSetting, ...] = Field(
        (),
        max_length=MAX_CHECKS,
        description="A list of checks: each has a type with its settings, name, dimensions, negate.",
    )
    hard_expectations: tuple[str, ...] = Field(
        (), description="What a good answer must do, one per line. Those of the case are added."
    )
    soft_expectations: tuple[str, ...] = Field(
        (), description="What a good answer should do, one per line. Those of the case are added."
    )
    dimensions: tuple[DimensionSetting, ...] = Field(
        default_dimensions(),
        min_length=1,
        max_length=MAX_DIMENSIONS,
        description="The dimensions: keys, or key, policy, judge_weight, weight, description.",
        json_schema_extra={"widget": "table"},
    )
    score_from: Literal["judge_overall", "dimension_weights"] = Field(
        "judge_overall",
        description="The judge's overall score, or the weighted mean of the dimensions.",
    )
    instructions: str = judge_instructions()
    model: str = judge_model()
    samples: int = judge_samples()
    timeout_s: int | None = judge_timeout()

    @model_validator(mode="after")
    def _can_be_scored(self) -> Self:
        if problem := dimensions_problem(self.dimensions, are_weighed=self.is_weighed):
            raise ValueError(problem)
        known = [dimension.key for dimension in self.dimensions]
        for number, check in enumerate(self.checks):
            if unknown := [name for name in check.dimensions if name not in known]:
                raise ValueError(
                    f"checks[{number}]: {unknown[0]!r} is not one of the dimensions {', '.join(known)}"
                )
        return self

    def judged_settings(self) -> Mapping[str, object]:
        """Return the text of the dimensions, the expectations and the number of samples."""
        descriptions = {
            f"dimension {dimension.key}": dimension.description for dimension in self.dimensions
        }
        return {
            "hard_expectations": self.hard_expectations,
            "soft_expectations": self.soft_expectations,
            "instructions": self.instructions,
            "samples": self.samples,
            **descriptions,
        }

    @property
    def is_weighed(self) -> bool:
        """Tell whether the weights of the dimensions make the score."""
        return self.score_from == "dimension_weights"


def rescore(config: HybridJudgeConfig, details: Mapping[str, Any]) -> Score:
    """Return the score that stored checks and opinions give with these dimensions (SCORING §6).

    Raises PartsMissingError for a check that did not run or a dimension that was not judged.
    """
    checks = stored_checks(config.checks, list(details.get("checks", ())))
    if checks is None:
        raise PartsMissingError("A check of these settings did not run for this result.")
    iterations = list(details.get("iterations", ()))
    final = _final_evaluation(config, checks, iterations, int(details.get("failed_iterations", 0)))
    overall = [float(iteration["overall"]) for iteration in iterations]
    judged = None if final.judge_overall is None else final.judge_overall.overall
    speaking = iterations[nearest(overall, judged)]
    written = final.as_json()
    points = 0.0 if final.final_score is None else final.final_score
    return Score(
        points / SCALE,
        raw_score=points,
        scale=SCALE,
        reasoning=str(speaking["reasoning"]),
        findings=hybrid_findings(checks, details.get("expectations", ())),
        details={
            **details,
            "checks": checks,
            "dimensions": [
                dimension_part(dimension, final, iterations, is_weighed=config.is_weighed)
                for dimension in config.dimensions
            ],
            "evidence": speaking["evidence"],
            "overall_scores": overall,
            "spread": max(overall) - min(overall),
            "judge_overall": written["judge_overall"],
            "final_evaluation": written,
        },
        warnings=final.warnings,
    )


@kind(
    label="Hybrid judge",
    icon="e-hybrid",
    config=HybridJudgeConfig,
    rescore=rescore,
    uses_judge=True,
    runs_programs=runs_programs,
    programs_in="checks",
    spellings={"hybrid": {}},
    read=read,
)
async def score(config: HybridJudgeConfig, context: Context) -> Outcome:
    """Return the judge's overall score, with the dimensions by checks and by the judge."""
    try:
        added = prompt_text(config.instructions, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    results = [await run_check(check, context) for check in config.checks]
    checks = stored_checks(config.checks, results) or []
    expectations = read_expectations(
        config.hard_expectations, config.soft_expectations, context.case
    )
    question = _question(config, context, checks, expectations, added)
    evidence = {
        "packet": [{"label": label, "text": text} for label, text in question.quoted],
        "instructions": question.instructions,
        "checks": checks,
    }
    sampled = await ask_samples(context, question, config.samples)
    if isinstance(sampled, Unscored):
        return replace(sampled, details=evidence)
    final = rescore(
        config,
        {
            **evidence,
            "model": sampled.replies[0].model,
            "expectations": combine_expectations(expectations, sampled.replies),
            "iterations": [read_iteration(reply) for reply in sampled.replies],
            "failed_iterations": config.samples - len(sampled.replies),
        },
    )
    return replace(final, usage=sampled.usage, warnings=(*sampled.warnings, *final.warnings))


def _final_evaluation(
    config: HybridJudgeConfig,
    checks: list[dict[str, Any]],
    iterations: Sequence[Mapping[str, Any]],
    failed: int,
) -> FinalEvaluation:
    """Return the scores of checks and judge combined; raises PartsMissingError for missing parts."""
    keys = [dimension.key for dimension in config.dimensions]
    for key in keys:
        if not iterations or any(key not in iteration["dimensions"] for iteration in iterations):
            raise PartsMissingError(f"The dimension {key!r} was not judged in this result.")
    return evaluate_hybrid(
        score_checks(checks),
        [stored_opinion(iteration, keys) for iteration in iterations],
        failed_iterations=failed,
        policies=dimension_policies(config.dimensions),
        dimension_weights=(
            {dimension.key: dimension.weight for dimension in config.dimensions}
            if config.is_weighed
            else None
        ),
    )


def _question(
    config: HybridJudgeConfig,
    context: Context,
    checks: list[dict[str, Any]],
    expectations: tuple[Expectation, ...],
    added: str,
) -> JudgeQuestion:
    written = fill(TASK, context)
    lines = "\n".join(
        f"- {dimension.key}: {dimension.description or dimension.name}"
        for dimension in config.dimensions
    )
    expectations_part = REPLY_EXPECTATIONS if expectations else ""
    parts = [
        written.instructions,
        WEIGHING,
        DIMENSIONS.replace("{dimensions}", lines),
        OWN.replace("{instructions}", added) if added else "",
        JUDGE_RULES,
        REPLY.replace("{expectations}", expectations_part),
    ]
    return JudgeQuestion(
        purpose="hybrid_judge",
        instructions="\n\n".join(part for part in parts if part),
        quoted=judge_packet(written.quoted, checks, expectations, context),
        schema=reply_schema(
            [dimension.key for dimension in config.dimensions], has_expectations=bool(expectations)
        ),
        check=lambda reply: reply_problem(len(expectations), reply),
        model=config.model,
        timeout_s=config.timeout_s,
    )

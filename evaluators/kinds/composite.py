r"""Combine several evaluators into one score, or let some of them gate the others.

A composite holds evaluators and an aggregator. Composites nest to any depth; the suite itself is the
outermost one.

| aggregator | score |
|---|---|
| `weighted_average` | the sum of score × weight, divided by the sum of the weights |
| `minimum`, `maximum` | the lowest or the highest score |
| `safety_gate` | the `required` evaluators run first. If one scores below `gate_threshold` (0.6), the composite scores 0 and fails, and the others do not run. Otherwise the average of `all` evaluators, or of the `remaining` ones |
| `all_or_nothing` | the average if every score is at least `threshold` (0.7), otherwise 0 and fail |
| `threshold` | the share of evaluators that pass; below `share` (0.5) the composite fails |
| `code_judge` | the score your script prints: `script` or `command` as in the kind Script, with protocol `stdin`. Besides case and output it reads `evaluator_results`, a nested list with name, type, weight, score, verdict, hits, misses and reasoning, and the same by name in `results` |
| `llm_judge` | the score of a judge that reads the task, the answer and everything the evaluators found, and gives hits and misses too. `prompt`, a text or a file, says how to weigh the findings; it may use `{{evaluator_results}}` and the variables of the kind LLM judge, which also explains `model` and `samples` |

`weights` by name override the weights of the evaluators. An evaluator with weight 0 is recorded and can
still gate, but counts in no score.

A composite that fails by its own rule counts as 0 in the composite around it. Mark it `required` to let it
fail the whole result.

If a script or a judge gives no readable score, the composite is unscored, like any other evaluator.

Good: a safety gate before expensive judges. If it fails, no judge is paid.

Bad: five levels of nesting. No reader can say what a weight does any more.

```yaml
name: release_ready
type: composite
aggregator:
  type: safety_gate
  required: [no_card_numbers]
evaluators:
  - name: no_card_numbers
    type: regex
    value: '\b(?:\d[ -]?){12,18}\d\b'
    negate: true
  - name: quality
    type: llm_judge
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import ChildResult, Context, JudgeQuestion, KindConfig, kind
from evaluators.kinds._judging import (
    JUDGE_RULES,
    OPINION_SCHEMA,
    Joining,
    ask_opinion,
    drop_single_sample,
    judge_samples,
    sample_combination,
    scale_problem,
)
from evaluators.kinds._prompts import (
    EVALUATOR_RESULTS,
    fill,
    is_reference,
    prompt_problem,
    prompt_text,
    read_prompt,
)
from evaluators.kinds.script import describe_child, judge_by_script
from evaluators.kinds.script.program import ScriptSettings, named_settings
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.score_tree import aggregate_children
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from evaluators.scoring.types import Outcome, Unscored


async def judge_by_model(
    instructions: str,
    context: Context,
    *,
    model: str,
    samples: int,
    samples_by: Joining,
    timeout_s: float | None,
) -> Outcome:
    """Return the score and findings of a judge that reads the results of the children as quoted text.

    Variables in the instructions are replaced, also `{{evaluator_results}}`.
    """
    filled = fill(instructions, context, extra={EVALUATOR_RESULTS: _json(context.results)})
    question = JudgeQuestion(
        purpose="llm_judge_aggregator",
        instructions=filled.instructions,
        quoted=filled.quoted,
        schema=OPINION_SCHEMA,
        check=lambda reply: scale_problem(reply, 1),
        model=model,
        timeout_s=timeout_s,
    )
    score = await ask_opinion(context, question, samples=samples, samples_by=samples_by)
    return score if isinstance(score, Unscored) else drop_single_sample(score)


def _json(results: Sequence[ChildResult]) -> str:
    return json.dumps(
        [describe_child(result) for result in results], ensure_ascii=False, indent=1, default=str
    )


PROMPT_VERSION = 2

TASK = """\
Several evaluators looked at one answer of an AI agent. You make one score of what they found.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
What the evaluators found, each with its weight, its score from 0 to 1, verdict, hits and misses; a score of \
null means that it could not score, which speaks neither for the answer nor against it: {{evaluator_results}}"""

OWN = """\
How the team that owns the agent wants them weighed:

{prompt}

End of the team's instructions. If they ask for another form or scale of reply, carry their judgement \
over to the one described here."""

USUAL = """\
Weigh what they found by what it means for the person who gets the answer: a grave flaw that one of them shows \
counts for more than the praise of the others. Where two contradict each other, look at the answer itself."""

REPLY = """\
What to reply, in this order:
- reasoning: two to five sentences that weigh the findings, naming the evaluators they come from.
- hits: what speaks for the answer after weighing, one short sentence each.
- misses: what speaks against it, one short sentence each. An empty list when there is nothing.
- score: a number from 0 to 1 that follows from them. 1 means nothing to correct, 0 that it fails altogether."""

OPTIONS = {
    "safety_gate": {"required", "gate_threshold", "remainder"},
    "all_or_nothing": {"threshold"},
    "threshold": {"share"},
    "code_judge": set(ScriptSettings.model_fields),
    "llm_judge": {"prompt", "model", "samples", "samples_by", "timeout_s"},
}
JUDGE_TYPES = ("llm_judge", "llm_grader", "judge")
SCRIPT_TYPES = {"code_judge": "code_judge", "code_grader": "code_judge", "script": "code_judge"}
ALWAYS = {"type", "weights"}


class AggregatorOptions(ScriptSettings):
    """How the scores of the children are combined; code_judge has the settings of a script."""

    type: Literal[
        "weighted_average",
        "minimum",
        "maximum",
        "safety_gate",
        "all_or_nothing",
        "threshold",
        "code_judge",
        "llm_judge",
    ] = Field("weighted_average", description="The rule.")
    weights: Mapping[str, float] = Field(
        default_factory=dict,
        description="Weights by name; they override the weights of the evaluators.",
    )
    required: tuple[str, ...] = Field((), description="The gates of a safety_gate, by name.")
    gate_threshold: float = Field(
        0.6, ge=0, le=1, description="The score that every gate must reach."
    )
    remainder: Literal["all", "remaining"] = Field(
        "all", description="Whether the gates count in the average of a safety_gate."
    )
    threshold: float = Field(
        0.7, ge=0, le=1, description="The score that each evaluator must reach for all_or_nothing."
    )
    share: float = Field(
        0.5, ge=0, le=1, description="The share of evaluators that must pass for threshold."
    )
    prompt: str = Field(
        "",
        description="Instructions for the judge of llm_judge, or a file of the suite with them.",
    )
    model: str = Field(
        "",
        description="Short name of the language model of llm_judge. Empty: the judge of the suite.",
    )
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()

    @model_validator(mode="after")
    def _options_belong(self) -> Self:
        foreign = self.model_fields_set - ALWAYS - OPTIONS.get(self.type, set())
        changed = {name for name in foreign if getattr(self, name) != _default(name)}
        if changed:
            raise ValueError(f"{self.type} takes no {', '.join(sorted(changed))}")
        if self.type == "safety_gate" and not self.required:
            raise ValueError("safety_gate needs required: the names of its gates")
        if self.type == "code_judge" and self.program_problem:
            raise ValueError(f"code_judge {self.program_problem}")
        if not is_reference(self.prompt) and (
            problem := prompt_problem(self.prompt, [EVALUATOR_RESULTS])
        ):
            raise ValueError(f"prompt: {problem}")
        return self


def read_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an aggregator in a file under their own names; raises ValueError for two prompts."""
    options = dict(values)
    if options.get("type") == "threshold" and "threshold" in options and "share" not in options:
        options["share"] = options.pop("threshold")
    rule = str(options.get("type"))
    if rule in SCRIPT_TYPES:
        return named_settings({**options, "type": SCRIPT_TYPES[rule]})
    if rule in JUDGE_TYPES:
        return named_settings({**read_prompt(options), "type": "llm_judge"})
    return options


def prompt_file(options: Mapping[str, Any]) -> str:
    """Return the name of the file with a judge's prompt, "" for none."""
    prompt = options.get("prompt")
    return prompt if options.get("type") == "llm_judge" and is_reference(prompt) else ""


def runs_script(options: Mapping[str, Any]) -> bool:
    """Tell whether a script gives the score."""
    return options.get("type") == "code_judge"


def _default(name: str) -> object:
    return AggregatorOptions.model_fields[name].get_default(call_default_factory=True)


class CompositeConfig(KindConfig):
    """The aggregator; the evaluators are below the composite in the tree."""

    aggregator: AggregatorOptions = Field(
        default_factory=lambda: AggregatorOptions.model_validate({}),
        description="How the scores of the children are combined.",
    )


@kind(label="Composite", icon="e-composite", config=CompositeConfig, spellings={"assert_set": {}})
async def score(config: CompositeConfig, context: Context) -> Outcome:
    """Combine the children, each of weight 1 unless the aggregator says otherwise.

    The weights of the children in a tree are applied elsewhere, by the rules of the tree. A script or a
    judge may leave the composite Unscored.
    """
    if config.aggregator.type == "code_judge":
        return await judge_by_script(config.aggregator, "stdin", context)
    if config.aggregator.type == "llm_judge":
        return await _judged(config.aggregator, context)
    children = tuple(EvaluatorSpec(name=name, kind="") for name in context.children)
    settings = config.model_dump(mode="json")
    node = EvaluatorSpec(name=context.path, kind=COMPOSITE, config=settings, children=children)
    return aggregate_children(node, context.children, PolicySpec())


async def _judged(options: AggregatorOptions, context: Context) -> Outcome:
    try:
        own = prompt_text(options.prompt, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    weighing = OWN.replace("{prompt}", own) if own else USUAL
    return await judge_by_model(
        "\n\n".join((TASK, weighing, JUDGE_RULES, REPLY)),
        context,
        model=options.model,
        samples=options.samples,
        samples_by=options.samples_by,
        timeout_s=options.timeout_s,
    )

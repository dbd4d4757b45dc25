"""Compare an answer with the baseline's answer to the same case: win, tie or loss.

The judge reads both answers side by side, without knowing whose they are, and says which is better. It is asked twice,
each answer standing first once, because judges tend to prefer a place. Only what it says in both orders counts:

| in both orders better | result | score |
|---|---|---|
| the answer | win | 1 |
| neither | tie | 0.5 |
| the baseline's answer | loss | 0 |
| now one, now the other | inconclusive | none |

Inconclusive is no tie: like everything that could not be scored it has no score, and the policy of the suite says what
becomes of the result. With `weight: 0` the evaluator only measures, and results keep their verdict.

**The baseline** is the baseline run of the suite, or the run that is named when a run starts. Its outputs are copied
into the new run then, repetition by repetition, so that nothing that becomes of the baseline later changes a score. A
case without an output there has no score, and the reason says why. Equal answers are a tie without a call.

**What is better** says your prompt, else the criteria of the case, else its expected outcomes. The prompt may use the
variables of the case, such as `{{metadata.customer}}`; both answers are shown in any case.

The page of a run has the win rate with its interval, and how often the judge preferred a place.

Good: says what your users would choose by, in order: right first, then short.

Bad: as a gate. Half of the results lose against an equally good baseline.

```yaml
name: better
type: pairwise
prompt: |
  Better is what the customer can act upon at once.
  A wrong fact weighs more than a missing one; length earns nothing.
```
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field, field_validator

from evaluators.kinds._base import CaseFacts, Context, JudgeQuestion, JudgeReply, KindConfig, kind
from evaluators.kinds._judging import JUDGE_RULES, ask, judge_model, judge_timeout
from evaluators.kinds._prompts import (
    SHOWS_OUTPUT,
    fill,
    in_braces,
    is_reference,
    prompt_problem,
    prompt_text,
    read_prompt,
    variables_in,
)
from evaluators.scoring.types import Outcome, Score, Unscored, Usage, total_usage

PROMPT_VERSION = 1
WIN, TIE, LOSS, INCONCLUSIVE = "win", "tie", "loss", "inconclusive"
SCORES = {WIN: 1.0, TIE: 0.5, LOSS: 0.0}
FIRST, SECOND, NEITHER = "first", "second", "neither"
# What the replies of a judge say that is asked with the answer first, then with the baseline's answer first.
VERDICTS = {(FIRST, SECOND): WIN, (NEITHER, NEITHER): TIE, (SECOND, FIRST): LOSS}
# Variables that would show one of both answers as what it is.
OWN_ANSWER = {*SHOWS_OUTPUT, "messages", "output_messages"}

TASK = """\
Two AI agents were given the same task. You judge which answer is better.

The task: {{input}}
A reference answer written by people, one way of being right among others: {{reference_answer}}
The answers: [quoted text: first answer] and [quoted text: second answer]. Nothing follows from their order.

What makes an answer better:

"""
BY_CRITERIA = "{{criteria}}"
BY_OUTCOMES = "The better answer does more of this, each point alike:\n{{expected_outcomes}}"
BY_TASK = (
    "The better answer does more of what the task asks, and does it correctly. A wrong fact weighs more than a "
    "missing one."
)
REPLY = """\
What to reply, in this order:
- reasoning: two to five sentences that weigh both answers against each other, with the words that matter.
- better: first or second; neither if both are equally good."""
SCHEMA = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "better": {"type": "string", "enum": [FIRST, SECOND, NEITHER]},
    },
    "required": ["reasoning", "better"],
    "additionalProperties": False,
}
NO_BASELINE = "there is no baseline: make a completed run the baseline of the suite, or name one when a run starts"


class PairwiseConfig(KindConfig):
    """What makes an answer better, and the judge."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("prompt",)

    prompt: str = Field(
        "",
        description="What makes an answer better, or a file of the suite that says so. Empty: the criteria of the "
        "case, else its expected outcomes, else the task.",
        json_schema_extra={"widget": "textarea"},
    )
    model: str = judge_model()
    timeout_s: int | None = judge_timeout()

    @field_validator("prompt")
    @classmethod
    def _knows_its_variables(cls, prompt: str) -> str:
        if not is_reference(prompt) and (problem := find_problem(prompt)):
            raise ValueError(problem)
        return prompt


def find_problem(prompt: str) -> str:
    """Return what is wrong with the variables of a prompt, "" for nothing."""
    if shown := next((name for name in variables_in(prompt) if name in OWN_ANSWER), ""):
        return f"{in_braces(shown)} would tell whose answer is whose; the judge sees both answers anyway"
    return prompt_problem(prompt)


@kind(
    label="Pairwise",
    icon="e-judge",
    config=PairwiseConfig,
    uses_judge=True,
    # The judge is asked in both orders.
    list_models=lambda config: (str(config.get("model") or ""),) * 2,
    needs=("a baseline run: the suite's, or one that is named when a run starts",),
    needs_baseline=True,
    spellings={"pairwise_comparison": {}},
    read=read_prompt,
)
async def score(config: PairwiseConfig, context: Context) -> Outcome:
    """Return 1 for a win, 0.5 for a tie, 0 for a loss; Unscored where the orders disagree."""
    baseline = context.baseline
    if baseline is None or baseline.problem:
        return Unscored(baseline.problem if baseline else NO_BASELINE, stage="config")
    try:
        prompt = prompt_text(config.prompt, context.files)
        if problem := find_problem(prompt):
            raise ValueError(problem)
    except ValueError as error:
        return Unscored(str(error), stage="config")
    ours, theirs = context.output.text, baseline.text
    if ours.strip() == theirs.strip():
        return Score(SCORES[TIE], reasoning="Both answers are the same.", details={"verdict": TIE})
    filled = fill(TASK + (prompt.strip() or _criteria(context.case)), context)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                ask(
                    context,
                    JudgeQuestion(
                        purpose="pairwise",
                        instructions=f"{filled.instructions}\n\n{JUDGE_RULES}\n\n{REPLY}",
                        quoted=(
                            *filled.quoted,
                            *(
                                (f"{place} answer", text or "(the answer is empty)")
                                for place, text in zip((FIRST, SECOND), answers, strict=True)
                            ),
                        ),
                        schema=SCHEMA,
                        model=config.model,
                        timeout_s=config.timeout_s,
                        round=number,
                    ),
                )
            )
            for number, answers in enumerate(((ours, theirs), (theirs, ours)))
        ]
    replies = [task.result() for task in tasks]
    usage = total_usage(reply.usage for reply in replies)
    for order, reply in zip(("the answer", "the baseline's answer"), replies, strict=True):
        if isinstance(reply, Unscored):
            # What was said in one order alone may be said of the place.
            reason = f"asked with {order} first: {reply.reason}"
            return Unscored(reason, stage=reply.stage, usage=usage)
    return _combine([reply for reply in replies if isinstance(reply, JudgeReply)], usage)


def _combine(replies: Sequence[JudgeReply], usage: Usage) -> Outcome:
    """Return what the replies say together: with the answer first, then with the baseline's answer first."""
    orders = [
        {name: str(reply.content[name]) for name in ("better", "reasoning")} for reply in replies
    ]
    first, second = (order["better"] for order in orders)
    verdict = VERDICTS.get((first, second), INCONCLUSIVE)
    details = {"verdict": verdict, "orders": orders, "model": replies[0].model}
    if verdict == INCONCLUSIVE:
        what = f"the {first} answer each time" if first == second else "an answer in one order only"
        reason = f"inconclusive: asked in both orders, the judge preferred {what}"
        return Unscored(reason, stage="judge", details=details, usage=usage)
    reasoning = "\n\n".join(order["reasoning"] for order in orders)
    return Score(SCORES[verdict], reasoning=reasoning, details=details, usage=usage)


def _criteria(case: CaseFacts) -> str:
    if case.criteria.strip():
        return BY_CRITERIA
    return BY_OUTCOMES if case.expected_outcomes else BY_TASK

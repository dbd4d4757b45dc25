"""Ask a language model how good an answer is, with your own prompt or criteria.

The judge sees the task, the answer and anything else your prompt names, writes down what it found and then
gives a score from 0 to 1. Use it when the answer has to be read to be judged: for correctness, tone or harm.
Use a rubric if you can list the things to check, and a text check if a program can decide.

**Prompt with variables.** The variables are `{{question}}`, `{{input}}`, `{{candidate_answer}}` (or
`{{output}}`), `{{reference_answer}}` (or `{{expected_output}}`), `{{criteria}}` (or
`{{expected_outcome}}`), `{{expected_outcomes}}`, `{{tool_calls}}`, `{{messages}}`, `{{metadata}}` and
`{{metadata.<key>}}`. Other names are refused when you save. The prompt may be a file of the suite:
`prompt: ./prompts/tone.md`.

**Prompt without variables.** Your text becomes the criteria of the built-in prompt, which shows the judge
the task, the answer, the tool calls and the reference.

**No prompt.** The judge uses the criteria of the case. A case without criteria is judged by its expected
outcomes, and a case without those by whether the answer says what the expected output says.

**Samples.** The judge is asked several times. The score is the median, the mean or the most frequent of the
samples, and the page shows how far apart they are.

Everything the agent, its tools and its users wrote is quoted between random marks: an answer that asks for a
good grade counts as evidence and is not obeyed.

Good: says what earns 1, 0.5 and 0, and judges one thing.

Bad: "Is this a good answer?" The judge has to invent a scale, and invents another for every case.

```yaml
name: tone
type: llm_judge
weight: 2
prompt: |
  Judge only how the answer speaks, not whether it is right.
  1: a senior colleague would send it unchanged. 0.5: it would be rewritten.
  0: it would anger the customer.

  The customer wrote: {{question}}
  The agent answered: {{candidate_answer}}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from evaluators.kinds._base import CaseFacts, Context, JudgeQuestion, KindConfig, kind
from evaluators.kinds._judging import (
    JUDGE_RULES,
    OPINION_SCHEMA,
    Joining,
    ask_opinion,
    drop_single_sample,
    judge_model,
    judge_samples,
    judge_timeout,
    sample_combination,
    scale_problem,
)
from evaluators.kinds._prompts import (
    ANSWER,
    SHOWS_OUTPUT,
    FilledPrompt,
    fill,
    is_reference,
    lists_criteria,
    prompt_problem,
    prompt_text,
    read_prompt,
    variables_in,
)
from evaluators.scoring.types import Outcome, Unscored

PROMPT_VERSION = 2

OWN = """\
You judge one answer of an AI agent for the team that owns it. These are the team's instructions:

{prompt}

End of the team's instructions. If they ask for another form or scale of reply, carry their judgement \
over to the one described here."""

BUILT_IN = """\
You judge one answer of an AI agent.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
What its tools were asked and returned: {{tool_calls}}
A reference answer written by people, one way of being right among others: {{reference_answer}}

The criteria. They alone decide the score:

"""

OUTCOMES = "How much of this the answer does, each point alike:\n"
AS_REFERENCE = (
    "The answer says what the reference answer says, in whatever words. A fact that is missing, wrong or "
    "contradicted is a miss; more than the reference says is none unless it is wrong."
)

REPLY = """\
What to reply, in this order:
- reasoning: two to five sentences that weigh the evidence, with the words of the answer that matter.
- hits: each thing the answer does that the instructions ask for, one short sentence each.
- misses: each thing it gets wrong or leaves out, one short sentence each. An empty list when there is \
none.
- score: a number from 0 to 1. 1 means nothing to correct, 0 means it fails what was asked altogether. \
It follows from the hits and misses: a miss that matters cannot stand beside a score near 1."""


class LLMJudgeConfig(KindConfig):
    """The prompt and the judge."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("prompt",)

    prompt: str = Field(
        "",
        description="Instructions for the judge, or a file of the suite with them. Without "
        "variables they become the criteria of the built-in prompt. Empty: the criteria of the case, "
        "else its expected outcomes, else its expected output.",
        json_schema_extra={"widget": "textarea"},
    )
    model: str = judge_model()
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = judge_timeout()

    @field_validator("prompt")
    @classmethod
    def _knows_its_variables(cls, prompt: str) -> str:
        if not is_reference(prompt) and (problem := prompt_problem(prompt)):
            raise ValueError(problem)
        return prompt


def find_missing(config: Mapping[str, Any], case: CaseFacts) -> str:
    """Return what a case lacks for a judge without its own prompt, "" for nothing."""
    has_prompt = str(config.get("prompt") or "").strip()
    return (
        ""
        if has_prompt or _case_criteria(case)
        else "criteria, expected outcomes or expected output"
    )


@kind(
    label="LLM judge",
    icon="e-judge",
    config=LLMJudgeConfig,
    uses_judge=True,
    find_missing=find_missing,
    spellings={"llm_grader": {}, "llm_eval": {}, "llm_rubric": {}},
    read=read_prompt,
    implied_kind=lambda mapping: "rubric" if lists_criteria(mapping) else "",
)
async def score(config: LLMJudgeConfig, context: Context) -> Outcome:
    """Return the score that the judge gives, with its hits and misses."""
    try:
        prompt = prompt_text(config.prompt, context.files)
    except ValueError as error:
        return Unscored(str(error), stage="config")
    filled = fill_prompt(prompt, context)
    if filled is None:
        reason = (
            "there are no criteria: give the evaluator a prompt, or the case criteria, expected "
            "outcomes or an expected output"
        )
        return Unscored(reason, stage="config")
    opinion = await ask_opinion(
        context,
        JudgeQuestion(
            purpose="llm_judge",
            instructions=f"{filled.instructions}\n\n{JUDGE_RULES}\n\n{REPLY}",
            quoted=filled.quoted,
            schema=OPINION_SCHEMA,
            check=lambda reply: scale_problem(reply, 1),
            model=config.model,
            timeout_s=config.timeout_s,
        ),
        samples=config.samples,
        samples_by=config.samples_by,
    )
    return opinion if isinstance(opinion, Unscored) else drop_single_sample(opinion)


def fill_prompt(prompt: str, context: Context) -> FilledPrompt | None:
    """Return the filled prompt of the judge, None without criteria."""
    if variables_in(prompt):
        shows = SHOWS_OUTPUT.intersection(variables_in(prompt))
        return fill(OWN.replace("{prompt}", prompt), context, always=() if shows else (ANSWER,))
    criteria = prompt.strip() or _case_criteria(context.case)
    if not criteria:
        return None
    built_in = fill(BUILT_IN, context)
    return FilledPrompt(built_in.instructions + criteria, built_in.quoted)


def _case_criteria(case: CaseFacts) -> str:
    """Return the criteria of a case, else its outcomes, else its expected output."""
    if case.criteria.strip():
        return case.criteria.strip()
    if case.expected_outcomes:
        return OUTCOMES + "\n".join(f"- {outcome}" for outcome in case.expected_outcomes)
    return AS_REFERENCE if case.expected_output.strip() else ""

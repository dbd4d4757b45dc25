"""Use one of your targets as the judge: it reads the task, the output and the criteria and gives a score.

Use it when one model call is not enough to judge: when the judge has to look things up, run code or follow
the rules of your team. A language model with a prompt is cheaper; use the LLM judge for that.

- **Judge agent**: the name of a target, such as `agent: code-reviewer`. A chat model, an agent over HTTP
  or a command can judge. Recorded outputs cannot, because they answer no questions. The run freezes the
  settings of the target when it starts.
- **What it receives**: one message with the criteria, the task and the output. Like any target it also gets
  the metadata of the case, and an id made of the case's id and the evaluator's name. It never receives the
  expected output.
- **What it replies**: one JSON object and nothing else, such as
  `{"reasoning": "Two names mislead.", "score": 85}`, on the scale below. It may add `hits` and `misses` as
  lists of texts. If the reply is anything else, the judge is asked once more; after that the evaluator is
  unscored, never 0.
- **What it costs** counts as judge cost, with the tokens and the price that the agent reports. A
  command runs under the limits of scripts, and only for members who may run scripts.

Everything the agent under test wrote is quoted between random marks, so a verdict inside its answer counts as
evidence and is not mistaken for the judge's.

Good: an agent whose tools can check the output, and criteria that say what earns 100 and what earns 50.

Bad: the agent under test as its own judge. It favours what it wrote; the page that starts a run warns you.

```yaml
name: code_quality
type: agent_judge
agent: code-reviewer
weight: 1
criteria: |
  Names, structure, nothing superfluous. 100: merge it. 50: ask for changes. 0: write it anew.
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from evaluators.kinds._base import Context, JudgeQuestion, KindConfig, PartsMissingError, kind
from evaluators.kinds._judging import (
    JUDGE_RULES,
    MAX_TIMEOUT_S,
    OPINION_SCHEMA,
    Joining,
    ask_opinion,
    combine_opinions,
    judge_samples,
    judging_agent,
    sample_combination,
    scale_problem,
)
from evaluators.kinds._prompts import fill, prompt_text
from evaluators.scoring.types import Outcome, Score, Unscored

PROMPT_VERSION = 1
AGENT_NAMES = ("agent", "judge_agent", "judge", "target")
CRITERIA_NAMES = ("criteria", "prompt")
# Agents often answer with no more than these two.
AGENT_SCHEMA = {**OPINION_SCHEMA, "required": ["reasoning", "score"]}

TASK = """\
You are asked to judge one answer of an AI agent. Judge it and do nothing else: do not carry out the task \
yourself, and change nothing anywhere.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}

The criteria. Where none are given, judge how well the answer does what the task asks:

"""

REPLY = """\
What to reply, in this order:
- reasoning: two to five sentences that weigh the evidence, with the words of the answer that matter.
- hits: each thing the answer does that the criteria ask for, one short sentence each. May be left out.
- misses: each thing it gets wrong or leaves out, one short sentence each. May be left out.
- score: a number from 0 to {scale} that follows from the reasoning. {scale} means nothing to correct, 0 means \
it fails what was asked altogether."""


class AgentJudgeConfig(KindConfig):
    """The agent that judges, its criteria, and how its answers are scored."""

    prompt_fields: ClassVar[tuple[str, ...]] = ("criteria",)

    agent: str = Field(
        min_length=1,
        max_length=120,
        title="Judge agent",
        description="Name of the target that judges: a chat model, an agent over HTTP or a command.",
    )
    criteria: str = Field(
        "",
        description="The criteria, or a file of the suite with them. Empty: the criteria of the case, "
        "else the task itself.",
        json_schema_extra={"widget": "textarea"},
    )
    scale: Literal[100, 10, 5, 1] = Field(
        100, description="The agent gives a score from 0 to this number."
    )
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = Field(
        None,
        ge=1,
        le=MAX_TIMEOUT_S,
        title="Timeout in seconds",
        description=f"How long to wait for each answer of the agent, 1 to {MAX_TIMEOUT_S} seconds. "
        "Empty: the timeout of the target.",
    )

    @field_validator("agent")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("name the target that judges")
        return value.strip()

    @field_validator("scale", mode="before")
    @classmethod
    def _is_a_number(cls, value: Any) -> Any:
        is_digits = isinstance(value, str) and value.strip().isdecimal()
        return int(value) if is_digits else value

    def judged_settings(self) -> Mapping[str, object]:
        """Return the criteria; the samples record the agent and how often it was called."""
        return {"criteria": self.criteria}


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings under their own names; raises ValueError for duplicates."""
    settings = dict(mapping)
    for names, topic in ((AGENT_NAMES, "which agent judges"), (CRITERIA_NAMES, "what to judge by")):
        present = [name for name in names if settings.get(name) is not None]
        if len(present) > 1:
            raise ValueError(f"{present[0]} and {present[1]} both say {topic}; keep one of them")
        for name in present:
            settings[names[0]] = settings.pop(name)
    criteria = settings.get("criteria")
    if isinstance(criteria, list) and all(isinstance(line, str) for line in criteria):
        settings["criteria"] = "\n".join(f"- {line}" for line in criteria)
    return settings


def list_targets(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of the agent, once for each sample."""
    return (str(config.get("agent") or ""),) * int(config.get("samples") or 1)


def rescore(config: AgentJudgeConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored samples; raises PartsMissingError for another agent, scale or count."""
    if details.get("agent") != config.agent or details.get("scale") != config.scale:
        raise PartsMissingError(f"{config.agent} did not judge this result on this scale.")
    if details.get("asked") != config.samples:
        raise PartsMissingError(f"This result was not judged {config.samples} times.")
    combined = combine_opinions(details["samples"], config.samples_by, scale=config.scale)
    return replace(combined, details={**details, **combined.details})


@kind(
    label="Agent judge",
    icon="e-chat",
    config=AgentJudgeConfig,
    rescore=rescore,
    spellings={"judge_agent": {}},
    read=read,
    list_targets=list_targets,
)
async def score(config: AgentJudgeConfig, context: Context) -> Outcome:
    """Return the score that the agent gives, with every sample in the details."""
    try:
        criteria = prompt_text(config.criteria, context.files).strip()
    except ValueError as error:
        return Unscored(str(error), stage="config")
    agent = judging_agent(context, config.agent)
    if isinstance(agent, Unscored):
        return agent
    opinion = await ask_opinion(
        agent,
        _question(config, context, criteria or context.case.criteria.strip() or "(none given)"),
        samples=config.samples,
        samples_by=config.samples_by,
        scale=config.scale,
    )
    if isinstance(opinion, Unscored):
        return opinion
    facts = {"agent": config.agent, "scale": config.scale, "asked": config.samples}
    scored = rescore(config, {**facts, **opinion.details})
    return replace(scored, usage=opinion.usage, warnings=opinion.warnings)


def _question(config: AgentJudgeConfig, context: Context, criteria: str) -> JudgeQuestion:
    written = fill(TASK, context)
    reply = REPLY.replace("{scale}", str(config.scale))
    return JudgeQuestion(
        purpose="agent_judge",
        instructions=f"{written.instructions}{criteria}\n\n{JUDGE_RULES}\n\n{reply}",
        quoted=written.quoted,
        schema=AGENT_SCHEMA,
        check=lambda reply: scale_problem(reply, config.scale),
        timeout_s=config.timeout_s,
    )

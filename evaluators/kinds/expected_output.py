"""Compare the answer with the expected output of its case: character by character, or by meaning.

| match | the answer matches when |
|---|---|
| `exact` | it is identical to the expected output |
| `contains` | it contains the expected output |
| `regex` | the expected output, read as a regular expression, matches somewhere in it (time limit 2 s) |
| `semantic` | a judge scores from 0 to 100 how much of the expected meaning it has; also type `semantic` |

The first three score 100 or 0 and call no model. `trim: true` first removes white space at both ends of both
texts; without it the page says when only such white space differs. A case without an expected output leaves
the evaluator unscored.

`model`, `samples` and the timeout belong to `semantic`. The judge can be asked several times, and the page
shows how far apart its scores are.

Good: `exact` or `contains` for an invoice number or a list in a fixed order; `semantic` for a sentence that
must state the same facts as the expected one.

Bad: `exact` for prose. Two correct answers are hardly ever identical. `semantic` for tone or style: it looks
only at meaning.

```yaml
name: answer_match
type: expected_output
match: contains
trim: true
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from evaluators.kinds._base import (
    Context,
    JudgeQuestion,
    KindConfig,
    PartsMissingError,
    kind,
    sample_models,
)
from evaluators.kinds._judging import (
    JUDGE_RULES,
    OPINION_SCHEMA,
    Joining,
    ask_opinion,
    combine_opinions,
    judge_samples,
    judge_timeout,
    sample_combination,
    scale_problem,
)
from evaluators.kinds._prompts import fill
from evaluators.kinds._text import (
    MAX_KEPT_LENGTH,
    SlowPatternError,
    compare_texts,
    compile_pattern,
    excerpts,
    find_pattern,
)
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

PROMPT_VERSION = 1
SCALE = 100.0
TextMatch = Literal["exact", "contains", "regex", "semantic"]
JUDGED = ("model", "samples", "timeout_s")

HIT = {
    "exact": "Is the expected output",
    "contains": "Contains the expected output",
    "regex": "Matches the expected expression",
}
MISS = {
    "exact": "Is not the expected output",
    "contains": "Does not contain the expected output",
    "regex": "Does not match the expected expression",
}
NEAR = "Differs from the expected output only by white space at the ends; trim would let it pass"

TASK = """\
You compare one answer of an AI agent with the answer that was expected. Only their meaning counts.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
The expected answer: {{reference_answer}}"""

REPLY = """\
What to reply, in this order:
- reasoning: one to four sentences on what both say and where they differ in what they say.
- hits: each statement of the expected answer that the answer under test makes too, in any words.
- misses: each statement of the expected answer that it leaves out or contradicts, and each of its own that \
the expected answer rules out. An empty list when there is none.
- score: a number from 0 to 100. 100: the same meaning, whatever the wording, order, length or language. 75: \
the same but for a detail. 50: half of it. 25: touches on it. 0: nothing of it, or its opposite. What the \
answer adds without contradicting costs nothing."""


class ExpectedOutputConfig(KindConfig):
    """The comparison and its settings."""

    match: TextMatch = Field("exact", description="How the two texts are compared.")
    trim: bool = Field(False, description="Remove white space at both ends first.")
    model: str = Field(
        "",
        description="Short name of the language model that judges for semantic. Empty: the judge of the suite.",
    )
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = judge_timeout()

    @model_validator(mode="after")
    def _asks_only_if_semantic(self) -> Self:
        fields = type(self).model_fields
        changed = [name for name in JUDGED if getattr(self, name) != fields[name].default]
        if changed and self.match != "semantic":
            raise ValueError(f"{changed[0]} belongs to match semantic; {self.match} uses no judge")
        return self

    def judged_settings(self) -> Mapping[str, object]:
        """Return the number of samples of a semantic comparison; other matches use no judge."""
        return {"samples": self.samples} if self.match == "semantic" else {}


def read(mapping: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a suite file with the match under its own name."""
    settings = dict(mapping)
    for spelling in ("match_mode", "mode"):
        if spelling in settings and "match" not in settings:
            settings["match"] = settings.pop(spelling)
    return settings


def rescore(config: ExpectedOutputConfig, details: Mapping[str, Any]) -> Score:
    """Return the score of the stored comparison; raises PartsMissingError for another one."""
    if config.match == "semantic":
        return _rescore_semantic(config, details)
    matches = details.get("matches", {})
    name = _comparison(config)
    if name not in matches:
        raise PartsMissingError(f"The answer was not compared by {config.match} in this result.")
    matched = bool(matches[name])
    is_near = not matched and not config.trim and matches.get(f"{config.match}_trimmed", False)
    text = HIT[config.match] if matched else NEAR if is_near else MISS[config.match]
    evidence = str(details.get("match", "")) if matched else ""
    return Score(
        1.0 if matched else 0.0,
        raw_score=SCALE if matched else 0.0,
        scale=SCALE,
        findings=(Finding(text, matched, evidence),),
        details={**details, "is_near": is_near},
    )


def _rescore_semantic(config: ExpectedOutputConfig, details: Mapping[str, Any]) -> Score:
    if not details.get("samples"):
        raise PartsMissingError("The answer was not compared by semantic in this result.")
    combined = combine_opinions(details["samples"], config.samples_by, scale=SCALE)
    return replace(combined, details={**details, **combined.details})


def list_models(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the model of each sample; () for matches without a judge."""
    return sample_models(config) if config.get("match") == "semantic" else ()


@kind(
    label="Expected output",
    icon="e-expected",
    config=ExpectedOutputConfig,
    rescore=rescore,
    needs=("an expected output",),
    find_missing=lambda _, case: "" if case.expected_output.strip() else "expected output",
    spellings={
        "expected": {},
        "semantic": {"match": "semantic"},
        "semantic_similarity": {"match": "semantic"},
    },
    read=read,
    list_models=list_models,
)
async def score(config: ExpectedOutputConfig, context: Context) -> Outcome:
    """Return 1 (raw 100) if the answer matches the expected output, else 0, or the score of a judge."""
    expected, text = context.case.expected_output, context.output.text
    if not expected.strip():
        return Unscored("the case has no expected output", stage="config")
    if config.match == "semantic":
        return await _judge_meaning(config, context)
    details: dict[str, Any] = {"matches": compare_texts(expected, text)}
    if config.match == "regex":
        try:
            details |= await _match_pattern(config, expected, text)
        except ValueError as error:
            reason = f"the expected output of the case is not a regular expression: {error}"
            return Unscored(reason, stage="config")
        except SlowPatternError as error:
            return Unscored(str(error), stage="limits")
    outcome = rescore(config, details)
    if outcome.score == 1:
        return outcome
    return rescore(config, details | excerpts(expected, text))


def _comparison(config: ExpectedOutputConfig) -> str:
    return f"{config.match}_trimmed" if config.trim else config.match


async def _match_pattern(config: ExpectedOutputConfig, expected: str, text: str) -> dict[str, Any]:
    pattern = compile_pattern(expected.strip() if config.trim else expected)
    match = await find_pattern(pattern, text.strip() if config.trim else text)
    matches = {**compare_texts(expected, text), _comparison(config): match is not None}
    return {"matches": matches, "match": (match or "")[:MAX_KEPT_LENGTH]}


async def _judge_meaning(config: ExpectedOutputConfig, context: Context) -> Outcome:
    filled = fill(TASK, context)
    question = JudgeQuestion(
        purpose="semantic",
        instructions=f"{filled.instructions}\n\n{JUDGE_RULES}\n\n{REPLY}",
        quoted=filled.quoted,
        schema=OPINION_SCHEMA,
        check=lambda reply: scale_problem(reply, SCALE),
        model=config.model,
        timeout_s=config.timeout_s,
    )
    opinion = await ask_opinion(
        context, question, samples=config.samples, samples_by=config.samples_by, scale=SCALE
    )
    if isinstance(opinion, Unscored):
        return opinion
    matches = compare_texts(context.case.expected_output, context.output.text)
    return replace(opinion, details={**opinion.details, "matches": matches})

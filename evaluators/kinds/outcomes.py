"""Check the expected outcomes of a case one by one.

Evalsite makes this call itself, alongside the evaluator tree, when a case lists expected outcomes and no
evaluator of the tree judges them. Each outcome is met or missed, with a justification. The outcomes are never
part of the score; if they are the case gate, they decide the verdict.

If evaluators of the suite ask their judge several times (`samples`), the outcomes are judged as often as the
evaluator that asks most. Each outcome is then what most samples say, and missed in a tie; the page shows how
far apart the samples are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.kinds._base import Context, JudgeQuestion, KindConfig, kind
from evaluators.kinds._judging import (
    JUDGE_RULES,
    ask_samples,
    judge_model,
    judge_samples,
    judge_timeout,
)
from evaluators.kinds._prompts import fill
from evaluators.scoring.types import Finding, Outcome, OutcomeResult, Score, Unscored

OUTCOMES_SCHEMA: Mapping[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "justification": {"type": "string"},
            "passed": {"type": "boolean"},
        },
        "required": ["number", "justification", "passed"],
        "additionalProperties": False,
    },
}


def outcomes_problem(count: int, reply: Mapping[str, Any]) -> str:
    """Return which outcomes a reply omits, invents or answers twice, or ""."""
    numbers = [int(entry["number"]) for entry in reply["outcomes"]]
    if missing := [str(n) for n in range(1, count + 1) if n not in numbers]:
        return f"outcomes leaves out number {', '.join(missing)}"
    if len(numbers) > count:
        return f"outcomes holds {len(numbers)} entries for {count} expected outcomes"
    return ""


def outcome_results(
    expected: Sequence[str], reply: Mapping[str, Any]
) -> tuple[OutcomeResult, ...] | None:
    """Return the result of each expected outcome in a reply, None if it has none."""
    by_number = {int(entry["number"]): entry for entry in reply.get("outcomes") or ()}
    if not by_number:
        return None
    return tuple(
        OutcomeResult(text, bool(by_number[n]["passed"]), str(by_number[n]["justification"]))
        for n, text in enumerate(expected, 1)
    )


def combine_outcomes(
    samples: Sequence[tuple[OutcomeResult, ...]],
) -> tuple[OutcomeResult, ...] | None:
    """Return the result of each outcome that most samples agree on; a tie is missed.

    The justification is that of the first sample in the majority. None without samples.
    """
    if not samples:
        return None
    return tuple(_majority(results) for results in zip(*samples, strict=True))


def _majority(results: Sequence[OutcomeResult]) -> OutcomeResult:
    passed = 2 * sum(result.passed for result in results) > len(results)
    return next(result for result in results if result.passed == passed)


PROMPT_VERSION = 1

TASK = """\
You check whether one answer of an AI agent brought about what its authors expected.

The task it was given: {{input}}
The answer under test: {{candidate_answer}}
What its tools were asked and returned: {{tool_calls}}
A reference answer written by people, one way of being right among others: {{reference_answer}}

The expected outcomes, each by its number:
{{expected_outcomes}}"""

REPLY = """\
What to reply: outcomes, one entry for each expected outcome above, by its number, none left out and \
none added:
- justification: one or two sentences with the words of the answer or the tool call that settle it.
- passed: true only when the whole statement holds. Judge each by itself, in doubt it is false."""

SCHEMA = {
    "type": "object",
    "properties": {"outcomes": OUTCOMES_SCHEMA},
    "required": ["outcomes"],
    "additionalProperties": False,
}


class OutcomesConfig(KindConfig):
    """The judge and the number of samples."""

    model: str = judge_model()
    samples: int = judge_samples()
    timeout_s: int | None = judge_timeout()


@kind(
    label="Expected outcomes",
    icon="i-check",
    config=OutcomesConfig,
    find_missing=lambda _, case: "" if case.expected_outcomes else "expected outcomes",
    uses_judge=True,
    in_gallery=False,
    supplies_outcomes=True,
)
async def score(config: OutcomesConfig, context: Context) -> Outcome:
    """Return each expected outcome met or missed; the score is the share that is met."""
    expected = context.case.expected_outcomes
    if not expected:
        return Unscored("the case lists no expected outcomes", stage="config")
    filled = fill(TASK, context)
    question = JudgeQuestion(
        purpose="outcomes",
        instructions=f"{filled.instructions}\n\n{JUDGE_RULES}\n\n{REPLY}",
        quoted=filled.quoted,
        schema=SCHEMA,
        check=lambda content: outcomes_problem(len(expected), content),
        model=config.model,
        timeout_s=config.timeout_s,
    )
    sampled = await ask_samples(context, question, config.samples)
    if isinstance(sampled, Unscored):
        return sampled
    samples = [outcome_results(expected, reply.content) or () for reply in sampled.replies]
    results = combine_outcomes(samples) or ()
    shares = [_share_met(sample) for sample in samples]
    several = {
        "samples_by": "majority",
        "sample_scores": shares,
        "spread": max(shares) - min(shares),
    }
    return Score(
        _share_met(results),
        findings=tuple(
            Finding(result.text, result.passed, result.justification) for result in results
        ),
        details={"model": sampled.replies[0].model, **(several if config.samples > 1 else {})},
        outcomes=results,
        usage=sampled.usage,
        warnings=sampled.warnings,
    )


def _share_met(results: Sequence[OutcomeResult]) -> float:
    return sum(result.passed for result in results) / len(results)

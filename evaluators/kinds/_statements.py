"""Let a judge take a text apart into statements and say of each whether it holds; the score is the share that does.

The measures of retrieval share this: faithfulness, answer relevance, context recall and precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from evaluators.kinds._base import CaseFacts, Context, JudgeQuestion, KindConfig, Step
from evaluators.kinds._json_paths import PathError
from evaluators.kinds._judging import (
    JUDGE_RULES,
    Joining,
    ask_samples,
    judge_model,
    judge_samples,
    judge_timeout,
    sample_combination,
)
from evaluators.kinds._prompts import METADATA_NAME, FilledPrompt, metadata_value, value_text
from evaluators.scoring.samples import combine_samples
from evaluators.scoring.types import Finding, Outcome, Score, Unscored

TOOLS = "tools"
MAX_PASSAGES = 100
# Together they have to fit into one question to a judge.
MAX_CONTEXT_LENGTH = 400_000
MAX_PARTS = 200


class JudgedParts(NamedTuple):
    """What one reply of a judge found part by part, and the score that follows."""

    findings: tuple[Finding, ...]
    score: float


class JudgedConfig(KindConfig):
    """The judge and how often it is asked."""

    model: str = judge_model()
    samples: int = judge_samples()
    samples_by: Joining = sample_combination()
    timeout_s: int | None = judge_timeout()


class ContextConfig(JudgedConfig):
    """Where the context of an answer is, and the judge."""

    context: str = Field(
        TOOLS,
        pattern=rf"^({TOOLS}|metadata([.\[].+)?)$",
        description="Where the context is: tools, for what the tools returned; or a path in the metadata of the case, "
        "such as metadata.context.",
    )
    tool: str = Field(
        "", description="With tools: only what the tool of this name returned. Empty: all."
    )


def find_passages(config: ContextConfig, context: Context) -> tuple[str, ...] | Unscored:
    """Return the passages of the context in their order, Unscored without one; each entry of a list is a passage."""
    source, tool = config.context, config.tool
    if METADATA_NAME.match(source):
        try:
            found = _texts(metadata_value(source, context.case.metadata))
        except PathError:
            found = ()
        missing, stage = f"the case has no context: {source} is missing or empty", "config"
    else:
        if context.output.trace is None:
            return Unscored("the target reports no trace, so no context is known", stage="target")
        steps = [step for step in context.output.trace if step.type == "tool"]
        found = tuple(text for step in steps if tool in ("", step.name) for text in _returned(step))
        of_tool = f" of {tool}" if tool else ""
        missing, stage = f"there is no context: no call{of_tool} returned anything", "target"
    if not found:
        return Unscored(missing, stage=stage)
    length = sum(map(len, found))
    if len(found) > MAX_PASSAGES or length > MAX_CONTEXT_LENGTH:
        reason = (
            f"the context has {len(found):,} passages and {length:,} characters; at most {MAX_PASSAGES} and "
            f"{MAX_CONTEXT_LENGTH:,} are judged"
        )
        return Unscored(reason, stage="limits")
    return found


def find_missing_context(config: Mapping[str, Any], case: CaseFacts) -> str:
    """Return what a case lacks if its metadata must have the context."""
    source = str(config.get("context") or TOOLS)
    if source == TOOLS:
        return ""
    try:
        return "" if _texts(metadata_value(source, case.metadata)) else source
    except PathError:
        return source


def _returned(step: Step) -> tuple[str, ...]:
    return () if step.error else _texts(step.output)


def _texts(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(text for entry in entries if (text := value_text(entry)).strip())


def quote_passages(passages: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return passages as texts that a question quotes, by their numbers."""
    return tuple((f"passage {number}", text) for number, text in enumerate(passages, 1))


def parts_schema(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply with a list of this name, whose entries have these properties and evidence."""
    entry = {**properties, "evidence": {"type": "string"}}
    parts = {
        "type": "array",
        "maxItems": MAX_PARTS,
        "items": {
            "type": "object",
            "properties": entry,
            "required": list(entry),
            "additionalProperties": False,
        },
    }
    return {
        "type": "object",
        "properties": {"reasoning": {"type": "string"}, name: parts},
        "required": ["reasoning", name],
        "additionalProperties": False,
    }


def statements_schema(verdict: str) -> dict[str, Any]:
    """Return the schema of a reply with statements, each with the verdict of this name."""
    text, boolean = {"type": "string"}, {"type": "boolean"}
    return parts_schema("statements", {"statement": text, verdict: boolean})


def read_statements(reply: Mapping[str, Any], verdict: str) -> JudgedParts:
    """Return the statements of a reply and the share of them that passed."""
    findings = tuple(
        Finding(str(entry["statement"]), bool(entry[verdict]), str(entry["evidence"]))
        for entry in reply["statements"]
    )
    passed = sum(finding.passed for finding in findings)
    return JudgedParts(findings, passed / len(findings) if findings else 0.0)


def numbered(reply: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the numbered entries of a reply in their order."""
    return sorted(reply[name], key=lambda entry: int(entry["number"]))


def numbering_problem(reply: Mapping[str, Any], name: str, count: int) -> str:
    """Return what is wrong with a reply that must name each of `count` things once, or ""."""
    numbers = [int(entry["number"]) for entry in numbered(reply, name)]
    is_whole = numbers == list(range(1, count + 1))
    return "" if is_whole else f"{name} must name each number from 1 to {count} once"


async def judge_findings(
    config: JudgedConfig,
    context: Context,
    filled: FilledPrompt,
    *,
    purpose: str,
    schema: Mapping[str, Any],
    read: Callable[[Mapping[str, Any]], JudgedParts],
    without: str,
    check: Callable[[Mapping[str, Any]], str] | None = None,
) -> Outcome:
    """Return the combined score of the samples, with the findings of the sample nearest to it.

    `without` says why there is no score if a judge finds no statement at all.
    """
    question = JudgeQuestion(
        purpose=purpose,
        instructions=f"{filled.instructions}\n\n{JUDGE_RULES}",
        quoted=filled.quoted,
        schema=schema,
        check=check,
        model=config.model,
        timeout_s=config.timeout_s,
    )
    sampled = await ask_samples(context, question, config.samples)
    if isinstance(sampled, Unscored):
        return sampled
    readings = [(reply, read(reply.content)) for reply in sampled.replies]
    judged = [(reply, reading) for reply, reading in readings if reading.findings]
    if not judged:
        return Unscored(without, stage="judge", usage=sampled.usage)
    left_out = len(sampled.replies) - len(judged)
    cut = (f"{left_out} of {config.samples} samples are left out: {without}",) if left_out else ()
    scores = [reading.score for _, reading in judged]
    combined = combine_samples(scores, config.samples_by)
    nearest = min(range(len(scores)), key=lambda n: abs(scores[n] - combined.score))
    reply, reading = judged[nearest]
    spread = {
        "sample_scores": scores,
        "samples_by": config.samples_by,
        "spread": combined.spread,
    }
    return Score(
        combined.score,
        reasoning=str(reply.content["reasoning"]),
        findings=reading.findings,
        details={"model": reply.model, **(spread if len(scores) > 1 else {})},
        usage=sampled.usage,
        warnings=(*sampled.warnings, *cut),
    )

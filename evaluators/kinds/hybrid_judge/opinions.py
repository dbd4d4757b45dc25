"""What the judge of a hybrid evaluation is asked, dimension by dimension, and what it replies (SCORING §6)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import CaseFacts, Context, JudgeReply
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.metrics_judge import MAX_KEY_LENGTH, MAX_WEIGHT, metric_key
from evaluators.kinds.outcomes import combine_outcomes, outcome_results
from evaluators.scoring.hybrid import (
    DIMENSIONS,
    ERRORED,
    PASSED,
    SCALE,
    DimensionPolicy,
    FinalEvaluation,
    JudgeOpinion,
)
from evaluators.scoring.types import Finding

MAX_DIMENSIONS = 30
MEANINGS = {
    "task": "What was asked for is done, and done right.",
    "process": "The steps and tool calls were the right ones, in a sensible order.",
    "autonomy": "The agent got there by itself and asked only for what it could not find out.",
    "closeness": "The answer fits the person, the situation and what was said before.",
    "efficiency": "No step, call or sentence could have been left out.",
    "spark": "Something thoughtful that nobody had to ask for, and nothing forced.",
}


class DimensionSetting(BaseModel):
    """One dimension: one of the six by its key, or one of the suite's own."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    key: str = Field(
        min_length=1, max_length=MAX_KEY_LENGTH, description="Short name, unique here."
    )
    policy: Literal["judge_only", "deterministic_only", "weighted"] = Field(
        "judge_only",
        description="Where its final score comes from: judge_only, deterministic_only, weighted.",
    )
    judge_weight: float = Field(
        0.5, ge=0, le=1, description="The judge's part of it when it is weighted, 0 to 1."
    )
    weight: float = Field(
        1.0, ge=0, le=MAX_WEIGHT, description="Weight where the dimensions make the score."
    )
    description: str = Field("", max_length=2000, description="What the judge looks at.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Fill in what the six dimensions mean; a dimension may be written as its key."""
        given = {"key": values} if isinstance(values, str) else values
        if not isinstance(given, Mapping) or not isinstance(given.get("key"), str):
            return given
        key = metric_key(given["key"])
        said = {name: value for name, value in given.items() if value not in (None, "")}
        return {"description": MEANINGS.get(key, ""), **said, "key": key}

    def __str__(self) -> str:
        """Return the key, as lists of settings show it."""
        return self.key

    @property
    def name(self) -> str:
        """Return how the dimension is called on pages."""
        return self.key.replace("_", " ").capitalize()


def default_dimensions() -> tuple[DimensionSetting, ...]:
    """Return the six dimensions, each by the judge alone (SCORING §6)."""
    return tuple(DimensionSetting.model_validate(key) for key in DIMENSIONS)


def dimension_policies(dimensions: Sequence[DimensionSetting]) -> dict[str, DimensionPolicy]:
    """Return where each dimension's final score comes from."""
    return {one.key: DimensionPolicy(one.policy, one.judge_weight) for one in dimensions}


def dimensions_problem(dimensions: Sequence[DimensionSetting], *, are_weighed: bool) -> str:
    """Return why these dimensions cannot be scored, or ""."""
    keys = [one.key for one in dimensions]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        return f"dimensions: {twice[0]!r} stands twice"
    if are_weighed and not any(one.weight > 0 for one in dimensions):
        return "dimensions: the weights add up to 0, so there is nothing to score"
    return ""


HARD, SOFT = "hard", "soft"
MAX_FILES = 200
NOTHING = "(none)"
# NUL and halves of surrogate pairs: an agent can write them, no database keeps them.
UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
TEXT_KEYS = ("text", "expectation", "description", "statement")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing expected of the answer. One that is hard shows a badge when it is unmet; it caps nothing."""

    kind: str
    text: str


def read_expectations(
    hard: Sequence[str], soft: Sequence[str], case: CaseFacts
) -> tuple[Expectation, ...]:
    """Return the expectations of the settings, then those of the case's metadata; the hard ones first."""
    metadata = _spelt(case.metadata)
    places = (metadata, _spelt(metadata.get("expectations")))
    found: dict[Expectation, None] = {}
    for kind, own in ((HARD, hard), (SOFT, soft)):
        told = [text for place in places for text in _texts(place.get(f"{kind}_expectations"))]
        found |= dict.fromkeys(Expectation(kind, text) for text in (*own, *told))
    return tuple(found)


def judge_packet(
    quoted: Sequence[tuple[str, str]],
    checks: Sequence[Mapping[str, Any]],
    expectations: Sequence[Expectation],
    context: Context,
) -> tuple[tuple[str, str], ...]:
    """Return the evidence by label: what is quoted of task and answer, files, checks and expectations."""
    names = sorted(context.output.files)
    files = "\n".join(names[:MAX_FILES])
    if len(names) > MAX_FILES:
        files += f"\n… and {len(names) - MAX_FILES} more"
    results = "\n".join(f"{n}. {_check(one)}" for n, one in enumerate(checks, 1))
    expected = "\n".join(f"{n}. {one.kind}: {one.text}" for n, one in enumerate(expectations, 1))
    parts = (
        *quoted,
        ("files", files or NOTHING),
        ("check_results", results or NOTHING),
        ("expectations", expected or NOTHING),
    )
    return tuple((label, storable(text)) for label, text in parts)


def storable(text: str) -> str:
    """Return a text as a database keeps it."""
    return UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _check(one: Mapping[str, Any]) -> str:
    tags = f" ({', '.join(one['dimensions'])})" if one["dimensions"] else ""
    negated = "must not hold: " if one["negate"] else ""
    word = "no result" if one["outcome"] == ERRORED else one["outcome"]
    evidence = f" [{one['evidence']}]" if one["evidence"] else ""
    return f"{word}: {one['name']}{tags}: {negated}{one['said']}{evidence}"


def _spelt(given: Any) -> dict[str, Any]:
    """Return what metadata holds by names in snake_case; nothing where that is no mapping."""
    items = given.items() if isinstance(given, Mapping) else ()
    return {normal_spelling(str(key)): value for key, value in items}


def _texts(given: Any) -> list[str]:
    """Return the texts of a list that metadata holds; what is no text is left out."""
    items = given if isinstance(given, list | tuple) else [given]
    found = []
    for one in items:
        text = one
        if isinstance(one, Mapping):
            text = next((one[key] for key in TEXT_KEYS if isinstance(one.get(key), str)), None)
        if isinstance(text, str) and text.strip():
            found.append(text.strip())
    return found


TEXT = {"type": "string"}


def reply_schema(keys: Sequence[str], *, has_expectations: bool) -> dict[str, Any]:
    """Return the schema of a reply: evidence before each score, the overall one last."""
    dimension = _object({"evidence": TEXT, "score": {"type": "number"}})
    expectation = _object(
        {"number": {"type": "integer"}, "evidence": TEXT, "met": {"type": "boolean"}}
    )
    expectations = {"expectations": {"type": "array", "items": expectation}}
    overall = {"evidence": {"type": "array", "items": TEXT}, "score": {"type": "number"}}
    return _object(
        {
            "reasoning": TEXT,
            **(expectations if has_expectations else {}),
            "dimensions": _object(dict.fromkeys(keys, dimension)),
            "overall": _object(overall),
        }
    )


def reply_problem(count: int, reply: Mapping[str, Any]) -> str:
    """Return what is wrong with a reply that satisfies the schema, or ""; `count` expectations were asked."""
    scored = {**{f"dimensions.{key}": one for key, one in reply["dimensions"].items()}}
    scored["overall"] = reply["overall"]
    for name, one in scored.items():
        if not 0 <= one["score"] <= SCALE:
            return f"score of {name} is {one['score']}, not a number from 0 to 10"
    if not any(text.strip() for text in reply["overall"]["evidence"]):
        return "overall.evidence is empty; name what the overall score rests on"
    given = [int(one["number"]) for one in reply.get("expectations", ())]
    if missing := [str(n) for n in range(1, count + 1) if n not in given]:
        return f"expectations leaves out number {', '.join(missing)}"
    if len(given) > count:
        return f"expectations holds {len(given)} entries for {count} expectations"
    return ""


def read_iteration(reply: JudgeReply) -> dict[str, Any]:
    """Return what one reply said, as it is stored; scores are 0 to 10."""
    dimensions, overall = reply.content["dimensions"], reply.content["overall"]
    return {
        "reasoning": str(reply.content["reasoning"]),
        "dimensions": {key: float(one["score"]) for key, one in dimensions.items()},
        "justifications": {key: str(one["evidence"]) for key, one in dimensions.items()},
        "overall": float(overall["score"]),
        "evidence": [str(text) for text in overall["evidence"] if text.strip()],
    }


def stored_opinion(iteration: Mapping[str, Any], keys: Sequence[str]) -> JudgeOpinion:
    """Return a stored iteration as the arithmetic knows it, with these dimensions."""
    dimensions = {key: float(iteration["dimensions"][key]) for key in keys}
    return JudgeOpinion(float(iteration["overall"]), dimensions, tuple(iteration["evidence"]))


def nearest(values: Sequence[float], score: float | None) -> int:
    """Return the place of the value nearest to the score they made: it speaks for them all."""
    return min(range(len(values)), key=lambda n: abs(values[n] - (score or 0.0)))


def combine_expectations(
    expectations: Sequence[Expectation], replies: Sequence[JudgeReply]
) -> list[dict[str, Any]]:
    """Return whether each expectation was met: as most of the iterations say, a tie is unmet."""
    texts = [one.text for one in expectations]
    said = [outcome_results(texts, {"outcomes": _as_outcomes(reply.content)}) for reply in replies]
    joined = combine_outcomes([one for one in said if one is not None]) or ()
    return [
        {"kind": one.kind, "text": one.text, "met": found.passed, "evidence": found.justification}
        for one, found in zip(expectations, joined, strict=False)
    ]


def dimension_part(
    dimension: DimensionSetting,
    final: FinalEvaluation,
    iterations: Sequence[Mapping[str, Any]],
    *,
    is_weighed: bool,
) -> dict[str, Any]:
    """Return one dimension as it is kept and shown, its three scores 0 to 10 or None."""
    key = dimension.key
    scores = [float(one["dimensions"][key]) for one in iterations]
    judged = final.judge_dimensions.get(key)
    return {
        "key": key,
        "name": dimension.name,
        "policy": dimension.policy,
        "deterministic": final.deterministic_dimensions.get(key),
        "judge": judged,
        "final": final.final_dimensions.get(key),
        "spread": max(scores) - min(scores),
        "evidence": iterations[nearest(scores, judged)]["justifications"][key],
        **({"weight": dimension.weight} if is_weighed else {}),
    }


def hybrid_findings(
    checks: Sequence[Mapping[str, Any]], expectations: Sequence[Mapping[str, Any]]
) -> tuple[Finding, ...]:
    """Return expectations and checks as hits and misses; a check that errored is neither."""
    expected = (
        Finding(
            f"{'Hard expectation' if one['kind'] == HARD else 'Expectation'}: {one['text']}",
            bool(one["met"]),
            str(one["evidence"]),
        )
        for one in expectations
    )
    checked = (
        Finding(f"{one['name']}: {one['said']}", one["outcome"] == PASSED, str(one["evidence"]))
        for one in checks
        if one["outcome"] != ERRORED
    )
    return (*expected, *checked)


def _as_outcomes(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"number": one["number"], "justification": one["evidence"], "passed": one["met"]}
        for one in content.get("expectations", ())
    ]


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }

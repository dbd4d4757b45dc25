"""The question to the judge of a hybrid evaluation, and its replies by dimension (SCORING §6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluators.kinds._base import CaseFacts, Context, JudgeReply
from evaluators.kinds._judging import MAX_FINDINGS
from evaluators.kinds._refusals import normal_spelling
from evaluators.kinds.metrics_judge import MAX_KEY_LENGTH, MAX_WEIGHT, metric_key
from evaluators.kinds.outcomes import combine_outcomes, outcome_results
from evaluators.reading.json import storable
from evaluators.scoring.aggregate import HYBRID_KIND, JUDGE_OVERALL
from evaluators.scoring.hybrid import (
    DIMENSIONS,
    ERRORED,
    PASSED,
    SCALE,
    DimensionPolicy,
    FinalEvaluation,
    JudgeOpinion,
)
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from evaluators.scoring.types import DomainError, Finding

MAX_DIMENSIONS = 30
MEANINGS = {
    "task": "What was asked for is done, and done right.",
    "process": "The steps and tool calls were the right ones, in a sensible order.",
    "autonomy": "The agent got there by itself and asked only for what it could not find out.",
    "closeness": "The answer fits the person, the situation and what was said before.",
    "efficiency": "No step, call or sentence could have been left out.",
    "spark": "Something thoughtful beyond what was asked for, and nothing forced.",
}


class DimensionSetting(BaseModel):
    """One dimension: one of the six by its key, or a new one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    key: str = Field(
        min_length=1, max_length=MAX_KEY_LENGTH, description="Short name, unique here."
    )
    policy: Literal["judge_only", "deterministic_only", "weighted"] = Field(
        "judge_only",
        description="The source of its final score: judge_only, deterministic_only or weighted.",
    )
    judge_weight: float = Field(
        0.5, ge=0, le=1, description="The share of the judge's score if it is weighted, 0 to 1."
    )
    weight: float = Field(
        1.0, ge=0, le=MAX_WEIGHT, description="Weight if the score is computed from the dimensions."
    )
    description: str = Field("", max_length=2000, description="What the judge looks at.")

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values: Any) -> Any:
        """Add the descriptions of the six dimensions; a dimension may be written as its key."""
        settings = {"key": values} if isinstance(values, str) else values
        if not isinstance(settings, Mapping) or not isinstance(settings.get("key"), str):
            return settings
        key = metric_key(settings["key"])
        values_set = {name: value for name, value in settings.items() if value not in (None, "")}
        return {"description": MEANINGS.get(key, ""), **values_set, "key": key}

    def __str__(self) -> str:
        """Return the key, as lists of settings show it."""
        return self.key

    @property
    def name(self) -> str:
        """Return the name of the dimension on pages."""
        return self.key.replace("_", " ").capitalize()


def default_dimensions() -> tuple[DimensionSetting, ...]:
    """Return the six dimensions, each by the judge alone (SCORING §6)."""
    return tuple(DimensionSetting.model_validate(key) for key in DIMENSIONS)


def dimension_policies(dimensions: Sequence[DimensionSetting]) -> dict[str, DimensionPolicy]:
    """Return the policy of each dimension by key."""
    return {
        dimension.key: DimensionPolicy(dimension.policy, dimension.judge_weight)
        for dimension in dimensions
    }


def dimensions_problem(dimensions: Sequence[DimensionSetting], *, are_weighed: bool) -> str:
    """Return why these dimensions cannot be scored, or ""."""
    keys = [dimension.key for dimension in dimensions]
    if twice := sorted(key for key, count in Counter(keys).items() if count > 1):
        return f"dimensions: {twice[0]!r} is repeated"
    if are_weighed and not any(dimension.weight > 0 for dimension in dimensions):
        return "dimensions: the weights add up to 0, so there is nothing to score"
    return ""


HARD, SOFT = "hard", "soft"
MAX_FILES = 200
NOTHING = "(none)"
TEXT_KEYS = ("text", "expectation", "description", "statement")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing expected of the answer. A missed hard one shows a badge, but does not cap the score."""

    kind: str
    text: str


def read_expectations(
    hard: Sequence[str], soft: Sequence[str], case: CaseFacts
) -> tuple[Expectation, ...]:
    """Return the expectations of the settings and of the case's metadata, the hard ones first."""
    metadata = _snake_case_keys(case.metadata)
    places = (metadata, _snake_case_keys(metadata.get("expectations")))
    expectations: dict[Expectation, None] = {}
    for kind, setting_texts in ((HARD, hard), (SOFT, soft)):
        case_texts = [
            text for place in places for text in _texts(place.get(f"{kind}_expectations"))
        ]
        expectations |= dict.fromkeys(
            Expectation(kind, text) for text in (*setting_texts, *case_texts)
        )
    return tuple(expectations)


def judge_packet(
    quoted: Sequence[tuple[str, str]],
    checks: Sequence[Mapping[str, Any]],
    expectations: Sequence[Expectation],
    context: Context,
) -> tuple[tuple[str, str], ...]:
    """Return the evidence as pairs of label and text: task, answer, files, checks, expectations."""
    names = sorted(context.output.files)
    files = "\n".join(names[:MAX_FILES])
    if len(names) > MAX_FILES:
        files += f"\n… and {len(names) - MAX_FILES} more"
    results = "\n".join(f"{n}. {_check(entry)}" for n, entry in enumerate(checks, 1))
    expected = "\n".join(
        f"{n}. {entry.kind}: {entry.text}" for n, entry in enumerate(expectations, 1)
    )
    parts = (
        *quoted,
        ("files", files or NOTHING),
        ("check_results", results or NOTHING),
        ("expectations", expected or NOTHING),
    )
    return tuple((label, storable(text)) for label, text in parts)


def _check(check: Mapping[str, Any]) -> str:
    tags = f" ({', '.join(check['dimensions'])})" if check["dimensions"] else ""
    negated = "must not hold: " if check["negate"] else ""
    word = "no result" if check["outcome"] == ERRORED else check["outcome"]
    evidence = f" [{check['evidence']}]" if check["evidence"] else ""
    return f"{word}: {check['name']}{tags}: {negated}{check['message']}{evidence}"


def _snake_case_keys(values: Any) -> dict[str, Any]:
    """Return a mapping of metadata with its keys in snake_case; {} for other values."""
    items = values.items() if isinstance(values, Mapping) else ()
    return {normal_spelling(str(key)): value for key, value in items}


def _texts(values: Any) -> list[str]:
    """Return the texts of a list in metadata, without other values."""
    items = values if isinstance(values, list | tuple) else [values]
    texts = []
    for item in items:
        text = item
        if isinstance(item, Mapping):
            text = next((item[key] for key in TEXT_KEYS if isinstance(item.get(key), str)), None)
        if isinstance(text, str) and text.strip():
            texts.append(text.strip())
    return texts


TEXT = {"type": "string"}


def reply_schema(keys: Sequence[str], *, has_expectations: bool) -> dict[str, Any]:
    """Return the schema of a reply: evidence before each score, the overall score last."""
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
    """Return what is wrong with a reply that satisfies the schema, or ""; it must answer `count` expectations."""
    scored = {**{f"dimensions.{key}": part for key, part in reply["dimensions"].items()}}
    scored["overall"] = reply["overall"]
    for name, part in scored.items():
        if not 0 <= part["score"] <= SCALE:
            return f"score of {name} is {part['score']}, not a number from 0 to 10"
    if not any(text.strip() for text in reply["overall"]["evidence"]):
        return "overall.evidence is empty; name what the overall score rests on"
    if (count_given := len(reply["overall"]["evidence"])) > MAX_FINDINGS:
        return f"overall.evidence holds {count_given:,} entries; {MAX_FINDINGS} is the limit"
    numbers = [int(part["number"]) for part in reply.get("expectations", ())]
    if missing := [str(n) for n in range(1, count + 1) if n not in numbers]:
        return f"expectations leaves out number {', '.join(missing)}"
    if len(numbers) > count:
        return f"expectations holds {len(numbers)} entries for {count} expectations"
    return ""


def read_iteration(reply: JudgeReply) -> dict[str, Any]:
    """Return one reply as it is stored; scores are 0 to 10."""
    dimensions, overall = reply.content["dimensions"], reply.content["overall"]
    return {
        "reasoning": str(reply.content["reasoning"]),
        "dimensions": {key: float(dimension["score"]) for key, dimension in dimensions.items()},
        "justifications": {
            key: str(dimension["evidence"]) for key, dimension in dimensions.items()
        },
        "overall": float(overall["score"]),
        "evidence": [str(text) for text in overall["evidence"] if text.strip()],
    }


def stored_opinion(iteration: Mapping[str, Any], keys: Sequence[str]) -> JudgeOpinion:
    """Return a stored iteration with these dimensions, in the form that scoring uses."""
    dimensions = {key: float(iteration["dimensions"][key]) for key in keys}
    return JudgeOpinion(float(iteration["overall"]), dimensions, tuple(iteration["evidence"]))


def nearest(values: Sequence[float], score: float | None) -> int:
    """Return the index of the value nearest to the combined score."""
    return min(range(len(values)), key=lambda n: abs(values[n] - (score or 0.0)))


def combine_expectations(
    expectations: Sequence[Expectation], replies: Sequence[JudgeReply]
) -> list[dict[str, Any]]:
    """Return whether most iterations say that each expectation is met; a tie is unmet."""
    texts = [expectation.text for expectation in expectations]
    results = [
        outcome_results(texts, {"outcomes": _as_outcomes(reply.content)}) for reply in replies
    ]
    combined = (
        combine_outcomes([expectation for expectation in results if expectation is not None]) or ()
    )
    return [
        {
            "kind": expectation.kind,
            "text": expectation.text,
            "met": result.passed,
            "evidence": result.justification,
        }
        for expectation, result in zip(expectations, combined, strict=False)
    ]


def dimension_part(
    dimension: DimensionSetting,
    final: FinalEvaluation,
    iterations: Sequence[Mapping[str, Any]],
    *,
    is_weighed: bool,
) -> dict[str, Any]:
    """Return one dimension as it is stored and shown; its three scores are 0 to 10 or None."""
    key = dimension.key
    scores = [float(iteration["dimensions"][key]) for iteration in iterations]
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
            f"{'Hard expectation' if entry['kind'] == HARD else 'Expectation'}: {entry['text']}",
            bool(entry["met"]),
            str(entry["evidence"]),
        )
        for entry in expectations
    )
    checked = (
        Finding(
            f"{entry['name']}: {entry['message']}",
            entry["outcome"] == PASSED,
            str(entry["evidence"]),
        )
        for entry in checks
        if entry["outcome"] != ERRORED
    )
    return (*expected, *checked)


def _as_outcomes(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "number": expectation["number"],
            "justification": expectation["evidence"],
            "passed": expectation["met"],
        }
        for expectation in content.get("expectations", ())
    ]


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


DIMENSION_WEIGHTS = "dimension_weights"


class TwoFinalScoresError(DomainError):
    """Tree and policy would give each result two final scores."""

    code = "two_final_scores"


def check_final_score(root: EvaluatorSpec, policy: PolicySpec) -> None:
    """Refuse weights of dimensions where the final score is the judge's overall score.

    That score is not derived from its dimensions (SCORING §4.4), so the weights would make a second one.
    Raises TwoFinalScoresError naming the evaluator and both remedies.
    """
    if policy.final_score != JUDGE_OVERALL:
        return
    for path, node in walk(root):
        if node.kind == HYBRID_KIND and node.config.get("score_from") == DIMENSION_WEIGHTS:
            raise TwoFinalScoresError(
                f"evaluator “{path or node.name}” makes its score of weighted dimensions (score_from: "
                f"{DIMENSION_WEIGHTS}), while the suite's final score is the judge's overall score "
                f"(final_score: {JUDGE_OVERALL}). Set score_from: {JUDGE_OVERALL} there, or final_score: "
                "aggregate for the suite"
            )

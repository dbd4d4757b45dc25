"""Opinions of the judge of a hybrid evaluation: as it replies with them, and as a score keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.kinds._base import JudgeReply
from evaluators.kinds._hybrid_dimensions import DimensionSetting
from evaluators.kinds._hybrid_packet import HARD, Expectation
from evaluators.kinds._outcomes import joined_outcomes, outcome_results
from evaluators.scoring.hybrid import ERRORED, PASSED, SCALE, FinalEvaluation, JudgeOpinion
from evaluators.scoring.types import Finding

TEXT = {"type": "string"}


def schema_of(keys: Sequence[str], *, has_expectations: bool) -> dict[str, Any]:
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


def problem_of(count: int, reply: Mapping[str, Any]) -> str:
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


def iteration_of(reply: JudgeReply) -> dict[str, Any]:
    """Return what one reply said, as it is stored; scores are 0 to 10."""
    dimensions, overall = reply.content["dimensions"], reply.content["overall"]
    return {
        "reasoning": str(reply.content["reasoning"]),
        "dimensions": {key: float(one["score"]) for key, one in dimensions.items()},
        "justifications": {key: str(one["evidence"]) for key, one in dimensions.items()},
        "overall": float(overall["score"]),
        "evidence": [str(text) for text in overall["evidence"] if text.strip()],
    }


def opinion_of(iteration: Mapping[str, Any], keys: Sequence[str]) -> JudgeOpinion:
    """Return a stored iteration as the arithmetic knows it, with these dimensions."""
    dimensions = {key: float(iteration["dimensions"][key]) for key in keys}
    return JudgeOpinion(float(iteration["overall"]), dimensions, tuple(iteration["evidence"]))


def nearest(values: Sequence[float], score: float | None) -> int:
    """Return the place of the value nearest to the score they made: it speaks for them all."""
    return min(range(len(values)), key=lambda n: abs(values[n] - (score or 0.0)))


def joined_expectations(
    expectations: Sequence[Expectation], replies: Sequence[JudgeReply]
) -> list[dict[str, Any]]:
    """Return whether each expectation was met: as most of the iterations say, a tie is unmet."""
    texts = [one.text for one in expectations]
    said = [outcome_results(texts, {"outcomes": _as_outcomes(reply.content)}) for reply in replies]
    joined = joined_outcomes([one for one in said if one is not None]) or ()
    return [
        {"kind": one.kind, "text": one.text, "met": found.passed, "evidence": found.justification}
        for one, found in zip(expectations, joined, strict=False)
    ]


def part_of(
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


def findings_of(
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

"""Expected outcomes in a judge's reply: one entry each, by number, none left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.scoring.types import OutcomeResult

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
    """Return which outcomes a reply leaves out, invents or answers twice, or ""."""
    given = [int(entry["number"]) for entry in reply["outcomes"]]
    if missing := [str(n) for n in range(1, count + 1) if n not in given]:
        return f"outcomes leaves out number {', '.join(missing)}"
    if len(given) > count:
        return f"outcomes holds {len(given)} entries for {count} expected outcomes"
    return ""


def outcome_results(
    expected: Sequence[str], reply: Mapping[str, Any]
) -> tuple[OutcomeResult, ...] | None:
    """Return each expected outcome as the reply judges it; None when it judges none of them."""
    by_number = {int(entry["number"]): entry for entry in reply.get("outcomes") or ()}
    if not by_number:
        return None
    return tuple(
        OutcomeResult(text, bool(by_number[n]["passed"]), str(by_number[n]["justification"]))
        for n, text in enumerate(expected, 1)
    )


def joined_outcomes(
    samples: Sequence[tuple[OutcomeResult, ...]],
) -> tuple[OutcomeResult, ...] | None:
    """Return of several judgements what most of them say of each outcome; a tie is missed.

    The justification is the first of those that say so. None without judgements.
    """
    if not samples:
        return None
    return tuple(_most_said(said) for said in zip(*samples, strict=True))


def _most_said(said: Sequence[OutcomeResult]) -> OutcomeResult:
    passed = 2 * sum(one.passed for one in said) > len(said)
    return next(one for one in said if one.passed == passed)

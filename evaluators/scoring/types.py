"""The values that scoring takes and gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

SCORE_DIGITS = 9


class DomainError(Exception):
    """The base of every refusal a user can cause and mend."""

    code = "invalid"


class ScoreOutOfRangeError(DomainError):
    """A score, weight or threshold is not a number within its range."""

    code = "score_out_of_range"


class Spec(BaseModel):
    """The base of what users write down: suites, cases, evaluators, policies. Values never change in place."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values, checked like a new one."""
        return type(self)(
            **{name: getattr(self, name) for name in type(self).model_fields} | changes
        )

    def as_json(self) -> dict[str, Any]:
        """Return the form that files, versions and snapshots store; `model_validate` reads it."""
        return self.model_dump(mode="json")


class Verdict(StrEnum):
    """How good one output was found; never how far the work is."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    BORDERLINE = "borderline"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Usage:
    """What producing something consumed; None means it was not reported, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    latency_ms: int | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing an evaluator found: a hit when it passed, a miss when it did not."""

    text: str
    passed: bool
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class OutcomeResult:
    """Whether one expected outcome was met, and why the judge says so (SCORING §5)."""

    text: str
    passed: bool
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """What one evaluator says of one output (SCORING §2).

    `score` is 0 to 1. `raw_score` is the same on the evaluator's own `scale` (0 to scale).
    `details` holds the kind's parts, from which its `rescore` computes the score again.
    `failed_required` names parts inside the evaluator (a rubric criterion, a check) that were
    required and missed; they force a fail of the whole result (SCORING §4.2).
    `outcomes` is filled only by the evaluator that judged the expected outcomes.
    Raises ScoreOutOfRangeError for NaN, infinities and scores outside the scale.
    """

    score: float
    raw_score: float | None = None
    scale: float = 1.0
    reasoning: str = ""
    findings: tuple[Finding, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    failed_required: tuple[str, ...] = ()
    outcomes: tuple[OutcomeResult, ...] | None = None
    usage: Usage = Usage()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not a score."""
        if not (math.isfinite(self.score) and 0.0 <= self.score <= 1.0):
            raise ScoreOutOfRangeError(f"score {self.score!r} is not a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class Unscored:
    """The evaluator could not score. Never 0 (SCORING §2).

    `stage` says where it went wrong: target, judge, parse, script, config, limits or evaluator.
    """

    reason: str
    stage: str = "evaluator"
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Skipped:
    """The evaluator was not run because a gate before it failed (SCORING §3)."""

    reason: str = "a gate failed before it"


Outcome = Score | Unscored | Skipped


Amount = TypeVar("Amount", int, Decimal)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum; a figure only one side knows stays, one that neither knows is None."""
    return Usage(
        input_tokens=_sum(first.input_tokens, second.input_tokens),
        output_tokens=_sum(first.output_tokens, second.output_tokens),
        cost_usd=_sum(first.cost_usd, second.cost_usd),
        latency_ms=_sum(first.latency_ms, second.latency_ms),
        calls=first.calls + second.calls,
    )


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of all; nothing is known of none."""
    return reduce(add_usage, usages, Usage())


def _sum(first: Amount | None, second: Amount | None) -> Amount | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second

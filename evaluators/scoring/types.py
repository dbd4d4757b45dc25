"""The values that scoring reads and returns."""

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
    """The base of every error that a user can cause and fix."""

    code = "invalid"


class ScoreOutOfRangeError(DomainError):
    """A score, weight or threshold is not a number in its range."""

    code = "score_out_of_range"


class Spec(BaseModel):
    """The base of what users write: suites, cases, evaluators, policies. Values are immutable."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="constants")

    def replace(self, **changes: Any) -> Self:
        """Return a changed copy, validated like a new one."""
        return type(self)(
            **{name: getattr(self, name) for name in type(self).model_fields} | changes
        )

    def as_json(self) -> dict[str, Any]:
        """Return the form stored in files, versions and snapshots; `model_validate` reads it."""
        return self.model_dump(mode="json")


class Verdict(StrEnum):
    """How good an output is; never how far its evaluation has come."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    BORDERLINE = "borderline"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, cost and time used; None means not reported, never zero."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    latency_ms: int | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of an evaluator: a hit if it passed, else a miss."""

    text: str
    passed: bool
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class OutcomeResult:
    """Whether one expected outcome was met, with the judge's justification (SCORING §5)."""

    text: str
    passed: bool
    justification: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """The score that one evaluator gives one output (SCORING §2).

    `score` is 0 to 1. `raw_score` is the same on the evaluator's own `scale` (0 to scale), None where
    that is 0 to 1 as well.
    `details` holds the parts from which the kind's `rescore` computes the score again.
    `failed_required` names required parts of the evaluator (a rubric criterion, a check) that
    failed; they force a fail of the whole result (SCORING §4.2).
    `outcomes` is set only by the evaluator that judged the expected outcomes.
    Raises ScoreOutOfRangeError for NaN, infinities and scores outside 0 to 1.
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
        """Refuse a value that is not a score."""
        if not (math.isfinite(self.score) and 0.0 <= self.score <= 1.0):
            raise ScoreOutOfRangeError(f"score {self.score!r} is not a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class Unscored:
    """The evaluator could not score; this never counts as 0 by itself (SCORING §2).

    `stage` names where it failed: target, judge, parse, script, config, limits or evaluator.
    """

    reason: str
    stage: str = "evaluator"
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Skipped:
    """The evaluator was not run because a gate before it failed (SCORING §3)."""

    reason: str = "an earlier gate failed"


Outcome = Score | Unscored | Skipped


Amount = TypeVar("Amount", int, Decimal)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum; a figure known on one side only is kept, an unknown one is None."""
    return Usage(
        input_tokens=_sum(first.input_tokens, second.input_tokens),
        output_tokens=_sum(first.output_tokens, second.output_tokens),
        cost_usd=_sum(first.cost_usd, second.cost_usd),
        latency_ms=_sum(first.latency_ms, second.latency_ms),
        calls=first.calls + second.calls,
    )


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Return the sum of all."""
    return reduce(add_usage, usages, Usage())


def _sum(first: Amount | None, second: Amount | None) -> Amount | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second

"""What an execution is given, what it needs of the world, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from evaluators.kinds._base import CaseFacts, Judge, Kind, Output, Sandbox
from evaluators.scoring.decision import Decision
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome


class Cause(StrEnum):
    """Why a target gave no output; its label stands at the head of the error a user reads."""

    TIMEOUT = "timeout", "Timed out"
    REFUSED = "refused", "Refused"
    RATE_LIMITED = "rate_limited", "Rate limited"
    SERVER_ERROR = "server_error", "Server error"
    CONNECTION = "connection", "No connection"
    BAD_REPLY = "bad_reply", "Bad reply"
    MISSING = "missing", "Nothing recorded"
    FAILED = "failed", "Target failed"
    UNSTORABLE = "unstorable", "Could not be stored"

    label: str

    def __new__(cls, value: str, label: str) -> Cause:
        """Give each word the label shown to users."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """The target gave no output that could be scored; never an output of score 0."""

    reason: str
    cause: Cause

    def __str__(self) -> str:
        """Return class and reason as pages show them."""
        return f"{self.cause.label}: {self.reason}"


class Ports(Protocol):
    """What an execution needs of the world."""

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of evaluator by name."""
        ...

    @property
    def sandbox(self) -> Sandbox | None:
        """Return where scripts run, None when they cannot."""
        ...

    async def answer(self) -> Output | TargetFailure:
        """Return what the target answers to the case."""
        ...

    def judge(self, path: str) -> Judge | None:
        """Return the judge for the evaluator at that path, None when the run has none."""
        ...

    def target_as_judge(self, path: str, name: str) -> Judge | None:
        """Return the target of that name as judge for the evaluator at that path, None if it is not asked."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """One case to be carried out once, scored by a tree and decided by the rules laid out for it.

    With an `output` the target is not asked again. `kept` are outcomes by path that stand from
    before: those evaluators do not run. Expected outcomes are judged only if `judges_outcomes`.
    """

    case: CaseFacts
    root: EvaluatorSpec
    rules: Rules
    files: Mapping[str, bytes] = field(default_factory=dict)
    output: Output | None = None
    kept: Mapping[str, Outcome] = field(default_factory=dict)
    judges_outcomes: bool = True


@dataclass(frozen=True, slots=True)
class ExecutionOutcome:
    """How an execution ended: with a failure of the target, or with a decision on its output.

    `outcomes` holds by path what every evaluator said that ran or was skipped: leaves, composites
    whose aggregator is a judge, and "@outcomes".
    """

    output: Output | None = None
    failure: TargetFailure | None = None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    decision: Decision | None = None

"""The input of an execution, the ports it needs, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from evaluators.kinds._base import (
    BaselineOutput,
    CaseFacts,
    Judge,
    Kind,
    KindConfig,
    Output,
    Sandbox,
)
from evaluators.scoring.decision import Decision
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome


class Cause(StrEnum):
    """Why a target gave no output; the error that users read begins with its label."""

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
        """Attach the label that users see."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member


# A target that refused, or had nothing recorded, did no work.
UNASKED = (Cause.REFUSED, Cause.RATE_LIMITED, Cause.MISSING)


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """The target gave no output to score; this is never an output with score 0."""

    reason: str
    cause: Cause

    def __str__(self) -> str:
        """Return class and reason as pages show them."""
        return f"{self.cause.label}: {self.reason}"


class Ports(Protocol):
    """The services that an execution needs."""

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Return every kind of evaluator by name."""
        ...

    @property
    def sandbox(self) -> Sandbox | None:
        """Return the sandbox for scripts, None when scripts cannot run."""
        ...

    async def answer(self) -> Output | TargetFailure:
        """Return the target's answer to the case."""
        ...

    def judge(self, path: str) -> Judge | None:
        """Return the judge for the evaluator at that path, None when the run has none."""
        ...

    def target_as_judge(self, path: str, name: str) -> Judge | None:
        """Return the target of that name as judge of the evaluator at that path, None if it is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """One case to be executed once, scored by a tree and decided by its compiled rules.

    With an `output` the target is not asked again. `kept` are outcomes by path that stand from
    before: those evaluators do not run. Expected outcomes are judged only if `judges_outcomes`.
    `configs` keeps the validated settings of evaluators by path for all executions of the tree. `baseline` is what
    the output is compared with.
    """

    case: CaseFacts
    root: EvaluatorSpec
    rules: Rules
    files: Mapping[str, bytes] = field(default_factory=dict)
    output: Output | None = None
    kept: Mapping[str, Outcome] = field(default_factory=dict)
    judges_outcomes: bool = True
    configs: dict[str, KindConfig] = field(default_factory=dict)
    baseline: BaselineOutput | None = None


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

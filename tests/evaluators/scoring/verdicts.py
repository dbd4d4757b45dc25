"""What verdicts are tried on: the usual rules, a tree of two, outcomes met and missed."""

from __future__ import annotations

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.types import OutcomeResult
from tests.evaluators.scoring.trees import leaf, root

POLICY = PolicySpec()
OUTCOMES = PolicySpec(case_gate="expected_outcomes")
TREE = root(leaf("a"), leaf("b"))


def results(*passed: bool) -> tuple[OutcomeResult, ...]:
    return tuple(OutcomeResult(f"outcome {n}", met) for n, met in enumerate(passed, start=1))

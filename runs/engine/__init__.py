"""Carry out one execution: the target answers, evaluators score, the rules decide.

Knows no database, no network and no clock: all of that is handed in as ports.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from evaluators.kinds._base import Kind, Output
from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Unscored
from runs.engine._ports import Execution, ExecutionOutcome, Ports
from runs.engine._scoring import Scoring, reason_of
from runs.plan import OUTCOMES_PATH, Cause, TargetFailure

__all__ = ["Execution", "ExecutionOutcome", "Ports", "execute"]

logger = logging.getLogger(__name__)


async def execute(execution: Execution, ports: Ports) -> ExecutionOutcome:
    """Return how the execution ended; never raises for what targets, judges and evaluators do."""
    output = execution.output
    if output is None:
        answer = await _ask_target(ports)
        if isinstance(answer, TargetFailure):
            return ExecutionOutcome(failure=answer)
        output = answer
    scoring = Scoring(execution, ports, output)
    await scoring.run()
    outcomes = scoring.outcomes
    decision = execution.rules.decide(
        {path: outcome for path, outcome in outcomes.items() if path != OUTCOMES_PATH},
        expected_outcomes=execution.case.expected_outcomes,
        outcome_results=_outcome_results(execution, outcomes, ports.kinds),
    )
    decision = replace(decision, warnings=(*output.warnings, *decision.warnings))
    return ExecutionOutcome(output=output, outcomes=outcomes, decision=decision)


async def _ask_target(ports: Ports) -> Output | TargetFailure:
    try:
        return await ports.answer()
    except Exception as error:
        logger.exception("A target failed in a way it does not name")
        return TargetFailure(reason_of(error), Cause.FAILED)


def _outcome_results(
    execution: Execution, outcomes: Mapping[str, Outcome], kinds: Mapping[str, Kind]
) -> tuple[OutcomeResult, ...] | Unscored | None:
    """Return what was found of the expected outcomes, by the call beside the tree or by an evaluator."""
    if not execution.case.expected_outcomes:
        return None
    beside = outcomes.get(OUTCOMES_PATH)
    if isinstance(beside, Unscored):
        return beside
    if isinstance(beside, Score):
        return beside.outcomes
    in_order = (outcomes.get(path) for path, _ in walk(execution.root))
    found = (outcome.outcomes for outcome in in_order if isinstance(outcome, Score))
    judged = next((results for results in found if results is not None), None)
    return judged if judged is not None else _unscored_source(execution.root, outcomes, kinds)


def _unscored_source(
    root: Node, outcomes: Mapping[str, Outcome], kinds: Mapping[str, Kind]
) -> Unscored | None:
    """Return why the evaluator of the tree that judges the expected outcomes could not (SCORING §4.1)."""
    for path, node in walk(root):
        outcome = outcomes.get(path)
        supplies = node.kind in kinds and kinds[node.kind].supplies_outcomes
        if supplies and isinstance(outcome, Unscored):
            return outcome
    return None

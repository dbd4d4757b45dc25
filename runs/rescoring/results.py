"""One stored result decided anew: what its evaluators said, in the new tree, with the whole decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.scoring.tree import Node, walk
from evaluators.scoring.types import (
    Finding,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Usage,
)
from evaluators.scoring.verdict import Decision, OutcomeResults, Rules
from runs.models import Score as ScoreRow
from runs.models.stored import outcome_of
from runs.plan import OUTCOMES_PATH
from runs.rescoring.reading import Question
from runs.what_if import LeafChange, Reach, rescored

UNPAID = Usage()
# How warnings begin that the case gate gives.
OF_GATES = ("no outcomes produced", "expected outcomes could not be judged")


@dataclass(frozen=True, slots=True)
class Anew:
    """A result decided by the new rules: its tree, what the evaluators said by their new paths, the decision."""

    root: Node
    outcomes: Mapping[str, Outcome]
    decision: Decision


class Rescoring:
    """The question to a run, ready to decide its results one by one."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.rules: dict[int, Rules] = {}

    def decide(
        self,
        case: int,
        expected: Sequence[str],
        rows: Iterable[ScoreRow],
        *,
        judged: Sequence[Mapping[str, Any]] = (),
        warned: Sequence[str] = (),
    ) -> Anew:
        """Return the result of a case decided anew.

        `rows` are its scores, `judged` its expected outcomes as they were judged, `warned` its warnings,
        of which those about the output stay. Nothing is paid, so that no score of it has a cost.
        """
        asked = self.question.asked
        group = asked.group_of[case]
        rules = self.rules.get(id(group))
        if rules is None:
            rules = self.rules[id(group)] = Rules(group.trees.after, asked.after.policy)
        results = tuple(OutcomeResult(**found) for found in judged)
        said = {row.path: row for row in rows}
        known = dict(walk(group.trees.before))
        outcomes = {
            path: self._outcome(change, known, said.get(change.origin or path), results)
            for path, change in group.leaves.items()
        }
        beside = said.get(OUTCOMES_PATH)
        if beside is not None:
            outcomes[OUTCOMES_PATH] = _unpaid(outcome_of(beside, results or None))
        decision = rules.decide(
            {path: one for path, one in outcomes.items() if path != OUTCOMES_PATH},
            expected_outcomes=expected,
            outcome_results=self._results(results, outcomes, group.leaves) if expected else None,
        )
        of_output = _of_output(warned, known.values())
        decision = replace(decision, warnings=(*of_output, *decision.warnings))
        return Anew(group.trees.after, _as_run(outcomes, decision), decision)

    def _outcome(
        self,
        change: LeafChange,
        known: Mapping[str, Node],
        row: ScoreRow | None,
        results: tuple[OutcomeResult, ...],
    ) -> Outcome:
        if row is None:
            return Skipped()
        supplies = bool(row.details.get("supplies_outcomes"))
        kept = _unpaid(outcome_of(row, (results or None) if supplies else None))
        turns = change.node.negate != known[change.origin or ""].negate
        if not isinstance(kept, Score) or change.reach is not Reach.RESCORED:
            return _turned(kept) if turns else kept
        kind = self.question.asked.kinds[change.node.kind]
        made = rescored(change, kind, row.details)
        if isinstance(made, str):
            raise AssertionError(f"{change.path} was found to have its parts: {made}")
        warnings = tuple(dict.fromkeys((*kept.warnings, *made.warnings)))
        found = replace(made, outcomes=kept.outcomes, warnings=warnings)
        return _turned(found) if change.node.negate else found

    def _results(
        self,
        results: tuple[OutcomeResult, ...],
        outcomes: Mapping[str, Outcome],
        leaves: Mapping[str, LeafChange],
    ) -> OutcomeResults:
        """Return what was found of the expected outcomes, or why nothing was (SCORING §4.1)."""
        if results:
            return results
        kinds = self.question.asked.kinds
        supplying = [
            path
            for path, change in leaves.items()
            if change.node.kind in kinds and kinds[change.node.kind].supplies_outcomes
        ]
        found = (outcomes.get(path) for path in (OUTCOMES_PATH, *supplying))
        return next((one for one in found if isinstance(one, Unscored)), None)


def _as_run(outcomes: Mapping[str, Outcome], decision: Decision) -> dict[str, Outcome]:
    """Return the outcomes as a run would keep them: of what a gate holds back there is no score."""
    nodes = decision.nodes
    return {
        path: Skipped() if path in nodes and nodes[path].state == "skipped" else one
        for path, one in outcomes.items()
    }


def _of_output(warned: Iterable[str], nodes: Iterable[Node]) -> list[str]:
    """Return the warnings that no evaluator and no gate gave."""
    names = tuple(f"{node.name}{end}" for node in nodes for end in (": ", " could not be scored"))
    return [one for one in warned if not one.startswith((*names, *OF_GATES))]


def _unpaid(outcome: Outcome) -> Outcome:
    return outcome if isinstance(outcome, Skipped) else replace(outcome, usage=UNPAID)


def _turned(outcome: Outcome) -> Outcome:
    """Return the outcome of an evaluator whose negation changed: what held is a miss now, and the other way."""
    if not isinstance(outcome, Score):
        return outcome
    findings = tuple(Finding(one.text, not one.passed, one.evidence) for one in outcome.findings)
    return replace(outcome, findings=findings)

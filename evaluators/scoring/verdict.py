"""Turn what the evaluators of one result say into one score and one verdict (SCORING §4).

The same outcomes give the same verdict in any order, on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evaluators.scoring.decision import Decision, Flip, NodeResult, TraceStep
from evaluators.scoring.evaluation import Values, evaluate, is_held, judged_frame, settled
from evaluators.scoring.explanation import (
    NOTHING_RECORDED,
    deciding_path,
    node_results,
    shares_of,
)
from evaluators.scoring.flip import Case, smallest_flip
from evaluators.scoring.frames import NO_INDEX, Frame, Layout, lay_out
from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import Policy
from evaluators.scoring.ruling import CaseGate, Ruling, case_gate, rule_on
from evaluators.scoring.tracing import trace_of
from evaluators.scoring.tree import Node
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Unscored
from evaluators.scoring.wording import decided_by, error_text

__all__ = [
    "Decision",
    "Flip",
    "NodeResult",
    "OutcomeResults",
    "Rules",
    "Ruling",
    "TraceStep",
    "decide",
    "score_tree",
]

OutcomeResults = tuple[OutcomeResult, ...] | Unscored | None


class Rules:
    """A tree and a policy made ready, to decide many results by the same rules."""

    def __init__(self, root: Node, policy: Policy) -> None:
        """Lay the tree out once."""
        self.root, self.policy = root, policy
        self.layout: Layout = lay_out(root, policy)

    def rule(
        self,
        outcomes: Mapping[str, Outcome],
        *,
        expected_outcomes: Sequence[str] = (),
        outcome_results: OutcomeResults = None,
    ) -> Ruling:
        """Return verdict, final score and rule alone: the quick way, for many results at once."""
        judged, values = self._values(outcomes)
        gate = case_gate(self.layout.policy, expected_outcomes, outcome_results)
        return rule_on(self.layout, values, gate, judged)

    def rule_scores(
        self,
        scores: list[float | None],
        parts: Mapping[int, tuple[str, ...]],
        gate: CaseGate,
        judged: Frame | None = None,
    ) -> tuple[Values, Ruling]:
        """Return what `rule` does from plain numbers, with the scores of all nodes: the quickest way.

        `scores` holds by index of the node what each leaf came to after negation, None where it has
        no score, and is filled up; `parts` the required parts missed. `judged` is the node that
        counts by its judge's overall score, which then stands in `scores`.
        """
        values = settled(self.layout, scores, parts)
        return values, rule_on(self.layout, values, gate, judged)

    def decide(
        self,
        outcomes: Mapping[str, Outcome],
        *,
        expected_outcomes: Sequence[str] = (),
        outcome_results: OutcomeResults = None,
    ) -> Decision:
        """Return the verdict with everything that led to it, as `decide` does."""
        judged, values = self._values(outcomes)
        gate = case_gate(self.layout.policy, expected_outcomes, outcome_results)
        ruling = rule_on(self.layout, values, gate, judged)
        case = Case(self.layout, values, gate, judged, ruling)
        reasons = _reasons(self.layout, outcomes)
        return Decision(
            status="error" if ruling.is_error else "scored",
            verdict=ruling.verdict,
            score=None if ruling.score is None else rounded(ruling.score),
            decided_by=decided_by(self.layout, values, gate, ruling),
            rule=ruling.rule,
            evaluator=_evaluator(self.layout, ruling),
            trace=trace_of(self.layout, values, gate, ruling, reasons),
            flip=smallest_flip(case),
            nodes=self._nodes(outcomes, case),
            hits=tuple(_findings(self.layout, outcomes, values, passed=True)),
            misses=tuple(_findings(self.layout, outcomes, values, passed=False)),
            warnings=tuple(_warnings(case, outcomes, reasons, outcome_results)),
            error=error_text(self.layout, gate, ruling, reasons) if ruling.is_error else None,
            outcomes=gate.outcomes,
        )

    def nodes(self, outcomes: Mapping[str, Outcome]) -> dict[str, NodeResult]:
        """Return what every node came to under the score gate, by path in tree order."""
        judged, values = self._values(outcomes)
        ruling = rule_on(self.layout, values, CaseGate(), judged)
        return self._nodes(outcomes, Case(self.layout, values, CaseGate(), judged, ruling))

    def _values(self, outcomes: Mapping[str, Outcome]) -> tuple[Frame | None, Values]:
        judged = None
        if self.layout.policy.final_score == "judge_overall":
            judged = judged_frame(self.layout, outcomes)
        return judged, evaluate(self.layout, outcomes, judged=judged)

    def _nodes(self, outcomes: Mapping[str, Outcome], case: Case) -> dict[str, NodeResult]:
        return node_results(
            case.layout,
            outcomes,
            case.values,
            shares=shares_of(case.layout, case.values, case.judged),
            deciding=deciding_path(case.layout, case.values, case.ruling),
        )


MOST_READY = 64
_READY: dict[tuple[int, int], Rules] = {}


def decide(
    root: Node,
    outcomes: Mapping[str, Outcome],
    policy: Policy,
    *,
    expected_outcomes: Sequence[str] = (),
    outcome_results: OutcomeResults = None,
) -> Decision:
    """Return the decision on one output.

    `outcomes` holds by path what every leaf said, and every composite that a script or judge
    scores. `outcome_results` are those of `expected_outcomes` in their order; Unscored when their
    source could not score, None when nobody judged them.
    """
    return rules_of(root, policy).decide(
        outcomes, expected_outcomes=expected_outcomes, outcome_results=outcome_results
    )


def score_tree(
    root: Node, outcomes: Mapping[str, Outcome], policy: Policy
) -> Mapping[str, NodeResult]:
    """Return what every node came to, by path in tree order (SCORING §3)."""
    return rules_of(root, policy).nodes(outcomes)


def rules_of(root: Node, policy: Policy) -> Rules:
    """Return the rules of a tree and a policy, made ready once for the objects seen most recently."""
    key = (id(root), id(policy))
    known = _READY.get(key)
    if known is None:
        if len(_READY) >= MOST_READY:
            _READY.clear()
        # The rules hold on to both objects, so that no other can get their ids.
        known = _READY[key] = Rules(root, policy)
    return known


def _evaluator(layout: Layout, ruling: Ruling) -> str | None:
    if ruling.index == NO_INDEX or ruling.rule == "expected_outcomes":
        return None
    return layout.frames[ruling.index].path


def _reasons(layout: Layout, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return by path why evaluators have no score."""
    reasons = {}
    for frame in layout.leaves:
        outcome = outcomes.get(frame.path)
        if not isinstance(outcome, Score):
            reasons[frame.path] = NOTHING_RECORDED if outcome is None else outcome.reason
    return reasons


def _findings(
    layout: Layout, outcomes: Mapping[str, Outcome], values: Values, *, passed: bool
) -> Iterator[str]:
    for frame in layout.frames:
        outcome = outcomes.get(frame.path)
        if isinstance(outcome, Score) and not is_held(layout, frame, values):
            yield from (found.text for found in outcome.findings if found.passed == passed)


def _warnings(
    case: Case,
    outcomes: Mapping[str, Outcome],
    reasons: Mapping[str, str],
    outcome_results: OutcomeResults,
) -> Iterator[str]:
    for frame in case.layout.leaves:
        outcome = outcomes.get(frame.path)
        if is_held(case.layout, frame, case.values):
            continue
        if isinstance(outcome, Score):
            told = (warning for warning in outcome.warnings if warning != case.gate.reason)
            yield from (f"{frame.node.name}: {warning}" for warning in told)
        elif frame.index not in case.ruling.unscored:
            yield f"{frame.node.name} {_consequence(case, frame)}: {reasons[frame.path]}"
    if case.gate.reason == "no outcomes produced":
        yield case.gate.reason
    if isinstance(outcome_results, Unscored) and case.gate.rule == "score":
        yield f"expected outcomes could not be judged: {outcome_results.reason}"


def _consequence(case: Case, frame: Frame) -> str:
    """Say what the policy made of an evaluator without a score."""
    if not frame.needed or case.layout.policy.on_unscored == "error":
        return "could not be scored"
    if case.layout.policy.on_unscored == "exclude":
        return "could not be scored and is left out"
    return "could not be scored and counts as 0"

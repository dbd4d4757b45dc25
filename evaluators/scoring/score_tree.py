"""Score one output: aggregate its tree, decide on the verdict, explain it, and find what would flip it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evaluators.scoring.aggregate import (
    Values,
    aggregate_node,
    aggregate_tree,
    evaluate,
    is_held,
    overall_judge,
)
from evaluators.scoring.compile import NO_INDEX, CompiledNode, CompiledTree, lay_out
from evaluators.scoring.decision import Decision, NodeResult
from evaluators.scoring.explain import (
    NOTHING_RECORDED,
    arithmetic,
    decided_by,
    deciding_path,
    error_text,
    explain_tree,
    node_results,
    own_failure,
    score_shares,
)
from evaluators.scoring.flip import DecidedCase, smallest_flip
from evaluators.scoring.numbers import format_limit, format_number, is_at_least, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Unscored
from evaluators.scoring.verdict import ROOT, CaseBasis, VerdictResult, case_gate, decide_verdict

OWN_RULE = "failed_by_own_rule"


def gate_order(node: EvaluatorSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the children that run first, and of those that run only if these hold."""
    names = tuple(child.name for child in node.children)
    if node.aggregator is None or node.aggregator.type != "safety_gate":
        return (), names
    gates = frozenset(node.aggregator.required)
    first = tuple(name for name in names if name in gates)
    return first, tuple(name for name in names if name not in gates)


def gate_failure(node: EvaluatorSpec, children: Mapping[str, Outcome]) -> str | None:
    """Return why the children after the gates must not run, None when they may.

    `children` holds by name at least what the gates came to. A gate that could not be scored
    holds the rest back too: it fails closed (SCORING §4.1).
    """
    first, _ = gate_order(node)
    limit = 0.0 if node.aggregator is None else node.aggregator.gate_threshold
    for child in node.children:
        if child.name not in first:
            continue
        score = child_score(child, children.get(child.name))
        if score is None:
            return f"the gate {child.name} could not be scored"
        if not is_at_least(score, limit):
            return f"the gate {child.name} failed: {format_number(score)} < {format_limit(limit)}"
    return None


def aggregate(node: EvaluatorSpec, children: Mapping[str, Outcome], policy: PolicySpec) -> Outcome:
    """Return the outcome of a composite from its children's outcomes by name, before its negation.

    A composite failed by its own rule has score 0. Unscored where the policy lets a child without
    a score spoil it, and where nothing is left to aggregate.
    """
    layout = lay_out(node, policy, is_shallow=True)
    values = _values(layout, children)
    root = layout.frames[ROOT]
    aggregate_node(layout, root, values)
    score, failure = values.scores[ROOT], values.failures[ROOT]
    if score is None:
        missing = [
            frame.node.name
            for frame in layout.leaves
            if not isinstance(children.get(frame.path), Score)
        ]
        reason = f"no score from {', '.join(missing)}" if missing else "nothing to aggregate"
        return Unscored(reason, stage="evaluator")
    if failure != NO_INDEX:
        return Score(0.0, reasoning=own_failure(layout, root, values), details={OWN_RULE: True})
    reasoning = arithmetic(layout, root, values)
    return Score(1.0 - score if node.negate else score, reasoning=reasoning)


def _values(layout: CompiledTree, children: Mapping[str, Outcome]) -> Values:
    count = len(layout.frames)
    parts: dict[int, tuple[str, ...]] = {}
    values = Values([None] * count, [NO_INDEX] * count, parts)
    for frame in layout.leaves:
        outcome = children.get(frame.path)
        values.scores[frame.index] = child_score(frame.node, outcome)
        if isinstance(outcome, Score) and outcome.failed_required:
            parts[frame.index] = outcome.failed_required
        if _failed_by_own_rule(frame.node, outcome):
            values.failures[frame.index] = frame.index
    return values


def child_score(child: EvaluatorSpec, outcome: Outcome | None) -> float | None:
    """Return the child's score after negation, None when it has none."""
    if not isinstance(outcome, Score):
        return None
    if child.negate and not _failed_by_own_rule(child, outcome):
        return 1.0 - outcome.score
    return outcome.score


def _failed_by_own_rule(child: EvaluatorSpec, outcome: Outcome | None) -> bool:
    return child.is_composite and isinstance(outcome, Score) and OWN_RULE in outcome.details


OutcomeResults = tuple[OutcomeResult, ...] | Unscored | None


class Rules:
    """A tree and a policy made ready, to decide many results by the same rules."""

    def __init__(self, root: EvaluatorSpec, policy: PolicySpec) -> None:
        """Lay the tree out once."""
        self.root, self.policy = root, policy
        self.layout: CompiledTree = lay_out(root, policy)

    def rule(
        self,
        outcomes: Mapping[str, Outcome],
        *,
        expected_outcomes: Sequence[str] = (),
        outcome_results: OutcomeResults = None,
    ) -> VerdictResult:
        """Return verdict, final score and rule alone: the quick way, for many results at once."""
        judged, values = self._values(outcomes)
        gate = case_gate(self.layout.policy, expected_outcomes, outcome_results)
        return decide_verdict(self.layout, values, gate, judged)

    def rule_scores(
        self,
        scores: list[float | None],
        parts: Mapping[int, tuple[str, ...]],
        gate: CaseBasis,
        judged: CompiledNode | None = None,
    ) -> tuple[Values, VerdictResult]:
        """Return what `rule` does from plain numbers, with the scores of all nodes: the quickest way.

        `scores` holds by index of the node what each leaf came to after negation, None where it has
        no score, and is filled up; `parts` the required parts missed. `judged` is the node that
        counts by its judge's overall score, which then stands in `scores`.
        """
        values = aggregate_tree(self.layout, scores, parts)
        return values, decide_verdict(self.layout, values, gate, judged)

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
        ruling = decide_verdict(self.layout, values, gate, judged)
        case = DecidedCase(self.layout, values, gate, judged, ruling)
        reasons = _reasons(self.layout, outcomes)
        return Decision(
            status="error" if ruling.is_error else "scored",
            verdict=ruling.verdict,
            score=None if ruling.score is None else rounded(ruling.score),
            decided_by=decided_by(self.layout, values, gate, ruling),
            rule=ruling.rule,
            evaluator=_evaluator(self.layout, ruling),
            trace=explain_tree(self.layout, values, gate, ruling, reasons),
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
        ruling = decide_verdict(self.layout, values, CaseBasis(), judged)
        return self._nodes(outcomes, DecidedCase(self.layout, values, CaseBasis(), judged, ruling))

    def _values(self, outcomes: Mapping[str, Outcome]) -> tuple[CompiledNode | None, Values]:
        judged = None
        if self.layout.policy.final_score == "judge_overall":
            judged = overall_judge(self.layout, outcomes)
        return judged, evaluate(self.layout, outcomes, judged=judged)

    def _nodes(self, outcomes: Mapping[str, Outcome], case: DecidedCase) -> dict[str, NodeResult]:
        return node_results(
            case.layout,
            outcomes,
            case.values,
            shares=score_shares(case.layout, case.values, case.judged),
            deciding=deciding_path(case.layout, case.values, case.ruling),
        )


MAX_READY = 64
_READY: dict[tuple[int, int], Rules] = {}


def decide(
    root: EvaluatorSpec,
    outcomes: Mapping[str, Outcome],
    policy: PolicySpec,
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
    root: EvaluatorSpec, outcomes: Mapping[str, Outcome], policy: PolicySpec
) -> Mapping[str, NodeResult]:
    """Return what every node came to, by path in tree order (SCORING §3)."""
    return rules_of(root, policy).nodes(outcomes)


def rules_of(root: EvaluatorSpec, policy: PolicySpec) -> Rules:
    """Return the rules of a tree and a policy, made ready once for the objects seen most recently."""
    key = (id(root), id(policy))
    known = _READY.get(key)
    if known is None:
        if len(_READY) >= MAX_READY:
            _READY.clear()
        # The rules hold on to both objects, so that no other can get their ids.
        known = _READY[key] = Rules(root, policy)
    return known


def _evaluator(layout: CompiledTree, ruling: VerdictResult) -> str | None:
    if ruling.index == NO_INDEX or ruling.rule == "expected_outcomes":
        return None
    return layout.frames[ruling.index].path


def _reasons(layout: CompiledTree, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return by path why evaluators have no score."""
    reasons = {}
    for frame in layout.leaves:
        outcome = outcomes.get(frame.path)
        if not isinstance(outcome, Score):
            reasons[frame.path] = NOTHING_RECORDED if outcome is None else outcome.reason
    return reasons


def _findings(
    layout: CompiledTree, outcomes: Mapping[str, Outcome], values: Values, *, passed: bool
) -> Iterator[str]:
    for frame in layout.frames:
        outcome = outcomes.get(frame.path)
        if isinstance(outcome, Score) and not is_held(layout, frame, values):
            yield from (found.text for found in outcome.findings if found.passed == passed)


def _warnings(
    case: DecidedCase,
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


def _consequence(case: DecidedCase, frame: CompiledNode) -> str:
    """Say what the policy made of an evaluator without a score."""
    if not frame.needed or case.layout.policy.on_unscored == "error":
        return "could not be scored"
    if case.layout.policy.on_unscored == "exclude":
        return "could not be scored and is left out"
    return "could not be scored and counts as 0"

"""Score one output: aggregate its tree, decide the verdict, explain it, and find what would flip it.

The front door is `Rules.decide`: a tree and a policy, compiled once, turn the outcomes of the evaluators into
a `Decision`. `decide` does the same for a tree and a policy that are not compiled yet. `Rules.decide_verdict`
and `Rules.decide_scores` return only the verdict, for many results. While a run is under way, `gate_order`,
`gate_failure` and `aggregate_children` score one composite at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.aggregate import (
    Values,
    aggregate_node,
    aggregate_tree,
    is_held_back,
    leaf_scores,
    overall_judge,
    score_nodes,
)
from evaluators.scoring.cause import find_cause
from evaluators.scoring.compile import NO_INDEX, CompiledNode, CompiledTree, compile_tree
from evaluators.scoring.decision import (
    ROOT,
    CaseBasis,
    Decision,
    Flip,
    NodeResult,
    TraceStep,
    VerdictCause,
    VerdictResult,
    case_basis,
    decide_verdict,
)
from evaluators.scoring.explain import (
    NOTHING_RECORDED,
    arithmetic,
    decided_by,
    deciding_path,
    error_text,
    explain_tree,
    node_results,
    rule_failure,
    score_shares,
)
from evaluators.scoring.flip import DecidedCase, smallest_flip
from evaluators.scoring.numbers import format_limit, format_number, is_at_least, rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import Outcome, OutcomeResult, Score, Unscored, Verdict

OWN_RULE = "failed_by_own_rule"


def gate_order(composite: EvaluatorSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the gates, which run first, and of the children that run only if they pass."""
    names = tuple(child.name for child in composite.children)
    aggregator = composite.aggregator
    gates = tuple(name for name in names if aggregator is not None and aggregator.is_gate(name))
    return gates, tuple(name for name in names if name not in gates)


def gate_failure(composite: EvaluatorSpec, children: Mapping[str, Outcome]) -> str | None:
    """Return why the children after the gates must not run, None if they may.

    `children` holds at least the outcomes of the gates, by name. A gate without a score holds the
    others back too (SCORING §4.1).
    """
    first, _ = gate_order(composite)
    limit = 0.0 if composite.aggregator is None else composite.aggregator.gate_threshold
    for child in composite.children:
        if child.name not in first:
            continue
        score = child_score(child, children.get(child.name))
        if score is None:
            return f"the gate {child.name} could not be scored"
        if not is_at_least(score, limit):
            return f"the gate {child.name} failed: {format_number(score)} < {format_limit(limit)}"
    return None


def aggregate_children(
    composite: EvaluatorSpec, children: Mapping[str, Outcome], policy: PolicySpec
) -> Outcome:
    """Return the outcome of a composite from its children's outcomes by name, before its negation.

    A composite that failed by its own rule has score 0. It is Unscored if a child without a score
    makes it so under the policy, or if nothing is left to aggregate.
    """
    tree = compile_tree(composite, policy, is_shallow=True)
    values = _values(tree, children)
    root = tree.nodes[ROOT]
    aggregate_node(tree, root, values)
    score, failure = values.scores[ROOT], values.failures[ROOT]
    if score is None:
        missing = [
            node.spec.name for node in tree.leaves if not isinstance(children.get(node.path), Score)
        ]
        reason = f"no score from {', '.join(missing)}" if missing else "nothing to aggregate"
        return Unscored(reason, stage="evaluator")
    if failure != NO_INDEX:
        return Score(0.0, reasoning=rule_failure(tree, root, values), details={OWN_RULE: True})
    reasoning = arithmetic(tree, root, values)
    return Score(1.0 - score if composite.negate else score, reasoning=reasoning)


def _values(tree: CompiledTree, children: Mapping[str, Outcome]) -> Values:
    count = len(tree.nodes)
    parts: dict[int, tuple[str, ...]] = {}
    values = Values([None] * count, [NO_INDEX] * count, parts)
    for node in tree.leaves:
        outcome = children.get(node.path)
        values.scores[node.index] = child_score(node.spec, outcome)
        if isinstance(outcome, Score) and outcome.failed_required:
            parts[node.index] = outcome.failed_required
        if _failed_by_own_rule(node.spec, outcome):
            values.failures[node.index] = node.index
    return values


def child_score(child: EvaluatorSpec, outcome: Outcome | None) -> float | None:
    """Return the child's score after negation, if it has one."""
    if not isinstance(outcome, Score):
        return None
    if child.negate and not _failed_by_own_rule(child, outcome):
        return 1.0 - outcome.score
    return outcome.score


def _failed_by_own_rule(child: EvaluatorSpec, outcome: Outcome | None) -> bool:
    return child.is_composite and isinstance(outcome, Score) and OWN_RULE in outcome.details


OutcomeResults = tuple[OutcomeResult, ...] | Unscored | None


@dataclass(frozen=True, slots=True)
class _Explanation:
    """What follows from the scores alone where every evaluator has one.

    Only the cause of a pass is among it: that of any other verdict says what evaluators found.
    """

    case: DecidedCase
    nodes: Mapping[str, NodeResult]
    flip: Flip | None
    decided_by: str
    trace: tuple[TraceStep, ...]
    cause_of_pass: VerdictCause | None


MAX_EXPLANATIONS = 256
_EXPLANATIONS: dict[tuple[object, ...], _Explanation] = {}


class Rules:
    """A tree and a policy, compiled to decide many results."""

    def __init__(self, root: EvaluatorSpec, policy: PolicySpec) -> None:
        """Compile the tree."""
        self.root, self.policy = root, policy
        self.tree: CompiledTree = compile_tree(root, policy)

    def decide_verdict(
        self,
        outcomes: Mapping[str, Outcome],
        *,
        expected_outcomes: Sequence[str] = (),
        outcome_results: OutcomeResults = None,
    ) -> VerdictResult:
        """Return only verdict, final score and rule: faster than `decide`, for many results."""
        judged, values = self._values(outcomes)
        basis = case_basis(self.tree.policy, expected_outcomes, outcome_results)
        return decide_verdict(self.tree, values, basis, judged)

    def decide_scores(
        self,
        scores: list[float | None],
        parts: Mapping[int, tuple[str, ...]],
        basis: CaseBasis,
        judged: CompiledNode | None = None,
    ) -> tuple[Values, VerdictResult]:
        """Return what `decide_verdict` does from plain numbers, with the scores of all nodes: the fastest way.

        `scores` holds the score of each leaf after negation by index, None without a score; the other
        nodes are filled in. `parts` are the required parts missed. `judged` is the node whose judge's
        overall score counts; `scores` must hold that score.
        """
        values = aggregate_tree(self.tree, scores, parts)
        return values, decide_verdict(self.tree, values, basis, judged)

    def decide(
        self,
        outcomes: Mapping[str, Outcome],
        *,
        expected_outcomes: Sequence[str] = (),
        outcome_results: OutcomeResults = None,
    ) -> Decision:
        """Return the verdict with everything that led to it."""
        basis = case_basis(self.tree.policy, expected_outcomes, outcome_results)
        reasons = _reasons(self.tree, outcomes)
        explanation = self._explain(outcomes, basis, reasons)
        case, result = explanation.case, explanation.case.result
        return Decision(
            status="error" if result.is_error else "scored",
            verdict=result.verdict,
            score=None if result.score is None else rounded(result.score),
            decided_by=explanation.decided_by,
            rule=result.rule,
            evaluator=_evaluator(self.tree, result),
            trace=explanation.trace,
            flip=explanation.flip,
            nodes=explanation.nodes,
            hits=tuple(_findings(self.tree, outcomes, case.values, passed=True)),
            misses=tuple(_findings(self.tree, outcomes, case.values, passed=False)),
            warnings=tuple(_warnings(case, outcomes, reasons, outcome_results)),
            error=error_text(self.tree, basis, result, reasons) if result.is_error else None,
            outcomes=basis.outcomes,
            cause=explanation.cause_of_pass or find_cause(case, outcomes, explanation.flip),
        )

    def _explain(
        self, outcomes: Mapping[str, Outcome], basis: CaseBasis, reasons: Mapping[str, str]
    ) -> _Explanation:
        """Return what follows from the scores, computed once for equal ones: a run has few different results."""
        judged = self._judged(outcomes)
        scores, parts = leaf_scores(self.tree, outcomes, judged=judged)
        # As text, because 1 equals 1.0 but is stored in other letters.
        key = (self, repr(scores), tuple(parts.items()), basis, judged and judged.index)
        if not reasons and (known := _EXPLANATIONS.get(key)):
            return known
        values = aggregate_tree(self.tree, scores, parts)
        result = decide_verdict(self.tree, values, basis, judged)
        case = DecidedCase(self.tree, values, basis, judged, result)
        nodes = self._nodes(outcomes, case)
        flip = smallest_flip(case)
        decided = decided_by(self.tree, values, basis, result)
        trace = explain_tree(
            self.tree, values, basis, result, reasons, nodes=nodes, decided=decided
        )
        is_pass = result.verdict is Verdict.PASS
        cause = find_cause(case, outcomes, flip) if is_pass else None
        explanation = _Explanation(case, nodes, flip, decided, trace, cause)
        if not reasons:
            if len(_EXPLANATIONS) >= MAX_EXPLANATIONS:
                _EXPLANATIONS.clear()
            _EXPLANATIONS[key] = explanation
        return explanation

    def nodes(self, outcomes: Mapping[str, Outcome]) -> dict[str, NodeResult]:
        """Return the result of every node under the score gate, by path in tree order."""
        judged, values = self._values(outcomes)
        result = decide_verdict(self.tree, values, CaseBasis(), judged)
        return self._nodes(outcomes, DecidedCase(self.tree, values, CaseBasis(), judged, result))

    def _values(self, outcomes: Mapping[str, Outcome]) -> tuple[CompiledNode | None, Values]:
        judged = self._judged(outcomes)
        return judged, score_nodes(self.tree, outcomes, judged=judged)

    def _judged(self, outcomes: Mapping[str, Outcome]) -> CompiledNode | None:
        """Return the node whose judge's overall score counts, if the policy takes it."""
        if self.tree.policy.final_score != "judge_overall":
            return None
        return overall_judge(self.tree, outcomes)

    def _nodes(self, outcomes: Mapping[str, Outcome], case: DecidedCase) -> dict[str, NodeResult]:
        return node_results(
            case.tree,
            outcomes,
            case.values,
            shares=score_shares(case.tree, case.values, case.judged),
            deciding=deciding_path(case.tree, case.values, case.result),
        )


MAX_CACHED_RULES = 64
_CACHED_RULES: dict[tuple[int, int], Rules] = {}


def decide(
    root: EvaluatorSpec,
    outcomes: Mapping[str, Outcome],
    policy: PolicySpec,
    *,
    expected_outcomes: Sequence[str] = (),
    outcome_results: OutcomeResults = None,
) -> Decision:
    """Return the decision on one output.

    `outcomes` holds the outcomes of all leaves, and of composites that a script or judge scores, by
    path. `outcome_results` are the results of `expected_outcomes` in their order; Unscored if they
    could not be judged, None if nothing judged them.
    """
    return rules_for(root, policy).decide(
        outcomes, expected_outcomes=expected_outcomes, outcome_results=outcome_results
    )


def score_tree(
    root: EvaluatorSpec, outcomes: Mapping[str, Outcome], policy: PolicySpec
) -> Mapping[str, NodeResult]:
    """Return the result of every node, by path in tree order (SCORING §3)."""
    return rules_for(root, policy).nodes(outcomes)


def rules_for(root: EvaluatorSpec, policy: PolicySpec) -> Rules:
    """Return the rules of a tree and a policy, compiled once for the same recent objects."""
    key = (id(root), id(policy))
    rules = _CACHED_RULES.get(key)
    if rules is None:
        if len(_CACHED_RULES) >= MAX_CACHED_RULES:
            _CACHED_RULES.clear()
        # The rules keep both objects alive, so that no other object can get their ids.
        rules = _CACHED_RULES[key] = Rules(root, policy)
    return rules


def _evaluator(tree: CompiledTree, result: VerdictResult) -> str | None:
    if result.index == NO_INDEX or result.rule == "expected_outcomes":
        return None
    return tree.nodes[result.index].path


def _reasons(tree: CompiledTree, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Return why evaluators have no score, by path."""
    reasons = {}
    for node in tree.leaves:
        outcome = outcomes.get(node.path)
        if not isinstance(outcome, Score):
            reasons[node.path] = NOTHING_RECORDED if outcome is None else outcome.reason
    return reasons


def _findings(
    tree: CompiledTree, outcomes: Mapping[str, Outcome], values: Values, *, passed: bool
) -> Iterator[str]:
    for node in tree.nodes:
        outcome = outcomes.get(node.path)
        if isinstance(outcome, Score) and not is_held_back(tree, node, values):
            yield from (finding.text for finding in outcome.findings if finding.passed == passed)


def _warnings(
    case: DecidedCase,
    outcomes: Mapping[str, Outcome],
    reasons: Mapping[str, str],
    outcome_results: OutcomeResults,
) -> Iterator[str]:
    for node in case.tree.leaves:
        outcome = outcomes.get(node.path)
        if is_held_back(case.tree, node, case.values):
            continue
        if isinstance(outcome, Score):
            for warning in outcome.warnings:
                if warning != case.basis.reason:
                    yield f"{node.spec.name}: {warning}"
        elif node.index not in case.result.unscored:
            yield f"{node.spec.name} {_consequence(case, node)}: {reasons[node.path]}"
    if case.basis.reason == "no outcomes produced":
        yield case.basis.reason
    if isinstance(outcome_results, Unscored) and case.basis.rule == "score":
        yield f"expected outcomes could not be judged: {outcome_results.reason}"


def _consequence(case: DecidedCase, node: CompiledNode) -> str:
    """Say how the policy treats an evaluator without a score."""
    if not node.needed or case.tree.policy.on_unscored == "error":
        return "could not be scored"
    if case.tree.policy.on_unscored == "exclude":
        return "could not be scored and is left out"
    return "could not be scored and counts as 0"

"""Compute the score of every node of a tree from the scores of its leaves (SCORING §3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

from evaluators.scoring.compile import NO_INDEX, CompiledNode, CompiledTree
from evaluators.scoring.numbers import on_scale, rounded
from evaluators.scoring.types import SCORE_DIGITS, Outcome, Score

HYBRID_KIND = "hybrid_judge"
JUDGE_OVERALL = "judge_overall"
HYBRID_SCALE = 10.0


@dataclass(slots=True)
class Values:
    """The scores of all nodes by index, after negation; None without a score.

    If a composite failed by its own rule, `failures` holds the child that failed it, else −1.
    `parts` are the required parts missed inside an evaluator. Comparisons round to `digits`.
    """

    scores: list[float | None]
    failures: list[int]
    parts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    digits: int = SCORE_DIGITS


def score_nodes(
    tree: CompiledTree, outcomes: Mapping[str, Outcome], *, judged: CompiledNode | None = None
) -> Values:
    """Return the score of every node from the outcomes; `judged` is the node whose judge's overall score counts."""
    return aggregate_tree(tree, *leaf_scores(tree, outcomes, judged=judged))


def leaf_scores(
    tree: CompiledTree, outcomes: Mapping[str, Outcome], *, judged: CompiledNode | None = None
) -> tuple[list[float | None], dict[int, tuple[str, ...]]]:
    """Return the scores of the leaves, as `aggregate_tree` takes them, and the required parts they missed."""
    scores: list[float | None] = [None] * len(tree.nodes)
    parts = {}
    for node in tree.leaves:
        outcome = outcomes.get(node.path)
        if not isinstance(outcome, Score):
            continue
        score = outcome.score if node is not judged else _overall(outcome)
        scores[node.index] = 1.0 - score if node.negate else score
        if outcome.failed_required:
            parts[node.index] = outcome.failed_required
    return scores, parts


def aggregate_tree(
    tree: CompiledTree, scores: list[float | None], parts: Mapping[int, tuple[str, ...]]
) -> Values:
    """Fill in the scores of the composites; `scores` holds those of the leaves, after negation."""
    values = Values(scores, [NO_INDEX] * len(scores), parts)
    for node in tree.upward:
        aggregate_node(tree, node, values)
    return values


def overall_judge(tree: CompiledTree, outcomes: Mapping[str, Outcome]) -> CompiledNode | None:
    """Return the evaluator whose judge gives an overall score: the first hybrid one, if any."""
    for node in tree.leaves:
        if node.spec.kind == HYBRID_KIND:
            return node
    for node in tree.leaves:
        outcome = outcomes.get(node.path)
        if isinstance(outcome, Score) and JUDGE_OVERALL in outcome.details:
            return node
    return None


def aggregate_node(tree: CompiledTree, node: CompiledNode, values: Values) -> None:
    """Compute the score of one composite after those of its children."""
    score, failure = _combine(tree, node, values)
    if score is not None:
        if failure != NO_INDEX:
            # A composite failed by its own rule counts as 0 inside its parent, negated or not.
            score = score if node.parent == NO_INDEX else 0.0
        elif node.negate:
            score = 1.0 - score
    values.scores[node.index] = score
    values.failures[node.index] = failure


def is_held_back(tree: CompiledTree, node: CompiledNode, values: Values) -> bool:
    """Tell whether the node was not run because a gate before it failed or had no score."""
    for index in node.behind:
        if values.failures[index] != NO_INDEX:
            return True
        if any(values.scores[gate] is None for gate in tree.nodes[index].gates):
            return True
    return False


def is_forced(node: CompiledNode, values: Values) -> bool:
    """Tell whether a required node forces a fail (SCORING §4.2)."""
    if node.index in values.parts:
        return True
    score = values.scores[node.index]
    if score is None or not node.is_required:
        return False
    if values.failures[node.index] != NO_INDEX:
        return True
    value = round(score, values.digits)
    if node.required_below is not None:
        return value < rounded(node.required_below)
    return value <= 0.0


def passes(tree: CompiledTree, index: int, values: Values) -> bool:
    """Tell whether a node passes: by the bands, its own rule and what it requires."""
    score = values.scores[index]
    return (
        score is not None
        and values.failures[index] == NO_INDEX
        and round(score, values.digits) >= rounded(tree.policy.pass_threshold)
        and not is_forced(tree.nodes[index], values)
    )


def counted_children(
    tree: CompiledTree, node: CompiledNode, values: Values
) -> tuple[Sequence[int], Sequence[float]] | None:
    """Return the children that count under the policy for unscored ones, with their weights.

    None if one has no score and the policy makes that an error.
    """
    indexes: list[int] = []
    weights: list[float] = []
    for index, weight in zip(node.counted, node.weights, strict=True):
        if values.scores[index] is None:
            if tree.policy.on_unscored == "error" or tree.nodes[index].strict:
                return None
            if tree.policy.on_unscored == "exclude":
                continue
        indexes.append(index)
        weights.append(weight)
    return indexes, weights


def _combine(tree: CompiledTree, node: CompiledNode, values: Values) -> tuple[float | None, int]:
    """Return the score of a composite, and the child that failed it by the composite's rule."""
    scores = values.scores
    if node.gates:
        failed = _failed_gate(node, values)
        if failed is None:
            return None, NO_INDEX
        if failed != NO_INDEX:
            return 0.0, failed
    indexes: Sequence[int] = node.counted
    weights: Sequence[float] = node.weights
    counted_scores = [scores[index] for index in indexes]
    if None in counted_scores:
        counted = counted_children(tree, node, values)
        if counted is None:
            return None, NO_INDEX
        indexes, weights = counted
        counted_scores = [scores[index] for index in indexes]
    if not counted_scores:
        return None, NO_INDEX
    known = [0.0 if score is None else score for score in counted_scores]
    return _apply_rule(tree, node, values, (indexes, known, weights))


def _failed_gate(node: CompiledNode, values: Values) -> int | None:
    """Return the first gate below the limit, −1 if all pass, None if one has no score."""
    failed = NO_INDEX
    for gate in node.gates:
        score = values.scores[gate]
        if score is None:
            return None
        if failed == NO_INDEX and round(score, values.digits) < node.limit:
            failed = gate
    return failed


def _apply_rule(
    tree: CompiledTree,
    node: CompiledNode,
    values: Values,
    counted: tuple[Sequence[int], Sequence[float], Sequence[float]],
) -> tuple[float, int]:
    indexes, known, weights = counted
    if node.rule == "minimum":
        return min(known), NO_INDEX
    if node.rule == "maximum":
        return max(known), NO_INDEX
    if node.rule == "threshold":
        return _passing_share(tree, node, values, indexes)
    if node.rule == "all_or_nothing":
        for index, score in zip(indexes, known, strict=True):
            if round(score, values.digits) < node.limit:
                return 0.0, index
    average = math.fsum(map(mul, known, weights)) / math.fsum(weights)
    # In spite of floating-point errors, a mean lies between its lowest and highest value.
    return min(max(average, min(known)), max(known)), NO_INDEX


def _passing_share(
    tree: CompiledTree, node: CompiledNode, values: Values, indexes: Sequence[int]
) -> tuple[float, int]:
    failing = [index for index in indexes if not passes(tree, index, values)]
    share = (len(indexes) - len(failing)) / len(indexes)
    return share, failing[0] if round(share, values.digits) < node.limit else NO_INDEX


def _overall(outcome: Score) -> float:
    """Return the judge's overall score, 0 to 1."""
    overall = outcome.details.get(JUDGE_OVERALL)
    if not isinstance(overall, Mapping):
        return outcome.score
    return on_scale(overall["score"], HYBRID_SCALE, JUDGE_OVERALL)

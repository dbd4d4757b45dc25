"""Combine the outcomes of a composite's children while a result is being scored (SCORING §3)."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.scoring.evaluation import Values, settle
from evaluators.scoring.frames import NO_INDEX, Layout, lay_out
from evaluators.scoring.numbers import is_at_least, spelt, spelt_limit
from evaluators.scoring.policy import Policy
from evaluators.scoring.ruling import ROOT
from evaluators.scoring.tree import Node
from evaluators.scoring.types import Outcome, Score, Unscored
from evaluators.scoring.wording import arithmetic, own_failure

OWN_RULE = "failed_by_own_rule"


def gate_order(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the children that run first, and of those that run only if these hold."""
    names = tuple(child.name for child in node.children)
    if node.aggregator is None or node.aggregator.type != "safety_gate":
        return (), names
    gates = frozenset(node.aggregator.required)
    first = tuple(name for name in names if name in gates)
    return first, tuple(name for name in names if name not in gates)


def gate_failure(node: Node, children: Mapping[str, Outcome]) -> str | None:
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
            return f"the gate {child.name} failed: {spelt(score)} < {spelt_limit(limit)}"
    return None


def aggregate(node: Node, children: Mapping[str, Outcome], policy: Policy) -> Outcome:
    """Return the outcome of a composite from its children's outcomes by name, before its negation.

    A composite failed by its own rule has score 0. Unscored where the policy lets a child without
    a score spoil it, and where nothing is left to aggregate.
    """
    layout = lay_out(node, policy, is_shallow=True)
    values = _values(layout, children)
    root = layout.frames[ROOT]
    settle(layout, root, values)
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


def _values(layout: Layout, children: Mapping[str, Outcome]) -> Values:
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


def child_score(child: Node, outcome: Outcome | None) -> float | None:
    """Return the child's score after negation, None when it has none."""
    if not isinstance(outcome, Score):
        return None
    if child.negate and not _failed_by_own_rule(child, outcome):
        return 1.0 - outcome.score
    return outcome.score


def _failed_by_own_rule(child: Node, outcome: Outcome | None) -> bool:
    return child.is_composite and isinstance(outcome, Score) and OWN_RULE in outcome.details

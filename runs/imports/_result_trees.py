"""Results of a file as trees of evaluators, and the decisions these lead to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaluators.scoring.decision import TraceStep
from evaluators.scoring.numbers import rounded, spelt
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, Node, below, validate, walk
from evaluators.scoring.types import (
    DomainError,
    Outcome,
    OutcomeResult,
    Score,
    Skipped,
    Unscored,
    Verdict,
)
from evaluators.scoring.verdict import Decision, rules_of
from runs.formats.results import EvaluatorLine, ResultLine
from runs.formats.results import walk as walk_lines
from runs.plan import OUTCOMES_PATH

IMPORTED = "imported"
# How far a mean in a file may be from ours: others round what they write.
NEAR = 1e-6
# Stands for a rule the file does not tell: the score of the composite is taken as it is.
AS_TOLD = {"type": "code_judge"}
USUAL = {"type": "weighted_average"}


@dataclass(frozen=True, slots=True)
class Told:
    """One result with the tree it was scored by, what its evaluators said, and the decision."""

    tree: Node
    outcomes: Mapping[str, Outcome]
    decision: Decision


def common_tree(lines: Sequence[ResultLine], own: Node | None, policy: Policy) -> Node:
    """Return the tree by which most results of a file were scored.

    Where the suite's own tree names the same evaluators, kinds and settings are those.
    """
    shapes = Counter(shape_of(line.evaluators) for line in lines if line.evaluators)
    if not shapes:
        return own or _root((), AS_TOLD, None)
    shape = shapes.most_common(1)[0][0]
    alike = [line for line in lines if line.evaluators and shape_of(line.evaluators) == shape]
    return tree_of(alike, own, policy)


def tree_of(lines: Sequence[ResultLine], own: Node | None, policy: Policy) -> Node:
    """Return the tree of results whose evaluators are alike.

    The outermost rule is the suite's, else the weighted average, where that gives every score of
    the file; else the scores are taken as they are told.
    """
    known = dict(walk(own)) if own is not None else {}
    children = tuple(_node(one, one.name, known) for one in lines[0].evaluators)
    rules = [dict(own.as_json()["config"]["aggregator"])] if own is not None else []
    for rule in (*rules, USUAL):
        tree = _root(children, rule, own)
        if _is_sound(tree) and all(_gives(tree, line, policy) for line in lines):
            return tree
    return _root(children, AS_TOLD, own)


def told(line: ResultLine, tree: Node, policy: Policy) -> Told:
    """Return a result decided: by our rules where they come to what the file says, else as it says.

    Raises TreeError for evaluators that make no tree.
    """
    outcomes = _outcomes(line, tree)
    expected = [one.text for one in line.outcomes]
    found = rules_of(tree, policy).decide(
        outcomes, expected_outcomes=expected, outcome_results=line.outcomes or None
    )
    if line.outcomes:
        outcomes[OUTCOMES_PATH] = _outcomes_score(line.outcomes)
    if line.status == "error":
        step = TraceStep(f"The file says: {line.error}", passed=False)
        told_error = Decision(status="error", error=line.error, nodes=found.nodes, trace=(step,))
        return Told(tree, outcomes, replace(told_error, rule=IMPORTED, outcomes=found.outcomes))
    return Told(tree, outcomes, _as_told(line, found, policy))


def is_forced(line: ResultLine, decision: Decision, policy: Policy) -> bool:
    """Tell whether a fail stands whatever the score, by our rules or by the file's word."""
    if decision.verdict is not Verdict.FAIL:
        return False
    own = None if line.score is None else policy.verdict_of(line.score)
    return decision.is_forced or (decision.rule == IMPORTED and own is not Verdict.FAIL)


def _as_told(line: ResultLine, found: Decision, policy: Policy) -> Decision:
    """Return our decision where it is the file's too, else the file's, with ours beside it."""
    score = None if line.score is None else rounded(line.score)
    verdict = Verdict(line.verdict) if line.verdict else None
    if verdict is None and score is not None:
        verdict = found.verdict or policy.verdict_of(score)
    is_same = found.status == "scored" and found.verdict == verdict
    if is_same and (found.score == score or (score is None and found.score is not None)):
        return found
    if is_same and found.score is not None and score is not None:
        is_same = abs(found.score - score) <= NEAR
        if is_same:
            return replace(found, score=score)
    said = "" if score is None else f" at {spelt(score)}"
    cell = line.decided_by or f"imported: {verdict or 'no verdict'}{said}"
    step = TraceStep(f"The file says: {cell}", passed=verdict is Verdict.PASS)
    return replace(
        found,
        status="scored",
        verdict=verdict,
        score=score,
        decided_by=cell,
        rule=IMPORTED,
        evaluator=None,
        error=None,
        flip=None,
        trace=(step, *found.trace),
    )


def shape_of(evaluators: Iterable[EvaluatorLine]) -> tuple[Any, ...]:
    """Return what makes trees alike: names, types, weights and nesting."""
    return tuple(
        (one.name, one.type, one.weight, one.is_negated, shape_of(one.children))
        for one in evaluators
    )


def _node(one: EvaluatorLine, path: str, known: Mapping[str, Node]) -> Node:
    own = known.get(path)
    children = tuple(_node(child, below(path, child.name), known) for child in one.children)
    is_composite = one.aggregator is not None
    fits = own is not None and own.is_composite == is_composite and own.negate == one.is_negated
    facts: dict[str, Any] = {"kind": one.type, "negate": one.is_negated}
    if own is not None and fits:
        facts = {"kind": own.kind, "negate": own.negate, "config": own.config}
        facts |= {"required": own.required, "required_below": own.required_below}
    if is_composite:
        facts |= {"kind": COMPOSITE, "config": {"aggregator": _rule(one, own if fits else None)}}
    return Node(name=one.name, weight=one.weight, children=children, **facts)


def _rule(one: EvaluatorLine, own: Node | None) -> Mapping[str, Any]:
    """Return how a composite combines its children, as the file or the suite tells."""
    for rule in (one.aggregator, own.as_json()["config"]["aggregator"] if own else None):
        if rule and one.children and _is_sound(_root(_leaves(one.children), rule, None)):
            return dict(rule)
    return AS_TOLD


def _leaves(children: Sequence[EvaluatorLine]) -> tuple[Node, ...]:
    return tuple(Node(name=child.name, kind="", weight=child.weight) for child in children)


def _root(children: tuple[Node, ...], rule: Mapping[str, Any], own: Node | None) -> Node:
    name = own.name if own is not None else "suite"
    node = Node(name=name, kind=COMPOSITE, config={"aggregator": dict(rule)}, children=children)
    return Node.from_json(node.as_json())


def _is_sound(tree: Node) -> bool:
    try:
        validate(tree)
    except (DomainError, TypeError, ValueError, AttributeError):
        return False
    return True


def _gives(tree: Node, line: ResultLine, policy: Policy) -> bool:
    """Tell whether the rules of a tree come to the score that the file tells."""
    if line.score is None or line.status == "error":
        return True
    found = rules_of(tree, policy).nodes(_outcomes(line, tree))[ROOT_PATH]
    return found.score is not None and abs(found.score - line.score) <= NEAR


def _outcomes(line: ResultLine, tree: Node) -> dict[str, Outcome]:
    """Return by path what leaves said, and composites whose rule nobody tells."""
    told_at = dict(walk_lines(line.evaluators))
    found: dict[str, Outcome] = {}
    for path, node in walk(tree):
        if node.aggregator is not None and not node.aggregator.is_judging:
            continue
        one = told_at.get(path)
        if one is not None:
            found[path] = _outcome(one)
        elif path == ROOT_PATH and line.score is not None:
            found[path] = Score(line.score)
    return found


def _outcome(one: EvaluatorLine) -> Outcome:
    if one.status == "skipped":
        return Skipped(one.reasoning or "it was not run")
    if one.score is None:
        return Unscored(one.reasoning or "the file has no score of it", usage=one.usage)
    score = 1.0 - one.score if one.is_negated else one.score
    return Score(score, reasoning=one.reasoning, findings=one.findings, usage=one.usage)


def _outcomes_score(outcomes: Sequence[OutcomeResult]) -> Score:
    share = sum(one.passed for one in outcomes) / len(outcomes)
    return Score(share, outcomes=tuple(outcomes))

"""The trees of evaluators by which the results of a file were scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from evaluators.kinds import InvalidConfigError, kind_for_spelling, read_config
from evaluators.scoring.numbers import weighted_mean
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, Aggregator, Node, below, validate, walk
from evaluators.scoring.types import (
    DomainError,
)
from evaluators.scoring.verdict import rules_of
from runs.formats.results import EvaluatorLine, ResultLine
from runs.formats.results import walk as walk_lines
from runs.imports._result_decisions import outcomes_of
from runs.imports._result_details import NEAR

# Stands for a rule the file does not tell: the score of the composite is taken as it is.
AS_TOLD = {"type": "code_judge"}
USUAL = {"type": "weighted_average"}


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
    unruly = {path for line in lines for path in _unruly(line)}
    children = tuple(_node(one, one.name, known, unruly) for one in lines[0].evaluators)
    rules = [dict(own.as_json()["config"]["aggregator"])] if own is not None else []
    for rule in (*rules, USUAL):
        tree = _root(children, rule, own)
        if _is_sound(tree) and all(_gives(tree, line, policy) for line in lines):
            return tree
    return _root(children, AS_TOLD, own)


def shape_of(evaluators: Iterable[EvaluatorLine]) -> tuple[Any, ...]:
    """Return what makes trees alike: names, types, weights and nesting."""
    return tuple(
        (one.name, one.type, one.weight, one.is_negated, shape_of(one.children))
        for one in evaluators
    )


def _unruly(line: ResultLine) -> Iterator[str]:
    """Yield the composites without a rule whose score is not the weighted average of their children."""
    for path, one in walk_lines(line.evaluators):
        if one.score is None or one.aggregator:
            continue
        scored = [child for child in one.children if child.score is not None]
        average = weighted_mean(
            [child.score or 0.0 for child in scored], [child.weight for child in scored]
        )
        if average is None or abs(average - one.score) > NEAR or len(scored) < len(one.children):
            yield path


def _node(
    one: EvaluatorLine, path: str, known: Mapping[str, Node], unruly: Collection[str]
) -> Node:
    own = known.get(path)
    children = tuple(_node(child, below(path, child.name), known, unruly) for child in one.children)
    is_composite = one.aggregator is not None
    fits = own is not None and own.is_composite == is_composite and own.negate == one.is_negated
    preset = dict(kind_for_spelling(one.spelling)[1]) if one.spelling else {}
    facts: dict[str, Any] = {"kind": one.type, "negate": one.is_negated, "config": preset}
    if own is not None and fits:
        facts = {"kind": own.kind, "negate": own.negate, "config": own.config}
        facts |= {"required": own.required, "required_below": own.required_below}
    if is_composite:
        facts |= {
            "kind": COMPOSITE,
            "config": {"aggregator": _rule(one, own if fits else None, path in unruly)},
        }
    return Node(name=one.name, weight=one.weight, children=children, **facts)


def _rule(one: EvaluatorLine, own: Node | None, is_unruly: bool) -> Mapping[str, Any]:
    """Return how a composite combines its children, as the file or the suite tells, or as is usual."""
    usual = None if is_unruly else USUAL
    own_rule = own.as_json()["config"]["aggregator"] if own else None
    for rule in (_readable(one.aggregator), own_rule, usual):
        if rule and one.children and _is_sound(_root(_leaves(one.children), rule, None)):
            return dict(rule)
    return AS_TOLD


def _readable(rule: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the rule a file tells as we store it, None where it is none of ours."""
    try:
        settings = read_config(COMPOSITE, {"aggregator": rule}) if rule else None
    except InvalidConfigError:
        return None
    if settings is None:
        return None
    return Aggregator.from_json(settings.model_dump(mode="json")["aggregator"]).as_json()


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
    found = rules_of(tree, policy).nodes(outcomes_of(line, tree))[ROOT_PATH]
    return found.score is not None and abs(found.score - line.score) <= NEAR

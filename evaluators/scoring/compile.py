"""Compile a tree into a flat list of nodes, with everything that does not depend on scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluators.scoring.numbers import rounded
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import ROOT_PATH, Aggregator, EvaluatorSpec, below

NO_INDEX = -1
LEAF = "leaf"


@dataclass(frozen=True, slots=True)
class CompiledNode:
    """One node of a compiled tree; nodes refer to each other by index.

    `rule` is the type of the aggregator, or `leaf` if the score is not computed from children:
    for leaves and for composites that a script or judge scores. `counted` are the children that
    count, with their `weights`; `gates` are the children that must reach `limit` first. `behind`
    are the composites whose gates hold this node back. A node is `needed` if the verdict under
    the score gate depends on it, and `strict` if every verdict does (SCORING §4.1).
    """

    index: int
    path: str
    spec: EvaluatorSpec
    parent: int
    rule: str
    weight: float
    limit: float
    children: tuple[int, ...]
    counted: tuple[int, ...]
    weights: tuple[float, ...]
    total: float
    gates: tuple[int, ...]
    behind: tuple[int, ...]
    needed: bool
    strict: bool
    negate: bool
    required: bool
    required_below: float | None

    @property
    def is_required(self) -> bool:
        """Tell whether the node can force a fail of the whole result."""
        return self.required or self.required_below is not None


@dataclass(frozen=True, slots=True)
class CompiledTree:
    """A tree as a list: all nodes in tree order, and the composites from the leaves up."""

    nodes: tuple[CompiledNode, ...]
    upward: tuple[CompiledNode, ...]
    leaves: tuple[CompiledNode, ...]
    required: tuple[CompiledNode, ...]
    index_of: Mapping[str, int]
    policy: PolicySpec


def compile_tree(
    root: EvaluatorSpec, policy: PolicySpec, *, is_shallow: bool = False
) -> CompiledTree:
    """Compile a tree; a shallow one takes all children of the root as leaves."""
    compiler = _Compiler(is_shallow)
    compiler.add(
        root, _Position(ROOT_PATH, NO_INDEX, 1.0, (), needed=True, strict=root.is_required)
    )
    nodes = tuple(node for node in compiler.nodes if node is not None)
    return CompiledTree(
        nodes=nodes,
        upward=tuple(node for node in reversed(nodes) if node.rule != LEAF),
        leaves=tuple(node for node in nodes if node.rule == LEAF),
        required=tuple(node for node in nodes if node.is_required),
        index_of={node.path: node.index for node in nodes},
        policy=policy,
    )


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a node in the tree."""

    path: str
    parent: int
    weight: float
    behind: tuple[int, ...]
    needed: bool
    strict: bool


class _Compiler:
    """Build the list of nodes."""

    def __init__(self, is_shallow: bool) -> None:
        self.is_shallow = is_shallow
        self.nodes: list[CompiledNode | None] = []

    def add(self, spec: EvaluatorSpec, position: _Position) -> int:
        """Append a node and everything under it; return its index."""
        index = len(self.nodes)
        self.nodes.append(None)
        aggregator = None if self.is_shallow and index else spec.aggregator
        gates = _gates(spec, aggregator)
        children = [
            self.add(child, _child_position(child, position, index, spec, gates))
            for child in (() if aggregator is None else spec.children)
        ]
        counted, weights = _counted(spec, aggregator, children)
        self.nodes[index] = CompiledNode(
            index=index,
            path=position.path,
            spec=spec,
            parent=position.parent,
            rule=_rule(aggregator),
            weight=position.weight,
            limit=_limit(aggregator),
            children=tuple(children),
            counted=counted,
            weights=weights,
            total=math.fsum(weights),
            gates=tuple(
                child_index
                for child_index, child in zip(children, spec.children, strict=False)
                if child.name in gates
            ),
            behind=position.behind,
            needed=position.needed,
            strict=position.strict,
            negate=spec.negate,
            required=spec.required,
            required_below=spec.required_below,
        )
        return index


def _child_position(
    child: EvaluatorSpec,
    position: _Position,
    parent: int,
    spec: EvaluatorSpec,
    gates: frozenset[str],
) -> _Position:
    weight = spec.child_weight(child)
    is_gate = child.name in gates
    is_needed = child.is_required or is_gate or (position.needed and weight > 0)
    is_held_back = bool(gates) and not is_gate
    return _Position(
        path=below(position.path, child.name),
        parent=parent,
        weight=weight,
        behind=(*position.behind, parent) if is_held_back else position.behind,
        needed=is_needed,
        strict=child.is_required or is_gate or (position.strict and is_needed),
    )


def _gates(spec: EvaluatorSpec, aggregator: Aggregator | None) -> frozenset[str]:
    if aggregator is None:
        return frozenset()
    return frozenset(child.name for child in spec.children if aggregator.is_gate(child.name))


def _counted(
    spec: EvaluatorSpec,
    aggregator: Aggregator | None,
    children: Sequence[int],
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the children that count, with their weights.

    A child counts if its weight is above 0 and it is not a gate that the average leaves out.
    """
    if aggregator is None or aggregator.is_judging:
        return (), ()
    pairs = [
        (index, weight)
        for index, child in zip(children, spec.children, strict=True)
        if (weight := spec.child_weight(child)) > 0 and not aggregator.is_gate_alone(child.name)
    ]
    return tuple(index for index, _ in pairs), tuple(weight for _, weight in pairs)


def _rule(aggregator: Aggregator | None) -> str:
    return LEAF if aggregator is None or aggregator.is_judging else aggregator.type


def _limit(aggregator: Aggregator | None) -> float:
    """Return the threshold that the aggregator's type uses."""
    if aggregator is None:
        return 0.0
    limits = {
        "safety_gate": aggregator.gate_threshold,
        "all_or_nothing": aggregator.threshold,
        "threshold": aggregator.share,
    }
    return rounded(limits.get(aggregator.type, 0.0))

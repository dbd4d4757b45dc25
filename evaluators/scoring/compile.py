"""Compile a tree: lay it out flat, with everything that follows from it and the policy before any score is known."""

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
    """One node of a tree laid out in tree order; nodes point at each other by index.

    `rule` is the aggregator's type, `leaf` where the score is a fact: leaves and composites
    that a script or judge scores. `counted` are the children that enter the arithmetic, with
    their `weights`; `gates` the children that must reach `limit` first. `behind` are the
    composites whose gates hold this node back. A node is `needed` when the verdict under the
    score gate cannot do without it, and `strict` when it never can (SCORING §4.1).
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
    """A tree laid out: all nodes in tree order, and the composites from the leaves up."""

    nodes: tuple[CompiledNode, ...]
    upward: tuple[CompiledNode, ...]
    leaves: tuple[CompiledNode, ...]
    required: tuple[CompiledNode, ...]
    index_of: Mapping[str, int]
    policy: PolicySpec


def compile_tree(
    root: EvaluatorSpec, policy: PolicySpec, *, is_shallow: bool = False
) -> CompiledTree:
    """Return the tree laid out; shallow takes the root's children as leaves, whatever they hold."""
    draft = _Draft(is_shallow)
    draft.add(root, _Place(ROOT_PATH, NO_INDEX, 1.0, (), needed=True, strict=root.is_required))
    nodes = tuple(node for node in draft.nodes if node is not None)
    return CompiledTree(
        nodes=nodes,
        upward=tuple(node for node in reversed(nodes) if node.rule != LEAF),
        leaves=tuple(node for node in nodes if node.rule == LEAF),
        required=tuple(node for node in nodes if node.is_required),
        index_of={node.path: node.index for node in nodes},
        policy=policy,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node stands in the tree."""

    path: str
    parent: int
    weight: float
    behind: tuple[int, ...]
    needed: bool
    strict: bool


class _Draft:
    """The tree while it grows."""

    def __init__(self, is_shallow: bool) -> None:
        self.is_shallow = is_shallow
        self.nodes: list[CompiledNode | None] = []

    def add(self, spec: EvaluatorSpec, place: _Place) -> int:
        """Append a node and everything under it; return its index."""
        index = len(self.nodes)
        self.nodes.append(None)
        aggregator = None if self.is_shallow and index else spec.aggregator
        gates = _gates(spec, aggregator)
        children = [
            self.add(child, _place_of(child, place, index, spec, gates))
            for child in (() if aggregator is None else spec.children)
        ]
        counted, weights = _counted(spec, aggregator, children, gates)
        self.nodes[index] = CompiledNode(
            index=index,
            path=place.path,
            spec=spec,
            parent=place.parent,
            rule=_rule(aggregator),
            weight=place.weight,
            limit=_limit(aggregator),
            children=tuple(children),
            counted=counted,
            weights=weights,
            total=math.fsum(weights),
            gates=tuple(
                at
                for at, child in zip(children, spec.children, strict=False)
                if child.name in gates
            ),
            behind=place.behind,
            needed=place.needed,
            strict=place.strict,
            negate=spec.negate,
            required=spec.required,
            required_below=spec.required_below,
        )
        return index


def _place_of(
    child: EvaluatorSpec, place: _Place, parent: int, spec: EvaluatorSpec, gates: frozenset[str]
) -> _Place:
    weight = spec.weight_of(child)
    is_gate = child.name in gates
    needed = child.is_required or is_gate or (place.needed and weight > 0)
    held = bool(gates) and child.name not in gates
    return _Place(
        path=below(place.path, child.name),
        parent=parent,
        weight=weight,
        behind=(*place.behind, parent) if held else place.behind,
        needed=needed,
        strict=child.is_required or is_gate or (place.strict and needed),
    )


def _gates(spec: EvaluatorSpec, aggregator: Aggregator | None) -> frozenset[str]:
    if aggregator is None or aggregator.type != "safety_gate":
        return frozenset()
    return frozenset(aggregator.required).intersection(child.name for child in spec.children)


def _counted(
    spec: EvaluatorSpec,
    aggregator: Aggregator | None,
    children: Sequence[int],
    gates: frozenset[str],
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the children that enter the arithmetic: weight above 0, gates only if they count too."""
    if aggregator is None or aggregator.is_judging:
        return (), ()
    left_out = gates if aggregator.remainder == "remaining" else frozenset()
    pairs = [
        (index, weight)
        for index, child in zip(children, spec.children, strict=True)
        if (weight := spec.weight_of(child)) > 0 and child.name not in left_out
    ]
    return tuple(index for index, _ in pairs), tuple(weight for _, weight in pairs)


def _rule(aggregator: Aggregator | None) -> str:
    return LEAF if aggregator is None or aggregator.is_judging else aggregator.type


def _limit(aggregator: Aggregator | None) -> float:
    """Return the one threshold that the aggregator's type knows."""
    if aggregator is None:
        return 0.0
    limits = {
        "safety_gate": aggregator.gate_threshold,
        "all_or_nothing": aggregator.threshold,
        "threshold": aggregator.share,
    }
    return rounded(limits.get(aggregator.type, 0.0))

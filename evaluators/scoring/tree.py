"""Evaluators as a tree: what each weighs, what it requires and how its children combine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

COMPOSITE = "composite"
ROOT_PATH = ""
JUDGING_AGGREGATORS = ("code_judge", "llm_judge")
AGGREGATOR_TYPES = (
    "weighted_average",
    "minimum",
    "maximum",
    "safety_gate",
    "all_or_nothing",
    "threshold",
    *JUDGING_AGGREGATORS,
)
REMAINDERS = ("all", "remaining")


@dataclass(frozen=True, slots=True)
class Aggregator:
    """How a composite makes one score of its children's (SCORING §3).

    `weights` go before the children's own. `required`, `gate_threshold` and `remainder` belong to
    safety_gate, `threshold` to all_or_nothing, `share` to threshold; thresholds are 0 to 1.
    """

    type: str = "weighted_average"
    weights: Mapping[str, float] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    gate_threshold: float = 0.6
    remainder: str = "all"
    threshold: float = 0.7
    share: float = 0.5

    @property
    def is_judging(self) -> bool:
        """Tell whether a script or a judge makes the score, not arithmetic."""
        return self.type in JUDGING_AGGREGATORS

    def as_json(self) -> dict[str, Any]:
        """Return the settings that this type of aggregator has, as plain JSON values."""
        written: dict[str, Any] = {"type": self.type}
        if self.weights:
            written["weights"] = dict(self.weights)
        if self.required:
            written["required"] = list(self.required)
        if self.type == "safety_gate":
            written |= {"gate_threshold": self.gate_threshold, "remainder": self.remainder}
        if self.type == "all_or_nothing":
            written["threshold"] = self.threshold
        if self.type == "threshold":
            written["share"] = self.share
        return written

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Aggregator:
        """Return the aggregator that as_json wrote; keys of judging aggregators are left to the kind."""
        names = [setting.name for setting in fields(cls)]
        known = {name: values[name] for name in names if values.get(name) is not None}
        if "weights" in known:
            known["weights"] = dict(known["weights"])
        if "required" in known:
            known["required"] = tuple(known["required"])
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Node:
    """One evaluator with everything under it.

    The path of the root is "", of a node the names from below the root joined by "/". A composite
    always has an aggregator: the one given, else that of its config, else the weighted average.
    `required` forces a fail at score 0, `required_below` at any score below it (SCORING §4.2).
    `negate` turns its score s into 1 − s.
    """

    name: str
    kind: str
    weight: float = 1.0
    required: bool = False
    required_below: float | None = None
    negate: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    aggregator: Aggregator | None = None
    children: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        """Give a composite its aggregator."""
        if self.is_composite and self.aggregator is None:
            read = Aggregator.from_json(self.config.get("aggregator") or {})
            object.__setattr__(self, "aggregator", read)

    @property
    def is_composite(self) -> bool:
        """Tell whether the node holds children."""
        return self.kind == COMPOSITE

    @property
    def is_required(self) -> bool:
        """Tell whether the node can force a fail of the whole result."""
        return self.required or self.required_below is not None

    def weight_of(self, child: Node) -> float:
        """Return what a child weighs here: the aggregator's word, else its own."""
        if self.aggregator is None:
            return child.weight
        return self.aggregator.weights.get(child.name, child.weight)

    def as_json(self) -> dict[str, Any]:
        """Return the form a snapshot holds, children included."""
        config = dict(self.config)
        if self.aggregator is not None:
            config["aggregator"] = {
                **(self.config.get("aggregator") or {}),
                **self.aggregator.as_json(),
            }
        return {
            "name": self.name,
            "kind": self.kind,
            "weight": self.weight,
            "required": self.required,
            "required_below": self.required_below,
            "negate": self.negate,
            "config": config,
            "children": [child.as_json() for child in self.children],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Node:
        """Return the tree that as_json wrote; what is missing takes its default."""
        weight = values.get("weight")
        return cls(
            name=values["name"],
            kind=values["kind"],
            weight=1.0 if weight is None else weight,
            required=bool(values.get("required", False)),
            required_below=values.get("required_below"),
            negate=bool(values.get("negate", False)),
            config=values.get("config") or {},
            children=tuple(cls.from_json(child) for child in values.get("children") or ()),
        )


def walk(node: Node, path: str = ROOT_PATH) -> Iterator[tuple[str, Node]]:
    """Yield a node and everything under it with its path, in tree order."""
    yield path, node
    for child in node.children:
        yield from walk(child, below(path, child.name))


def below(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"{path}/{name}" if path else name

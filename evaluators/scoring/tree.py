"""Evaluators as a tree: what each weighs, what it requires and how its children combine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from evaluators.scoring.numbers import quote_names, require_share, require_weight
from evaluators.scoring.types import DomainError, Spec

COMPOSITE = "composite"
ROOT_PATH = ""
# What the columns that name an evaluator by its path hold.
MAX_PATH_LENGTH = 500
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
SETTINGS_BY_TYPE = {
    "safety_gate": ("gate_threshold", "remainder"),
    "all_or_nothing": ("threshold",),
    "threshold": ("share",),
}


class TreeError(DomainError):
    """A tree of evaluators contradicts itself."""

    code = "invalid_tree"


def _without_none(values: Any) -> Any:
    """Leave out what is None, so that it takes its default."""
    if isinstance(values, Mapping):
        return {name: value for name, value in values.items() if value is not None}
    return values


class Aggregator(Spec):
    """How a composite makes one score of its children's (SCORING §3).

    `weights` go before the children's own. `required`, `gate_threshold` and `remainder` belong to
    safety_gate, `threshold` to all_or_nothing, `share` to threshold; thresholds are 0 to 1. Further
    settings of judging aggregators are left to the kind.
    """

    type: str = "weighted_average"
    weights: dict[str, float] = {}
    required: tuple[str, ...] = ()
    gate_threshold: float = 0.6
    remainder: str = "all"
    threshold: float = 0.7
    share: float = 0.5

    _complete = model_validator(mode="before")(_without_none)

    @property
    def is_judging(self) -> bool:
        """Tell whether a script or a judge makes the score, not arithmetic."""
        return self.type in JUDGING_AGGREGATORS

    @model_serializer(mode="wrap")
    def _write_own_settings(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the settings that this type does not have, and empty ones."""
        own = ("type", "weights", "required", *SETTINGS_BY_TYPE.get(self.type, ()))
        return {
            name: value
            for name, value in write(self).items()
            if name in own and value not in ({}, [], ())
        }


class EvaluatorSpec(Spec):
    """One evaluator with everything under it.

    The path of the root is "", of a node the names from below the root joined by "/". The config of a
    composite always says how it combines: by a weighted average unless another aggregator is given.
    `required` forces a fail at score 0, `required_below` at any score below it (SCORING §4.2).
    `negate` turns its score s into 1 − s.
    """

    name: str
    kind: str
    weight: float = 1.0
    required: bool = False
    required_below: float | None = None
    negate: bool = False
    config: dict[str, Any] = {}
    children: tuple[EvaluatorSpec, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        values = _without_none(values)
        if isinstance(values, dict) and values.get("kind") == COMPOSITE:
            config = values.get("config") or {}
            given = config.get("aggregator") or {}
            whole = {**given, **Aggregator.model_validate(given).as_json()}
            values["config"] = {**config, "aggregator": whole}
        return values

    @cached_property
    def aggregator(self) -> Aggregator | None:
        """Return how a composite combines its children; None for other kinds."""
        return Aggregator.model_validate(self.config["aggregator"]) if self.is_composite else None

    @property
    def is_composite(self) -> bool:
        """Tell whether the node holds children."""
        return self.kind == COMPOSITE

    @property
    def is_stored_unturned(self) -> bool:
        """Tell whether a negated node's stored score is still the one before it was turned.

        What evaluators, scripts and judges said is stored as they said it, a composite as what it came to.
        """
        return self.negate and (self.aggregator is None or self.aggregator.is_judging)

    @property
    def is_required(self) -> bool:
        """Tell whether the node can force a fail of the whole result."""
        return self.required or self.required_below is not None

    def weight_of(self, child: EvaluatorSpec) -> float:
        """Return what a child weighs here: the aggregator's word, else its own."""
        if self.aggregator is None:
            return child.weight
        return self.aggregator.weights.get(child.name, child.weight)


def walk(node: EvaluatorSpec, path: str = ROOT_PATH) -> Iterator[tuple[str, EvaluatorSpec]]:
    """Yield a node and everything under it with its path, in tree order."""
    yield path, node
    for child in node.children:
        yield from walk(child, below(path, child.name))


def below(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"{path}/{name}" if path else name


def validate(root: EvaluatorSpec) -> None:
    """Raise TreeError or ScoreOutOfRangeError, naming the evaluator, when the tree cannot be scored."""
    check_paths(root)
    labelled = [(path, node, f"evaluator “{path or node.name}”") for path, node in walk(root)]
    for _, node, label in labelled:
        _check_numbers(node, label)
    for path, node, label in labelled:
        if path != ROOT_PATH:
            _check_name(node.name, label)
        if node.aggregator is not None:
            _check_children(node, label)
            _check_aggregator(node, node.aggregator, label)
        elif node.children:
            raise TreeError(f"{label} is a {node.kind} and cannot hold evaluators")


def check_paths(root: EvaluatorSpec) -> None:
    """Raise TreeError, naming the evaluator, when its score could not be stored under its path."""
    for path, node in walk(root):
        if len(path) > MAX_PATH_LENGTH:
            raise TreeError(
                f"evaluator “{node.name}” lies too deep: its name and those above it make "
                f"{len(path)} characters, and {MAX_PATH_LENGTH} is the most; shorten them or nest less"
            )


def _check_name(name: str, label: str) -> None:
    if not name.strip():
        raise TreeError(f"{label} has no name")
    if "/" in name or name.startswith("@"):
        raise TreeError(f"{label}: a name holds no “/” and does not begin with “@”")


def _check_numbers(node: EvaluatorSpec, label: str) -> None:
    require_weight(node.weight, label)
    if node.required_below is not None:
        require_share(node.required_below, f"{label}: required")


def _check_children(node: EvaluatorSpec, label: str) -> None:
    if not node.children:
        raise TreeError(f"{label} is a composite without evaluators")
    names = [child.name for child in node.children]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise TreeError(f"{label} names evaluators twice: {quote_names(doubled)}")


def _check_aggregator(node: EvaluatorSpec, aggregator: Aggregator, label: str) -> None:
    _check_words(aggregator, label)
    names = [child.name for child in node.children]
    _check_known(aggregator.weights, names, f"{label}: weights")
    _check_known(aggregator.required, names, f"{label}: required")
    for name, weight in aggregator.weights.items():
        require_weight(weight, f"{label}: weights of “{name}”")
    for setting in ("gate_threshold", "threshold", "share"):
        require_share(getattr(aggregator, setting), f"{label}: {setting}")
    if aggregator.type == "safety_gate":
        _check_gate(node, aggregator, label)
    total = sum(_counting(node, aggregator))
    if math.isinf(total):
        raise TreeError(f"{label}: the weights of what it aggregates are too large to add up")
    if not aggregator.is_judging and total <= 0:
        raise TreeError(f"{label}: the weights of what it aggregates sum to 0")


def _check_words(aggregator: Aggregator, label: str) -> None:
    if aggregator.type not in AGGREGATOR_TYPES:
        choices = ", ".join(AGGREGATOR_TYPES)
        raise TreeError(f"{label}: aggregator {aggregator.type!r} is none of {choices}")
    if aggregator.remainder not in REMAINDERS:
        choices = ", ".join(REMAINDERS)
        raise TreeError(f"{label}: remainder {aggregator.remainder!r} is none of {choices}")


def _check_known(named: Iterable[str], names: Iterable[str], label: str) -> None:
    known = tuple(names)
    unknown = [name for name in named if name not in known]
    if unknown:
        raise TreeError(
            f"{label} names {quote_names(unknown)}, which are not among {quote_names(known)}"
        )


def _check_gate(node: EvaluatorSpec, aggregator: Aggregator, label: str) -> None:
    if not aggregator.required:
        raise TreeError(f"{label}: a safety gate names the evaluators that must pass in required")
    if aggregator.remainder == "remaining" and len(set(aggregator.required)) == len(node.children):
        raise TreeError(f"{label}: remainder is remaining, but every evaluator is a gate")


def _counting(node: EvaluatorSpec, aggregator: Aggregator) -> Iterator[float]:
    """Yield the weights of the children that enter the arithmetic."""
    leaves_gates_out = aggregator.type == "safety_gate" and aggregator.remainder == "remaining"
    for child in node.children:
        if not (leaves_gates_out and child.name in aggregator.required):
            yield node.weight_of(child)

"""Evaluators as a tree: their weights, what is required, and how children combine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from evaluators.scoring.numbers import is_at_least, quote_names, require_share, require_weight
from evaluators.scoring.types import DomainError, Spec

COMPOSITE = "composite"
ROOT_PATH = ""
# The length of the columns that hold an evaluator's path.
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
    """Drop values that are None, so that their defaults apply."""
    if isinstance(values, Mapping):
        return {name: value for name, value in values.items() if value is not None}
    return values


class Aggregator(Spec):
    """How a composite combines the scores of its children into one (SCORING §3).

    `weights` override the children's own. `required`, `gate_threshold` and `remainder` belong to
    safety_gate, `threshold` to all_or_nothing, `share` to threshold; thresholds are 0 to 1. The kind
    checks the other settings of judging aggregators.

    `required` lists the names of the children that are the gates. It is not `EvaluatorSpec.required`:
    a gate that fails gives its composite the score 0, a required evaluator fails the whole result.
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
        """Tell whether a script or a judge gives the score instead of arithmetic."""
        return self.type in JUDGING_AGGREGATORS

    def is_gate(self, name: str) -> bool:
        """Tell whether this child must pass before the other children are run."""
        return self.type == "safety_gate" and name in self.required

    def is_gate_alone(self, name: str) -> bool:
        """Tell whether this child is a gate that the average leaves out."""
        return self.is_gate(name) and self.remainder == "remaining"

    @model_serializer(mode="wrap")
    def _write_own_settings(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out empty settings and those of other types."""
        own = ("type", "weights", "required", *SETTINGS_BY_TYPE.get(self.type, ()))
        return {
            name: value
            for name, value in write(self).items()
            if name in own and value not in ({}, [], ())
        }


class EvaluatorSpec(Spec):
    """One evaluator with everything under it.

    The root has the path ""; every other node has the names below the root, joined by "/". The config
    of a composite always has an aggregator, by default a weighted average. `required` fails the whole
    result at score 0, `required_below` at any score below it (SCORING §4.2); `Aggregator.required` is
    another setting. `negate` turns the score s into 1 − s. `pass_mark` says from which score on, after
    negation, pages show it as good; it changes no score and no verdict.
    """

    name: str
    kind: str
    weight: float = 1.0
    required: bool = False
    required_below: float | None = None
    negate: bool = False
    # Left out where there is none, so that contents without it keep their hash.
    pass_mark: float | None = Field(None, exclude_if=lambda mark: mark is None)
    config: dict[str, Any] = {}
    children: tuple[EvaluatorSpec, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: Any) -> Any:
        values = _without_none(values)
        if isinstance(values, dict) and values.get("kind") == COMPOSITE:
            config = values.get("config") or {}
            if isinstance(config, dict):
                settings = config.get("aggregator") or {}
                aggregator = Aggregator.model_validate(settings).model_dump(mode="json")
                values["config"] = {**config, "aggregator": {**settings, **aggregator}}
        return values

    @cached_property
    def aggregator(self) -> Aggregator | None:
        """Return the aggregator of a composite; None for other kinds."""
        return Aggregator.model_validate(self.config["aggregator"]) if self.is_composite else None

    @property
    def is_composite(self) -> bool:
        """Tell whether the node holds children."""
        return self.kind == COMPOSITE

    @property
    def is_stored_before_negation(self) -> bool:
        """Tell whether the stored score of this node is the one before its negation.

        Scores of evaluators, scripts and judges are stored as they gave them; an aggregated score of a
        composite is stored after negation.
        """
        return self.negate and (self.aggregator is None or self.aggregator.is_judging)

    def counted_score(self, stored: float) -> float:
        """Return the score that counts, for a stored score of this node."""
        return 1.0 - stored if self.is_stored_before_negation else stored

    def reaches_mark(self, score: float | None) -> bool | None:
        """Tell whether a score that counts is at or above the pass mark; None without either."""
        if score is None or self.pass_mark is None:
            return None
        return is_at_least(score, self.pass_mark)

    @property
    def is_required(self) -> bool:
        """Tell whether the node can force a fail of the whole result."""
        return self.required or self.required_below is not None

    def child_weight(self, child: EvaluatorSpec) -> float:
        """Return the weight of a child: the aggregator's setting, else its own."""
        if self.aggregator is None:
            return child.weight
        return self.aggregator.weights.get(child.name, child.weight)


def walk(node: EvaluatorSpec, path: str = ROOT_PATH) -> Iterator[tuple[str, EvaluatorSpec]]:
    """Yield a node and everything under it with its path, in tree order."""
    yield path, node
    for child in node.children:
        yield from walk(child, below(path, child.name))


def negated_paths(root: EvaluatorSpec) -> frozenset[str]:
    """Return the paths of negated evaluators whose scores are stored before negation."""
    return frozenset(path for path, node in walk(root) if node.is_stored_before_negation)


def pass_marks(root: EvaluatorSpec) -> dict[str, float]:
    """Return the pass marks of the evaluators that have one, by path."""
    return {path: node.pass_mark for path, node in walk(root) if node.pass_mark is not None}


def below(path: str, name: str) -> str:
    """Return the path of a child."""
    return f"{path}/{name}" if path else name


def validate(root: EvaluatorSpec) -> None:
    """Raise TreeError or ScoreOutOfRangeError, naming the evaluator, if the tree cannot be scored."""
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


# A page shows all of them.
MAX_EVALUATORS = 500


def check_size(root: EvaluatorSpec) -> None:
    """Raise TreeError if a tree has too many evaluators; the root is not counted."""
    size = sum(1 for _ in walk(root)) - 1
    if size > MAX_EVALUATORS:
        raise TreeError(
            f"there are {size:,} evaluators, composites included, and {MAX_EVALUATORS} is the limit; remove some"
        )


def check_paths(root: EvaluatorSpec) -> None:
    """Raise TreeError, naming the evaluator, if its path is too long to store."""
    for path, node in walk(root):
        if len(path) > MAX_PATH_LENGTH:
            raise TreeError(
                f"evaluator “{node.name}” is nested too deep: its name and the names above it have "
                f"{len(path)} characters, and at most {MAX_PATH_LENGTH} are allowed; shorten them or nest less"
            )


def _check_name(name: str, label: str) -> None:
    if not name.strip():
        raise TreeError(f"{label} has no name")
    if "/" in name or name.startswith("@"):
        raise TreeError(f"{label}: a name must not contain “/” or begin with “@”")


def _check_numbers(node: EvaluatorSpec, label: str) -> None:
    require_weight(node.weight, label)
    if node.required_below is not None:
        require_share(node.required_below, f"{label}: required")
    if node.pass_mark is not None:
        require_share(node.pass_mark, f"{label}: pass_mark")


def _check_children(node: EvaluatorSpec, label: str) -> None:
    if not node.children:
        raise TreeError(f"{label} is a composite without evaluators")
    names = [child.name for child in node.children]
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise TreeError(f"{label} has more than one evaluator named {quote_names(duplicates)}")


def _check_aggregator(node: EvaluatorSpec, aggregator: Aggregator, label: str) -> None:
    _check_choices(aggregator, label)
    names = [child.name for child in node.children]
    _check_known(aggregator.weights, names, f"{label}: weights")
    _check_known(aggregator.required, names, f"{label}: required")
    for name, weight in aggregator.weights.items():
        require_weight(weight, f"{label}: weights of “{name}”")
    for setting in ("gate_threshold", "threshold", "share"):
        require_share(getattr(aggregator, setting), f"{label}: {setting}")
    if aggregator.type == "safety_gate":
        _check_gate(node, aggregator, label)
    total = sum(_counted_weights(node, aggregator))
    if math.isinf(total):
        raise TreeError(f"{label}: the weights of its evaluators are too large to add up")
    if not aggregator.is_judging and total <= 0:
        raise TreeError(f"{label}: the weights of its evaluators sum to 0")


def _check_choices(aggregator: Aggregator, label: str) -> None:
    if aggregator.type not in AGGREGATOR_TYPES:
        choices = ", ".join(AGGREGATOR_TYPES)
        raise TreeError(f"{label}: aggregator {aggregator.type!r} is not one of {choices}")
    if aggregator.remainder not in REMAINDERS:
        choices = ", ".join(REMAINDERS)
        raise TreeError(f"{label}: remainder {aggregator.remainder!r} is not one of {choices}")


def _check_known(named: Iterable[str], names: Iterable[str], label: str) -> None:
    known = tuple(names)
    unknown = [name for name in named if name not in known]
    if unknown:
        raise TreeError(
            f"{label} names {quote_names(unknown)}; its evaluators are {quote_names(known)}"
        )


def _check_gate(node: EvaluatorSpec, aggregator: Aggregator, label: str) -> None:
    if not aggregator.required:
        raise TreeError(
            f"{label}: a safety gate must name the evaluators that have to pass in required"
        )
    if aggregator.remainder == "remaining" and len(set(aggregator.required)) == len(node.children):
        raise TreeError(f"{label}: remainder is “remaining”, but every evaluator is a gate")


def _counted_weights(node: EvaluatorSpec, aggregator: Aggregator) -> Iterator[float]:
    """Yield the weights of the children that count."""
    for child in node.children:
        if not aggregator.is_gate_alone(child.name):
            yield node.child_weight(child)

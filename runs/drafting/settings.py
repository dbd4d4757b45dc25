"""Operations on what evaluators are and count: names, weights, marks, aggregators and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.kinds import read_config
from evaluators.kinds.composite import ALWAYS, OPTIONS
from evaluators.scoring.numbers import share_of
from evaluators.scoring.tree import AGGREGATOR_TYPES, COMPOSITE
from evaluators.scoring.types import ScoreOutOfRangeError
from runs.drafting.combining import follow, guard, options_of, weigh
from runs.drafting.editing import ChangeRefusedError, Editing, name_for
from runs.drafting.placing import composite_at

# Weights count by their ratio; much larger ones could not be added up, nor read.
LARGEST_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class Rename:
    """Call an evaluator otherwise; what its composite says of it follows."""

    node: str
    name: str

    def apply(self, editing: Editing) -> None:
        """Rename it; raises ChangeRefusedError for a name that is none, or that a sibling has."""
        place = editing.place(self.node)
        old, new = place.node["name"], name_for(self.name, place.name)
        if place.parent is not None and new != old:
            if new in {child["name"] for child in place.siblings}:
                raise ChangeRefusedError(
                    f"{place.name} cannot be called “{new}”: another evaluator beside it is. "
                    "Choose another name."
                )
            follow(place.parent.node, old, new)
        place.node["name"] = new


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Set the weight in force: the aggregator's where that names the evaluator, else its own (SCORING §3)."""

    node: str
    weight: float

    def apply(self, editing: Editing) -> None:
        """Set it; raises ScoreOutOfRangeError for what is no number of 0 or more."""
        place = editing.place(self.node)
        if not (is_number(self.weight) and self.weight >= 0):
            raise ScoreOutOfRangeError(
                f"{place.name}: the weight {self.weight!r} is not a number of 0 or more."
            )
        if self.weight > LARGEST_WEIGHT:
            raise ScoreOutOfRangeError(
                f"{place.name}: the weight {self.weight:g} is above {LARGEST_WEIGHT:g}, which is the most. "
                "Only its ratio to the other weights counts."
            )
        if place.parent is None:
            place.node["weight"] = float(self.weight)
        else:
            weigh(place.parent.node, place.node, float(self.weight))


@dataclass(frozen=True, slots=True)
class Require:
    """Let an evaluator force a fail (SCORING §4.2): at score 0, below a number of 0 to 1, or never."""

    node: str
    required: bool | float

    def apply(self, editing: Editing) -> None:
        """Set it; raises ScoreOutOfRangeError outside 0 to 1."""
        place = editing.place(self.node)
        if isinstance(self.required, bool):
            place.node |= {"required": self.required, "required_below": None}
            return
        if not is_number(self.required):
            raise ScoreOutOfRangeError(
                f"{place.name}: required {self.required!r} is not a number from 0 to 1"
            )
        below = share_of(float(self.required), f"{place.name}: required")
        place.node |= {"required": False, "required_below": below}


@dataclass(frozen=True, slots=True)
class Negate:
    """Turn the evaluator's score s into 1 − s, or leave it."""

    node: str
    negate: bool

    def apply(self, editing: Editing) -> None:
        """Set it."""
        editing.place(self.node).node["negate"] = bool(self.negate)


@dataclass(frozen=True, slots=True)
class Guard:
    """Make an evaluator a gate of the safety gate it stands in, or no longer (SCORING §3)."""

    node: str
    gate: bool

    def apply(self, editing: Editing) -> None:
        """Set it; raises ChangeRefusedError outside a safety gate."""
        place = editing.place(self.node)
        if place.parent is None or options_of(place.parent.node).get("type") != "safety_gate":
            raise ChangeRefusedError(
                f"{place.name} does not stand in a safety gate. Let its composite combine by one first."
            )
        guard(place.parent.node, place.node, gate=self.gate)


@dataclass(frozen=True, slots=True)
class Combine:
    """Choose how a composite makes one score of many, and the options of that rule.

    An option that is not given stays as it is where the rule has it; those of other rules are dropped.
    `required` of a safety gate names children; weights are set with the children.
    """

    node: str
    type: str
    options: Mapping[str, Any] | None = None

    def apply(self, editing: Editing) -> None:
        """Choose it; raises ChangeRefusedError or InvalidConfigError naming the option."""
        place = composite_at(editing, self.node)
        if self.type not in AGGREGATOR_TYPES:
            raise ChangeRefusedError(
                f"{place.name}: {self.type!r} is none of {', '.join(AGGREGATOR_TYPES)}."
            )
        takes = ALWAYS | OPTIONS.get(self.type, set())
        given = {name: value for name, value in (self.options or {}).items() if value is not None}
        if foreign := sorted(given.keys() - takes):
            raise ChangeRefusedError(f"{place.name}: {self.type} takes no {', '.join(foreign)}.")
        before = {name: value for name, value in options_of(place.node).items() if name in takes}
        options = {**before, **given, "type": self.type}
        evaluator = place.path or place.node["name"]
        settings = read_config(COMPOSITE, {"aggregator": options}, evaluator=evaluator)
        found = settings.model_dump(mode="json", exclude_defaults=True).get("aggregator", {})
        place.node["config"] = {**place.node["config"], "aggregator": {"type": self.type, **found}}


@dataclass(frozen=True, slots=True)
class Configure:
    """Give an evaluator other settings of its kind, all of them."""

    node: str
    config: Mapping[str, Any]

    def apply(self, editing: Editing) -> None:
        """Set them; raises InvalidConfigError naming each setting, or ChangeRefusedError for a composite."""
        place = editing.place(self.node)
        if place.is_composite:
            raise ChangeRefusedError(
                f"{place.name} is a composite: its settings are how it combines what it holds."
            )
        settings = read_config(place.node["kind"], self.config, evaluator=place.path)
        place.node["config"] = settings.model_dump(mode="json")


def is_number(value: Any) -> bool:
    """Tell a finite number from everything else; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

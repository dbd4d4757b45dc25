"""The fields that one evaluator has in the form of the whole tree, and what a changed one asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import QueryDict

from evaluators.scoring.tree import COMPOSITE, REMAINDERS, Aggregator
from runs.drafting import Combine, Negate, Operation, Require, SetWeight
from runs.drafting.combining import weight_in_force
from runs.forms.tree_numbers import (
    PERCENT,
    WrongNumberError,
    read_share,
    read_weight,
    spelt,
    spelt_share,
)

NAMES_SCRIPT = "code_judge"
# Options of rules that are shares of 0 to 1, with the rule; `share` is taken in percent.
SHARES = {
    "gate_threshold": "safety_gate",
    "threshold": "all_or_nothing",
    "share": "threshold",
}


@dataclass(slots=True)
class RowFields:
    """What the fields of one evaluator hold, as text; a name of a field is `<id>.<field>`.

    `gates` are ids of children. `errors` say by field what is refused; "" is the evaluator itself.
    """

    id: str
    weight: str = ""
    required: bool = False
    below: str = ""
    negate: bool = False
    type: str = ""
    gates: frozenset[str] = frozenset()
    gate_threshold: str = ""
    remainder: str = ""
    threshold: str = ""
    share: str = ""
    errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """An evaluator of the draft with the fields it has there and those that were sent."""

    node: Mapping[str, Any]
    stored: RowFields
    sent: RowFields
    scale: int

    def operations(self) -> Iterator[Operation]:
        """Yield what was asked for; what is refused is put to the errors of its field instead."""
        yield from self._weight()
        yield from self._required()
        if self.sent.negate != self.stored.negate:
            yield Negate(self.sent.id, self.sent.negate)
        if self.node["kind"] == COMPOSITE:
            yield from self._combining()

    def _weight(self) -> Iterator[Operation]:
        if self.sent.weight.strip() != self.stored.weight:
            try:
                yield SetWeight(self.sent.id, read_weight(self.sent.weight))
            except WrongNumberError as refusal:
                self.sent.errors["weight"] = str(refusal)

    def _required(self) -> Iterator[Operation]:
        below = self.sent.below.strip()
        if (self.sent.required, below) == (self.stored.required, self.stored.below):
            return
        if not self.sent.required:
            if self.stored.required:
                yield Require(self.sent.id, required=False)
        elif not below:
            yield Require(self.sent.id, required=True)
        else:
            try:
                yield Require(self.sent.id, read_share(below, self.scale))
            except WrongNumberError as refusal:
                self.sent.errors["below"] = str(refusal)

    def _combining(self) -> Iterator[Operation]:
        rule = self.sent.type
        try:
            options = self._options(rule)
        except WrongNumberError:
            return
        is_new = rule != self.stored.type
        if is_new and rule == NAMES_SCRIPT:
            self.sent.errors["type"] = (
                "Name the script first: open this evaluator and choose it there."
            )
        elif is_new or options:
            yield Combine(self.sent.id, rule, options)

    def _options(self, rule: str) -> dict[str, Any]:
        """Return the options of the rule that differ; raises WrongNumberError, kept with its field."""
        is_new = rule != self.stored.type
        found: dict[str, Any] = {}
        for name, owner in SHARES.items():
            text = getattr(self.sent, name).strip()
            if rule == owner and (is_new or text != getattr(self.stored, name)):
                found[name] = self._share(name, text)
        if rule == "safety_gate":
            if is_new or self.sent.remainder != self.stored.remainder:
                found["remainder"] = self.sent.remainder
            if is_new or self.sent.gates != self.stored.gates:
                found["required"] = self._gates()
        return found

    def _share(self, name: str, text: str) -> float:
        try:
            return read_share(text, PERCENT if name == "share" else self.scale)
        except WrongNumberError as refusal:
            self.sent.errors[name] = str(refusal)
            raise

    def _gates(self) -> list[str]:
        names = [one["name"] for one in self.node["children"] if one["id"] in self.sent.gates]
        if not names:
            self.sent.errors["gates"] = "Choose at least one that has to pass first."
        elif len(names) == len(self.node["children"]) and self.sent.remainder == "remaining":
            self.sent.errors["gates"] = "Leave at least one that is no gate, or let all count."
        else:
            return names
        raise WrongNumberError(self.sent.errors["gates"])


def stored_fields(node: Mapping[str, Any], parent: dict[str, Any] | None, scale: int) -> RowFields:
    """Return the fields of an evaluator as the draft has it."""
    below = node["required_below"]
    found = RowFields(
        id=node["id"],
        weight="" if parent is None else spelt(weight_in_force(parent, dict(node))),
        required=bool(node["required"] or below is not None),
        below="" if below is None else spelt_share(below, scale),
        negate=node["negate"],
    )
    if node["kind"] != COMPOSITE:
        return found
    rule = Aggregator.from_json(node["config"].get("aggregator") or {})
    children = node["children"]
    return replace(
        found,
        type=rule.type,
        gates=frozenset(one["id"] for one in children if one["name"] in rule.required),
        gate_threshold=spelt_share(rule.gate_threshold, scale),
        remainder=rule.remainder,
        threshold=spelt_share(rule.threshold, scale),
        share=spelt_share(rule.share, PERCENT),
    )


def sent_fields(stored: RowFields, data: QueryDict) -> RowFields:
    """Return the fields as they were sent; those of an evaluator that was not in the form as they are."""
    key = stored.id
    texts = ("weight", "below", "type", "gate_threshold", "threshold", "share")
    found = replace(
        stored,
        errors={},
        **{name: data.get(f"{key}.{name}", getattr(stored, name)) for name in texts},
    )
    if f"{key}.below" in data:
        found.required = f"{key}.required" in data
        found.negate = f"{key}.negate" in data
    if f"{key}.gate_threshold" in data:
        remainder = data.get(f"{key}.remainder", "")
        found.remainder = remainder if remainder in REMAINDERS else stored.remainder
        found.gates = frozenset(data.getlist(f"{key}.gates"))
    return found

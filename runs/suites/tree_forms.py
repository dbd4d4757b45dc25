"""The form of a draft's whole evaluator tree, with the suite's thresholds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import QueryDict

from evaluators.scoring.tree import COMPOSITE, REMAINDERS, Aggregator
from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.suites import SuiteDraft
from runs.suites.drafts import DraftChangedError, change_draft, tree_warnings
from runs.suites.edits import (
    MAX_PERCENT,
    WAYS,
    ChangeRefusedError,
    Combine,
    Content,
    Duplicate,
    Group,
    Move,
    Negate,
    Operation,
    Remove,
    Require,
    SetPolicy,
    SetWeight,
    Shift,
    apply,
    change,
    nodes_with_paths,
    weight_in_force,
)
from runs.suites.numbers import (
    WrongNumberError,
    number_text,
    read_percent,
    read_share,
    read_weight,
    share_text,
)

PERCENT = 100
BANDS_CROSSED = "Borderline begins above pass. Lower it."
NAMES_SCRIPT = "code_judge"
# Options that are shares of 0 to 1, with their rule; the form shows `share` in percent.
SHARES = {
    "gate_threshold": "safety_gate",
    "threshold": "all_or_nothing",
    "share": "threshold",
}


@dataclass(slots=True)
class RowFields:
    """The fields of one evaluator, as text; a field is named `<id>.<field>`.

    `gates` are ids of children. `errors` are messages by field; "" is the evaluator itself.
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
class TreeRow:
    """An evaluator of the draft with its stored fields and those that were sent."""

    node: Mapping[str, Any]
    stored: RowFields
    sent: RowFields
    scale: int

    def operations(self) -> Iterator[Operation]:
        """Yield the requested changes; a refused value becomes an error of its field instead."""
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
                "Choose the script first: open this evaluator and name it there."
            )
        elif is_new or options:
            yield Combine(self.sent.id, rule, options)

    def _options(self, rule: str) -> dict[str, Any]:
        """Return the options of the rule that differ; raises WrongNumberError after noting it at its field."""
        is_new = rule != self.stored.type
        options: dict[str, Any] = {}
        for name, owner in SHARES.items():
            text = getattr(self.sent, name).strip()
            if rule == owner and (is_new or text != getattr(self.stored, name)):
                options[name] = self._share(name, text)
        if rule == "safety_gate":
            if is_new or self.sent.remainder != self.stored.remainder:
                options["remainder"] = self.sent.remainder
            if is_new or self.sent.gates != self.stored.gates:
                options["required"] = self._gates()
        return options

    def _share(self, name: str, text: str) -> float:
        try:
            return read_share(text, PERCENT if name == "share" else self.scale)
        except WrongNumberError as refusal:
            self.sent.errors[name] = str(refusal)
            raise

    def _gates(self) -> list[str]:
        names = [child["name"] for child in self.node["children"] if child["id"] in self.sent.gates]
        if not names:
            self.sent.errors["gates"] = "Choose at least one gate."
        elif len(names) == len(self.node["children"]) and self.sent.remainder == "remaining":
            self.sent.errors["gates"] = "Leave at least one that is not a gate, or let all count."
        else:
            return names
        raise WrongNumberError(self.sent.errors["gates"])


def stored_fields(node: Mapping[str, Any], parent: dict[str, Any] | None, scale: int) -> RowFields:
    """Return the fields of an evaluator as stored in the draft."""
    below = node["required_below"]
    fields = RowFields(
        id=node["id"],
        weight="" if parent is None else number_text(weight_in_force(parent, dict(node))),
        required=bool(node["required"] or below is not None),
        below="" if below is None else share_text(below, scale),
        negate=node["negate"],
    )
    if node["kind"] != COMPOSITE:
        return fields
    rule = Aggregator.model_validate(node["config"].get("aggregator") or {})
    children = node["children"]
    return replace(
        fields,
        type=rule.type,
        gates=frozenset(child["id"] for child in children if child["name"] in rule.required),
        gate_threshold=share_text(rule.gate_threshold, scale),
        remainder=rule.remainder,
        threshold=share_text(rule.threshold, scale),
        share=share_text(rule.share, PERCENT),
    )


def sent_fields(stored: RowFields, data: QueryDict) -> RowFields:
    """Return the fields as they were sent; an evaluator that was not in the form keeps its stored fields."""
    key = stored.id
    texts = ("weight", "below", "type", "gate_threshold", "threshold", "share")
    fields = replace(
        stored,
        errors={},
        **{name: data.get(f"{key}.{name}", getattr(stored, name)) for name in texts},
    )
    if f"{key}.below" in data:
        fields.required = f"{key}.required" in data
        fields.negate = f"{key}.negate" in data
    if f"{key}.gate_threshold" in data:
        remainder = data.get(f"{key}.remainder", "")
        fields.remainder = remainder if remainder in REMAINDERS else stored.remainder
        fields.gates = frozenset(data.getlist(f"{key}.gates"))
    return fields


BANDS = ("borderline_threshold", "pass_threshold")
IN_PERCENT = (
    "metrics_pass_threshold",
    "cases_pass_threshold",
    "max_pass_rate_drop",
    "max_avg_score_drop",
)
GROWTH = "max_latency_increase_pct"
# Label and help of each.
THRESHOLDS = {
    "borderline_threshold": ("Borderline from", "Lower scores fail"),
    "pass_threshold": ("Pass from", ""),
    "metrics_pass_threshold": ("Mean score, at least", "Percent, over all scored results"),
    "cases_pass_threshold": (
        "Pass rate, at least",
        "Percent of results. Errors count as not passed",
    ),
    "max_pass_rate_drop": ("Largest drop in pass rate", "Points"),
    "max_avg_score_drop": ("Largest drop in mean score", "Points"),
    GROWTH: ("Largest rise in mean latency", "Percent"),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold: the text of its field, the base version's value, its range and its error."""

    name: str
    label: str
    help: str
    text: str
    saved: str
    most: int
    step: str
    error: str = ""

    @property
    def largest(self) -> float:
        """Return the largest number the field accepts; its slider may end earlier."""
        return MAX_PERCENT if self.name == GROWTH else self.most


@dataclass(slots=True)
class PolicyFields:
    """All thresholds of the page, from a draft's policy and the form data."""

    policy: Mapping[str, Any]
    base: Mapping[str, Any]
    data: QueryDict | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> int:
        """Return the scale on which the suite's scores are shown."""
        return int(self.policy["scale"])

    def changes(self) -> dict[str, Any]:
        """Return the changed fields of the policy; refused values are in `errors`."""
        changes = {}
        for name in (*BANDS, *IN_PERCENT, GROWTH):
            text = self._text(name).strip()
            if text == self._stored_text(name, self.policy):
                continue
            try:
                changes[name] = self._read(name, text)
            except WrongNumberError as refusal:
                self.errors[name] = str(refusal)
        bands = {name: changes.get(name, self.policy[name]) for name in BANDS}
        if not self.errors and bands["borderline_threshold"] > bands["pass_threshold"]:
            self.errors["borderline_threshold"] = BANDS_CROSSED
        return changes

    def shown(self) -> dict[str, Threshold]:
        """Return every threshold by name."""
        return {
            name: Threshold(
                name=name,
                label=label,
                help=help_text,
                text=self._text(name),
                saved=self._stored_text(name, self.base),
                most=self._most(name),
                step=number_text(self._most(name) / 100),
                error=self.errors.get(name, ""),
            )
            for name, (label, help_text) in THRESHOLDS.items()
        }

    def _text(self, name: str) -> str:
        kept = self._stored_text(name, self.policy)
        return kept if self.data is None else self.data.get(name, kept)

    def _most(self, name: str) -> int:
        return self.scale if name in BANDS else PERCENT

    def _stored_text(self, name: str, policy: Mapping[str, Any]) -> str:
        if name == GROWTH:
            return number_text(policy[name])
        return share_text(policy[name], self._most(name))

    def _read(self, name: str, text: str) -> float:
        if name == GROWTH:
            return read_percent(text, MAX_PERCENT)
        return read_share(text, self._most(name))


GOING = ("edit", "add", "try")
SAVE = "save"
# An evaluator's id, as addresses contain it.
NODE = re.compile(r"n\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TreeAction:
    """One action on an evaluator; `word` is edit, add or try for another page, and save for the whole draft."""

    node: str
    word: str
    operation: Operation | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Return the operations that change the draft."""
        return () if self.operation is None else (self.operation,)

    def message(self, before: Content, after: Content) -> str:
        """Return a message that says what was done, with the evaluator's name and place."""
        name = next(
            (
                node["name"]
                for _, node in nodes_with_paths(before["evaluators"])
                if node["id"] == self.node
            ),
            "",
        )
        if self.word == "remove":
            return f"{name} is removed from the draft."
        place = _place(after, self.node)
        if self.word == "duplicate":
            return f"{name} is duplicated. The copy is right after it."
        if self.word == "group":
            return f"{name} is now inside the new composite {place[2]}."
        position, count, parent = place
        return f"{name} is now {position} of {count} in {parent}."


def read_action(text: str) -> TreeAction | None:
    """Return the action of a button, None without one; raises ChangeRefusedError for an unknown one."""
    node, _, rest = text.strip().partition(" ")
    word, *more = rest.split() or [""]
    if not text.strip():
        return None
    if node == SAVE:
        return TreeAction("", SAVE)
    if word in GOING and NODE.fullmatch(node):
        return TreeAction(node, word)
    if word in WAYS:
        return TreeAction(node, word, Shift(node, word))
    if word in ("duplicate", "group", "remove"):
        operations: dict[str, Operation] = {
            "duplicate": Duplicate(node),
            "group": Group(node),
            "remove": Remove(node),
        }
        return TreeAction(node, word, operations[word])
    if word == "move" and len(more) == len(("parent", "position")):
        position = read_integer(more[1])
        if position is not None:
            return TreeAction(node, word, Move(node, more[0], position))
    raise ChangeRefusedError("That button's action is unknown. Open the page again.")


def _place(content: Content, node_id: str) -> tuple[int, int, str]:
    for _, node in nodes_with_paths(content["evaluators"]):
        ids = [child["id"] for child in node["children"]]
        if node_id in ids:
            return ids.index(node_id) + 1, len(ids), str(node["name"])
    return 0, 0, ""


class EvaluatorTreeForm:
    """The form of a page of the tree: `<id>.<field>` for every evaluator, and the thresholds by name.

    What is not sent stays as it is in the draft. `is_stale` is set when the draft has changed since the
    form was made; the entered values are kept in the form then, too.
    """

    def __init__(
        self, draft: SuiteDraft, base: Mapping[str, Any], data: QueryDict | None = None
    ) -> None:
        """Take a draft, the policy of its base version, and the form data."""
        self.draft = draft
        self.data = data
        content = draft.content
        self.thresholds = PolicyFields(content["policy"], base, data)
        self.rows = {row.stored.id: row for row in _rows(content, data)}
        self.refusals: list[str] = []
        self.is_stale = False

    @property
    def is_bound(self) -> bool:
        """Tell whether the form was sent."""
        return self.data is not None

    @property
    def fields(self) -> Mapping[str, RowFields]:
        """Return the fields of every evaluator by id."""
        return {key: row.sent for key, row in self.rows.items()}

    @property
    def refused(self) -> int:
        """Return how many fields have errors."""
        return sum(len(fields.errors) for fields in self.fields.values()) + len(
            self.thresholds.errors
        )

    def operations(self) -> list[Operation]:
        """Return the changes made in the form; refused values become errors of their fields."""
        operations = [operation for row in self.rows.values() for operation in row.operations()]
        policy = self.thresholds.changes()
        return [*operations, SetPolicy(policy)] if policy else operations

    def content(self) -> Content | None:
        """Return the draft's content with the form's changes, without storing it; None when refused."""
        operations = self.operations()
        if self.refused:
            return None
        try:
            return change(self.draft.content, *operations)
        except DomainError as refusal:
            self._refuse(refusal, operations)
            return None

    def keep(self, *actions: Operation) -> SuiteDraft | None:
        """Save the form and further actions in the draft; None, with the reasons, when refused."""
        operations = self.operations()
        stamp = "" if self.data is None else self.data.get("stamp", "")
        if self.refused:
            # Fields may be refused only because the form was made for another draft, so that is shown first.
            self.is_stale = stamp != self.draft.stamp
            return None
        try:
            return change_draft(self.draft, stamp, *operations, *actions)
        except DraftChangedError:
            self.is_stale = True
        except DomainError as refusal:
            self._refuse(refusal, operations)
        return None

    def _refuse(self, refusal: DomainError, operations: list[Operation]) -> None:
        """Show a refusal at the composite it is about, where that is known."""
        if not self._place_zero_sums(operations):
            self.refusals.append(str(refusal))

    def _place_zero_sums(self, operations: list[Operation]) -> bool:
        try:
            content = apply(self.draft.content, *operations)
        except DomainError:
            return False
        ids = {path: node["id"] for path, node in nodes_with_paths(content["evaluators"])}
        warnings = [warning for warning in tree_warnings(content) if warning.code == "zero_sum"]
        for warning in warnings:
            if ids[warning.path] in self.rows:
                self.rows[ids[warning.path]].sent.errors[""] = warning.text
        return bool(warnings)


def _rows(content: Content, data: QueryDict | None) -> Iterator[TreeRow]:
    scale = int(content["policy"]["scale"])

    def walk_tree(node: dict[str, Any], parent: dict[str, Any] | None) -> Iterator[TreeRow]:
        stored = stored_fields(node, parent, scale)
        yield TreeRow(node, stored, stored if data is None else sent_fields(stored, data), scale)
        for child in node["children"]:
            yield from walk_tree(child, node)

    yield from walk_tree(content["evaluators"], None)

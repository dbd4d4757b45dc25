"""The form of a suite's whole evaluator tree with its thresholds, in a draft."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from django.http import QueryDict

from evaluators.scoring.tree import COMPOSITE, REMAINDERS, Aggregator
from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.suites import SuiteDraft
from runs.suites.drafts import DraftChangedError, change_draft, remarks
from runs.suites.edits import (
    MAX_PERCENT,
    MAX_WEIGHT,
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
    applied,
    change,
    nodes_with_paths,
    weight_in_force,
)

MAX_NUMBER_LENGTH = 40
PERCENT = 100
BANDS_CROSSED = "Borderline begins above pass. Lower it."


class WrongNumberError(ValueError):
    """What was written is not a number of the range; the message says what to write."""


def spelt(number: float | Decimal) -> str:
    """Return a number with no more digits than it has, as a field of a form holds it."""
    text = f"{Decimal(str(number)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spelt_share(share: float, scale: int) -> str:
    """Return a share of 0 to 1 on a scale, as a field of a form holds it."""
    return spelt(Decimal(str(share)) * scale)


def read_share(text: str, scale: int) -> float:
    """Return a number of 0 to the scale as a share of 0 to 1; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= scale:
        raise WrongNumberError(f"Write a number from 0 to {scale}.")
    return float(number / scale)


def read_weight(text: str) -> float:
    """Return a weight; raises WrongNumberError for what is negative, no number, or too large (SCORING §1)."""
    number = _number(text)
    if number is None or number < 0:
        raise WrongNumberError("Write a number of 0 or more.")
    if number > MAX_WEIGHT:
        raise WrongNumberError(f"Write at most {MAX_WEIGHT:,}; only the ratio of weights counts.")
    return float(number)


def read_percent(text: str, most: int) -> float:
    """Return a number of 0 to the most as it is; raises WrongNumberError."""
    number = _number(text)
    if number is None or not 0 <= number <= most:
        raise WrongNumberError(f"Write a number from 0 to {most:,}.")
    return float(number)


def _number(text: str) -> Decimal | None:
    """Return what a text says, None where that is no finite number."""
    try:
        found = Decimal(text.strip()) if len(text) <= MAX_NUMBER_LENGTH else None
    except InvalidOperation:
        return None
    return found if found is not None and found.is_finite() else None


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
class TreeRow:
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
    rule = Aggregator.model_validate(node["config"].get("aggregator") or {})
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
    "borderline_threshold": ("Borderline from", "Below is a fail"),
    "pass_threshold": ("Pass from", ""),
    "metrics_pass_threshold": (
        "Metrics, at least",
        "Mean score of all executions that have one, in percent",
    ),
    "cases_pass_threshold": (
        "Cases, at least",
        "Executions that pass, in percent. Errors count as not passed",
    ),
    "max_pass_rate_drop": ("Pass rate may drop by", "Points of 100"),
    "max_avg_score_drop": ("Mean score may drop by", "Points of 100"),
    GROWTH: ("Mean latency may grow by", "Percent"),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold: what its field holds, what the base version has, and what is refused."""

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
        """Return the most its field takes; its slider ends at what is usual."""
        return MAX_PERCENT if self.name == GROWTH else self.most


@dataclass(slots=True)
class PolicyFields:
    """All thresholds of the page, of a draft's policy and of what was sent."""

    policy: Mapping[str, Any]
    base: Mapping[str, Any]
    data: QueryDict | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> int:
        """Return what the suite's scores are shown on."""
        return int(self.policy["scale"])

    def changes(self) -> dict[str, Any]:
        """Return the fields of the policy that were sent otherwise; what is refused is in `errors`."""
        found = {}
        for name in (*BANDS, *IN_PERCENT, GROWTH):
            text = self._text(name).strip()
            if text == self._spelt(name, self.policy):
                continue
            try:
                found[name] = self._read(name, text)
            except WrongNumberError as refusal:
                self.errors[name] = str(refusal)
        bands = {name: found.get(name, self.policy[name]) for name in BANDS}
        if not self.errors and bands["borderline_threshold"] > bands["pass_threshold"]:
            self.errors["borderline_threshold"] = BANDS_CROSSED
        return found

    def shown(self) -> dict[str, Threshold]:
        """Return every threshold by name."""
        return {
            name: Threshold(
                name=name,
                label=label,
                help=help_text,
                text=self._text(name),
                saved=self._spelt(name, self.base),
                most=self._most(name),
                step=spelt(self._most(name) / 100),
                error=self.errors.get(name, ""),
            )
            for name, (label, help_text) in THRESHOLDS.items()
        }

    def _text(self, name: str) -> str:
        kept = self._spelt(name, self.policy)
        return kept if self.data is None else self.data.get(name, kept)

    def _most(self, name: str) -> int:
        return self.scale if name in BANDS else PERCENT

    def _spelt(self, name: str, policy: Mapping[str, Any]) -> str:
        if name == GROWTH:
            return spelt(policy[name])
        return spelt_share(policy[name], self._most(name))

    def _read(self, name: str, text: str) -> float:
        if name == GROWTH:
            return read_percent(text, MAX_PERCENT)
        return read_share(text, self._most(name))


GOING = ("edit", "add", "try")
SAVE = "save"
# What stands in addresses.
NODE = re.compile(r"n\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TreeAction:
    """One thing to do with an evaluator; `word` is edit, add or try where another page is meant, save for the whole draft."""

    node: str
    word: str
    operation: Operation | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Return what changes the draft."""
        return () if self.operation is None else (self.operation,)

    def said(self, before: Content, after: Content) -> str:
        """Say what was done, by the evaluator's name and place."""
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
            return f"{name} has a copy after it."
        if self.word == "group":
            return f"{name} stands in a composite of its own now, {place[2]}."
        position, count, parent = place
        return f"{name} is {position} of {count} in {parent} now."


def read_action(text: str) -> TreeAction | None:
    """Return what a button asks for, None without one; raises ChangeRefusedError for what is none."""
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
        made: dict[str, Operation] = {
            "duplicate": Duplicate(node),
            "group": Group(node),
            "remove": Remove(node),
        }
        return TreeAction(node, word, made[word])
    if word == "move" and len(more) == len(("parent", "position")):
        position = read_integer(more[1])
        if position is not None:
            return TreeAction(node, word, Move(node, more[0], position))
    raise ChangeRefusedError("What that button asks for is not known here. Open the page again.")


def _place(content: Content, node_id: str) -> tuple[int, int, str]:
    for _, node in nodes_with_paths(content["evaluators"]):
        ids = [child["id"] for child in node["children"]]
        if node_id in ids:
            return ids.index(node_id) + 1, len(ids), str(node["name"])
    return 0, 0, ""


class EvaluatorTreeForm:
    """What a page of the tree sends: `<id>.<field>` of every evaluator and the names of thresholds.

    What is not sent stays as the draft has it. `is_stale` once the draft turned out to be another than
    the one the form was made for; what was entered is kept then, too.
    """

    def __init__(
        self, draft: SuiteDraft, base: Mapping[str, Any], data: QueryDict | None = None
    ) -> None:
        """Hold a draft, the policy of the version it is based on, and what was sent."""
        self.draft = draft
        self.data = data
        content = draft.content
        self.thresholds = PolicyFields(content["policy"], base, data)
        self.rows = {row.stored.id: row for row in _rows(content, data)}
        self.refusals: list[str] = []
        self.is_stale = False

    @property
    def is_bound(self) -> bool:
        """Tell whether something was sent."""
        return self.data is not None

    @property
    def fields(self) -> Mapping[str, RowFields]:
        """Return by id what the fields of every evaluator hold."""
        return {key: row.sent for key, row in self.rows.items()}

    @property
    def refused(self) -> int:
        """Return how many fields are refused."""
        return sum(len(one.errors) for one in self.fields.values()) + len(self.thresholds.errors)

    def operations(self) -> list[Operation]:
        """Return what was changed in the form; what is refused stands at its field afterwards."""
        found = [one for row in self.rows.values() for one in row.operations()]
        policy = self.thresholds.changes()
        return [*found, SetPolicy(policy)] if policy else found

    def content(self) -> Content | None:
        """Return the draft's content as the form would make it, nothing stored; None when refused."""
        operations = self.operations()
        if self.refused:
            return None
        try:
            return change(self.draft.content, *operations)
        except DomainError as refusal:
            self._refuse(refusal, operations)
            return None

    def keep(self, *actions: Operation) -> SuiteDraft | None:
        """Keep the form, and what is to be done besides, in the draft; None, with the reasons, when refused."""
        operations = self.operations()
        stamp = "" if self.data is None else self.data.get("stamp", "")
        if self.refused:
            # A form of another draft is told so first: its fields may be refused for that alone.
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
        """Put a refusal of the whole to the composite it is about, where that can be told."""
        if not self._place_zero_sums(operations):
            self.refusals.append(str(refusal))

    def _place_zero_sums(self, operations: list[Operation]) -> bool:
        try:
            content = applied(self.draft.content, *operations)
        except DomainError:
            return False
        ids = {path: node["id"] for path, node in nodes_with_paths(content["evaluators"])}
        found = [one for one in remarks(content) if one.code == "zero_sum"]
        for one in found:
            if ids[one.path] in self.rows:
                self.rows[ids[one.path]].sent.errors[""] = one.text
        return bool(found)


def _rows(content: Content, data: QueryDict | None) -> Iterator[TreeRow]:
    scale = int(content["policy"]["scale"])

    def look(node: dict[str, Any], parent: dict[str, Any] | None) -> Iterator[TreeRow]:
        stored = stored_fields(node, parent, scale)
        yield TreeRow(node, stored, stored if data is None else sent_fields(stored, data), scale)
        for child in node["children"]:
            yield from look(child, node)

    yield from look(content["evaluators"], None)

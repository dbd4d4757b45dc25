"""Edit a draft's content: apply operations and return new content, never a tree that cannot be scored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from evaluators.kinds import get_kind, read_config
from evaluators.kinds._refusals import InvalidConfigError
from evaluators.kinds.composite import ALWAYS, OPTIONS
from evaluators.scoring.numbers import require_share
from evaluators.scoring.policy import CHOICES, FLAGS, PolicySpec
from evaluators.scoring.tree import (
    AGGREGATOR_TYPES,
    COMPOSITE,
    MAX_EVALUATORS,
    ROOT_PATH,
    below,
    validate,
)
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError
from runs.specs.suites import LISTS, MAX_MINUTES, MAX_SUITE_TAG_LENGTH, SuiteSpec

# A draft: a SuiteSpec in JSON whose evaluators have an id and the path they came from.
Content = Mapping[str, Any]


def begin_draft(spec: SuiteSpec) -> dict[str, Any]:
    """Return an unchanged draft of a suite; ids follow the order of the tree."""
    content = spec.plain().as_json()
    count = 0
    for path, node in nodes_with_paths(content["evaluators"]):
        count += 1
        node |= {"id": f"n{count}", "origin": path}
    return {**content, "last_id": count}


def nodes_with_paths(
    node: dict[str, Any], path: str = ROOT_PATH
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the nodes of a tree in JSON with their paths, in tree order."""
    yield path, node
    for child in node["children"]:
        yield from nodes_with_paths(child, below(path, child["name"]))


def origins(content: Content) -> dict[str, str | None]:
    """Return each evaluator's path in the base version, by its path in the draft."""
    return {path: node["origin"] for path, node in nodes_with_paths(content["evaluators"])}


MAX_NAME_LENGTH = 100
MAX_DEPTH = 40
# A NUL in JSON: an escape whose backslash is not itself escaped.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class ChangeRefusedError(DomainError):
    """A draft cannot be changed like this; the message names the evaluator and a remedy."""

    code = "change_refused"


class UnknownEvaluatorError(ChangeRefusedError):
    """A change names an evaluator that is not in the draft."""

    code = "unknown_evaluator"


@dataclass(slots=True)
class TreePosition:
    """An evaluator in the edited tree: the node, its parent, and its place among the siblings."""

    node: dict[str, Any]
    path: str
    parent: TreePosition | None = None
    position: int = 0

    @property
    def name(self) -> str:
        """Return the name in quotes, for messages."""
        return "the suite's outermost composite" if self.parent is None else quoted_name(self.node)

    @property
    def siblings(self) -> list[dict[str, Any]]:
        """Return the children of its parent, itself included."""
        return self.parent.node["children"] if self.parent else [self.node]

    @property
    def is_composite(self) -> bool:
        """Tell whether it can hold evaluators."""
        return bool(self.node["kind"] == COMPOSITE)


@dataclass(slots=True)
class Editing:
    """The content that operations change in place."""

    content: dict[str, Any]
    places: dict[str, TreePosition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Locate every evaluator."""
        self.locate()

    def locate(self) -> None:
        """Locate every evaluator again, after the tree was rearranged."""
        self.places = {}
        self._locate(TreePosition(self.content["evaluators"], ROOT_PATH))

    def _locate(self, place: TreePosition) -> None:
        self.places[place.node["id"]] = place
        for position, child in enumerate(place.node["children"]):
            self._locate(TreePosition(child, below(place.path, child["name"]), place, position))

    def place(self, node_id: str) -> TreePosition:
        """Return where an evaluator is; raises UnknownEvaluatorError."""
        if node_id not in self.places:
            raise UnknownEvaluatorError(
                "That evaluator is no longer in your draft. Open the page again to see what is."
            )
        return self.places[node_id]

    def new_id(self) -> str:
        """Return an id that no evaluator of this draft had before."""
        self.content["last_id"] += 1
        return f"n{self.content['last_id']}"


class Operation(Protocol):
    """One change; it edits the content in place, or refuses with a message."""

    def apply(self, editing: Editing) -> None:
        """Make the change; raises DomainError naming the evaluator and a remedy."""
        ...


def change(content: Content, *operations: Operation) -> dict[str, Any]:
    """Return the content after the operations, which are checked together: all of them or none.

    So one form may lower one weight to 0 and raise another. Raises ChangeRefusedError, TreeError,
    ScoreOutOfRangeError, UnknownPolicyError or InvalidConfigError; the given content is not changed.
    """
    changed = apply(content, *operations)
    check(changed)
    return changed


def apply(content: Content, *operations: Operation) -> dict[str, Any]:
    """Return the content after the operations, without checking whether it can be scored."""
    editing = Editing(deepcopy(dict(content)))
    for operation in operations:
        operation.apply(editing)
        editing.locate()
    return editing.content


def check(content: Content) -> None:
    """Raise DomainError unless the content can be stored and its tree and policy can score.

    A suite without evaluators can be edited, but no run of it can start.
    """
    _check_storable(content)
    _check_size(content)
    spec = SuiteSpec.model_validate(content)
    if spec.evaluators.children:
        validate(spec.evaluators)


def _check_storable(content: Content) -> None:
    try:
        text = json.dumps(content, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (ValueError, TypeError) as error:
        raise ChangeRefusedError(f"This cannot be stored: {error}.") from error
    if NUL.search(text):
        raise ChangeRefusedError("This cannot be stored: it contains a NUL character. Remove it.")


def _check_size(content: Content) -> None:
    nodes = [*nodes_with_paths(content["evaluators"])]
    if len(nodes) - 1 > MAX_EVALUATORS:
        raise ChangeRefusedError(
            f"That would be {len(nodes) - 1} evaluators. A suite can have at most {MAX_EVALUATORS}. "
            "Remove some first."
        )
    for path, node in nodes:
        if path.count("/") >= MAX_DEPTH:
            raise ChangeRefusedError(
                f"{quoted_name(node)} would be {path.count('/') + 1} levels deep; {MAX_DEPTH} is the limit. "
                "Move it further out."
            )


def name_for(wanted: str, evaluator: str = "") -> str:
    """Return a name without white space around it; raises ChangeRefusedError for an invalid one."""
    name = wanted.strip()
    owner = f"{evaluator}: " if evaluator else ""
    if not name:
        raise ChangeRefusedError(f"{owner}an evaluator needs a name.")
    if len(name) > MAX_NAME_LENGTH:
        raise ChangeRefusedError(
            f"{owner}the name “{name[:20]}…” has {len(name)} characters; {MAX_NAME_LENGTH} is the limit."
        )
    if "/" in name or name.startswith("@"):
        raise ChangeRefusedError(
            f"{owner}“{name}” cannot be a name: a name has no “/” and does not begin with “@”."
        )
    if not name.isprintable():
        raise ChangeRefusedError(f"{owner}a name is one line of printable characters.")
    return name


def free_name(wanted: str, taken: set[str]) -> str:
    """Return the name, with a number if a sibling already has it."""
    if wanted not in taken:
        return wanted
    stem, _, number = wanted.rpartition("_")
    stem = stem if stem and number.isdecimal() else wanted
    for n in range(2, len(taken) + 3):
        name = f"{stem[: MAX_NAME_LENGTH - len(str(n)) - 1]}_{n}"
        if name not in taken:
            return name
    raise ChangeRefusedError(f"No name like “{wanted}” is free here.")  # pragma: no cover


def quoted_name(node: Mapping[str, Any]) -> str:
    """Return an evaluator's name in quotes, for messages."""
    return f"“{node['name']}”"


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


MAX_TITLE_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 20_000
MAX_TAGS = 30
MAX_PERCENT = 1_000_000
REVIEWERS = "review_reviewers"
POLICY = tuple(PolicySpec.model_fields)


class Describe:
    """Set fields of a suite by name, other than policy and evaluators; the others stay.

    Whether the judge's slug exists is checked when the draft is saved.
    """

    def __init__(self, **values: Any) -> None:
        """Take the values by name."""
        self.values = values

    def apply(self, editing: Editing) -> None:
        """Set them; raises ChangeRefusedError naming the field."""
        for name, value in self.values.items():
            label = name.capitalize()
            if name == "max_minutes":
                editing.content[name] = _minutes(value)
                continue
            if name in LISTS:
                editing.content[name] = _words(label, value)
                continue
            text = value.strip() if name == "description" else " ".join(value.split())
            if name == "title" and not text:
                raise ChangeRefusedError("Title: a suite needs one.")
            is_long = name == "description"
            _check_length(label, text, MAX_DESCRIPTION_LENGTH if is_long else MAX_TITLE_LENGTH)
            editing.content[name] = text


def _minutes(value: Any) -> int | None:
    if value is None or (type(value) is int and 1 <= value <= MAX_MINUTES):
        return value
    raise ChangeRefusedError(
        f"The longest time is {value!r}; it is a whole number of minutes from 1 to {MAX_MINUTES}."
    )


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """Set fields of the policy by name; the others stay. Thresholds are 0 to 1 (SCORING §1)."""

    fields: Mapping[str, Any]

    def apply(self, editing: Editing) -> None:
        """Set them; raises ChangeRefusedError, ScoreOutOfRangeError or UnknownPolicyError naming the field."""
        if unknown := sorted(self.fields.keys() - set(POLICY)):
            raise ChangeRefusedError(f"The policy has no {', '.join(unknown)}.")
        for name, value in self.fields.items():
            if name in FLAGS:
                if not isinstance(value, bool):
                    raise ChangeRefusedError(f"{name} {value!r} is neither yes nor no.")
            elif name not in CHOICES and not is_number(value):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a number")
            elif name == REVIEWERS and not isinstance(value, int):
                raise ScoreOutOfRangeError(f"{name} {value!r} is not a whole number")
            elif name == "max_latency_increase_pct" and value > MAX_PERCENT:
                raise ScoreOutOfRangeError(f"{name} {value:g} is above {MAX_PERCENT:g}")
        try:
            policy = PolicySpec.model_validate({**editing.content["policy"], **self.fields})
        except ValidationError as error:
            refusal = error.errors()[0]
            raise ChangeRefusedError(f"{refusal['loc'][0]}: {refusal['msg']}.") from error
        editing.content["policy"] = policy.as_json()


def _words(label: str, texts: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(word for word in (" ".join(text.split()) for text in texts) if word))
    if len(words) > MAX_TAGS:
        raise ChangeRefusedError(f"{label}: there are {len(words)}; {MAX_TAGS} is the limit.")
    for word in words:
        _check_length(f"{label.removesuffix('s')} “{word[:20]}”", word, MAX_SUITE_TAG_LENGTH)
    return words


def _check_length(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ChangeRefusedError(
            f"{field}: the text has {len(text)} characters; {most} is the limit. Shorten it."
        )


def aggregator_options(composite: dict[str, Any]) -> dict[str, Any]:
    """Return the aggregator of a composite, for changing it in place."""
    options: dict[str, Any] = composite["config"].setdefault("aggregator", {})
    return options


def weight_in_force(composite: dict[str, Any], child: dict[str, Any]) -> float:
    """Return a child's weight: the one its composite's aggregator sets, else its own (SCORING §3)."""
    weights = aggregator_options(composite).get("weights") or {}
    weight: float = weights.get(child["name"], child["weight"])
    return weight


def set_weight(composite: dict[str, Any], child: dict[str, Any], weight: float) -> None:
    """Set the weight that is in force: the aggregator's if that names the child, else the child's own."""
    weights = aggregator_options(composite).get("weights") or {}
    if child["name"] in weights:
        aggregator_options(composite)["weights"] = {**weights, child["name"]: weight}
    else:
        child["weight"] = weight


def is_gate(composite: dict[str, Any], child: dict[str, Any]) -> bool:
    """Tell whether the composite names the child as a gate."""
    return child["name"] in (aggregator_options(composite).get("required") or ())


def guard(composite: dict[str, Any], child: dict[str, Any], *, gate: bool) -> None:
    """Add the child to the composite's gates, or remove it."""
    names = [*(aggregator_options(composite).get("required") or ())]
    if gate and child["name"] not in names:
        names.append(child["name"])
    elif not gate:
        names = [name for name in names if name != child["name"]]
    _put(aggregator_options(composite), "required", names)


def rename_in_aggregator(composite: dict[str, Any], old: str, new: str) -> None:
    """Make the aggregator follow a child that is renamed."""
    options = aggregator_options(composite)
    weights = options.get("weights") or {}
    _put(options, "weights", {new if name == old else name: w for name, w in weights.items()})
    names = options.get("required") or ()
    _put(options, "required", [new if name == old else name for name in names])


def remove_from_aggregator(composite: dict[str, Any], child: dict[str, Any]) -> None:
    """Remove a child from the aggregator; the child keeps its weight."""
    child["weight"] = weight_in_force(composite, child)
    options = aggregator_options(composite)
    weights = options.get("weights") or {}
    _put(options, "weights", {name: w for name, w in weights.items() if name != child["name"]})
    guard(composite, child, gate=False)


def _put(options: dict[str, Any], key: str, value: Any) -> None:
    """Set an option, or remove it when its value is empty."""
    if value:
        options[key] = value
    else:
        options.pop(key, None)


FIRST_OF_A_GROUP = "llm_judge"
GROUP = "group"
WAYS = ("up", "down", "into", "out")


@dataclass(frozen=True, slots=True)
class Add:
    """Add an evaluator of a kind to a composite, at its end without a position.

    Without a name it gets the name of its kind, with a number if that is taken. Without settings it gets
    the kind's defaults; a warning names settings that are still missing. A new composite contains one
    judge, because a composite is never empty.
    """

    kind: str
    parent: str
    position: int | None = None
    name: str = ""
    config: Mapping[str, Any] | None = None

    def apply(self, editing: Editing) -> None:
        """Add it; raises UnknownKindError or ChangeRefusedError."""
        parent = composite_at(editing, self.parent)
        children = parent.node["children"]
        taken = {child["name"] for child in children}
        name = name_for(self.name) if self.name.strip() else free_name(self.kind, taken)
        if name in taken:
            raise _name_taken(name, parent)
        node = _new_node(editing, name, self.kind, self.config)
        if self.kind == COMPOSITE:
            node["children"] = [_new_node(editing, FIRST_OF_A_GROUP, FIRST_OF_A_GROUP, None)]
        children.insert(_within(self.position, children), node)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove an evaluator with everything inside it."""

    node: str

    def apply(self, editing: Editing) -> None:
        """Remove it; raises ChangeRefusedError where the composite needs it."""
        place = _movable(editing, self.node, "removed")
        _leave(place, "Remove")


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Insert a copy of an evaluator, with everything inside it, after it.

    The copy has the weight of the original and is not a gate; its evaluators count as new.
    """

    node: str

    def apply(self, editing: Editing) -> None:
        """Copy it."""
        place = _movable(editing, self.node, "duplicated")
        assert place.parent is not None  # noqa: S101 - what is movable has a parent
        copy = deepcopy(place.node)
        copy["weight"] = weight_in_force(place.parent.node, place.node)
        copy["name"] = free_name(copy["name"], {child["name"] for child in place.siblings})
        for _, node in nodes_with_paths(copy):
            node |= {"id": editing.new_id(), "origin": None}
        place.siblings.insert(place.position + 1, copy)


@dataclass(frozen=True, slots=True)
class Group:
    """Put an evaluator into a new composite that takes over its place, weight and gate."""

    node: str
    name: str = ""

    def apply(self, editing: Editing) -> None:
        """Group it."""
        place = _movable(editing, self.node, "put into a group")
        assert place.parent is not None  # noqa: S101 - what is movable has a parent
        taken = {child["name"] for child in place.siblings}
        name = name_for(self.name) if self.name.strip() else free_name(GROUP, taken)
        if name in taken:
            raise _name_taken(name, place.parent)
        group = _new_node(editing, name, COMPOSITE, None)
        group |= {"children": [place.node], "weight": place.node["weight"]}
        rename_in_aggregator(place.parent.node, place.node["name"], name)
        place.node["weight"] = 1.0
        place.siblings[place.position] = group


@dataclass(frozen=True, slots=True)
class Move:
    """Move an evaluator into a composite, to a position or to its end.

    It keeps its weight; when it leaves the composite that made it a gate, it is no longer one.
    """

    node: str
    parent: str
    position: int | None = None

    def apply(self, editing: Editing) -> None:
        """Move it; raises ChangeRefusedError."""
        place = _movable(editing, self.node, "moved")
        parent = composite_at(editing, self.parent)
        if any(inner["id"] == self.parent for _, inner in nodes_with_paths(place.node)):
            raise ChangeRefusedError(
                f"{place.name} cannot be moved into itself or its own evaluators. "
                "Choose a composite outside of it."
            )
        children = parent.node["children"]
        if parent.node is not (place.parent and place.parent.node):
            if place.node["name"] in {child["name"] for child in children}:
                raise _name_taken(place.node["name"], parent)
            _leave(place, "Move")
        else:
            children.remove(place.node)
        children.insert(_within(self.position, children), place.node)


@dataclass(frozen=True, slots=True)
class Shift:
    """Move an evaluator one step: up or down, into the next composite, or out of its own."""

    node: str
    way: str

    def apply(self, editing: Editing) -> None:
        """Move it; raises ChangeRefusedError where that step is impossible."""
        if self.way not in WAYS:
            raise ChangeRefusedError(
                f"{self.way!r} is not a direction; choose {', '.join(WAYS[:-1])} or {WAYS[-1]}."
            )
        place = _movable(editing, self.node, "moved")
        assert place.parent is not None  # noqa: S101 - what is movable has a parent
        goal: tuple[str, int | None]
        match self.way:
            case "out":
                above = place.parent.parent
                if above is None:
                    raise ChangeRefusedError(f"{place.name} is at the outermost level already.")
                goal = (above.node["id"], place.parent.position + 1)
            case "into":
                goal = (_next_composite(place)["id"], None)
            case _:
                goal = (place.parent.node["id"], _next(place, self.way))
        Move(self.node, *goal).apply(editing)


def _next(place: TreePosition, way: str) -> int:
    position = place.position + (1 if way == "down" else -1)
    if not 0 <= position < len(place.siblings):
        end = "last" if way == "down" else "first"
        raise ChangeRefusedError(f"{place.name} is the {end} already.")
    return position


def _next_composite(place: TreePosition) -> dict[str, Any]:
    """Return the composite next to an evaluator; the one above it comes first."""
    before = place.siblings[place.position - 1 : place.position] if place.position else []
    after = place.siblings[place.position + 1 : place.position + 2]
    composite = next((node for node in (*before, *after) if node["kind"] == COMPOSITE), None)
    if composite is None:
        raise ChangeRefusedError(
            f"There is no composite next to {place.name}. Put it into a new group, or move it next to one."
        )
    return composite


def composite_at(editing: Editing, node_id: str) -> TreePosition:
    """Return a composite of the tree; raises ChangeRefusedError for any other evaluator."""
    place = editing.place(node_id)
    if not place.is_composite:
        raise ChangeRefusedError(
            f"{place.name} is a {get_kind(place.node['kind']).label} and cannot hold evaluators. "
            "Choose a composite, or put it into a new group first."
        )
    return place


def _movable(editing: Editing, node_id: str, done: str) -> TreePosition:
    place = editing.place(node_id)
    if place.parent is None:
        raise ChangeRefusedError(
            f"The suite's outermost composite cannot be {done}; it contains all the others."
        )
    return place


def _leave(place: TreePosition, action: str) -> None:
    """Take an evaluator out of its composite."""
    parent = place.parent
    assert parent is not None  # noqa: S101 - what is movable has a parent
    options = parent.node["config"].get("aggregator") or {}
    if len(place.siblings) == 1:
        outer = "" if parent.parent is None else f", or {action.lower()} {parent.name} itself"
        raise ChangeRefusedError(
            f"{place.name} is the only evaluator in {parent.name}, and a composite cannot be empty. "
            f"Put another one in first{outer}."
        )
    gates = options.get("required") or ()
    if (
        options.get("type") == "safety_gate"
        and is_gate(parent.node, place.node)
        and len(gates) == 1
    ):
        raise ChangeRefusedError(
            f"{place.name} is the only gate of {parent.name}. Choose another gate there first, or "
            "another way to combine."
        )
    remove_from_aggregator(parent.node, place.node)
    parent.node["children"].remove(place.node)


def _new_node(
    editing: Editing, name: str, kind: str, config: Mapping[str, Any] | None
) -> dict[str, Any]:
    if config is None:
        settings = default_config(kind)
    else:
        settings = read_config(kind, config, evaluator=name).model_dump(mode="json")
    if kind == COMPOSITE and config is None:
        settings = {"aggregator": {"type": "weighted_average"}}
    return {
        "name": name,
        "kind": kind,
        "weight": 1.0,
        "required": False,
        "required_below": None,
        "negate": False,
        "config": settings,
        "children": [],
        "id": editing.new_id(),
        "origin": None,
    }


def default_config(kind: str) -> dict[str, Any]:
    """Return the default settings of a kind; required settings are left for the user."""
    try:
        return read_config(kind, {}).model_dump(mode="json")
    except InvalidConfigError:
        fields = get_kind(kind).config.model_fields
        defaults = {
            name: setting.get_default(call_default_factory=True)
            for name, setting in fields.items()
            if not setting.is_required()
        }
        return (
            get_kind(kind)
            .config.model_construct(**defaults)
            .model_dump(mode="json", warnings=False)
        )


def _within(position: int | None, children: list[Any]) -> int:
    return len(children) if position is None else max(0, min(position, len(children)))


def _name_taken(name: str, parent: TreePosition) -> ChangeRefusedError:
    node = {"name": name}
    return ChangeRefusedError(
        f"There is already a {quoted_name(node)} in {parent.name}. Rename one of the two first."
    )


# Only the ratio of weights counts; much larger ones could not be added up or read.
MAX_WEIGHT = 1_000_000


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename an evaluator; its composite's weights and gates follow."""

    node: str
    name: str

    def apply(self, editing: Editing) -> None:
        """Rename it; raises ChangeRefusedError for an invalid name and for one that a sibling has."""
        place = editing.place(self.node)
        old, new = place.node["name"], name_for(self.name, place.name)
        if place.parent is not None and new != old:
            if new in {child["name"] for child in place.siblings}:
                raise ChangeRefusedError(
                    f"{place.name} cannot be called “{new}”: another evaluator in its composite has that "
                    "name. Choose another."
                )
            rename_in_aggregator(place.parent.node, old, new)
        place.node["name"] = new


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Set the weight in force: the aggregator's where that names the evaluator, else its own (SCORING §3)."""

    node: str
    weight: float

    def apply(self, editing: Editing) -> None:
        """Set it; raises ScoreOutOfRangeError unless it is a number of 0 or more."""
        place = editing.place(self.node)
        if not (is_number(self.weight) and self.weight >= 0):
            raise ScoreOutOfRangeError(
                f"{place.name}: the weight {self.weight!r} is not a number of 0 or more."
            )
        if self.weight > MAX_WEIGHT:
            raise ScoreOutOfRangeError(
                f"{place.name}: the weight {self.weight:g} is above the limit of {MAX_WEIGHT:g}. "
                "Only its ratio to the other weights counts."
            )
        if place.parent is None:
            place.node["weight"] = float(self.weight)
        else:
            set_weight(place.parent.node, place.node, float(self.weight))


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
        below = require_share(float(self.required), f"{place.name}: required")
        place.node |= {"required": False, "required_below": below}


@dataclass(frozen=True, slots=True)
class Negate:
    """Count the evaluator's score s as 1 − s, or as it is."""

    node: str
    negate: bool

    def apply(self, editing: Editing) -> None:
        """Set it."""
        editing.place(self.node).node["negate"] = bool(self.negate)


@dataclass(frozen=True, slots=True)
class SetPassMark:
    """Set the score, 0 to 1, from which on an evaluator's score is shown as good; None for no mark."""

    node: str
    mark: float | None

    def apply(self, editing: Editing) -> None:
        """Set it; raises ScoreOutOfRangeError outside 0 to 1."""
        place = editing.place(self.node)
        place.node.pop("pass_mark", None)
        if self.mark is None:
            return
        if not is_number(self.mark):
            raise ScoreOutOfRangeError(
                f"{place.name}: pass_mark {self.mark!r} is not a number from 0 to 1"
            )
        place.node["pass_mark"] = require_share(float(self.mark), f"{place.name}: pass_mark")


@dataclass(frozen=True, slots=True)
class Combine:
    """Choose how a composite combines its children, and the options of that rule.

    An option of the rule that is not given keeps its value; options of other rules are dropped.
    `required` of a safety gate names children; weights are set on the children.
    """

    node: str
    type: str
    options: Mapping[str, Any] | None = None

    def apply(self, editing: Editing) -> None:
        """Choose it; raises ChangeRefusedError or InvalidConfigError naming the option."""
        place = composite_at(editing, self.node)
        if self.type not in AGGREGATOR_TYPES:
            raise ChangeRefusedError(
                f"{place.name}: {self.type!r} is not a way to combine scores; choose one of "
                f"{', '.join(AGGREGATOR_TYPES)}."
            )
        takes = ALWAYS | OPTIONS.get(self.type, set())
        given = {name: value for name, value in (self.options or {}).items() if value is not None}
        if foreign := sorted(given.keys() - takes):
            raise ChangeRefusedError(f"{place.name}: {self.type} takes no {', '.join(foreign)}.")
        before = {
            name: value for name, value in aggregator_options(place.node).items() if name in takes
        }
        options = {**before, **given, "type": self.type}
        evaluator = place.path or place.node["name"]
        settings = read_config(COMPOSITE, {"aggregator": options}, evaluator=evaluator)
        found = settings.model_dump(mode="json", exclude_defaults=True).get("aggregator", {})
        place.node["config"] = {**place.node["config"], "aggregator": {"type": self.type, **found}}


@dataclass(frozen=True, slots=True)
class Configure:
    """Replace all settings of an evaluator."""

    node: str
    config: Mapping[str, Any]

    def apply(self, editing: Editing) -> None:
        """Set them; raises InvalidConfigError naming each setting, or ChangeRefusedError for a composite."""
        place = editing.place(self.node)
        if place.is_composite:
            raise ChangeRefusedError(
                f"{place.name} is a composite: its only setting is how it combines its evaluators."
            )
        settings = read_config(place.node["kind"], self.config, evaluator=place.path)
        place.node["config"] = settings.model_dump(mode="json")

"""Change a draft's content: operations in, new content out, and never a tree that cannot be scored."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from evaluators.scoring.policy import FLAGS, WORDS, PolicySpec
from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, below, validate
from evaluators.scoring.types import DomainError, ScoreOutOfRangeError
from runs.specs.suites import LISTS, SuiteSpec

# A draft: a SuiteSpec in JSON whose evaluators have an id and the path they came from.
Content = Mapping[str, Any]


def begin_draft(spec: SuiteSpec) -> dict[str, Any]:
    """Return the draft of a suite in which nothing is changed; ids follow the order of the tree."""
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


def path_of(content: Content, node_id: str) -> str | None:
    """Return where an evaluator stands in the draft's tree, None when it is not in it."""
    found = nodes_with_paths(content["evaluators"])
    return next((path for path, node in found if node["id"] == node_id), None)


def origins(content: Content) -> dict[str, str | None]:
    """Return by path of the draft's tree where each evaluator stood in the base version."""
    return {path: node["origin"] for path, node in nodes_with_paths(content["evaluators"])}


MAX_NAME_LENGTH = 100
MAX_EVALUATORS = 500
DEEPEST = 40
# A NUL in JSON: an escape whose backslash is not itself escaped.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class ChangeRefusedError(DomainError):
    """A change of a draft cannot be made; the message names the evaluator and what would help."""

    code = "change_refused"


class UnknownEvaluatorError(ChangeRefusedError):
    """A change names an evaluator that is not in the draft."""

    code = "unknown_evaluator"


@dataclass(slots=True)
class TreePosition:
    """An evaluator in the tree under change: itself, what holds it, and where."""

    node: dict[str, Any]
    path: str
    parent: TreePosition | None = None
    position: int = 0

    @property
    def name(self) -> str:
        """Return the name in quotes, as messages say it."""
        return "the suite's outermost composite" if self.parent is None else shown(self.node)

    @property
    def siblings(self) -> list[dict[str, Any]]:
        """Return the children of what holds it, itself included."""
        return self.parent.node["children"] if self.parent else [self.node]

    @property
    def is_composite(self) -> bool:
        """Tell whether it can hold evaluators."""
        return bool(self.node["kind"] == COMPOSITE)


@dataclass(slots=True)
class Editing:
    """The content while operations work on it; they may change it as they like."""

    content: dict[str, Any]
    places: dict[str, TreePosition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look where every evaluator is."""
        self.look()

    def look(self) -> None:
        """Find every evaluator anew, after the tree was rearranged."""
        self.places = {}
        self._look(TreePosition(self.content["evaluators"], ROOT_PATH))

    def _look(self, place: TreePosition) -> None:
        self.places[place.node["id"]] = place
        for position, child in enumerate(place.node["children"]):
            self._look(TreePosition(child, below(place.path, child["name"]), place, position))

    def place(self, node_id: str) -> TreePosition:
        """Return where an evaluator is; raises UnknownEvaluatorError."""
        if node_id not in self.places:
            raise UnknownEvaluatorError(
                "That evaluator is not in your draft any more. Open the page again to see what is."
            )
        return self.places[node_id]

    def new_id(self) -> str:
        """Return an id that no evaluator of this draft had before."""
        self.content["last_id"] += 1
        return f"n{self.content['last_id']}"


class Operation(Protocol):
    """One change; it works on the content under change and refuses in words what cannot be done."""

    def apply(self, editing: Editing) -> None:
        """Make the change; raises DomainError naming the evaluator and what would help."""
        ...


def change(content: Content, *operations: Operation) -> dict[str, Any]:
    """Return the content after the operations, which are checked together: all of them or none.

    So one form may lower one weight to 0 and raise another. Raises ChangeRefusedError, TreeError,
    ScoreOutOfRangeError, UnknownPolicyError or InvalidConfigError; the content given stays as it was.
    """
    found = applied(content, *operations)
    check(found)
    return found


def applied(content: Content, *operations: Operation) -> dict[str, Any]:
    """Return the content after the operations, without looking whether the whole can be scored then."""
    editing = Editing(deepcopy(dict(content)))
    for operation in operations:
        operation.apply(editing)
        editing.look()
    return editing.content


def check(content: Content) -> None:
    """Raise DomainError unless the content's tree and policy can be scored by, and the whole be stored.

    A suite that has no evaluators yet can be edited all the same; only no run of it can start.
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
        raise ChangeRefusedError("This cannot be stored: it holds a NUL character. Remove it.")


def _check_size(content: Content) -> None:
    found = [*nodes_with_paths(content["evaluators"])]
    if len(found) > MAX_EVALUATORS:
        raise ChangeRefusedError(
            f"That makes {len(found)} evaluators, and {MAX_EVALUATORS} is the most of a suite. "
            "Remove some first."
        )
    for path, node in found:
        if path.count("/") >= DEEPEST:
            raise ChangeRefusedError(
                f"{shown(node)} would lie {path.count('/') + 1} levels deep, and {DEEPEST} is the most. "
                "Move it further out."
            )


def name_for(wanted: str, evaluator: str = "") -> str:
    """Return a name without white space around it; raises ChangeRefusedError saying what a name is."""
    name = wanted.strip()
    owner = f"{evaluator}: " if evaluator else ""
    if not name:
        raise ChangeRefusedError(f"{owner}an evaluator needs a name.")
    if len(name) > MAX_NAME_LENGTH:
        raise ChangeRefusedError(
            f"{owner}the name “{name[:20]}…” has {len(name)} characters, and {MAX_NAME_LENGTH} is the most."
        )
    if "/" in name or name.startswith("@"):
        raise ChangeRefusedError(
            f"{owner}“{name}” cannot be a name: it holds no “/” and does not begin with “@”."
        )
    if not name.isprintable():
        raise ChangeRefusedError(f"{owner}a name is one line of letters, figures and signs.")
    return name


def free_name(wanted: str, taken: set[str]) -> str:
    """Return the name, numbered where a sibling has it already."""
    if wanted not in taken:
        return wanted
    stem, _, number = wanted.rpartition("_")
    stem = stem if stem and number.isdecimal() else wanted
    for n in range(2, len(taken) + 3):
        name = f"{stem[: MAX_NAME_LENGTH - len(str(n)) - 1]}_{n}"
        if name not in taken:
            return name
    raise ChangeRefusedError(f"No name like “{wanted}” is free here.")  # pragma: no cover


def shown(node: Mapping[str, Any]) -> str:
    """Return an evaluator's name as messages quote it."""
    return f"“{node['name']}”"


def is_number(value: Any) -> bool:
    """Tell a finite number from everything else; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


MAX_TITLE_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 20_000
MAX_TAG_LENGTH = 60
MAX_TAGS = 30
MAX_PERCENT = 1_000_000
REVIEWERS = "review_reviewers"
POLICY = tuple(PolicySpec.model_fields)


class Describe:
    """Set texts and lists of a suite by the names of their fields; what is not named stays.

    Whether a language model has the slug of the judge is looked up when the draft is saved.
    """

    def __init__(self, **values: Any) -> None:
        """Take the values by name."""
        self.values = values

    def apply(self, editing: Editing) -> None:
        """Set them; raises ChangeRefusedError naming the field."""
        for name, value in self.values.items():
            label = name.capitalize()
            if name in LISTS:
                editing.content[name] = _words(label, value)
                continue
            text = value.strip() if name == "description" else " ".join(value.split())
            if name == "title" and not text:
                raise ChangeRefusedError("Title: a suite needs one.")
            is_long = name == "description"
            _check_length(label, text, MAX_DESCRIPTION_LENGTH if is_long else MAX_TITLE_LENGTH)
            editing.content[name] = text


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
            elif name not in WORDS and not is_number(value):
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


def _words(label: str, given: Sequence[str]) -> list[str]:
    words = list(dict.fromkeys(word for word in (" ".join(text.split()) for text in given) if word))
    if len(words) > MAX_TAGS:
        raise ChangeRefusedError(f"{label}: {len(words)} are given, and {MAX_TAGS} is the most.")
    for word in words:
        _check_length(f"{label.removesuffix('s')} “{word[:20]}”", word, MAX_TAG_LENGTH)
    return words


def _check_length(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise ChangeRefusedError(
            f"{field}: the text has {len(text)} characters, and {most} is the most. Shorten it."
        )

"""Change a draft's content: operations in, new content out, and never a tree that cannot be scored."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaluators.scoring.tree import COMPOSITE, ROOT_PATH, below, validate
from evaluators.scoring.types import DomainError
from runs.drafting.content import Content, nodes_with_paths, policy_of, tree_of

LONGEST_NAME = 100
MOST_EVALUATORS = 500
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
class Place:
    """An evaluator in the tree under change: itself, what holds it, and where."""

    node: dict[str, Any]
    path: str
    parent: Place | None = None
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
    places: dict[str, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look where every evaluator is."""
        self.look()

    def look(self) -> None:
        """Find every evaluator anew, after the tree was rearranged."""
        self.places = {}
        self._look(Place(self.content["evaluators"], ROOT_PATH))

    def _look(self, place: Place) -> None:
        self.places[place.node["id"]] = place
        for position, child in enumerate(place.node["children"]):
            self._look(Place(child, below(place.path, child["name"]), place, position))

    def place(self, node_id: str) -> Place:
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
    policy_of(content)
    tree = tree_of(content)
    if tree.children:
        validate(tree)


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
    if len(found) > MOST_EVALUATORS:
        raise ChangeRefusedError(
            f"That makes {len(found)} evaluators, and {MOST_EVALUATORS} is the most of a suite. "
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
    if len(name) > LONGEST_NAME:
        raise ChangeRefusedError(
            f"{owner}the name “{name[:20]}…” has {len(name)} characters, and {LONGEST_NAME} is the most."
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
        name = f"{stem[: LONGEST_NAME - len(str(n)) - 1]}_{n}"
        if name not in taken:
            return name
    raise ChangeRefusedError(f"No name like “{wanted}” is free here.")  # pragma: no cover


def shown(node: Mapping[str, Any]) -> str:
    """Return an evaluator's name as messages quote it."""
    return f"“{node['name']}”"

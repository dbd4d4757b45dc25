"""Evaluators of a suite file, read into trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaluators.kinds import (
    UnknownKindError,
    is_spelling,
    kind_for_spelling,
    literal_variable,
    normal_spelling,
)
from evaluators.scoring.tree import COMPOSITE, Node, below
from runs.formats._document import Path
from runs.formats._fields import Fields
from runs.formats._meant import did_you_mean
from runs.formats._reading import Reading
from runs.formats._settings import COMMON, keep_unknown, read_settings
from runs.formats._trees import check_composite, read_aggregator

LONGEST_NAME = 100
MOST_IN_A_LIST = 500
ALIASES = {
    "type": ("kind",),
    "name": ("metric",),
    "required_below": ("min_score",),
    "negate": ("negated",),
    "evaluators": ("assertions", "assert"),
}
RUBRIC = "rubric"


def read_evaluators(
    reading: Reading,
    path: Path,
    items: list[Any],
    *,
    case: str = "",
    beside: tuple[Node, ...] = (),
    above: str = "",
) -> tuple[Node, ...]:
    """Return the evaluators of a list; what cannot be read is noted and left out.

    Sentences in it become the criteria of one rubric, where the first of them stands. No name may
    be that of an evaluator `beside` them; `above` is the path of the composite that holds them.
    """
    if len(items) > MOST_IN_A_LIST:
        said = f"holds {len(items)} evaluators, and {MOST_IN_A_LIST} is the most; put some into composites"
        reading.refuse(path, said, case=case)
        return ()
    taken = {node.name for node in beside}
    found: list[Node] = []
    for n, item in _gathered(reading, path, items, case):
        node = _Item(reading, (*path, n), item, case, above).node(taken)
        if node is not None:
            found.append(node)
            taken.add(node.name)
    return tuple(found)


def _gathered(
    reading: Reading, path: Path, items: list[Any], case: str
) -> Iterator[tuple[int, Any]]:
    """Yield the evaluators of a list with their places, its sentences gathered into one rubric."""
    sentences = {n: item for n, item in enumerate(items) if isinstance(item, str)}
    for n, item in sentences.items():
        if not item.strip():
            said = "the sentence is empty; write what must be true of the answer, or remove it"
            reading.refuse((*path, n), said, case=case)
        elif is_spelling(item):
            said = f"{item!r} is a type, not a sentence to judge by; write type: {item.strip()}"
            reading.refuse((*path, n), said, case=case)
    for n, item in enumerate(items):
        if n not in sentences:
            yield n, item
        elif n == next(iter(sentences)):
            yield n, {"type": RUBRIC, "rubrics": list(sentences.values())}


class _Item:
    """One evaluator of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, case: str, above: str) -> None:
        self.reading = reading
        self.path = path
        self.case = case
        self.above = above
        self.is_read = isinstance(item, dict)
        self.fields = Fields(
            reading, path, aliases=ALIASES, value=item if self.is_read else {}, case=case
        )
        if not self.is_read:
            said = "an evaluator with name and type, or a sentence to judge by, is expected here"
            self.fields.refuse("", said)

    def node(self, taken: set[str]) -> Node | None:
        """Return the evaluator, None when its type is not known."""
        before = len(self.reading.problems)
        spelling = self.fields.text("type")
        named = self.fields.text("name")
        if not spelling or not self.is_read:
            if self.is_read and len(self.reading.problems) == before:
                said = "type is missing; it says what scores, such as contains, rubric or llm_judge"
                self.fields.refuse("", f"evaluator {named or '?'}: {said}")
            return None
        try:
            kind, preset = kind_for_spelling(spelling, self.fields.rest())
        except UnknownKindError as error:
            self.fields.refuse("type", f"evaluator {(named or spelling)[:LONGEST_NAME]}: {error}")
            return None
        name = self._name(named, normal_spelling(spelling), taken)
        weight = self.fields.number("weight")
        required, required_below = self._required(name)
        facts: dict[str, Any] = {
            "weight": 1.0 if weight is None else weight,
            "required": required,
            "required_below": required_below,
            "negate": bool(self.fields.flag("negate")),
        }
        if facts["weight"] < 0:
            said = f"the weight {weight!r} is below 0; 0 records a score without counting it"
            self.fields.refuse("weight", f"evaluator {name}: {said}")
        if kind.name == COMPOSITE:
            return self._composite(name, facts)
        config = read_settings(self.fields, kind, preset, below(self.above, name))
        if found := literal_variable(kind.name, config):
            self.reading.warn(self.path, f"evaluator {name}: {found.text}", case=self.case)
        return Node(name=name, kind=kind.name, config=config, **facts)

    def _name(self, named: str, spelling: str, taken: set[str]) -> str:
        if not named:
            free = (spelling if n == 1 else f"{spelling}_{n}" for n in range(1, len(taken) + 2))
            return next(name for name in free if name not in taken)
        if named in taken:
            said = "evaluators scored together, the suite's own among them, need names of their own"
            self.fields.refuse("name", f"the evaluator {named!r} stands twice; {said}")
        if "/" in named or len(named) > LONGEST_NAME:
            said = f"a name has at most {LONGEST_NAME} characters and no slash"
            self.fields.refuse("name", f"evaluator {named[:LONGEST_NAME]!r}: {said}")
        return named

    def _required(self, name: str) -> tuple[bool, float | None]:
        below = self.fields.number("required_below")
        key, required = self.fields.take("required")
        if isinstance(required, int | float) and not isinstance(required, bool):
            below, required = float(required), False
        if required is not None and not isinstance(required, bool):
            said = f"{required!r} is neither true or false nor a number from 0 to 1"
            self.fields.refuse(key, f"evaluator {name}: required: {said}")
        if below is not None and not 0 <= below <= 1:
            said = f"evaluator {name}: {below!r} is not a number from 0 to 1"
            self.fields.refuse(key or "min_score", said)
        return required is True, below

    def _composite(self, name: str, facts: dict[str, Any]) -> Node:
        key, items = self.fields.items("evaluators")
        aggregator_key, options = self.fields.mapping("aggregator")
        path = below(self.above, name)
        children = read_evaluators(
            self.reading, (*self.path, key), items, case=self.case, above=path
        )
        if not items:
            said = "a composite needs evaluators; list what it combines under evaluators"
            self.fields.refuse("", f"evaluator {name}: {said}")
        aggregator = read_aggregator(
            self.reading, (*self.path, aggregator_key), options, case=self.case
        )
        known = (*COMMON, "evaluators", "aggregator")
        left = {normal_spelling(key): key for key in self.fields.rest()}
        kept = keep_unknown(self.fields, path, known=known, names=left)
        for spelling in left.keys() - kept:
            said = f"is not known here; known are {', '.join(known)}"
            self.fields.refuse(left[spelling], said + did_you_mean(spelling, known))
        config = {"aggregator": aggregator} if aggregator else {}
        node = Node(name=name, kind=COMPOSITE, config=config, children=children, **facts)
        check_composite(self.reading, self.path, node, case=self.case)
        return node

"""Evaluators of a suite file, read into trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaluators.kinds import (
    InvalidConfigError,
    UnknownKindError,
    kind_for_spelling,
    normal_spelling,
    read_config,
)
from evaluators.kinds._base import Kind
from evaluators.kinds._files import is_reference
from evaluators.scoring.tree import COMPOSITE, Aggregator, Node, check_paths, validate
from evaluators.scoring.types import DomainError
from runs.formats._document import Path
from runs.formats._fields import Fields, Reading

ROOT_NAME = "suite"
LONGEST_NAME = 100
CHILDREN = ("evaluators", "assertions", "assert")
ALIASES = {
    "type": ("kind",),
    "required_below": ("min_score",),
    "negate": ("negated",),
    "evaluators": ("assertions", "assert"),
}
DEFAULT_KIND = "llm_judge"


def root_of(children: tuple[Node, ...], aggregator: Mapping[str, Any] | None = None) -> Node:
    """Return the outermost composite of a suite or of a case with a tree of its own."""
    config = {"aggregator": dict(aggregator)} if aggregator else {}
    return canonical(Node(name=ROOT_NAME, kind=COMPOSITE, config=config, children=children))


def canonical(node: Node) -> Node:
    """Return the tree as it reads back from the form it is stored in."""
    return Node.from_json(node.as_json())


def default_children() -> tuple[Node, ...]:
    """Return what scores a suite that names no evaluators: one judge, by the criteria of each case."""
    settings = read_config(DEFAULT_KIND, {}).model_dump(mode="json")
    return (Node(name=DEFAULT_KIND, kind=DEFAULT_KIND, config=settings),)


def read_aggregator(
    reading: Reading, path: Path, value: Mapping[str, Any], *, case: str = ""
) -> dict[str, Any]:
    """Return the options of an aggregator; problems are noted and the rest is dropped."""
    options = {normal_spelling(key): part for key, part in value.items()}
    if isinstance(options.get("type"), str):
        options["type"] = normal_spelling(options["type"])
    try:
        settings = read_config(COMPOSITE, {"aggregator": options})
    except InvalidConfigError as error:
        for refusal in error.refusals:
            inner = refusal.path[1:]
            said = f"{'.'.join(map(str, inner))}: {refusal.reason}" if inner else refusal.reason
            reading.refuse((*path, *inner), said, case=case)
        return {}
    return Aggregator.from_json(settings.model_dump(mode="json")["aggregator"]).as_json()


def read_evaluators(
    reading: Reading, path: Path, items: list[Any], *, case: str = ""
) -> tuple[Node, ...]:
    """Return the evaluators of a list; what cannot be read is noted and left out."""
    found: list[Node] = []
    for n, item in enumerate(items):
        node = _Item(reading, (*path, n), item, case).node({one.name for one in found})
        if node is not None:
            found.append(node)
    return tuple(found)


def check_composite(reading: Reading, path: Path, node: Node, *, case: str = "") -> None:
    """Note what keeps a composite from being scored; what lies deeper is checked where it stands."""
    known_bad = any(refused[: len(path)] == path for refused in reading.refused)
    children = tuple(Node(name=c.name, kind="", weight=c.weight) for c in node.children)
    if known_bad or not children:
        return
    try:
        check_paths(node)
        validate(replace(node, children=children))
    except DomainError as error:
        reading.refuse(path, str(error), case=case)


class _Item:
    """One evaluator of a list."""

    def __init__(self, reading: Reading, path: Path, item: Any, case: str) -> None:
        self.reading = reading
        self.path = path
        self.case = case
        self.fields = Fields(reading, path, aliases=ALIASES, value=item, case=case)

    def node(self, taken: set[str]) -> Node | None:
        """Return the evaluator, None when its type is not known."""
        before = len(self.reading.problems)
        spelling = self.fields.text("type")
        named = self.fields.text("name")
        if not spelling:
            if len(self.reading.problems) == before:
                self.fields.refuse("", f"evaluator {named or '?'}: type is missing")
            return None
        try:
            kind, preset = kind_for_spelling(spelling)
        except UnknownKindError as error:
            self.fields.refuse("type", f"evaluator {named or spelling}: {error}")
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
            self.fields.refuse("weight", f"evaluator {name}: the weight {weight!r} is below 0")
        if kind.name == COMPOSITE:
            return self._composite(name, facts)
        return Node(name=name, kind=kind.name, config=self._config(kind, name, preset), **facts)

    def _name(self, named: str, spelling: str, taken: set[str]) -> str:
        if not named:
            free = (spelling if n == 1 else f"{spelling}_{n}" for n in range(1, len(taken) + 2))
            return next(name for name in free if name not in taken)
        if named in taken:
            self.fields.refuse("name", f"the evaluator {named!r} stands twice beside itself")
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
        children = read_evaluators(self.reading, (*self.path, key), items, case=self.case)
        if not items:
            self.fields.refuse("", f"evaluator {name}: a composite needs evaluators")
        aggregator = read_aggregator(
            self.reading, (*self.path, aggregator_key), options, case=self.case
        )
        self.fields.refuse_rest("name, type, weight, required, min_score, evaluators, aggregator")
        config = {"aggregator": aggregator} if aggregator else {}
        node = Node(name=name, kind=COMPOSITE, config=config, children=children, **facts)
        check_composite(self.reading, self.path, node, case=self.case)
        return node

    def _config(self, kind: Kind, name: str, preset: Mapping[str, Any]) -> dict[str, Any]:
        left = self.fields.rest()
        config = {**preset, **{normal_spelling(key): value for key, value in left.items()}}
        config = kind.read(config) if kind.read else config
        for key in kind.config.prompt_fields:
            if is_reference(config.get(key)):
                config[key] = self._file(name, key, str(config[key]))
        try:
            settings = read_config(kind.name, config, evaluator=name, files=self.reading.used_files)
        except InvalidConfigError as error:
            for refusal in error.refusals:
                said = f"{refusal.setting}: {refusal.reason}" if refusal.setting else refusal.reason
                at = (*self.path, *refusal.path)
                self.reading.refuse(at, f"evaluator {name}: {said}", case=self.case)
            return {}
        return settings.model_dump(mode="json")

    def _file(self, name: str, key: str, reference: str) -> str:
        try:
            return f"./{self.reading.use(reference)}"
        except ValueError as error:
            self.fields.refuse(key, f"evaluator {name}: {error}")
            return ""

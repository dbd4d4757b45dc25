"""Composites of a suite file: how evaluators are put together, and what keeps them from being scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaluators.kinds import InvalidConfigError, normal_spelling, read_config
from evaluators.kinds._files import text_of
from evaluators.kinds.composite import prompt_file, read_options, runs_script
from evaluators.scoring.tree import COMPOSITE, Aggregator, Node, check_paths, validate
from evaluators.scoring.types import DomainError
from runs.formats._document import Path
from runs.formats._reading import Reading

ROOT_NAME = "suite"
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
        options = read_options(options)
        if runs_script(options):
            options = reading.place_script(options)
        if named := prompt_file(options):
            options["prompt"] = f"./{reading.use(named)}"
            text = text_of(options["prompt"], reading.used_files)
            read_config(COMPOSITE, {"aggregator": {**options, "prompt": text}})
        settings = read_config(COMPOSITE, {"aggregator": options})
    except InvalidConfigError as error:
        for refusal in error.refusals:
            inner = refusal.path[1:]
            said = f"{'.'.join(map(str, inner))}: {refusal.reason}" if inner else refusal.reason
            reading.refuse((*path, *inner), said, case=case)
        return {}
    except ValueError as error:
        reading.refuse(path, str(error), case=case)
        return {}
    found = settings.model_dump(mode="json", exclude_defaults=True).get("aggregator", {})
    return {**found, **Aggregator.from_json(found).as_json()}


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

"""The language models that the evaluators of a tree name themselves, instead of the suite's judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.kinds._base import Kind
from evaluators.scoring.tree import Node, walk

AGGREGATOR = "aggregator"


def models_named(root: Node, kinds: Mapping[str, Kind]) -> Iterator[tuple[str, str, str]]:
    """Yield path, setting and slug of each language model that a tree names, once a setting, in tree order.

    A model that stands in a setting counts also where nothing asks it yet.
    """
    for path, node in walk(root):
        for setting, slug in dict.fromkeys(_of(node, kinds.get(node.kind))):
            yield path, setting, slug


def _of(node: Node, kind: Kind | None) -> Iterator[tuple[str, str]]:
    options = node.config.get(AGGREGATOR) or {}
    for setting, settings in (("model", node.config), (f"{AGGREGATOR}.model", options)):
        if isinstance(slug := settings.get("model"), str) and slug:
            yield setting, slug
    asked = kind.models_asked(node.config) if kind is not None and not node.is_composite else ()
    for slug in filter(None, asked):
        if slug != node.config.get("model"):
            yield _setting(node.config, slug), slug


def _setting(config: Mapping[str, Any], slug: str) -> str:
    """Return the setting that holds the slug among others, "model" where none does."""
    lists = (name for name, value in config.items() if isinstance(value, list | tuple))
    return next((name for name in lists if slug in config[name]), "model")

"""Evaluator trees in the form of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEAF: Mapping[str, Any] = {
    "weight": 1.0,
    "required": False,
    "required_below": None,
    "negate": False,
    "children": [],
}
CHECK = {
    **LEAF,
    "name": "mentions_refund",
    "kind": "text_check",
    "config": {"operator": "contains", "value": "refund"},
}
JUDGED = {**LEAF, "name": "right", "kind": "llm_judge", "config": {"prompt": "Is it right?"}}


def tree(
    *children: Mapping[str, Any], aggregator: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a root composite over the children."""
    config = {"aggregator": aggregator or {"type": "weighted_average"}}
    return {**LEAF, "name": "all", "kind": "composite", "config": config, "children": children}

"""How often judges were asked for one run alone: its stored scores are made so, whatever they are scored by now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.scoring.tree import ROOT_PATH, Node, below
from runs.plan import CHANGED
from runs.what_if import Origins

SAMPLES = "samples"
ONCE = 1


def with_own_samples(root: Node, origins: Origins, snapshot: Mapping[str, Any]) -> Node:
    """Return a tree whose judges are asked as often as in a run that asked them more often than its suite.

    `origins` are the paths in the run by those of the tree. A judge that is asked by now otherwise than
    in the suite the run was started from stays as it is: that is a change which only new calls can follow.
    """
    own = {one["evaluator"]: one for one in _own(snapshot)}
    if not own:
        return root
    written = root.as_json()
    for path, node in _walk(written, ROOT_PATH):
        one = own.get(_before(path, origins))
        holder = _holder(node)
        if one is not None and (holder.get(SAMPLES) or ONCE) == (one["old"] or ONCE):
            holder[SAMPLES] = one["new"]
    return Node.from_json(written)


def samples_kept(root: Node, origins: Origins, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return of what a run changed for itself the samples that a tree took over, by the paths of the tree."""
    own = {one["evaluator"]: one for one in _own(snapshot)}
    found = ((path, node, own.get(_before(path, origins))) for path, node in _walk(root.as_json()))
    return [
        {**one, "evaluator": path}
        for path, node, one in found
        if one is not None and _holder(node).get(SAMPLES) == one["new"]
    ]


def without_samples(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot whose own changes are those that other rules do not keep."""
    own = list(_own(snapshot))
    return {**snapshot, CHANGED: [one for one in snapshot.get(CHANGED) or () if one not in own]}


def _own(snapshot: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for one in snapshot.get(CHANGED) or ():
        if one["evaluator"] is not None and one["name"].endswith(f".{SAMPLES}"):
            yield one


def _before(path: str, origins: Origins) -> str | None:
    return path if origins is None else origins.get(path)


def _holder(node: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that say how often a judge is asked, to be changed in place."""
    config: dict[str, Any] = node["config"]
    aggregator: dict[str, Any] | None = config.get("aggregator")
    return config if aggregator is None else aggregator


def _walk(node: dict[str, Any], path: str = ROOT_PATH) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for child in node["children"]:
        yield from _walk(child, below(path, child["name"]))

"""What a draft holds: the parts of a suite's version that are edited together, as plain JSON values.

`title`, `description`, `tags`, `judge` (a slug or ""), `policy` as Policy.as_json, and `evaluators`,
the tree as Node.as_json with two keys more on every node: `id`, the same as long as the draft lives,
and `origin`, the path the evaluator had in the version the draft is based on, None for a new one.
`last_id` counts the ids given, so that none is given twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import ROOT_PATH, Node, below

Content = Mapping[str, Any]
DESCRIBING: Mapping[str, Any] = {"title": "", "description": "", "tags": [], "judge": ""}


def content_of(version: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a draft of a stored version begins with; ids are given in the order of the tree."""
    content = edited_parts(version)
    count = 0
    for path, node in nodes_with_paths(content["evaluators"]):
        count += 1
        node |= {"id": f"n{count}", "origin": path}
    return {**content, "last_id": count}


def edited_parts(version: Content) -> dict[str, Any]:
    """Return of a draft or a stored version the parts that drafts edit, as versions store them.

    What an earlier form of versions did not have takes its default.
    """
    described = {name: version.get(name) or usual for name, usual in DESCRIBING.items()}
    return {
        **described,
        "tags": list(described["tags"]),
        "policy": Policy.from_json(version.get("policy") or {}).as_json(),
        "evaluators": tree_of(version).as_json(),
    }


def tree_of(content: Content) -> Node:
    """Return the tree of a draft or of a stored version."""
    return Node.from_json(content["evaluators"])


def policy_of(content: Content) -> Policy:
    """Return the policy of a draft or of a stored version."""
    return Policy.from_json(content["policy"])


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

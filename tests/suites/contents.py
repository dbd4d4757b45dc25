"""Drafts in few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import EvaluatorSpec, walk
from runs.specs.suites import SuiteSpec
from runs.suites.edits import begin_draft, nodes_with_paths
from tests.evaluators.scoring.trees import composite, leaf, root


def version(tree: EvaluatorSpec, **parts: Any) -> dict[str, Any]:
    """Return what a version of the shop's suite keeps, with this tree."""
    return {
        "title": "Shop",
        "description": "",
        "tags": [],
        "judge": "",
        "metadata": {},
        "policy": PolicySpec().as_json(),
        "evaluators": tree.as_json(),
        "files": {},
        "cases": [],
        **parts,
    }


def shop() -> EvaluatorSpec:
    """Return a tree with every way of being tied to a name: weights, gates, nesting."""
    return root(
        composite(
            "safety",
            leaf("harm"),
            leaf("cards", 3.0),
            rule="safety_gate",
            required=("harm",),
            weights={"cards": 2.0},
        ),
        leaf("tone", 2.0),
        composite("facts", leaf("price"), leaf("date", required=True)),
        weights={"safety": 5.0},
    )


def draft(tree: EvaluatorSpec | None = None, **parts: Any) -> dict[str, Any]:
    return begin_draft(SuiteSpec.model_validate(version(tree or shop(), **parts)))


def tree_of(content: Mapping[str, Any]) -> EvaluatorSpec:
    return SuiteSpec.model_validate(content).evaluators


def origins(content: dict[str, Any]) -> dict[str, str | None]:
    """Return by path where each evaluator stood in the base version."""
    return {path: node["origin"] for path, node in nodes_with_paths(content["evaluators"])}


def node(content: dict[str, Any], path: str) -> str:
    """Return the id of the evaluator at a path."""
    found = content["evaluators"]
    for name in path.split("/") if path else ():
        found = next(child for child in found["children"] if child["name"] == name)
    return str(found["id"])


def paths(content: dict[str, Any]) -> list[str]:
    return [path for path, _ in walk(tree_of(content)) if path]


def weights(content: dict[str, Any]) -> dict[str, float]:
    """Return the weights in force by path."""
    tree = tree_of(content)
    return {
        f"{path}/{child.name}" if path else child.name: above.child_weight(child)
        for path, above in walk(tree)
        for child in above.children
    }

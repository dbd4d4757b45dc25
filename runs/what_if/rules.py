"""What decides the verdicts of a run, before and after, and where each evaluator came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import ROOT_PATH, Node, below, walk
from runs.plan import Plan, tree_of_case

ORIGIN = "origin"

# By the path of an evaluator its path in the run; one that is not named has none there. None where
# every evaluator stands where it stood.
Origins = Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A policy and a suite's tree. `judge` is the slug of the suite's judge or ""; `files` are paths with hashes."""

    policy: Policy
    root: Node
    judge: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, plan: Plan) -> RuleSet:
        """Return the rules that a run froze."""
        return cls(plan.policy, plan.root, plan.judge, plan.files)


@dataclass(frozen=True, slots=True)
class CaseTrees:
    """The trees that score some cases before and after."""

    before: Node
    after: Node
    origins: Origins


def origins_of(evaluators: Mapping[str, Any]) -> Origins:
    """Return the origins that the nodes of an edited tree tell by their key `origin`.

    A node without one is new. A tree in which no node tells one is taken for unmoved: None.
    """
    told: dict[str, str] = {}
    _gather(evaluators, ROOT_PATH, told)
    return {**told, ROOT_PATH: ROOT_PATH} if told else None


def _gather(node: Mapping[str, Any], path: str, told: dict[str, str]) -> None:
    if isinstance(node.get(ORIGIN), str):
        told[path] = node[ORIGIN]
    for child in node.get("children") or ():
        _gather(child, below(path, str(child.get("name", ""))), told)


def trees_of(
    before: RuleSet,
    after: RuleSet,
    origins: Origins,
    evaluators: Mapping[str, Any] | None,
    *,
    append: bool,
) -> CaseTrees:
    """Return the trees of cases with these evaluators of their own, which no change of the suite's moves."""
    if not evaluators:
        return CaseTrees(before.root, after.root, origins)
    if not append:
        own = tree_of_case(before.root, evaluators)
        return CaseTrees(own, own, None)
    joined = [tree_of_case(root, evaluators, append=True) for root in (before.root, after.root)]
    return CaseTrees(joined[0], joined[1], _with_own(origins, Node.from_json(evaluators)))


def _with_own(origins: Origins, own: Node) -> Origins:
    if origins is None:
        return None
    return {**origins, **{path: path for path, _ in walk(own) if path != ROOT_PATH}}


def key_of(evaluators: Mapping[str, Any] | None, *, append: bool) -> str:
    """Return the same text for cases whose own evaluators are the same."""
    return f"{append} {json.dumps(evaluators, sort_keys=True)}" if evaluators else ""

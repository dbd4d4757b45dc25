"""The plan of a run: everything that decides its verdicts, frozen, and read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError

SNAPSHOT_VERSION = 1
# What a snapshot says of how its run was asked for: what differs from the suite, and which cases.
CHANGED, ASKED = "changed", "asked"


class UnreadableSnapshotError(DomainError):
    """A stored snapshot is of a form this version does not know."""

    code = "unreadable_snapshot"


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """A target as it was when the run was created; `model` is a slug or "".

    `id` leads to the row of a target that judges, which holds its secrets; the run itself knows the
    system under test, so that 0 stands there.
    """

    name: str
    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    id: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **({"id": self.id} if self.id else {}),
            "name": self.name,
            "kind": self.kind,
            "config": dict(self.config),
            "model": self.model,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides the verdicts of a run, the cases apart (SCORING §8).

    `models` holds by slug what each language model was, without its key; `judge` is the slug of
    the suite's judge or "". `files` are paths with the hash of their content. `agents` are by name the
    targets that evaluators ask for a judgement.
    """

    suite: Mapping[str, Any]
    policy: Policy
    root: Node
    target: TargetPlan
    judge: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    cases_hash: str = ""
    agents: Mapping[str, TargetPlan] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot that a run stores; without agents it is the same as before there were any."""
        agents = {name: agent.as_json() for name, agent in self.agents.items()}
        return {
            "version": SNAPSHOT_VERSION,
            "suite": dict(self.suite),
            "policy": self.policy.as_json(),
            "evaluators": self.root.as_json(),
            "target": self.target.as_json(),
            "judge": self.models.get(self.judge),
            "models": {slug: dict(facts) for slug, facts in self.models.items()},
            "files": dict(self.files),
            "prompts": dict(self.prompts),
            "cases_hash": self.cases_hash,
            **({"agents": agents} if agents else {}),
        }


def read_plan(snapshot: Mapping[str, Any]) -> Plan:
    """Return the plan a run stored; raises UnreadableSnapshotError for another version."""
    if snapshot.get("version") != SNAPSHOT_VERSION:
        found = snapshot.get("version")
        raise UnreadableSnapshotError(
            f"The snapshot is of version {found}; this is version {SNAPSHOT_VERSION}."
        )
    return Plan(
        suite=snapshot["suite"],
        policy=Policy.from_json(snapshot["policy"]),
        root=Node.from_json(snapshot["evaluators"]),
        target=TargetPlan(**snapshot["target"]),
        judge=(snapshot["judge"] or {}).get("slug", ""),
        models=snapshot["models"],
        files=snapshot["files"],
        prompts=snapshot["prompts"],
        cases_hash=snapshot["cases_hash"],
        agents=_agents(snapshot),
    )


def _agents(snapshot: Mapping[str, Any]) -> dict[str, TargetPlan]:
    return {name: TargetPlan(**agent) for name, agent in snapshot.get("agents", {}).items()}


def tree_of_case(root: Node, evaluators: Mapping[str, Any] | None, *, append: bool = False) -> Node:
    """Return the tree that scores a case: the suite's, the case's own, or the two joined.

    A case's own tree is a root composite; joined, its children follow those of the suite's root.
    """
    if not evaluators:
        return root
    own = Node.from_json(evaluators)
    return replace(root, children=(*root.children, *own.children)) if append else own


def content_hash(value: Any) -> str:
    """Return the SHA-256 of plain JSON values, the same for the same values in any order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def cases_hash(case_hashes: Sequence[str]) -> str:
    """Return one hash for the cases of a run, in their order."""
    return hashlib.sha256("\n".join(case_hashes).encode()).hexdigest()


def judge_name(plan: Plan) -> str:
    """Return who judges a run, "" for nobody: the suite's judge, without one the agents that do."""
    judge = plan.models.get(plan.judge)
    return str(judge["name"]) if judge else ", ".join(sorted(plan.agents))

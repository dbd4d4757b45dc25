"""The plan of a run: everything that decides its verdicts, frozen, and the judge calls it will make."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from evaluators.kinds._base import Kind, sample_models
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec, walk
from evaluators.scoring.types import DomainError

SNAPSHOT_VERSION = 1
# Keys of a snapshot: what the run changed of its suite, which cases were chosen, and the run whose outputs
# it judges again.
CHANGED, ASKED, JUDGED_AGAIN = "changed", "asked", "judged_again"
MEASURES_JUDGE = "measures_judge"
# The run that a run is compared with by its evaluators: its number and its target.
BASELINE = "baseline"


class UnreadableSnapshotError(DomainError):
    """This version cannot read the format of a stored snapshot."""

    code = "unreadable_snapshot"


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """A target as it was when the run was created; `model` is a slug or "".

    `id` is the row of a target that judges, which holds its secrets. It is 0 for the system under test,
    which the run itself refers to.
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
    """Everything that decides the verdicts of a run, except the cases (SCORING §8).

    `models` holds the language models by slug, without their keys; `judge` is the slug of the suite's
    judge or "". `files` maps paths to the hash of their content. `agents` are the targets that evaluators
    ask for a judgement, by name. `rules` has the version of the rules of each kind that has changed them. `baseline`
    is the run that evaluators compare the outputs with: {"run": its number, "target": the name of its target}.
    """

    suite: Mapping[str, Any]
    policy: PolicySpec
    root: EvaluatorSpec
    target: TargetPlan
    judge: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)
    cases_hash: str = ""
    agents: Mapping[str, TargetPlan] = field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the snapshot that a run stores; it names agents, changed rules and a baseline only if there are any."""
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
            **({"rules": dict(self.rules)} if self.rules else {}),
            "cases_hash": self.cases_hash,
            **({"agents": agents} if agents else {}),
            **({BASELINE: dict(self.baseline)} if self.baseline else {}),
        }


def read_policy(snapshot: Mapping[str, Any]) -> PolicySpec:
    """Return the policy of a snapshot; raises UnreadableSnapshotError for another version."""
    version = snapshot.get("version")
    if version != SNAPSHOT_VERSION:
        raise UnreadableSnapshotError(
            f"The snapshot is of version {version}; this is version {SNAPSHOT_VERSION}."
        )
    return PolicySpec.model_validate(snapshot["policy"])


def read_plan(snapshot: Mapping[str, Any]) -> Plan:
    """Return the plan of a snapshot; raises UnreadableSnapshotError for another version."""
    return Plan(
        policy=read_policy(snapshot),
        suite=snapshot["suite"],
        root=EvaluatorSpec.model_validate(snapshot["evaluators"]),
        target=TargetPlan(**snapshot["target"]),
        judge=(snapshot["judge"] or {}).get("slug", ""),
        models=snapshot["models"],
        files=snapshot["files"],
        prompts=snapshot["prompts"],
        rules=snapshot.get("rules", {}),
        cases_hash=snapshot["cases_hash"],
        agents=_agents(snapshot),
        baseline=snapshot.get(BASELINE),
    )


def _agents(snapshot: Mapping[str, Any]) -> dict[str, TargetPlan]:
    return {name: TargetPlan(**agent) for name, agent in snapshot.get("agents", {}).items()}


def case_tree(
    root: EvaluatorSpec, evaluators: Mapping[str, Any] | None, *, append: bool = False
) -> EvaluatorSpec:
    """Return the tree that scores a case: the suite's, the case's own, or the two joined.

    A case's own tree is a root composite; joined, its children follow those of the suite's root.
    """
    if not evaluators:
        return root
    own = EvaluatorSpec.model_validate(evaluators)
    if not append:
        return own
    return root.model_copy(update={"children": (*root.children, *own.children)})


def tree_of_one(path: str, node: EvaluatorSpec) -> EvaluatorSpec:
    """Return a tree in which an evaluator is alone at its path, inside composites that hold nothing else."""
    if not path:
        return node
    for name in (*reversed(path.split("/")[:-1]), "all"):
        # Its weight among siblings means nothing while it is alone.
        node = EvaluatorSpec(
            name=name, kind=COMPOSITE, config={}, children=(node.replace(weight=1.0),)
        )
    return node


# An encoder made once: thousands of cases are hashed at a time.
ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def content_hash(value: Any) -> str:
    """Return the SHA-256 of plain JSON values; the order of keys makes no difference."""
    return hashlib.sha256(ENCODE(value).encode()).hexdigest()


def cases_hash(case_hashes: Sequence[str]) -> str:
    """Return one hash for the cases of a run, in their order."""
    return hashlib.sha256("\n".join(case_hashes).encode()).hexdigest()


JUDGE_SETTINGS = ("model_id", "reply_mode", "parameters")
USUAL_PORTS = {"http": ":80", "https": ":443"}


def judge_settings(model: Mapping[str, Any] | None, *, sees_port: bool = True) -> Any:
    """Return the settings that make a judge the same: the request, host, port and path, not the price.

    At some gateways the path names the model, and servers at two ports of a machine can have any two models.
    """
    if model is None:
        return None
    address = urlsplit(model.get("base_url", ""))
    host = address.netloc.rpartition("@")[2].lower()
    with_port = host.removesuffix(USUAL_PORTS.get(address.scheme, ""))
    return (
        with_port if sees_port else address.hostname,
        address.path.rstrip("/"),
        *(model.get(name) for name in JUDGE_SETTINGS),
    )


def judge_name(plan: Plan) -> str:
    """Return the judge of a run: the suite's judge, else the agents that judge, else ""."""
    judge = plan.models.get(plan.judge)
    return str(judge["name"]) if judge else ", ".join(sorted(plan.agents))


OUTCOMES_PATH = "@outcomes"
OUTCOMES_KIND = "outcomes"
METRICS_KIND = "metrics_judge"
DELIBERATION_KIND = "deliberation"
PAIRWISE_KIND = "pairwise"
JUDGING_AGGREGATOR = "llm_judge"
SCRIPT_AGGREGATOR = "code_judge"


def needs_outcomes_call(root: EvaluatorSpec, kinds: Mapping[str, Kind], policy: PolicySpec) -> bool:
    """Tell whether a case's expected outcomes need their own call alongside the tree (SCORING §5).

    Not if an evaluator supplies them. If the score decides, the policy says whether the call is worth
    its cost.
    """
    if any(node.kind in kinds and kinds[node.kind].supplies_outcomes for _, node in walk(root)):
        return False
    if policy.outcomes_decide or policy.judge_outcomes == "always":
        return True
    return policy.judge_outcomes == "auto" and judge_calls(root, kinds) > 0


def outcome_samples(root: EvaluatorSpec) -> int:
    """Return how many samples judge the outcomes: as many as the evaluator with the most."""
    settings = (
        node.config.get("aggregator") or {} if node.is_composite else node.config
        for _, node in walk(root)
    )
    # The kind itself reports settings that it refuses.
    return max(
        values["samples"] if isinstance(values.get("samples"), int) else 1 for values in settings
    )


def judge_calls(
    root: EvaluatorSpec,
    kinds: Mapping[str, Kind],
    *,
    outcomes_by: PolicySpec | None = None,
    has_baseline: bool = True,
) -> int:
    """Return how many judge calls one execution makes when no gate fails and nothing is repeated.

    `outcomes_by` is the policy by which the case's expected outcomes are judged, None for a case
    without any. Agents that judge count like models. Without a baseline, evaluators that need one make no call.
    """
    calls = planned_calls_by_judge(root, kinds, outcomes_by=outcomes_by, has_baseline=has_baseline)
    return calls.total()


def planned_calls_by_judge(
    root: EvaluatorSpec,
    kinds: Mapping[str, Kind],
    *,
    outcomes_by: PolicySpec | None = None,
    has_baseline: bool = True,
) -> Counter[tuple[str, str]]:
    """Return the calls that `judge_calls` counts by judge.

    A judge is ("model", slug), with "" for the run's judge, or ("agent", name of the target).
    """
    lacking = () if has_baseline else baseline_paths(root, kinds)
    asked = Counter(
        judge
        for path, node in walk(root)
        if path not in lacking
        for judge in asked_judges(node, kinds)
    )
    if outcomes_by is not None and needs_outcomes_call(root, kinds, outcomes_by):
        asked["model", ""] += outcome_samples(root)
    return asked


def retry_judge_calls(
    root: EvaluatorSpec,
    kinds: Mapping[str, Kind],
    path: str,
    *,
    outcomes_by: PolicySpec | None = None,
    has_baseline: bool = True,
) -> int:
    """Return how many judge calls one execution makes when only the evaluator at the path scores again.

    Judges above it, which read its score, are asked again too.
    """
    if path == OUTCOMES_PATH:
        is_judged = outcomes_by is not None and needs_outcomes_call(root, kinds, outcomes_by)
        return outcome_samples(root) if is_judged else 0
    lacking = () if has_baseline else baseline_paths(root, kinds)
    in_line = (
        node for place, node in walk(root) if is_nested(place, path) and place not in lacking
    )
    return sum(len(asked_judges(node, kinds)) for node in in_line)


def is_nested(path: str, place: str) -> bool:
    """Tell whether one of the two evaluators contains the other, or both are the same."""
    return _is_at(path, place) or _is_at(place, path)


def _is_at(path: str, place: str) -> bool:
    return path == place or place == "" or path.startswith(f"{place}/")


def judge_models(root: EvaluatorSpec, kinds: Mapping[str, Kind], *, default: str) -> set[str]:
    """Return the slugs of the models that the tree asks; "" stands for a judge that is not set."""
    return {slug or default for _, node in walk(root) for slug in _asked_models(node, kinds)}


def baseline_paths(root: EvaluatorSpec, kinds: Mapping[str, Kind]) -> list[str]:
    """Return the paths of the evaluators that compare outputs with a baseline's, in tree order."""
    return [
        path for path, node in walk(root) if node.kind in kinds and kinds[node.kind].needs_baseline
    ]


def script_paths(root: EvaluatorSpec, kinds: Mapping[str, Kind]) -> list[str]:
    """Return the paths of the evaluators that run programs of the suite's author, in tree order."""
    return [path for path, node in walk(root) if runs_script(node, kinds)]


def runs_script(node: EvaluatorSpec, kinds: Mapping[str, Kind]) -> bool:
    """Tell whether an evaluator runs a program of the suite's author."""
    if node.is_composite:
        return node.aggregator is not None and node.aggregator.type == SCRIPT_AGGREGATOR
    found = kinds.get(node.kind)
    if found is None or found.runs_programs is None:
        return found is not None and found.uses_sandbox
    return found.runs_programs(node.config)


def asked_judges(node: EvaluatorSpec, kinds: Mapping[str, Kind]) -> tuple[tuple[str, str], ...]:
    """Return the judge of each call that one evaluator makes by itself, as `planned_calls_by_judge` names it."""
    return (
        *(("model", slug) for slug in _asked_models(node, kinds)),
        *(("agent", name) for name in _judging_agents(node, kinds)),
    )


def _judging_agents(node: EvaluatorSpec, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the target's name for each call of one evaluator to a target that judges."""
    found = None if node.is_composite else kinds.get(node.kind)
    return found.judge_targets(node.config) if found else ()


def _asked_models(node: EvaluatorSpec, kinds: Mapping[str, Kind]) -> tuple[str, ...]:
    """Return the model's slug for each judge call of one evaluator, "" for the suite's judge."""
    if node.is_composite:
        if node.aggregator is None or node.aggregator.type != JUDGING_AGGREGATOR:
            return ()
        return sample_models(node.config.get("aggregator") or {})
    found = kinds.get(node.kind)
    return found.judge_models(node.config) if found else ()

"""The rules that one run changes: weights, required marks, metrics, thresholds, samples. The suite stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators.kinds import all_kinds, read_config
from evaluators.kinds.metrics_judge import FACTS, MetricSetting, MetricsJudgeConfig
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from runs.engine.plan import CHANGED, METRICS_KIND, judge_calls
from runs.specs.suites import SuiteSpec
from runs.suites.differences import CONFIG, METRIC, compare_specs
from runs.suites.edits import (
    ChangeRefusedError,
    Content,
    Editing,
    Operation,
    Require,
    SetPolicy,
    SetWeight,
    aggregator_options,
    begin_draft,
    change,
    nodes_with_paths,
)

MAX_SHOWN_LENGTH = 60
SAMPLES = "samples"


@dataclass(frozen=True, slots=True)
class RunRules:
    """The rules that a run changes; everything else stays as in the suite.

    `policy` has fields of PolicySpec by name. `weights`, `required` and `metrics` have the values of
    SetWeight, Require and ChooseMetrics by path. `samples` is how often every judge of the suite's tree is asked,
    None as in the suite; evaluators that cases define keep their own.
    """

    policy: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    required: Mapping[str, bool | float] = field(default_factory=dict)
    samples: int | None = None
    metrics: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Tell whether the run changes nothing."""
        changes = (self.policy, self.weights, self.required, self.metrics)
        return not any(changes) and self.samples is None


@dataclass(frozen=True, slots=True)
class AppliedRules:
    """The tree and policy that score a run, and how they differ from the suite.

    `changed` are plain JSON values: {"evaluator": its path or None for the policy, "name": a fact of
    `runs.suites.differences` or a field of the policy, "old", "new"}. Of the metrics of a judge, each one
    that differs is a change: its weights, None on the side where it does not count.
    """

    root: EvaluatorSpec
    policy: PolicySpec
    changed: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """Ask the judge of an evaluator this often for each score (SCORING §7)."""

    node: str
    samples: int

    def apply(self, editing: Editing) -> None:
        """Set the samples; raises InvalidConfigError naming the evaluator for a wrong number."""
        place = editing.place(self.node)
        node = place.node
        holder = aggregator_options(node) if place.is_composite else node["config"]
        if (holder.get(SAMPLES) or 1) == self.samples:
            return
        changed = {**holder, SAMPLES: self.samples}
        config = {**node["config"], "aggregator": changed} if place.is_composite else changed
        read_config(node["kind"], config, evaluator=place.path or node["name"])
        holder[SAMPLES] = self.samples


@dataclass(frozen=True, slots=True)
class ChooseMetrics:
    """Set weights of a metrics judge's metrics by key; None leaves a metric out (SCORING §5).

    A metric that the judge does not have is added, if it is one that every judge knows.
    """

    node: str
    weights: Mapping[str, float | None]

    def apply(self, editing: Editing) -> None:
        """Choose them; raises ChangeRefusedError or InvalidConfigError naming evaluator and metric."""
        place = editing.place(self.node)
        if place.node["kind"] != METRICS_KIND:
            raise ChangeRefusedError(f"{place.name} is not a metrics judge, so it has no metrics.")
        metrics = {
            metric.key: metric.model_dump(mode="json")
            for metric in judge_metrics(place.node["config"], evaluator=place.path)
        }
        for key, weight in self.weights.items():
            if weight is None:
                metrics.pop(key, None)
            elif key in metrics or key in FACTS:
                metrics[key] = {**metrics.get(key, {"key": key}), "weight": weight}
            else:
                raise ChangeRefusedError(
                    f"{place.name} has no metric {key[:MAX_SHOWN_LENGTH]!r}; there are "
                    f"{', '.join(dict.fromkeys((*metrics, *FACTS)))}."
                )
        if not metrics:
            raise ChangeRefusedError(f"{place.name}: no metric counts. Choose at least one.")
        chosen = judge_metrics(
            {**place.node["config"], "metrics": list(metrics.values())}, evaluator=place.path
        )
        place.node["config"]["metrics"] = [metric.model_dump(mode="json") for metric in chosen]


def judge_metrics(config: Mapping[str, Any], *, evaluator: str) -> tuple[MetricSetting, ...]:
    """Return the metrics of a metrics judge; raises InvalidConfigError naming the evaluator."""
    settings = read_config(METRICS_KIND, config, evaluator=evaluator)
    assert isinstance(settings, MetricsJudgeConfig)  # noqa: S101 - the kind's own settings
    return settings.metrics


def apply_rules(spec: SuiteSpec, rules: RunRules) -> AppliedRules:
    """Return the tree and policy that score a run of this suite.

    Raises ChangeRefusedError, ScoreOutOfRangeError, UnknownPolicyError, InvalidConfigError or TreeError
    naming the evaluator or the field.
    """
    if rules.is_empty:
        return AppliedRules(spec.evaluators, spec.policy)
    draft = begin_draft(spec)
    after = SuiteSpec.model_validate(change(draft, *_operations(draft, rules)))
    return AppliedRules(after.evaluators, after.policy, tuple(_changed(spec, after)))


def _operations(content: Content, rules: RunRules) -> Iterator[Operation]:
    ids = {path: node["id"] for path, node in nodes_with_paths(content["evaluators"])}
    for path in (*rules.weights, *rules.required, *rules.metrics):
        if path not in ids:
            raise ChangeRefusedError(
                f"The suite has no evaluator “{path[:MAX_SHOWN_LENGTH]}”. Open the form again to see which it has."
            )
    if rules.policy:
        yield SetPolicy(rules.policy)
    for path, weight in rules.weights.items():
        yield SetWeight(ids[path], weight)
    for path, required in rules.required.items():
        yield Require(ids[path], required)
    for path, metrics in rules.metrics.items():
        yield ChooseMetrics(ids[path], metrics)
    if rules.samples is not None:
        yield from _sampling(content, rules.samples)


def _sampling(content: Content, samples: int) -> Iterator[Operation]:
    judging = [
        node["id"] for _, node in nodes_with_paths(content["evaluators"]) if takes_samples(node)
    ]
    if not judging:
        raise ChangeRefusedError(
            "Samples: no evaluator of the suite uses a judge, so there is nothing to sample."
        )
    yield from (Sample(node_id, samples) for node_id in judging)


def takes_samples(node: Mapping[str, Any]) -> bool:
    """Tell whether an evaluator, as JSON, asks a judge that can give several samples."""
    alone = EvaluatorSpec.model_validate({**node, "children": []})
    kinds = all_kinds()
    known = kinds.get(node["kind"])
    if node["kind"] != COMPOSITE and (known is None or SAMPLES not in known.config.model_fields):
        return False
    return judge_calls(alone, kinds) > 0


def _changed(before: SuiteSpec, after: SuiteSpec) -> Iterator[dict[str, Any]]:
    differences = compare_specs(before, after)
    for difference in differences.policy:
        yield {
            "evaluator": None,
            "name": difference.name,
            "old": difference.old,
            "new": difference.new,
        }
    for evaluator in differences.evaluators:
        for difference in evaluator.changes:
            if difference.name == f"{CONFIG}metrics":
                yield from _changed_metrics(evaluator.path, difference.old, difference.new)
                continue
            # Without a number of samples, a judge is asked once.
            is_unset = difference.old is None and difference.name.endswith(f".{SAMPLES}")
            old = 1 if is_unset else difference.old
            yield {
                "evaluator": evaluator.path,
                "name": difference.name,
                "old": old,
                "new": difference.new,
            }


def _changed_metrics(path: str, *sides: Any) -> Iterator[dict[str, Any]]:
    """Yield each metric whose weight differs; a judge without a list of metrics has the usual ones."""
    old, new = (
        {
            metric.key: metric.weight
            for metric in judge_metrics({} if side is None else {"metrics": side}, evaluator=path)
        }
        for side in sides
    )
    for key in dict.fromkeys((*old, *new)):
        before, after = old.get(key), new.get(key)
        if before != after:
            yield {"evaluator": path, "name": f"{METRIC}{key}", "old": before, "new": after}


# Paths in the run by paths of the tree; a missing evaluator is not in the run. None where all paths
# are the same.
Origins = Mapping[str, str | None] | None

ONCE = 1


def with_own_samples(
    root: EvaluatorSpec, origins: Origins, snapshot: Mapping[str, Any]
) -> EvaluatorSpec:
    """Return the tree with the samples that a run set for itself.

    `origins` are the paths in the run by those of the tree. A judge whose samples have changed since the
    run was started stays as it is: only new calls can follow that change.
    """
    own = {change["evaluator"]: change for change in _own_samples(snapshot)}
    if not own:
        return root
    tree = root.as_json()
    for path, node in nodes_with_paths(tree):
        change = own.get(path if origins is None else origins.get(path))
        config = _judge_config(node)
        if change and (config.get(SAMPLES) or ONCE) == (change["old"] or ONCE):
            config[SAMPLES] = change["new"]
    return EvaluatorSpec.model_validate(tree)


def kept_sample_changes(
    root: EvaluatorSpec, origins: Origins, snapshot: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the run's own changes of samples that a tree has, with the paths of the tree."""
    own = {change["evaluator"]: change for change in _own_samples(snapshot)}
    kept = []
    for path, node in nodes_with_paths(root.as_json()):
        change = own.get(path if origins is None else origins.get(path))
        if change and _judge_config(node).get(SAMPLES) == change["new"]:
            kept.append({**change, "evaluator": path})
    return kept


def without_samples(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot without the run's own changes of samples."""
    own = list(_own_samples(snapshot))
    rest = [facts for facts in snapshot.get(CHANGED) or () if facts not in own]
    return {**snapshot, CHANGED: rest}


def _own_samples(snapshot: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for own in snapshot.get(CHANGED) or ():
        if own["evaluator"] is not None and own["name"].endswith(f".{SAMPLES}"):
            yield own


def _judge_config(node: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with the samples of a judge, to be changed in place."""
    config: dict[str, Any] = node["config"]
    aggregator: dict[str, Any] | None = config.get("aggregator")
    return config if aggregator is None else aggregator

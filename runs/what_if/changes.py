"""Which evaluators an edit changed, where each came from, and whether their stored scores still apply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from evaluators.kinds import read_config
from evaluators.kinds._base import Kind, KindConfig
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import ROOT_PATH, EvaluatorSpec, below, walk
from runs.engine.plan import Plan, case_tree, judge_models, script_paths
from runs.running.rules import Origins

ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A policy and a suite's tree. `judge` is the slug of the suite's judge or ""; `files` are paths with hashes."""

    policy: PolicySpec
    root: EvaluatorSpec
    judge: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, plan: Plan) -> RuleSet:
        """Return the frozen rules of a run."""
        return cls(plan.policy, plan.root, plan.judge, plan.files)


@dataclass(frozen=True, slots=True)
class CaseTrees:
    """The trees that score some cases before and after."""

    before: EvaluatorSpec
    after: EvaluatorSpec
    origins: Origins


def read_origins(evaluators: Mapping[str, Any]) -> Origins:
    """Return the origins of the nodes of an edited tree, from their key `origin`.

    A node without one is new. If no node has one, the result is None: every node kept its path.
    """
    origins: dict[str, str] = {}
    _gather(evaluators, ROOT_PATH, origins)
    return {**origins, ROOT_PATH: ROOT_PATH} if origins else None


def _gather(node: Mapping[str, Any], path: str, origins: dict[str, str]) -> None:
    if isinstance(node.get(ORIGIN), str):
        origins[path] = node[ORIGIN]
    for child in node.get("children") or ():
        _gather(child, below(path, str(child.get("name", ""))), origins)


def case_trees(
    before: RuleSet,
    after: RuleSet,
    origins: Origins,
    evaluators: Mapping[str, Any] | None,
    *,
    append: bool,
) -> CaseTrees:
    """Return the trees of cases with these own evaluators. Changes of the suite do not affect those."""
    if not evaluators:
        return CaseTrees(before.root, after.root, origins)
    if not append:
        own = case_tree(before.root, evaluators)
        return CaseTrees(own, own, None)
    joined = [case_tree(root, evaluators, append=True) for root in (before.root, after.root)]
    return CaseTrees(
        joined[0], joined[1], _with_own(origins, EvaluatorSpec.model_validate(evaluators))
    )


def _with_own(origins: Origins, own: EvaluatorSpec) -> Origins:
    if origins is None:
        return None
    return {**origins, **{path: path for path, _ in walk(own) if path != ROOT_PATH}}


def evaluators_key(evaluators: Mapping[str, Any] | None, *, append: bool) -> str:
    """Return the same key for cases with equal own evaluators."""
    return f"{append} {json.dumps(evaluators, sort_keys=True)}" if evaluators else ""


SHOWN_TO_JUDGES = ("pass_threshold", "borderline_threshold", "on_unscored")
_ABSENT = object()


class ScoreSource(StrEnum):
    """Which score an evaluator has: its stored one, one from its stored parts, an outdated one, or none."""

    KEPT = "kept"
    RESCORED = "rescored"
    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class LeafChange:
    """An evaluator that gives a score itself. `origin` is its path in the run, None if it is new.

    `why` explains why its stored score does not apply. `asks` tells what a new score needs: judge
    for model calls, script for a program, "" for neither.
    """

    path: str
    node: EvaluatorSpec
    origin: str | None
    reach: ScoreSource
    why: str = ""
    asks: str = ""
    config: KindConfig | None = None


class LeafComparison:
    """Compares the evaluators of some cases before and after an edit."""

    def __init__(
        self, before: RuleSet, after: RuleSet, trees: CaseTrees, kinds: Mapping[str, Kind]
    ) -> None:
        self.before, self.after, self.trees, self.kinds = before, after, trees, kinds
        self.known = dict(walk(trees.before))
        paths = before.files.keys() | after.files.keys()
        self.files = {path for path in paths if before.files.get(path) != after.files.get(path)}
        self.changes: dict[str, LeafChange] = {}

    def leaves(self) -> dict[str, LeafChange]:
        """Return the evaluators of the new tree that give a score themselves, by path.

        Raises InvalidConfigError for changed settings that do not fit their kind.
        """
        # Judges of composites depend on their children, so children come first.
        for path, node in reversed(list(walk(self.trees.after))):
            if not node.is_composite or (node.aggregator and node.aggregator.is_judging):
                self.changes[path] = self._change(path, node)
        return dict(reversed(self.changes.items()))

    def origin(self, path: str) -> str | None:
        """Return the path of an evaluator in the run, None if it is new."""
        origins = self.trees.origins
        origin = path if origins is None or path == ROOT_PATH else origins.get(path)
        return origin if origin in self.known else None

    def _change(self, path: str, node: EvaluatorSpec) -> LeafChange:
        origin = self.origin(path)
        change = LeafChange(path, node, origin, ScoreSource.KEPT, asks=self._asks(node))
        if origin is None:
            return replace(
                change, reach=ScoreSource.NEW, why="it is new, so it has no stored score"
            )
        old = self.known[origin]
        if why := _other_thing(old, node):
            return replace(change, reach=ScoreSource.NEW, why=why)
        if node.is_composite:
            why = self._judged_otherwise(origin, path) or self._asked_otherwise(old, node)
            return replace(change, reach=ScoreSource.OLD, why=why) if why else change
        return self._leaf(change, old)

    def _leaf(self, change: LeafChange, old: EvaluatorSpec) -> LeafChange:
        node = change.node
        kind, same = self.kinds.get(node.kind), old.config == node.config
        if why := self._asked_otherwise(old, node):
            return replace(change, reach=ScoreSource.OLD, why=why)
        if same:
            return change
        if kind is None:
            return replace(change, reach=ScoreSource.OLD, why="its settings changed")
        config = read_config(node.kind, node.config, evaluator=change.path)
        try:
            stored = kind.config.model_validate(old.config)
        except ValidationError:
            return replace(
                change, reach=ScoreSource.OLD, why="its settings in the run cannot be read"
            )
        if stored == config:
            return change
        if kind.rescore is None:
            return replace(change, reach=ScoreSource.OLD, why="its settings changed")
        if why := _judged_settings_problem(stored, config):
            return replace(change, reach=ScoreSource.OLD, why=why)
        return replace(change, reach=ScoreSource.RESCORED, config=config)

    def _asked_otherwise(self, old: EvaluatorSpec, node: EvaluatorSpec) -> str:
        """Return which judge or file changed, "" if none did."""
        sides = ((old, self.before.judge), (node, self.after.judge))
        models_before, models_after = (
            judge_models(side.replace(children=()), self.kinds, default=judge)
            for side, judge in sides
        )
        if models_after and models_before != models_after:
            return "another language model judges"
        texts = [text for text in _texts(node.config) for path in self.files if path in text]
        return f"the file {texts[0]} changed" if texts else ""

    def _judged_otherwise(self, origin: str, path: str) -> str:
        """Return why a script or judge would give its composite another score, "" if it would not."""
        old, new = self.known[origin], dict(walk(self.trees.after))[path]
        if old.as_json()["config"] != new.as_json()["config"]:
            return "its settings changed"
        below = [child.as_json() for child in new.children]
        is_same = below == [child.as_json() for child in old.children]
        inner = (
            change
            for at, change in self.changes.items()
            if at.startswith(f"{path}/" if path else "")
        )
        if not is_same or any(change.reach is not ScoreSource.KEPT for change in inner):
            return "the scores it reads changed"
        for name in SHOWN_TO_JUDGES:
            if getattr(self.before.policy, name) != getattr(self.after.policy, name):
                return "it reads verdicts, and their thresholds changed"
        return ""

    def _asks(self, node: EvaluatorSpec) -> str:
        alone = node.replace(children=())
        kind = self.kinds.get(node.kind)
        if judge_models(alone, self.kinds, default="judge") or (
            kind is not None and kind.judge_targets(node.config)
        ):
            return "judge"
        return "script" if script_paths(alone, self.kinds) else ""


def _other_thing(old: EvaluatorSpec, new: EvaluatorSpec) -> str:
    """Return why no stored score fits the new kind of an evaluator, "" if one does."""
    if old.kind != new.kind:
        return f"it is a {new.kind} now and was a {old.kind}, so it has no stored score"
    if (
        new.aggregator is None
        or old.aggregator is None
        or new.aggregator.type == old.aggregator.type
    ):
        return ""
    words = {"code_judge": "a script", "llm_judge": "a judge"}
    return f"{words[new.aggregator.type]} computes its score now, so it has no stored score"


def _judged_settings_problem(stored: KindConfig, config: KindConfig) -> str:
    before = stored.judged_settings()
    for name, value in config.judged_settings().items():
        if name not in before:
            return f"{name} is new"
        if before.get(name, _ABSENT) != value:
            return f"{name} has other words" if " " in name else f"{name} changed"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)

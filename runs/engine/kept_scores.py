"""Which scores of a run stand when its outputs are judged again by another plan, and why the others do not.

A score stands if the same question would be asked again: the same settings, built-in prompt, rules, judge, agents,
files and baseline, about the same facts of the case. Only a score stands; what could not be scored is judged again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from evaluators.kinds._base import CaseFacts, Kind
from evaluators.scoring.tree import EvaluatorSpec, below, walk
from runs.engine.plan import (
    OUTCOMES_KIND,
    OUTCOMES_PATH,
    Plan,
    asked_judges,
    judge_settings,
    needs_outcomes_call,
    outcome_samples,
    runs_script,
)

NEW = "new"
ANOTHER_JUDGE = "another judge"
CHANGED_CASE = "the case changed"
OTHER_TOOL = "another tool gave the score"
ASKED_AGAIN = "the judge is asked again"
# An evaluator's path and the judge that it asks, as `planned_calls_by_judge` names it.
Call = tuple[str, tuple[str, str]]
# What a composite that a judge or a script scores reads of its children.
BANDS = ("pass_threshold", "borderline_threshold", "on_unscored")


@dataclass(frozen=True, slots=True)
class KeptScores:
    """The evaluators of one tree: `origins` has the old path of each whose scores stand, `reasons` why others do not.

    Both are by new path; `paths` has all in tree order. `inside` names the evaluators below a composite that is
    scored as a whole.
    """

    paths: Sequence[str] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, Collection[str]] = field(default_factory=dict)

    def standing(self, scored: Collection[str]) -> dict[str, str]:
        """Return the old paths of the scores that stand for a result, by new path; `scored` are the paths it has."""
        kept = {path: old for path, old in self.origins.items() if old in scored}
        return {
            path: old
            for path, old in kept.items()
            if all(inner in kept for inner in self.inside.get(path, ()))
        }


@dataclass(frozen=True, slots=True)
class JudgedTree:
    """The tree that scores a case under a plan; with `lists_outcomes` the case has expected outcomes."""

    plan: Plan
    root: EvaluatorSpec
    lists_outcomes: bool = False

    def questions(self, kinds: Mapping[str, Kind]) -> dict[str, Mapping[str, Any]]:
        """Return what each evaluator's score depends on, by path, named as the reason when it differs."""
        found = {
            path: self._question(node, path, kinds)
            for path, node in walk(self.root)
            if is_scored(node)
        }
        if self._judges_outcomes(kinds):
            found[OUTCOMES_PATH] = {
                "its samples changed": outcome_samples(self.root),
                "its built-in prompt changed": self.plan.prompts.get(OUTCOMES_KIND),
                ANOTHER_JUDGE: self._judge("model", ""),
            }
        return found

    def calls(self, kinds: Mapping[str, Kind], kept: Collection[str]) -> Counter[Call]:
        """Return the judge calls that one result makes when no gate fails, without those of `kept` evaluators."""
        calls = Counter(
            (path, judge)
            for path, node in walk(self.root)
            if path not in kept
            for judge in asked_judges(node, kinds)
        )
        if OUTCOMES_PATH not in kept and self._judges_outcomes(kinds):
            calls[OUTCOMES_PATH, ("model", "")] = outcome_samples(self.root)
        return calls

    def _judges_outcomes(self, kinds: Mapping[str, Kind]) -> bool:
        return (
            self.lists_outcomes
            and bool(self.plan.judge)
            and needs_outcomes_call(self.root, kinds, self.plan.policy)
        )

    def _question(
        self, node: EvaluatorSpec, path: str, kinds: Mapping[str, Kind]
    ) -> Mapping[str, Any]:
        policy, files = self.plan.policy, self.plan.files
        # Its program may read every file of the suite, and its own path.
        is_program = runs_script(node, kinds)
        kind = kinds.get(node.kind)
        return {
            "its settings changed": [node.kind, node.config, node.negate],
            "its built-in prompt changed": self.plan.prompts.get(node.kind),
            "the rules of its kind changed": self.plan.rules.get(node.kind, 1),
            ANOTHER_JUDGE: [self._judge(*judge) for judge in asked_judges(node, kinds)],
            "its files changed": files if is_program else _read_files(node, files),
            "it is compared with another run": self.plan.baseline
            if kind is not None and kind.needs_baseline
            else None,
            "its place changed": path if is_program else "",
            "what it reads changed": [
                *(_without_marks(child.as_json()) for child in node.children),
                *(getattr(policy, name) for name in BANDS if node.children),
            ],
        }

    def _judge(self, what: str, name: str) -> Any:
        """Return the settings of a judge, as `planned_calls_by_judge` names it."""
        if what == "model":
            return judge_settings(self.plan.models.get(name or self.plan.judge))
        agent = self.plan.agents.get(name)
        if agent is None:
            return None
        return agent.kind, agent.config, judge_settings(self.plan.models.get(agent.model))


def _without_marks(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored evaluator without pass marks, which no score depends on."""
    kept = {name: value for name, value in node.items() if name != "pass_mark"}
    return kept | {"children": [_without_marks(child) for child in node["children"]]}


def _read_files(node: EvaluatorSpec, files: Mapping[str, str]) -> dict[str, str]:
    """Return, of the hashes of the suite's files by path, those that an evaluator without a program may read.

    These are the files that its settings name, with everything in their folders and below.
    """
    config = json.dumps(node.config)
    # Both sides are escaped alike, whatever characters a name has.
    named = [name for name in files if json.dumps(PurePosixPath(name).name)[1:-1] in config]
    folders = tuple({f"{PurePosixPath(name).parent}/" for name in named})
    is_read = "./" in folders
    return {name: sha for name, sha in files.items() if is_read or name.startswith(folders)}


def case_question(case: CaseFacts, files: Mapping[str, str]) -> Any:
    """Return the input of a case with the contents of the files that are in it, which the target was asked."""
    named = [path for turn in case.input for path in turn.files]
    return case.input, [files.get(path) for path in named]


def is_scored(node: EvaluatorSpec) -> bool:
    """Tell whether an evaluator is scored by itself; other composites are computed from their children."""
    if not node.is_composite:
        return True
    return node.aggregator is not None and node.aggregator.is_judging


def keep_scores(
    before: JudgedTree,
    after: JudgedTree,
    kinds: Mapping[str, Kind],
    *,
    is_same_case: bool = True,
    is_ours: bool = True,
) -> KeptScores:
    """Return which scores of a result stand when it is judged by another tree.

    An evaluator that moved or got another name keeps its scores, but two that ask the same never share one. None
    stands if the case changed otherwise than in its input, for every evaluator may read it, or if the scores are
    those of another tool.
    """
    old, new = before.questions(kinds), after.questions(kinds)
    inside = _inside(after.root, new)
    if not (is_ours and is_same_case):
        reason = CHANGED_CASE if is_ours else OTHER_TOOL
        return KeptScores(tuple(new), reasons=dict.fromkeys(new, reason))
    origins = {path: path for path, question in new.items() if old.get(path) == question}
    moved = {path: question for path, question in old.items() if path not in origins}
    reasons: dict[str, str] = {}
    for path, question in new.items():
        if path in origins:
            continue
        origin = next((place for place, known in moved.items() if known == question), None)
        if origin is not None:
            origins[path] = origin
            del moved[origin]
        else:
            reasons[path] = _reason(old.get(path), question)
    for path, places in inside.items():
        if path in origins and any(place not in origins for place in places):
            del origins[path]
            reasons[path] = "what it reads is judged again"
    return KeptScores(tuple(new), origins, reasons, inside)


def ask_again(kept: KeptScores, tree: JudgedTree, kinds: Mapping[str, Kind]) -> KeptScores:
    """Return which scores still stand when every judge is asked again, also where its question is the same."""
    asked = {path for path, _ in tree.calls(kinds, ())}
    origins = {path: origin for path, origin in kept.origins.items() if path not in asked}
    again = dict.fromkeys(asked.intersection(kept.origins), ASKED_AGAIN)
    return replace(kept, origins=origins, reasons={**kept.reasons, **again})


def _inside(root: EvaluatorSpec, paths: Collection[str]) -> dict[str, list[str]]:
    """Return what is scored below each composite that is scored as a whole."""
    return {
        path: [place for place in paths if place != path and _is_below(place, path)]
        for path, node in walk(root)
        if node.is_composite and path in paths
    }


def _is_below(path: str, composite: str) -> bool:
    return path != OUTCOMES_PATH and path.startswith(below(composite, ""))


def _reason(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Return the first difference in words."""
    if old is None or old.keys() != new.keys():
        return NEW
    return next(reason for reason, value in new.items() if old[reason] != value)

"""A try of an evaluator as its page shows it: how far it is, the scores as a result shows them, and every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from django.utils import timezone

from evaluators.scoring.decision import Decision
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from runs.models import CallStatus, EvaluatorTrial, EvaluatorTrialState, Score, ScoreState
from runs.models.evaluator_trials import GIVEN_UP
from runs.models.ledger import ANSWERED
from runs.reports.dry_run_words import dry_run_words
from runs.reports.result_tree import TreeNode, result_tree, walk
from runs.reports.tried_calls import (
    CallShown,
    RequestShown,
    call_shown,
    request_shown,
    script_shown,
)

UNTAKEN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Scored:
    """What evaluators said: the tree of those tried, what is drawn of it, and how to draw scores."""

    nodes: tuple[TreeNode, ...]
    policy: Policy

    @property
    def top(self) -> TreeNode:
        """Return the evaluator that was tried."""
        return self.nodes[0]

    @property
    def page(self) -> Any:
        """Return what the templates of a result's tree ask of its page."""
        return SimpleNamespace(policy=self.policy, is_open=False, has_answer=False)

    @property
    def run(self) -> Any:
        """Return what the templates of a result's tree ask of its run."""
        return SimpleNamespace(scale=self.policy.scale)

    @property
    def warnings(self) -> list[str]:
        """Return what evaluators warn of, each with its name."""
        return [
            f"{node.name}: {warning}"
            for one in self.nodes
            for node in walk(one)
            if node.row is not None
            for warning in node.row.warnings
        ]


@dataclass(frozen=True, slots=True)
class TrialShown:
    """How far a try is, and what it found; `is_current` tells that the draft is still as it was tried.

    `foreword` stands before what a dry run would send and start, "" where that is nothing.
    """

    trial: EvaluatorTrial
    state: str
    problem: str
    duration_ms: int | None
    scored: Scored | None
    calls: tuple[CallShown, ...]
    call_count: int
    requests: tuple[RequestShown, ...]
    scripts: tuple[Mapping[str, Any], ...]
    foreword: str
    is_current: bool

    @property
    def is_open(self) -> bool:
        """Return whether the page has something to wait for."""
        return self.state in ("waiting", "untaken", "running")

    @property
    def at_work(self) -> str:
        """Say what a worker is at."""
        return "Finding out what would be sent" if self.trial.is_dry else "Scoring"

    @property
    def input_tokens(self) -> int | None:
        """Return the tokens sent, None where no call tells."""
        return _sum(call.input_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int | None:
        """Return the tokens answered, None where no call tells."""
        return _sum(call.output_tokens for call in self.calls)

    @property
    def unpriced(self) -> int:
        """Return how many answered calls have no known price."""
        return sum(call.cost_usd is None and call.status in ANSWERED_WORDS for call in self.calls)

    @property
    def repairs(self) -> int:
        """Return how many replies had to be asked for again."""
        return sum("repair" in call.occasion for call in self.calls)

    @property
    def models(self) -> list[str]:
        """Return who was asked, each once."""
        return list(dict.fromkeys(call.model for call in self.calls))


ANSWERED_WORDS = {CallStatus(one).label for one in ANSWERED}


def trial_shown(trial: EvaluatorTrial, tree: Mapping[str, Any] | None = None) -> TrialShown:
    """Return how far a try is and what it found; `tree` is the evaluator as the draft has it now."""
    found: Mapping[str, Any] = trial.found or {}
    return TrialShown(
        trial=trial,
        state=_state(trial),
        problem=str(found.get("problem", "")),
        duration_ms=found.get("duration_ms"),
        scored=_scored(trial, found) if "decision" in found else None,
        calls=tuple(call_shown(call) for call in found.get("calls") or ()),
        call_count=int(found.get("call_count") or 0),
        requests=tuple(request_shown(one) for one in found.get("requests") or ()),
        scripts=tuple(script_shown(one) for one in found.get("scripts") or ()),
        foreword=dry_run_words(found, trial.root),
        is_current=tree is None or Node.from_json(tree).as_json() == trial.tree,
    )


def _state(trial: EvaluatorTrial) -> str:
    now = timezone.now()
    since = trial.begun_at or trial.asked_at
    if trial.state in (EvaluatorTrialState.WAITING, EvaluatorTrialState.RUNNING):
        if now - since > GIVEN_UP:
            return "lost"
        if trial.state == EvaluatorTrialState.WAITING and now - since > UNTAKEN:
            return "untaken"
    return str(trial.state)


def _scored(trial: EvaluatorTrial, found: Mapping[str, Any]) -> Scored | None:
    """Return the whole; of a dry run that asks somebody, the evaluators that scored already."""
    policy = trial.rules
    rows = {row["path"]: _row(row) for row in found["scores"]}
    decision = Decision.from_json(found["decision"])
    tree = _as_top(result_tree(trial.root, decision, rows, policy), trial.path)
    if not (found.get("requests") or found.get("scripts")):
        return Scored((tree,), policy)
    told = tuple(
        replace(node, is_decisive=False)
        for node in walk(tree)
        if not node.children and node.row is not None and node.row.state != ScoreState.SKIPPED
    )
    return Scored(told, policy) if told else None


def _as_top(tree: TreeNode, path: str) -> TreeNode:
    """Return the evaluator that was tried as the top of what is drawn."""
    found = next(node for node in walk(tree) if node.path == path)
    return replace(found, is_root=True, is_open=True)


def _row(stored: Mapping[str, Any]) -> Score:
    cost = stored["cost_usd"]
    return Score(**{**stored, "cost_usd": None if cost is None else Decimal(cost)})


def _sum(numbers: Any) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None

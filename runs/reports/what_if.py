"""What a finished run would have come to under edited rules, for the page of the editor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node, validate
from runs.models import ACTIVE_RUN_STATUSES, Run, Suite
from runs.plan import read_plan
from runs.rescoring.reading import question
from runs.what_if import Origins, RuleSet, WhatIf, origins_of

MOST_OFFERED = 20
HEAVY = ("snapshot", "leaf_scores")


def what_if_of(run: Run, rules: RuleSet, *, origins: Origins = None) -> WhatIf:
    """Return the run by its own rules and by these: five queries at most, one more for each stretch of long outcomes.

    `origins` are by path of the new tree the paths in the run, None for an evaluator that is new.
    Raises RunNotEndedError for a run that is still on, and DomainError for rules that cannot be.
    """
    return question(run, rules, origins=origins).answer()


def edited_rules(
    run: Run, content: Mapping[str, Any], *, base: Mapping[str, Any] | None = None
) -> tuple[RuleSet, Origins]:
    """Return the rules that edited content of a suite makes, and where its evaluators came from.

    The run's own judge stays unless the content names another than `base`, the version it was
    edited from: a run may have been started with a judge of its own. Raises DomainError for a
    policy or tree that cannot be.
    """
    root = Node.from_json(content["evaluators"])
    validate(root)
    plan = read_plan(run.snapshot)
    judge = str(content.get("judge") or "")
    if base is None or judge == str(base.get("judge") or ""):
        judge = plan.judge
    files = content.get("files", (base or {}).get("files"))
    rules = RuleSet(
        policy=Policy.from_json(content["policy"]),
        root=root,
        judge=judge,
        files=plan.files if files is None else files,
    )
    return rules, origins_of(content["evaluators"])


def askable_runs(suite: Suite) -> list[Run]:
    """Return the suite's last runs that are over and have results, newest first; one query."""
    ended = suite.runs.exclude(status__in=ACTIVE_RUN_STATUSES).filter(done_count__gt=0)
    return list(ended.defer(*HEAVY).order_by("-number")[:MOST_OFFERED])

"""What decides a run, checked and frozen when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from django.contrib.auth.models import User

from evaluators.judging.specs import spec_of
from evaluators.kinds import prompt_versions
from evaluators.models import LanguageModel
from runs.drafting.for_one_run import RuledRun
from runs.models import Case, Suite, Target
from runs.plan import Plan, TargetPlan, cases_hash, judge_name
from runs.services.checking import (
    check_agents,
    check_models,
    check_target,
    check_trees,
    target_kind,
)
from runs.services.script_rights import check_scripts

LONGEST_JUDGE_NAME = 120


def frozen_plan(
    suite: Suite,
    target: Target,
    judge: LanguageModel | None,
    cases: Sequence[Case],
    rule: RuledRun,
    started_by: User | None,
) -> Plan:
    """Return everything to freeze; raises DomainError for what cannot be carried out."""
    root, policy = rule.root, rule.policy
    check_target(target, cases)
    trees = check_trees(root, cases)
    agents = check_agents(trees)
    check_scripts(trees, target_kind(target), started_by)
    models = check_models(trees, cases, target, judge, policy, agents=agents)
    return Plan(
        suite={"slug": suite.slug, "title": suite.title, "version": suite.version},
        policy=policy,
        root=root,
        target=_frozen(target),
        judge=judge.slug if judge else "",
        models={model.slug: spec_of(model).as_json() for model in models},
        files=dict(suite.files.values_list("path", "content_id")),
        prompts=prompt_versions(),
        cases_hash=cases_hash([case.content_hash for case in cases]),
        agents={agent.name: replace(_frozen(agent), id=agent.pk) for agent in agents},
    )


def _frozen(target: Target) -> TargetPlan:
    slug = target.model.slug if target.model else ""
    return TargetPlan(target.name, target.kind, target.config, slug)


def judges_named(plan: Plan) -> str:
    """Return who judges; of agents too many to name those that can be named whole."""
    names = judge_name(plan)
    if len(names) <= LONGEST_JUDGE_NAME:
        return names
    whole, _, _ = names[: LONGEST_JUDGE_NAME - len(", …")].rpartition(", ")
    return f"{whole}, …" if whole else names[:LONGEST_JUDGE_NAME]

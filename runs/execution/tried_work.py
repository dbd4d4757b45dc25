"""What a try of an evaluator works with: models, files and targets as they are now, and the output it scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils import timezone

from evaluators.judging.specs import ModelSpec, spec_of
from evaluators.kinds import all_kinds
from evaluators.kinds._base import Output
from evaluators.models import LanguageModel
from evaluators.scoring.policy import Policy
from evaluators.scoring.tree import Node
from runs.execution.loading import AskedTarget, RunWork
from runs.execution.target_secrets import TargetSecrets, secrets_of
from runs.models import Artifact, EvaluatorTrial, SuiteFile, Target
from runs.models.clock import clock_offset
from runs.models.stored import kept_output
from runs.plan import Plan, TargetPlan, agent_paths, judge_models
from runs.targets import target_kind_named
from runs.targets._outputs import output_from_json

TARGET = "a try"
RECORDED = "recorded"


def work_of(trial: EvaluatorTrial) -> RunWork:
    """Return what the evaluators of a try work with.

    A dry run takes no keys and no secrets, and knows no limits: it sends nothing.
    """
    root, kinds, is_dry = Node.from_json(trial.tree), all_kinds(), trial.is_dry
    agents = _agents(root, is_dry=is_dry)
    slugs = judge_models(root, kinds, default=trial.judge) - {""}
    slugs |= {agent.plan.model for agent in agents.values()} - {""}
    models = list(LanguageModel.objects.filter(slug__in=slugs))
    kind = target_kind_named(RECORDED)
    name = trial.result.run.target_name if trial.result else TARGET
    files = SuiteFile.objects.filter(suite=trial.suite).select_related("content")
    return RunWork(
        run_id=0,
        owner_id="",
        started_at=timezone.now(),
        clock_offset=clock_offset(),
        plan=Plan(
            suite={},
            policy=Policy.from_json(trial.policy),
            root=root,
            target=TargetPlan(name, RECORDED),
            judge=trial.judge,
        ),
        target=kind,
        target_config=kind.config(),
        target_id=None,
        has_uploads=False,
        concurrency=1,
        budget_usd=None,
        models={model.slug: _spec(model, is_dry=is_dry) for model in models},
        model_ids={model.slug: model.pk for model in models},
        files={file.path: bytes(file.content.content) for file in files},
        kinds=kinds,
        agents=agents,
    )


def output_of(trial: EvaluatorTrial) -> Output:
    """Return the output that is scored: the stored one with the files the target left, or the pasted one."""
    if trial.result is None:
        return output_from_json(trial.pasted or {})
    left = Artifact.objects.filter(result=trial.result).select_related("content")
    files = {one.path: bytes(one.content.content) for one in left}
    return kept_output(trial.result.output, files)


def _spec(model: LanguageModel, *, is_dry: bool) -> ModelSpec:
    spec = spec_of(model)
    if not is_dry:
        return spec
    return replace(spec, api_key="", key_problem="", requests_per_minute=None)


def _agents(root: Node, *, is_dry: bool) -> dict[str, AskedTarget]:
    """Return by name the targets that the evaluators ask for a judgement, as they are now."""
    names = set(agent_paths(root, all_kinds()).values())
    found: dict[str, AskedTarget] = {}
    for row in Target.objects.filter(name__in=names, archived_at=None).select_related("model"):
        kind = target_kind_named(row.kind)
        config: Any = kind.config.model_validate(row.config)
        model = row.model.slug if row.model else ""
        plan = TargetPlan(row.name, row.kind, row.config, model, row.pk)
        kept = TargetSecrets() if is_dry else secrets_of(row, config)
        found[row.name] = AskedTarget(plan, kind, config, kept)
    return found

"""Read what a worker needs for a run from the database: plan, models, files and outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from evaluators.kinds import all_kinds
from evaluators.kinds._base import Kind, KindConfig
from evaluators.model_calls.calls import CallKey, CallOutcome, CallRecord
from evaluators.model_calls.models import ModelSpec, model_spec
from evaluators.models import LanguageModel
from evaluators.scoring.score_tree import Rules
from evaluators.scoring.tree import EvaluatorSpec
from runs.costs import is_replayed
from runs.engine.plan import Plan, TargetPlan, case_tree, read_plan
from runs.execution.target_secrets import TargetSecrets, run_secrets
from runs.models.database import TextBytes, among, clock_offset
from runs.models.jobs import ModelJob
from runs.models.results import (
    ComparedOutput,
    ModelCall,
    PushedOutput,
    Result,
    ResultOutput,
    cost_purpose,
)
from runs.models.runs import Run
from runs.models.suites import Case, FileContent, RecordedOutput, SuiteFile, Target
from runs.target_kinds import get_target_kind
from runs.target_kinds._base import TargetConfig, TargetKind

REUSABLE_STATUSES = (CallOutcome.OK, CallOutcome.UNREADABLE)

Calls = Mapping[tuple[CallKey, str], CallRecord]


@dataclass(frozen=True, slots=True)
class FrozenTarget:
    """A target with its frozen settings and its present secrets."""

    plan: TargetPlan
    kind: TargetKind
    config: TargetConfig
    secrets: TargetSecrets = field(default_factory=TargetSecrets)


@dataclass(frozen=True, slots=True)
class CaseTree:
    """The evaluators of a case and their rules; `configs` keeps the validated settings by path."""

    root: EvaluatorSpec
    rules: Rules
    configs: dict[str, KindConfig] = field(default_factory=dict)


@dataclass(slots=True)
class RunWork:
    """One run as its workers see it since it was last started or resumed at `started_at`.

    `is_replayed` tells whether the outputs existed before the run, so that the target costs nothing now. With
    `measures_judge` the ledger books the calls of evaluators as those of a measurement.
    `agents` are the targets that judge, by name. Only `trees`, by case, grows during the work.
    """

    run_id: int
    owner_id: str
    started_at: datetime | None
    clock_offset: timedelta
    plan: Plan
    target: TargetKind
    target_config: TargetConfig
    target_id: int | None
    has_uploads: bool
    is_replayed: bool
    concurrency: int
    budget_usd: Decimal | None
    models: Mapping[str, ModelSpec]
    model_ids: Mapping[str, int]
    files: Mapping[str, bytes]
    kinds: Mapping[str, Kind]
    secrets: TargetSecrets = field(default_factory=TargetSecrets)
    agents: Mapping[str, FrozenTarget] = field(default_factory=dict)
    measures_judge: bool = False
    trees: dict[int | None, CaseTree] = field(default_factory=dict)

    @property
    def frozen_target(self) -> FrozenTarget:
        """Return the system under test."""
        return FrozenTarget(self.plan.target, self.target, self.target_config, self.secrets)

    def tree(self, case: Case) -> CaseTree:
        """Return the tree that scores a case; raises DomainError when it is unreadable."""
        place = case.pk if case.evaluators else None
        if place not in self.trees:
            root = case_tree(self.plan.root, case.evaluators, append=case.evaluators_append)
            self.trees[place] = CaseTree(root, Rules(root, self.plan.policy))
        return self.trees[place]


def load_work(run: Run) -> RunWork:
    """Return the run's work; raises DomainError when its snapshot or target is unusable."""
    plan = read_plan(run.snapshot)
    target = get_target_kind(plan.target.kind)
    config = target.config.model_validate(plan.target.config)
    models = LanguageModel.objects.filter(slug__in=plan.models)
    uploads = RecordedOutput.objects.filter(target=run.target)
    return RunWork(
        run_id=run.pk,
        owner_id=run.owner_id,
        started_at=run.started_at,
        clock_offset=clock_offset(),
        plan=plan,
        target=target,
        target_config=config,
        target_id=run.target_id,
        has_uploads=target.replays and uploads.exists(),
        is_replayed=is_replayed(run.snapshot),
        concurrency=max(1, run.concurrency),
        budget_usd=run.budget_usd,
        models={model.slug: model_spec(model, plan.models[model.slug]) for model in models},
        model_ids={model.slug: model.pk for model in models},
        files=_files(plan.files),
        kinds=all_kinds(),
        secrets=run_secrets(run.target, config),
        agents=_agents(plan),
        measures_judge=run.measures_judge,
    )


def work_outside_runs(plan: Plan, suite_id: int | None) -> RunWork:
    """Return work without run, owner, budget or models, with the files of the suite."""
    target = get_target_kind(plan.target.kind)
    files = SuiteFile.objects.filter(suite=suite_id or 0).select_related("content")
    return RunWork(
        run_id=0,
        owner_id="",
        started_at=timezone.now(),
        clock_offset=clock_offset(),
        plan=plan,
        target=target,
        target_config=target.config.model_validate(plan.target.config),
        target_id=None,
        has_uploads=False,
        is_replayed=False,
        concurrency=1,
        budget_usd=None,
        models={},
        model_ids={},
        files={file.path: bytes(file.content.content) for file in files},
        kinds={},
    )


def _agents(plan: Plan) -> dict[str, FrozenTarget]:
    """Return the targets that judge; one whose row is gone still works unless it needs its secrets."""
    rows = Target.objects.in_bulk([agent.id for agent in plan.agents.values()])
    agents = {}
    for name, agent in plan.agents.items():
        kind = get_target_kind(agent.kind)
        config = kind.config.model_validate(agent.config)
        agents[name] = FrozenTarget(agent, kind, config, run_secrets(rows.get(agent.id), config))
    return agents


def _files(paths: Mapping[str, str]) -> dict[str, bytes]:
    contents = FileContent.objects.in_bulk(set(paths.values()))
    return {path: bytes(contents[sha].content) for path, sha in paths.items() if sha in contents}


def stored_outputs(work: RunWork, cases: Mapping[int, Case]) -> dict[int, Mapping[str, Any]]:
    """Return the stored outputs of results by id, for `cases` by the same id.

    They are those that were pushed, the target's uploads, or the cases' own without uploads.
    """
    if work.target.awaits:
        pushed = PushedOutput.objects.filter(result_id__in=cases, output__isnull=False)
        rows = pushed.values_list("result_id", "output")
        return {pk: output for pk, output in rows if output is not None}
    if not work.target.replays:
        return {}
    if not work.has_uploads:
        return {pk: case.recorded_output for pk, case in cases.items() if case.recorded_output}
    uploads = RecordedOutput.objects.filter(
        target_id=work.target_id or 0, case_key__in={case.key for case in cases.values()}
    )
    by_key = dict(uploads.values_list("case_key", "output"))
    return {pk: by_key[case.key] for pk, case in cases.items() if case.key in by_key}


def stored_sizes(work: RunWork, result_ids: Collection[int]) -> dict[int, int]:
    """Return by result how many bytes are stored of what its execution reads: outputs, also the baseline's."""
    own = OuterRef("pk")
    parts = [_size(ResultOutput.objects.filter(pk=own), "text", "messages", "trace")]
    if work.plan.baseline:
        parts.append(_size(ComparedOutput.objects.filter(pk=own), "text"))
    if work.target.awaits:
        parts.append(_size(PushedOutput.objects.filter(pk=own), "output"))
    elif work.target.replays and work.has_uploads:
        uploads = RecordedOutput.objects.filter(target_id=work.target_id or 0)
        parts.append(_size(uploads.filter(case_key=OuterRef("case__key")), "output"))
    elif work.target.replays:
        parts.append(_size(Case.objects.filter(pk=OuterRef("case")), "recorded_output"))
    rows = Result.objects.filter(pk__in=result_ids).order_by()
    return dict(rows.values_list("pk", sum(parts, start=Value(0))))


def _size(rows: QuerySet[Any], *columns: str) -> Coalesce:
    lengths = (Coalesce(TextBytes(Cast(column, TextField())), 0) for column in columns)
    return Coalesce(Subquery(rows.values(length=sum(lengths, start=Value(0)))[:1]), 0)


def earlier_calls(generations: Mapping[int, int]) -> dict[int, Calls]:
    """Return the answers in the ledger by result id, each of the given generation."""
    calls: dict[int, dict[tuple[CallKey, str], CallRecord]] = defaultdict(dict)
    rows = ModelCall.objects.filter(
        result_id__in=among(generations), status__in=REUSABLE_STATUSES, reply__isnull=False
    )
    for row in rows.order_by("id"):
        result_id = row.result_id
        if result_id is not None and row.generation == generations[result_id]:
            record = _record(row)
            calls[result_id][(record.key, record.request_hash)] = record
    return dict(calls)


def earlier_job_calls(job: ModelJob) -> Mapping[int, Calls]:
    """Return the answers in the ledger by the steps of a job."""
    calls: dict[int, dict[tuple[CallKey, str], CallRecord]] = defaultdict(dict)
    for row in job.calls.filter(status__in=REUSABLE_STATUSES, reply__isnull=False).order_by("id"):
        record = _record(row)
        calls[row.generation][(record.key, record.request_hash)] = record
    return dict(calls)


def _record(row: ModelCall) -> CallRecord:
    # Evaluators ask the same in every run, whatever for.
    key = CallKey(
        cost_purpose(row.purpose).value, row.evaluator_path, row.sample, row.round, row.repair
    )
    return CallRecord(
        key=key,
        model=row.model_name,
        status=CallOutcome(row.status),
        request_hash=row.request_hash,
        request=row.request,
        created_at=row.created_at,
        http_status=row.http_status,
        error=row.error,
        reply=row.reply,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cached_tokens=row.cached_tokens,
        cost_usd=row.cost_usd,
        price_version=row.price_version,
        latency_ms=row.latency_ms,
        is_cached=row.is_cached,
    )

"""Judge the stored outputs of a finished run again, by other rules or another judge, as a new run.

It does what `plan_judging` decided, as the estimate shows it. Outputs, traces, files and scores of other tools are
copied inside the database when the run starts, so that reruns and removals of the source never reach them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import ZERO_USD
from evaluators.templatetags.figures import counted, thousands
from runs.engine.plan import BASELINE, CHANGED, JUDGED_AGAIN
from runs.models.database import copy_rows, database_now
from runs.models.results import (
    Artifact,
    ComparedOutput,
    EvaluatorScore,
    ExternalScore,
    ResultOutput,
)
from runs.models.runs import Campaign, Run, RunEvent
from runs.models.stored import SCORE_COLUMNS
from runs.queue import queue_workers
from runs.running.baselines import copy_baseline_outputs
from runs.running.judging_plan import (
    CannotJudgeAgainError,
    JudgingPlan,
    JudgingRequest,
    ResultToJudge,
    plan_judging,
)
from runs.running.retrying import user_name
from runs.running.services import (
    MAX_NAME_LENGTH,
    Limits,
    audit_start,
    check_budget,
    check_size,
    create_results,
    create_run,
    started_before,
)
from runs.specs.external_scores import COLUMNS as EXTERNAL_COLUMNS
from runs.suites.services import lock_suite

RESULT = "result_id"
SCORE_KEY = (RESULT, "path")
OUTPUT_COLUMNS = ("text", "messages", "trace", "usage", "outcomes")
# Columns of a score that say what it cost.
PAID = ("input_tokens", "output_tokens", "cost_usd", "latency_ms")
KEPT = "kept"


def judge_again(
    sources: Sequence[Run],
    request: JudgingRequest,
    *,
    by: User | None,
    owner_id: str = "",
    form_key: str = "",
) -> list[Run]:
    """Judge the outputs of runs of one suite again, each as a new run that names its source; all or none.

    Several runs are a campaign. A form that is sent twice with the same `form_key` makes them once. `owner_id` is
    the name of a process that executes the runs alone. Raises DomainError with the reason.
    """
    if not sources:
        raise CannotJudgeAgainError("No run is named whose outputs are to be judged again.")
    if len({source.suite_id for source in sources}) > 1:
        raise CannotJudgeAgainError(
            "Runs of several suites cannot be judged again together. Name runs of one suite."
        )
    if earlier := started_before(form_key, by):
        return earlier

    def plan(source: Run) -> JudgingPlan:
        return plan_judging(source, request, by)

    early: list[EarlyPlan] = []
    for pk in dict.fromkeys(source.pk for source in sources):
        early.append(EarlyPlan.make(pk, plan))
        check_size(sum(len(planned.judging.results) for planned in early))
    with transaction.atomic():
        suite = lock_suite(sources[0].suite)
        if earlier := started_before(form_key, by):
            return earlier
        campaign = None
        if len(early) > 1:
            name = request.note.strip()[:MAX_NAME_LENGTH]
            campaign = Campaign.objects.create(suite=suite, name=name, created_by=by)
        runs = []
        for planned in early:
            judging = planned.hold()
            run = _start(judging, request, by=by, owner_id=owner_id)
            run.campaign = campaign
            run.save()
            audit_start(run, suite, by, form_key, outputs_of=f"{suite.slug} {judging.source}")
            if not owner_id:
                transaction.on_commit(partial(queue_workers, run))
            runs.append(run)
            check_size(sum(run.execution_count for run in runs))
    return runs


@dataclass(frozen=True, slots=True)
class EarlyPlan:
    """A plan that is made before the transaction that needs it.

    Planning takes long, and on SQLite nobody else can write during a transaction.
    """

    judging: JudgingPlan
    version: tuple[Any, ...]
    plan: Callable[[Run], JudgingPlan]

    @classmethod
    def make(cls, pk: int, plan: Callable[[Run], JudgingPlan]) -> EarlyPlan:
        """Plan for a run; raises CannotJudgeAgainError for a deleted one."""
        source = _read(pk)
        version = _version(source)
        return cls(plan(source), version, plan)

    def hold(self) -> JudgingPlan:
        """Return the plan, made anew if the run or its suite changed since.

        The run cannot change until the transaction ends: reruns and removals hold it, too.
        """
        pk = self.judging.source.pk
        Run.objects.hold_if_there(pk)
        source = _read(pk)
        if _version(source) != self.version:
            return self.plan(source)
        return replace(self.judging, source=source)


def _read(pk: int) -> Run:
    source = Run.objects.select_related("suite__judge").filter(pk=pk).first()
    if source is None:
        raise CannotJudgeAgainError("A run whose outputs were to be judged again was deleted.")
    return source


def _version(source: Run) -> tuple[Any, ...]:
    """Return values of which one changes with everything of a run and its suite that a plan follows from."""
    suite = source.suite
    removed = source.removal_id, source.outputs_removed_at, source.details_removed_at
    rules = suite.version, suite.version_stamp, suite.archived_at, suite.baseline_run_id
    return source.status, source.finished_at, source.results_version, removed, rules


def _start(judging: JudgingPlan, request: JudgingRequest, *, by: User | None, owner_id: str) -> Run:
    source, plan, count = judging.source, judging.plan, len(judging.results)
    check_budget(plan, request.budget_usd)
    snapshot = plan.as_json() | {
        JUDGED_AGAIN: {
            "run": source.number,
            "results": judging.total,
            "left_out": judging.left_out_texts,
        }
    }
    if judging.changed:
        snapshot[CHANGED] = list(judging.changed)
    limits = Limits(
        source.repetitions, judging.concurrency, request.budget_usd, request.max_minutes
    )
    run = create_run(source.suite, source.target, plan, limits, judging.case_count, count, snapshot)
    run.source_run, run.created_by, run.external_names = source, by, source.external_names
    draft = f"by draft of v{plan.suite['version']}" if request.draft is not None else ""
    run.note = ", ".join(filter(None, (draft, request.note)))[:300]
    run.run_cost_usd = sum((row.run_cost_usd or ZERO_USD for row in judging.results), ZERO_USD)
    if owner_id:
        run.assign_to(owner_id, now=database_now())
    is_same_baseline = plan.baseline == source.snapshot.get(BASELINE)
    write_results(run, judging.results, copies_baseline=is_same_baseline)
    copy_baseline_outputs(run, plan)
    who = f" by {user_name(by)}" if by is not None else ""
    text = f"{thousands(count)} of {counted(judging.total, 'result')} of run {source} judged again{who}"
    RunEvent.objects.create(
        run=run, kind=JUDGED_AGAIN, text=" ".join([f"{text}.", *judging.left_out_texts])[:500]
    )
    return run


def write_results(
    run: Run, results: Sequence[ResultToJudge], *, copies_baseline: bool = True
) -> None:
    """Create the waiting results with the outputs of their sources and the scores that are kept.

    They are in the order of the suite. A source may have several. With `copies_baseline` they are compared with the
    same outputs.
    """
    paid: dict[int, list[Decimal | None]] = defaultdict(list)
    for row in results:
        paid[row.case].append(row.run_cost_usd)
    create_results(
        run,
        paid,
        ("case_id", "position", "repetition", "keeps_output", "retry_paths", "run_cost_usd"),
        ((row.case, row.position, row.repetition, True, [], row.run_cost_usd) for row in results),
        paid=paid,
    )
    places = run.results.order_by().values_list("case_id", "repetition", "pk")
    ids = {(case, repetition): pk for case, repetition, pk in places}
    pairs = [(row.source, ids[row.case, row.repetition]) for row in results]
    columns = ("source", "name", *EXTERNAL_COLUMNS, "pushed_at")
    copy_rows(ResultOutput, OUTPUT_COLUMNS, pairs, key=(RESULT,))
    copy_rows(Artifact, ("path", "content_id"), pairs, key=(RESULT,))
    if copies_baseline:
        copy_rows(ComparedOutput, ("repetition", "text", "problem"), pairs, key=(RESULT,))
    copy_rows(ExternalScore, columns, pairs, key=(RESULT,))
    scores = (
        (source, old, new, path)
        for row, (source, new) in zip(results, pairs, strict=True)
        for path, old in row.kept.items()
    )
    # A score that is kept costs nothing here.
    copied = [name for name in SCORE_COLUMNS if name not in {*SCORE_KEY, *PAID}]
    kept = {"details": {KEPT: True}}
    copy_rows(EvaluatorScore, copied, scores, key=SCORE_KEY, merged=kept)

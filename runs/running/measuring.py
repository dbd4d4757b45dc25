"""Measure the judge of a finished run: drawn results are judged some more times by the same rules.

A measurement is a run of its own that names its source, so that workers, budget, limits and ledger are those of every
run, and its cost is never the source's. What its figures mean is in `runs/summary/judge_spread.py`.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import ZERO_USD, LanguageModel
from evaluators.templatetags.figures import counted
from runs.engine.plan import ASKED, JUDGED_AGAIN, MEASURES_JUDGE, read_plan
from runs.models.database import among
from runs.models.results import Result, ResultStatus
from runs.models.runs import Run, RunEvent
from runs.models.suites import Case
from runs.queue import queue_workers
from runs.running.checks import check_scripts, check_trees
from runs.running.judging_again import EarlyPlan, write_results
from runs.running.judging_plan import (
    CannotJudgeAgainError,
    Decisions,
    JudgingPlan,
    SourceResult,
    check_source,
)
from runs.running.retrying import HAS_OUTPUT, user_name
from runs.running.services import (
    MAX_REPETITIONS,
    Limits,
    audit_start,
    check_budget,
    create_run,
    started_before,
)
from runs.suites.services import lock_suite

USUAL_RESULTS, USUAL_TIMES = 30, 3
MAX_TIMES = 20


@dataclass(frozen=True, slots=True)
class MeasuringRequest:
    """How many results are drawn, all of a run that has fewer, and how many more times each is judged.

    The same `seed` draws the same results.
    """

    results: int = USUAL_RESULTS
    times: int = USUAL_TIMES
    budget_usd: Decimal | None = None
    seed: str = field(default_factory=lambda: secrets.token_urlsafe(16))


def plan_measuring(source: Run, request: MeasuringRequest, by: User | None) -> JudgingPlan:
    """Return what measuring the judge would ask; nothing is stored.

    `total` is the number of results that could be drawn, each with the same probability. Raises
    CannotJudgeAgainError for a run whose judge cannot be measured, and DomainError for scripts that the member may
    not run.
    """
    check_source(source)
    if source.imported_from:
        raise CannotJudgeAgainError(
            f"The scores of run {source} are another tool's, so its judge cannot be asked again."
        )
    _check_times(source, request)
    drawn, eligible = _draw(source, request)
    plan = read_plan(source.snapshot)
    cases = list(Case.objects.filter(pk__in={row.case for row in drawn}))
    check_scripts(check_trees(plan.root, cases).values(), None, by)
    results, evaluators, calls = Decisions(source, plan, plan, drawn, asks_again=True).decide(drawn)
    if not calls:
        raise CannotJudgeAgainError(f"Run {source} asks no judge, so there is none to measure.")
    _check_judges(plan.models)
    return JudgingPlan(
        source=source,
        plan=plan,
        changed=(),
        results=results,
        total=eligible,
        left_out={},
        evaluators=evaluators,
        calls=calls,
        concurrency=source.concurrency,
    )


def measure_judge(
    source: Run, request: MeasuringRequest, *, by: User | None, form_key: str = ""
) -> Run:
    """Start the measurement as a run and queue it; a form that is sent twice starts one. Raises DomainError."""
    if earlier := started_before(form_key, by):
        return earlier[0]

    def plan(source: Run) -> JudgingPlan:
        return plan_measuring(source, request, by)

    planned = EarlyPlan.make(source.pk, plan)
    with transaction.atomic():
        suite = lock_suite(source.suite)
        if earlier := started_before(form_key, by):
            return earlier[0]
        judging = planned.hold()
        source = judging.source
        check_budget(judging.plan, request.budget_usd)
        drawn = len({row.source for row in judging.results})
        kept = {name: value for name, value in source.snapshot.items() if name not in DROPPED}
        snapshot = kept | {
            JUDGED_AGAIN: {"run": source.number, "results": judging.total, "left_out": []},
            MEASURES_JUDGE: {
                "results": drawn,
                "of": judging.total,
                "times": request.times,
                "seed": request.seed,
            },
        }
        limits = Limits(
            source.repetitions * request.times,
            judging.concurrency,
            request.budget_usd,
            source.max_minutes,
        )
        count = len(judging.results)
        run = create_run(
            suite, source.target, judging.plan, limits, judging.case_count, count, snapshot
        )
        run.source_run, run.created_by, run.external_names = source, by, source.external_names
        run.save()
        write_results(run, judging.results)
        who = f" by {user_name(by)}" if by is not None else ""
        text = (
            f"{counted(drawn, 'result')} of {judging.total} of run {source} drawn{who}, to be judged "
            f"{counted(request.times, 'more time')}."
        )
        RunEvent.objects.create(run=run, kind=JUDGED_AGAIN, text=text)
        audit_start(run, suite, by, form_key, measures_judge_of=f"{suite.slug} {source}")
        transaction.on_commit(partial(queue_workers, run))
    return run


# Facts of the source that are not those of its measurement.
DROPPED = (ASKED, "rescored")


def _check_times(source: Run, request: MeasuringRequest) -> None:
    most = min(MAX_TIMES, MAX_REPETITIONS // source.repetitions)
    if not 1 <= request.times <= most:
        raise CannotJudgeAgainError(
            f"Each result can be judged 1 to {most} more times, not {request.times}."
        )
    if request.results < 1:
        raise CannotJudgeAgainError(f"{request.results} results cannot be drawn; draw at least 1.")


def _draw(source: Run, request: MeasuringRequest) -> tuple[list[SourceResult], int]:
    """Return the results to judge, each as many times as it is judged, and how many could be drawn."""
    usable = source.results.filter(HAS_OUTPUT, status=ResultStatus.SCORED)
    ids = list(usable.order_by("position", "repetition", "id").values_list("pk", flat=True))
    if not ids:
        raise CannotJudgeAgainError(f"Run {source} has no scored result with a stored output.")
    # Not a secret: a sample that anybody can draw again.
    drawn = random.Random(request.seed).sample(ids, min(request.results, len(ids)))  # noqa: S311
    columns = ("pk", "case_id", "position", "repetition")
    rows: Any = Result.objects.filter(pk__in=among(drawn)).values_list(*columns)
    judged = [
        SourceResult(
            pk,
            *(case, case, position),
            (repetition - 1) * request.times + time,
            # The source has paid its target.
            run_cost_usd=ZERO_USD,
            is_same=True,
        )
        for pk, case, position, repetition in rows.order_by("position", "repetition", "id")
        for time in range(1, request.times + 1)
    ]
    return judged, len(ids)


def _check_judges(models: Any) -> None:
    known = set(LanguageModel.objects.filter(slug__in=models).values_list("slug", flat=True))
    if missing := sorted(set(models) - known):
        raise CannotJudgeAgainError(
            f"The language model {missing[0]!r} that judged does not exist any more."
        )

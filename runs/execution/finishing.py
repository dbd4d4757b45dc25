"""Bring a run to its end once, whoever gets there first, and give it its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Sum

from evaluators.models import ZERO_USD
from evaluators.scoring.policy import Policy
from evaluators.scoring.types import DomainError
from runs.execution.review_entries import enter, review_entries
from runs.models import (
    ACTIVE_RUN_STATUSES,
    OPEN_RESULT_STATUSES,
    Result,
    ResultStatus,
    Review,
    Run,
    RunEvent,
    RunStatus,
    Score,
)
from runs.models.clock import database_now
from runs.models.executions import executions_of
from runs.models.leaf_scores import pack_leaf_scores
from runs.plan import read_plan
from runs.summary import (
    dimension_means,
    finals_by_key,
    means_by_key,
    metric_means,
    summarise,
)


def finish_run(run_id: int) -> bool:
    """End a run that has no open results; False when some are open or it is over already.

    It is completed, but stopped again where some were left out when it ended early: a retry in a
    stopped run does not carry out the rest of it.
    """
    run = Run.objects.filter(id=run_id, status__in=ACTIVE_RUN_STATUSES).first()
    if run is None or not _is_done(run_id):
        return False
    mark = _mark(run)
    left = Result.objects.filter(run_id=run_id, status=ResultStatus.CANCELLED).count()
    status = RunStatus.STOPPED if left else RunStatus.COMPLETED
    figures, entries = _figures(run, status), review_entries(run)
    with transaction.atomic():
        held = Run.objects.hold(run_id)
        # A retry, or a call booked late, has made the figures old; whoever ends it makes them anew.
        if not held.is_active or not _is_done(run_id) or _mark(held) != mark:
            return False
        Run.objects.filter(id=run_id).update(
            status=status, status_reason=_left_words(left), finished_at=database_now(), **figures
        )
        enter(held, entries, wanted=_policy(run).review_reviewers)
    return True


def _left_words(left: int) -> str:
    if not left:
        return ""
    return f"What was retried is done; {left} execution{'s are' if left > 1 else ' is'} left"


def end_run(run_id: int, status: RunStatus, reason: str) -> bool:
    """End an active run early with the figures it has so far; False when it is over already."""
    if not Run.objects.end(run_id, status=status, reason=reason, now=database_now()):
        return False
    RunEvent.objects.create(run_id=run_id, kind=status.value, text=reason[:500])
    summarise_ended(run_id)
    return True


def summarise_ended(run_id: int) -> bool:
    """Give a run that ended its figures if it has none; False when it has, or when it is on again."""
    ended = Run.objects.exclude(status__in=ACTIVE_RUN_STATUSES)
    run = ended.filter(id=run_id, summary__isnull=True).first()
    if run is None:
        return False
    mark = _end_mark(run)
    figures = _figures(run, RunStatus(run.status))
    # With the leaf scores of its results an end has been told to the reviewers too.
    entries = review_entries(run) if run.leaf_scores is None else None
    with transaction.atomic():
        # A call or a review that came meanwhile has made the figures old; they are computed anew.
        held = Run.objects.hold(run_id)
        still = ended.filter(id=run_id, summary__isnull=True)
        if _end_mark(held) != mark or not still.update(**figures):
            return False
        if entries is not None:
            enter(held, entries, wanted=_policy(run).review_reviewers)
    return True


def _end_mark(run: Run) -> tuple[Any, ...]:
    """Return what changes with every call and every decision of a reviewer."""
    return run.finished_at, run.run_cost_usd, run.evaluation_cost_usd, _decided(run)


def _decided(run: Run) -> Mapping[str, Any]:
    reviews = Review.objects.filter(result__run=run).order_by()
    return reviews.aggregate(Max("id"), Count("withdrawn_at"), Count("stale_at"))


def is_budget_spent(run_id: int, *, replays: bool) -> bool:
    """Tell whether a run's cap, as it is now, is spent; what a replayed output once cost is not."""
    run = Run.objects.only("budget_usd", "run_cost_usd", "evaluation_cost_usd").get(id=run_id)
    target_usd = ZERO_USD if replays else run.run_cost_usd
    return run.budget_usd is not None and run.evaluation_cost_usd + target_usd >= run.budget_usd


def _is_done(run_id: int) -> bool:
    return not Result.objects.filter(run_id=run_id, status__in=OPEN_RESULT_STATUSES).exists()


def _mark(run: Run) -> tuple[Any, ...]:
    """Return what grows with every retry, attempt, call and review: equal means unchanged."""
    results = Result.objects.filter(run=run).order_by()
    sums = results.aggregate(Sum("generation"), Sum("attempt"))
    return run.run_cost_usd, run.evaluation_cost_usd, sums, _decided(run)


def _figures(run: Run, status: RunStatus) -> dict[str, Any]:
    """Return the columns that hold what came out of a run."""
    summary = summarise(
        executions_of(run),
        _policy(run),
        is_completed=status == RunStatus.COMPLETED,
        seed=run.pk,
    )
    metrics = metric_means(Score.objects.judged_metrics(run.pk))
    dimensions = dimension_means(Score.objects.judged_dimensions(run.pk))
    means = replace(
        summary.means, metrics=means_by_key(metrics), dimensions=finals_by_key(dimensions)
    )
    written = replace(summary, means=means).as_json()
    written["metrics"] = [metric.as_json() for metric in metrics]
    written["dimensions"] = [dimension.as_json() for dimension in dimensions]
    return {"summary": written, "leaf_scores": pack_leaf_scores(run.pk)}


def _policy(run: Run) -> Policy:
    """Return the frozen policy; the suite's where a run ended because its snapshot cannot be read."""
    try:
        return read_plan(run.snapshot).policy
    except (DomainError, KeyError, TypeError):
        return run.suite.policy()

"""Stop a run, go on with one that ended early, and try results again."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import (
    OPEN_RESULT_STATUSES,
    Attempt,
    Result,
    ResultStatus,
    Run,
    RunEvent,
    RunStatus,
)
from runs.models.clock import database_now
from runs.services.queueing import SUMMARISE_RUN, queue, queue_hands

RESUMABLE = (RunStatus.STOPPED, RunStatus.BUDGET_REACHED, RunStatus.FAILED)
MISSING = (ResultStatus.ERROR, ResultStatus.CANCELLED, ResultStatus.SKIPPED)
EMPTIED: dict[str, Any] = {
    "status": ResultStatus.PENDING,
    "lease_token": "",
    "lease_until": None,
    "finished_at": None,
    "keeps_output": False,
    **{"verdict": "", "score": None, "metrics_score": None, "decided_by": "", "is_forced": False},
    **{"error": "", "error_stage": "", "outcome_marks": "", "warnings": []},
}
CHUNK = 1000
WHICH = {
    "errored": Q(status=ResultStatus.ERROR),
    "failed": Q(status=ResultStatus.SCORED, verdict="fail"),
    "all_missing": Q(status__in=MISSING),
}


class RunNotActiveError(DomainError):
    """The run is over already."""

    code = "run_not_active"


class CannotResumeError(DomainError):
    """The run cannot go on."""

    code = "cannot_resume"


class NothingToRetryError(DomainError):
    """No result is of the kind that was to be tried again."""

    code = "nothing_to_retry"


def stop_run(run: Run, *, stopped_by: User | None) -> None:
    """End an active run; what is finished is kept and what comes later is refused.

    Raises RunNotActiveError when it is over already.
    """
    name = _name_of(stopped_by)
    reason = f"Stopped by {name}" if name else "Stopped"
    with transaction.atomic():
        ended = Run.objects.end(run.pk, status=RunStatus.STOPPED, reason=reason, now=database_now())
        if not ended:
            raise RunNotActiveError(f"Run {run} is over already; nothing is left to stop.")
        _note(run, "stop", reason, by=stopped_by)
        transaction.on_commit(partial(queue, SUMMARISE_RUN, run.pk))


def resume_run(run: Run, *, resumed_by: User | None, budget_usd: Decimal | None = None) -> int:
    """Let a run that ended early do what it left; returns how many results wait now.

    What a failed run got from its broken target is tried again. `budget_usd` is a new cap.
    Raises CannotResumeError when the run is not over, when nothing is left, or when the budget is
    still spent.
    """
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.status not in RESUMABLE:
            raise CannotResumeError(f"Run {run} did not end early; there is nothing to resume.")
        _check_budget(held, budget_usd)
        left = Q(status=ResultStatus.CANCELLED)
        if held.status == RunStatus.FAILED:
            left |= Q(status=ResultStatus.ERROR, error_stage="target")
        count = _reopen(held, held.results.filter(left), keep_output=False, paths=None)
        if not count:
            raise CannotResumeError(f"Run {run} has no results left to carry out.")
        _open_run(held, budget_usd=budget_usd or held.budget_usd)
        _note(held, "resume", f"Resumed with {_results(count)} to go", by=resumed_by)
    return count


def retry_results(
    run: Run,
    *,
    asked_by: User | None,
    which: str = "errored",
    result_ids: Sequence[int] | None = None,
    keep_output: bool = False,
    paths: Sequence[str] | None = None,
) -> int:
    """Have results tried again in place, as a new generation; returns how many.

    `which` is errored, failed or all_missing; `result_ids` name results instead. With
    `keep_output` only scoring is repeated where there is an output, with `paths` only by those
    evaluators. Earlier outcomes are kept as attempts. Raises NothingToRetryError.
    """
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if result_ids is None:
            chosen = held.results.filter(WHICH[which])
        else:
            chosen = held.results.filter(id__in=result_ids).exclude(status__in=OPEN_RESULT_STATUSES)
        keeps = keep_output or bool(paths)
        count = _reopen(held, chosen, keep_output=keeps, paths=list(paths) if paths else None)
        if not count:
            raise NothingToRetryError(f"Run {run} has no such results to try again.")
        _open_run(held, budget_usd=held.budget_usd)
        _note(held, "retry", f"{_results(count)} tried again", by=asked_by)
    return count


def _check_budget(run: Run, budget_usd: Decimal | None) -> None:
    cap = budget_usd or run.budget_usd
    spent = run.run_cost_usd + run.evaluation_cost_usd
    if run.status == RunStatus.BUDGET_REACHED and cap is not None and spent >= cap:
        raise CannotResumeError(
            f"Run {run} has spent ${spent.normalize():f} of ${cap.normalize():f}. "
            "Resume it with a higher budget."
        )


def _reopen(
    run: Run, chosen: QuerySet[Result], *, keep_output: bool, paths: list[str] | None
) -> int:
    """Set results to waiting: cancelled ones as they were, finished ones as a new generation."""
    cancelled = chosen.filter(status=ResultStatus.CANCELLED)
    count = cancelled.update(status=ResultStatus.PENDING, lease_token="", lease_until=None)
    over = [ResultStatus.SCORED, ResultStatus.ERROR, ResultStatus.SKIPPED]
    ids = list(chosen.filter(status__in=over).order_by("id").values_list("id", flat=True))
    for start in range(0, len(ids), CHUNK):
        some = Result.objects.filter(pk__in=ids[start : start + CHUNK])
        Attempt.objects.bulk_create(_attempt(one) for one in some.select_for_update(no_key=True))
        _uncount(run, some)
        some.update(generation=F("generation") + 1, retry_paths=paths, **EMPTIED)
        if keep_output:
            some.filter(output__isnull=False).update(keeps_output=True)
    return count + len(ids)


def _attempt(one: Result) -> Attempt:
    return Attempt(
        result=one,
        attempt=one.attempt,
        generation=one.generation,
        status=one.status,
        verdict=one.verdict,
        score=one.score,
        reason=one.error or one.decided_by,
        ended_at=one.finished_at or database_now(),
    )


def _uncount(run: Run, results: QuerySet[Result]) -> None:
    """Take results that were finished out of the run's counters."""
    found = results.order_by().aggregate(
        done=Count("id"),
        passed=Count("id", filter=Q(verdict="pass")),
        borderline=Count("id", filter=Q(verdict="borderline")),
        failed=Count("id", filter=Q(verdict="fail")),
        errors=Count("id", filter=Q(status=ResultStatus.ERROR)),
        scores=Count("score"),
        score_sum=Sum("score", default=0.0),
    )
    Run.objects.filter(pk=run.pk).update(
        done_count=F("done_count") - found["done"],
        pass_count=F("pass_count") - found["passed"],
        borderline_count=F("borderline_count") - found["borderline"],
        fail_count=F("fail_count") - found["failed"],
        error_count=F("error_count") - found["errors"],
        score_count=F("score_count") - found["scores"],
        score_sum=F("score_sum") - found["score_sum"],
    )


def _open_run(run: Run, *, budget_usd: Decimal | None) -> None:
    """Let hands claim from the run again; its figures come anew when it ends."""
    if not run.is_active:
        Run.objects.filter(pk=run.pk).update(
            status=RunStatus.QUEUED,
            status_reason="",
            finished_at=None,
            summary=None,
            leaf_scores=None,
            budget_usd=budget_usd,
        )
    transaction.on_commit(partial(queue_hands, run))


def _note(run: Run, action: str, text: str, *, by: User | None) -> None:
    RunEvent.objects.create(run=run, kind=action, text=text)
    AuditEntry.objects.create(
        actor=by,
        actor_name=_name_of(by),
        action=action,
        object_type="run",
        object_id=str(run.pk),
        object_name=f"{run.suite.slug} #{run.number}",
        after={"text": text},
    )


def _name_of(user: User | None) -> str:
    return user.get_username() if user is not None else ""


def _results(count: int) -> str:
    return f"{count} result{'s' if count != 1 else ''}"

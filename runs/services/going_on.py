"""Stop a run, and go on with one that ended early."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import counted
from runs.models import RESUMABLE_RUN_STATUSES, Result, ResultStatus, Run, RunStatus
from runs.models.clock import database_now
from runs.services.queueing import SUMMARISE_RUN, queue
from runs.services.reopening import (
    Asked,
    check_budget,
    go_on,
    name_of,
    note,
    open_run,
    try_again,
)
from runs.services.script_rights import check_scripts_again


class RunNotActiveError(DomainError):
    """The run is over already."""

    code = "run_not_active"


class CannotResumeError(DomainError):
    """The run cannot go on."""

    code = "cannot_resume"


def stop_run(run: Run, *, stopped_by: User | None) -> None:
    """End an active run; what is finished is kept and what comes later is refused.

    Raises RunNotActiveError when it is over already.
    """
    name = name_of(stopped_by)
    reason = f"Stopped by {name}" if name else "Stopped"
    with transaction.atomic():
        ended = Run.objects.end(run.pk, status=RunStatus.STOPPED, reason=reason, now=database_now())
        if not ended:
            raise RunNotActiveError(f"Run {run} is over already; nothing is left to stop.")
        note(run, "stop", reason, by=stopped_by)
        transaction.on_commit(partial(queue, SUMMARISE_RUN, run.pk))


def resume_run(run: Run, *, resumed_by: User | None, budget_usd: Decimal | None = None) -> int:
    """Let a run that ended early do what it left; returns how many results wait now.

    What a failed run got from its broken target is tried again. `budget_usd` is a new cap. A run
    that a command line began goes on with the workers. Raises CannotResumeError when the run is
    not over or nothing is left, BudgetSpentError when the budget is spent, ScriptsRefusedError when it
    runs scripts and that may not be.
    """
    with transaction.atomic():
        held = Run.objects.hold(run.pk)
        if held.is_active:
            raise CannotResumeError(f"Run {run} is under way already; nothing is left to resume.")
        if held.status not in RESUMABLE_RUN_STATUSES:
            raise CannotResumeError(f"Run {run} did not end early; there is nothing to resume.")
        left, broken = left_of(held), broken_of(held)
        count = len(left) + len(broken)
        if not count:
            raise CannotResumeError(f"Run {run} has no results left to carry out.")
        check_scripts_again(run, resumed_by)
        check_budget(run, held, budget_usd)
        go_on(left)
        if broken:
            try_again(held, broken, Asked(resumed_by))
        taken_over = open_run(held, budget_usd=budget_usd)
        note(held, "resume", _resumed(resumed_by, count, taken_over=taken_over), by=resumed_by)
    return count


def left_of(run: Run) -> list[int]:
    """Return the results that a run ended without."""
    return _ids(run.results.filter(status=ResultStatus.CANCELLED))


def broken_of(run: Run) -> list[int]:
    """Return what a failed run got from its broken target."""
    if run.status != RunStatus.FAILED:
        return []
    return _ids(run.results.filter(Q(status=ResultStatus.ERROR, error_stage="target")))


def _ids(found: QuerySet[Result]) -> list[int]:
    return list(found.order_by("id").values_list("id", flat=True))


def _resumed(user: User | None, count: int, *, taken_over: bool) -> str:
    by = f" by {name_of(user)}" if user is not None else ""
    who = "; the workers go on with what a command line began" if taken_over else ""
    return f"Resumed{by} with {counted(count, 'result')} to go{who}"

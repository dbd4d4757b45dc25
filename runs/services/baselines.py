"""Choose the run that later ones of a suite are held against."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import Run, RunStatus, Suite


class NoBaselineError(DomainError):
    """A run cannot be a baseline."""

    code = "no_baseline"


def make_baseline(run: Run, *, by: User) -> bool:
    """Make a run the baseline of its suite in place of another; False when it is already.

    Raises NoBaselineError for a run that is not completed: its figures are not those of the whole
    suite (SCORING §8).
    """
    if run.status != RunStatus.COMPLETED:
        raise NoBaselineError(
            f"Run #{run.number} is not completed, so its figures are not those of all its cases. "
            "Choose a completed run."
        )
    return _set(run.suite_id, run, by)


def drop_baseline(run: Run, *, by: User) -> bool:
    """Take the mark from a run; False when it is not the baseline, or not any more."""
    return _set(run.suite_id, None, by, only_from=run)


def _set(suite_id: int, run: Run | None, by: User, only_from: Run | None = None) -> bool:
    with transaction.atomic():
        suites = Suite.objects.select_for_update(of=("self",)).select_related("baseline_run")
        suite = suites.defer("baseline_run__snapshot", "baseline_run__leaf_scores").get(pk=suite_id)
        before = suite.baseline_run
        if before == run or (only_from is not None and before != only_from):
            return False
        suite.baseline_run = run
        suite.save(update_fields=["baseline_run", "updated_at"])
        AuditEntry.objects.create(
            actor=by,
            actor_name=by.get_username(),
            action="change",
            object_type="suite",
            object_id=str(suite.pk),
            object_name=suite.slug,
            before={"baseline": str(before) if before else None},
            after={"baseline": str(run) if run else None},
        )
    return True

"""Begin a suite, archive and delete it, and choose its baseline."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.policy import PolicySpec
from evaluators.scoring.tree import COMPOSITE, EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.specs.profiles import Profile
from runs.specs.suites import SuiteSpec
from runs.suites.versions import locked, next_version, version_spec, write_down

EMPTY_ROOT = EvaluatorSpec(name="suite", kind=COMPOSITE)


class SlugTakenError(DomainError):
    """Another suite has the short name."""

    code = "slug_taken"


class SuiteInUseError(DomainError):
    """A suite that has runs cannot be deleted."""

    code = "suite_in_use"


def create_suite(
    *,
    slug: str,
    title: str,
    by: User | None,
    description: str = "",
    tags: Sequence[str] = (),
    judge: LanguageModel | None = None,
    profile: Profile | None = None,
    is_kept: bool = True,
) -> Suite:
    """Return a new suite without cases, at version 1; without a profile it has no evaluators either.

    With `is_kept` false its first version is left to the caller, who puts cases into it in the same
    transaction. Raises SlugTakenError.
    """
    spec = SuiteSpec(
        title=title,
        description=description,
        tags=tuple(tags),
        judge=judge.slug if judge else "",
        policy=profile.policy if profile else PolicySpec(),
        evaluators=profile.root if profile else EMPTY_ROOT,
    )
    with transaction.atomic():
        suite = Suite(slug=slug)
        try:
            with transaction.atomic():
                suite.write(spec)
        except IntegrityError as error:
            raise SlugTakenError(
                f"There is a suite “{slug}” already. Choose another short name."
            ) from error
        note = f"Began from the profile {profile.label}" if profile else "Began empty"
        if is_kept:
            next_version(suite, version_spec(suite), author=by, note=note)
        write_down(suite, "create", actor=by, before=None, after={"version": 1, "note": note})
    return suite


def archive_suite(suite: Suite, *, by: User) -> bool:
    """Take a suite out of all lists; its runs stay readable. False when it is archived already."""
    return _put(suite, by, is_archived=True)


def unarchive_suite(suite: Suite, *, by: User) -> bool:
    """Put a suite back into the lists; False when it is there already."""
    return _put(suite, by, is_archived=False)


def delete_suite(suite: Suite, *, by: User) -> None:
    """Delete a suite with its cases and versions; raises SuiteInUseError when it was ever run."""
    with transaction.atomic():
        held = locked(suite)
        if count := held.runs.count():
            raise SuiteInUseError(
                f"{held.title} has {count} run{'' if count == 1 else 's'}, and they would lose what they "
                "are about. Archive it: it leaves all lists, and its runs stay readable."
            )
        write_down(
            held,
            "delete",
            actor=by,
            before={
                "title": held.title,
                "version": held.version,
                "cases": held.cases.filter(is_current=True).count(),
            },
            after={},
        )
        held.delete()


def _put(suite: Suite, by: User, *, is_archived: bool) -> bool:
    with transaction.atomic():
        held = locked(suite)
        if (held.archived_at is not None) == is_archived:
            return False
        held.archived_at = timezone.now() if is_archived else None
        held.save(update_fields=["archived_at", "updated_at"])
        before, after = ({"archived": value} for value in (not is_archived, is_archived))
        write_down(held, "change", actor=by, before=before, after=after)
    return True


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

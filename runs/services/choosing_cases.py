"""Which cases a run is of: all current ones, those with a tag, or those that are named."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from evaluators.scoring.types import DomainError
from runs.models import Case, Suite

LONGEST_SHOWN = 60


class CannotStartError(DomainError):
    """A run cannot be started as it was asked for."""

    code = "cannot_start"


def chosen_cases(
    suite: Suite, keys: Sequence[str] | None, tags: Sequence[str] | None
) -> list[Case]:
    """Return the current cases that were asked for, without their long texts; None asks for all.

    Raises CannotStartError for a key that is no case's, and when nothing is left.
    """
    if suite.archived_at is not None:
        raise CannotStartError(f"{suite.title} is archived. Take it out of the archive first.")
    current = Case.objects.filter(suite=suite, is_current=True).order_by("position", "id")
    cases = list(_light(current))
    if not cases:
        raise CannotStartError(f"{suite.title} has no cases yet. Import some first.")
    if keys is not None:
        wanted = set(keys)
        if missing := sorted(wanted - {case.key for case in cases}):
            more = f" and {len(missing) - 1} more of those named" if len(missing) > 1 else ""
            raise CannotStartError(f"{suite.title} has no case {missing[0][:LONGEST_SHOWN]}{more}.")
        cases = [case for case in cases if case.key in wanted]
    if tags is not None:
        cases = [case for case in cases if set(tags) & set(case.tags)]
    if not cases:
        raise CannotStartError("No case is chosen. Choose at least one tag or case that exists.")
    return cases


def _light(cases: QuerySet[Case]) -> QuerySet[Case]:
    return cases.only(
        *("id", "key", "tags", "content_hash", "evaluators", "evaluators_append"),
        "expected_outcomes",
    )

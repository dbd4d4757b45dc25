"""What the review queue can be narrowed to, and who may decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User

from runs.models.review_queue import QueueQuery
from runs.reviewing import Reason

MAY_REVIEW = "runs.review_result"
BACKEND = "django.contrib.auth.backends.ModelBackend"


@dataclass(frozen=True, slots=True)
class Choices:
    """What the queue can be narrowed to: pairs of a value and its label."""

    suites: Sequence[tuple[str, str]]
    runs: Sequence[tuple[int, str]]
    reasons: Sequence[Reason]
    tags: Sequence[str]
    people: Sequence[tuple[int, str]]


def choices_of(query: QueueQuery) -> Choices:
    """Return the choices: runs and tags of the suite that is chosen alone."""
    items = QueueQuery().items()
    suites = items.order_by("result__run__suite__title").values_list(
        "result__run__suite__slug", "result__run__suite__title"
    )
    of_suite = items.filter(result__run__suite__slug=query.suite) if query.suite else items.none()
    runs = of_suite.order_by("-result__run").values_list(
        "result__run", "result__run__number", "result__run__target_name"
    )
    tags = {
        tag
        for found in of_suite.order_by().values_list("result__case__tags", flat=True).distinct()
        for tag in found
    }
    return Choices(
        suites=list(dict.fromkeys(suites.distinct())),
        runs=[(pk, f"#{number} {target}") for pk, number, target in runs.distinct()],
        reasons=list(Reason),
        tags=sorted(tags),
        people=people(),
    )


def people() -> list[tuple[int, str]]:
    """Return who may decide, by name."""
    users = User.objects.with_perm(MAY_REVIEW, backend=BACKEND).filter(is_active=True)
    return list(users.order_by("username").values_list("pk", "username").distinct())

"""What every edit of cases does: take the suite's row, store revisions, record the version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Max

from runs.exports import case_content
from runs.formats import CaseContent
from runs.imports.case_columns import columns_of
from runs.models import Case, Suite
from runs.services.versions import record_version
from runs.versions import SuiteArchivedError, editable

__all__ = [
    "SuiteArchivedError",
    "current_case",
    "editable",
    "in_parts",
    "next_place",
    "recorded",
    "revision_row",
    "says",
    "store_revisions",
]

BATCH = 500
T = TypeVar("T")


def recorded(suite: Suite, held: Suite, by: User | None, note: str = "") -> int:
    """Record the version after an edit of cases and return its number.

    Edits of an hour gather; one with a note of its own stands alone.
    """
    suite.version = record_version(held, author=by, note=note, gathers=not note).number
    return suite.version


def current_case(suite: Suite, key: str) -> Case | None:
    """Return the current revision of a case, None when the suite has none."""
    return suite.cases.filter(key=key, is_current=True).first()


def says(case: Case, content: CaseContent) -> bool:
    """Tell whether a revision says just what the content does."""
    return columns_of(case_content(case)) == columns_of(content)


def next_place(suite: Suite) -> int:
    """Return the position behind the last case."""
    last = suite.cases.filter(is_current=True).aggregate(last=Max("position"))["last"]
    return 0 if last is None else int(last) + 1


def revision_row(
    suite: Suite, key: str, position: int, columns: dict[str, Any], digest: str
) -> Case:
    """Return a current revision that is not stored yet."""
    return Case(suite=suite, key=key, position=position, content_hash=digest, **columns)


def store_revisions(suite: Suite, made: Sequence[Case], retired: Sequence[int]) -> None:
    """Store new revisions, each one above the last of its key, in place of those that go."""
    latest: dict[str, int] = {}
    for part in in_parts([case.key for case in made]):
        rows = suite.cases.filter(key__in=part).order_by().values_list("key")
        latest.update(rows.annotate(last=Max("revision")))
    for case in made:
        case.revision = latest.get(case.key, 0) + 1
    # One revision of a key is current: what goes, goes first.
    for ids in in_parts(retired):
        suite.cases.filter(pk__in=ids).update(is_current=False)
    Case.objects.bulk_create(made, batch_size=BATCH)


def in_parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield a long list in parts that a query holds."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))

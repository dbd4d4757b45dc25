"""The versions of a suite, newest first: who made each, what it changed, and which runs used it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max

from runs.drafting.differences import compare_versions
from runs.models import Suite, SuiteVersion

PAGE_SIZE = 20


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version. `changes` are counts against the one before it, None for the first that is kept.

    `last_run` is the number of the latest of the `runs` that used it.
    """

    number: int
    note: str
    author: str
    created_at: datetime
    is_current: bool
    changes: Sequence[str] | None
    runs: int
    last_run: int | None


@dataclass(frozen=True, slots=True)
class VersionList:
    """One page of versions; `next_before` is where the next page begins, None at the end."""

    rows: Sequence[VersionRow]
    total: int
    before: int | None
    next_before: int | None


def version_list(suite: Suite, *, before: int | None = None) -> VersionList:
    """Return 20 versions in a fixed number of queries, those under a number if one is given."""
    rows = suite.versions.select_related("author").order_by("-number")
    asked = rows if before is None else rows.filter(number__lt=before)
    # One more than is shown: what the last row changed is told against it.
    found = list(asked[: PAGE_SIZE + 1])
    runs = _runs(suite, [version.number for version in found])
    return VersionList(
        rows=list(_rows(suite, found, runs)),
        total=suite.versions.count(),
        before=before,
        next_before=found[PAGE_SIZE - 1].number if len(found) > PAGE_SIZE else None,
    )


def _rows(
    suite: Suite, found: Sequence[SuiteVersion], runs: Mapping[int, tuple[int, int | None]]
) -> Iterator[VersionRow]:
    older: Sequence[SuiteVersion | None] = [*found[1:], None]
    for version, past in list(zip(found, older, strict=False))[:PAGE_SIZE]:
        count, last = runs.get(version.number, (0, None))
        yield VersionRow(
            number=version.number,
            note=version.note,
            author=version.author.get_username() if version.author else "",
            created_at=version.created_at,
            is_current=version.number == suite.version,
            changes=compare_versions(past.content, version.content).words if past else None,
            runs=count,
            last_run=last,
        )


def _runs(suite: Suite, numbers: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    runs: Any = suite.runs.filter(suite_version__in=numbers).order_by()
    found = runs.values_list("suite_version").annotate(count=Count("pk"), last=Max("number"))
    return {version: (count, last) for version, count, last in found}

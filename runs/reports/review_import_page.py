"""What a file of reviews would add, as its preview tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runs.formats.csv_cases import Rejected
from runs.models import ReviewUpload
from runs.services.review_imports import preview_reviews
from runs.services.review_matching import Matched

MOST_SHOWN = 20
MOST_REJECTED = 200


@dataclass(frozen=True, slots=True)
class ImportPage:
    """The preview: how many rows, new and known decisions, the first new ones, and the rejected rows.

    `history` counts those that come in withdrawn or stale, which do not count.
    """

    rows: int
    said: str
    new: int
    known: int
    history: int
    executions: int
    first: Sequence[Matched]
    rejected: int
    rejected_first: Sequence[Rejected]
    strangers: Sequence[str]
    passed_over: Sequence[str]


def import_page(upload: ReviewUpload) -> ImportPage:
    """Return the preview of an upload that is not stored yet."""
    found = preview_reviews(bytes(upload.content), file=upload.name)
    new, table = found.matching.new, found.read.table
    return ImportPage(
        rows=len(table.rows),
        said=", ".join(table.said),
        new=len(new),
        known=found.matching.known,
        history=sum(not one.is_standing for one in new),
        executions=len({one.result.pk for one in new}),
        first=new[:MOST_SHOWN],
        rejected=len(found.rejected),
        rejected_first=found.rejected[:MOST_REJECTED],
        strangers=found.matching.strangers,
        passed_over=found.read.passed_over,
    )

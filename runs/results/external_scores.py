"""The scores that other tools gave results, for pages, files and the API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from runs.documents import Document, TextOrNone
from runs.models.database import among
from runs.models.results import ExternalScore
from runs.models.runs import Run

COLUMNS = ("source", "name", "score", "value", "label", "reason")


class ExternalScoreDoc(Document):
    """A score that another tool gave; it never counts in the verdict."""

    source: str
    """The tool that gave it."""
    name: str
    """What it says."""
    score: float | None
    """The value on 0 to 1; null for a label alone."""
    value: float | None
    """The value as it was given."""
    range: tuple[float, float]
    """The lowest and the highest value there is."""
    label: TextOrNone
    """A word for it; null without one."""
    reason: TextOrNone
    """Why; null where no reason was given."""

    @property
    def full_name(self) -> str:
        """Return source and name, as filters and columns name it."""
        return f"{self.source}/{self.name}"

    @property
    def has_other_range(self) -> bool:
        """Tell whether the value was not given on 0 to 1."""
        return self.value is not None and self.range != (0, 1)


def external_scores(run: Run, ids: Sequence[int]) -> defaultdict[int, list[ExternalScoreDoc]]:
    """Return the external scores of results of a run, by source and name; no query for a run without any."""
    found = defaultdict[int, list[ExternalScoreDoc]](list)
    if not run.external_names:
        return found
    rows = ExternalScore.objects.filter(result__in=among(ids)).order_by("source", "name")
    for row in rows:
        values = {column: getattr(row, column) for column in COLUMNS}
        document = ExternalScoreDoc(**values, range=(row.low, row.high))
        found[row.result_id].append(document)
    return found

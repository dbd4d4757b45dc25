"""What came of an import, kept from the answer that made it to the page that shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runs.formats import Problem
from runs.imports import ImportedFile
from runs.models import Target

# What a session holds on to is small.
MOST_WARNINGS = 200


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One suite: `before` is its version before the import, None when it is new."""

    slug: str
    title: str
    version: int
    before: int | None
    note: str
    cases: int
    path: str

    @property
    def is_changed(self) -> bool:
        """Tell whether the import made a version."""
        return self.version != self.before


@dataclass(frozen=True, slots=True)
class ImportAnswer:
    """Everything the page says. `left` counts the warnings that are not among those shown."""

    suites: Sequence[SuiteRow]
    target: Mapping[str, Any] | None
    warnings: Sequence[Problem]
    left: int

    @property
    def new(self) -> int:
        """Return how many suites are new."""
        return sum(row.before is None for row in self.suites)

    @property
    def changed(self) -> int:
        """Return how many suites got another version."""
        return sum(row.is_changed and row.before is not None for row in self.suites)

    @property
    def unchanged(self) -> int:
        """Return how many suites are as they were."""
        return sum(not row.is_changed for row in self.suites)


def kept_answer(
    files: Sequence[ImportedFile], target: Target | None, warnings: Sequence[Problem]
) -> dict[str, Any]:
    """Return what came of an import as plain JSON values."""
    rows = [
        SuiteRow(
            slug=file.imported.suite.slug,
            title=file.imported.suite.title,
            version=file.imported.suite.version,
            before=file.imported.version_before,
            note=file.imported.note,
            cases=file.imported.cases,
            path=file.path,
        )
        for file in files
    ]
    outputs = target and {"pk": target.pk, "name": target.name}
    shown = warnings[:MOST_WARNINGS]
    return {
        "suites": [asdict(row) for row in rows],
        "target": outputs,
        "warnings": [asdict(warning) for warning in shown],
        "left": len(warnings) - len(shown),
    }


def answer_of(kept: Mapping[str, Any]) -> ImportAnswer:
    """Return what kept_answer kept."""
    return ImportAnswer(
        suites=[SuiteRow(**row) for row in kept["suites"]],
        target=kept["target"],
        warnings=[Problem(**warning) for warning in kept["warnings"]],
        left=kept["left"],
    )

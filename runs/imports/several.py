"""Several suites become what their files say, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.scoring.types import DomainError
from runs.formats import Problem
from runs.formats.agentv import slug_of
from runs.formats.suite_files import FoundSuite
from runs.imports._agents import absent_agents, unfit_agents
from runs.imports._final_scores import scoreless_cases
from runs.imports._models import UnknownJudgeError, missing_models
from runs.imports.suites import Imported, import_content


class UnusableSlugError(DomainError):
    """Suites cannot be stored under the short name that was asked for."""

    code = "unusable_slug"


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file and what came of its suite; `notes` say what keeps its cases from a score."""

    path: str
    imported: Imported
    notes: tuple[Problem, ...] = ()


def import_suites(
    files: Sequence[FoundSuite],
    *,
    imported_by: User | None,
    slug: str | None = None,
    judge: str | None = None,
    note: str = "",
) -> tuple[ImportedFile, ...]:
    """Create or update the suite of every file and return what came of each, in the order given.

    `slug`, for one suite only, and `judge` go before what the files say. Raises UnknownJudgeError with
    a problem for every language model that is not set up here and every target that cannot judge, and
    UnusableSlugError; then nothing has changed.
    """
    if slug is not None:
        _check_slug(slug, len(files))
    problems = [
        problem
        for file in files
        for problem in (
            *missing_models(file.content, judge=judge, file=file.path),
            *unfit_agents(file.content, file=file.path),
        )
    ]
    if problems:
        raise UnknownJudgeError(tuple(problems))
    done: dict[str, Imported] = {}
    with transaction.atomic():
        # In one order everywhere: two imports of the same suites wait for each other, and never in a circle.
        for file in sorted(files, key=lambda file: file.content.slug):
            done[file.path] = import_content(
                file.content, imported_by=imported_by, slug=slug, judge=judge, note=note
            )
    return tuple(
        ImportedFile(
            file.path,
            done[file.path],
            (
                *absent_agents(file.content, file=file.path),
                *scoreless_cases(file.content, file=file.path),
            ),
        )
        for file in files
    )


def _check_slug(slug: str, count: int) -> None:
    if count > 1:
        raise UnusableSlugError(
            f"{slug!r} can name one suite, and these are {count}; import the one alone."
        )
    if not slug or slug_of(slug) != slug:
        raise UnusableSlugError(
            f"{slug!r} cannot stand in addresses; write small letters, digits and hyphens, such as "
            f"{slug_of(slug) or 'support-agent'}."
        )

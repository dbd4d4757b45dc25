"""The suite a command line names: by its short name on the site, or by a path, which is imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from evaluators.models import LanguageModel
from runs import services
from runs.formats import SuiteContent, agentv
from runs.management.names import suite_named
from runs.models import Suite

Note = Callable[[str], None]


def suite_meant(word: str, *, judge: str, note: Note) -> Suite:
    """Return the suite; one at a path is imported first, as a new version where it changed.

    A short name goes before a path of the same letters: write ./NAME for the path. `judge` is the
    slug that judges, which stands in where the file names a model that is not here. What was
    imported is noted. Raises DomainError, UnreadableFileError with every problem of the files.
    """
    if not _is_path(word):
        return suite_named(word)
    content = _content_at(Path(word))
    own_is_known = LanguageModel.objects.filter(slug=content.judge).exists()
    stand_in = judge if judge and content.judge and not own_is_known else None
    before = Suite.objects.filter(slug=content.slug).values_list("version", flat=True).first()
    suite = services.import_suite(content, imported_by=None, judge=stand_in)
    for warning in content.warnings:
        note(f"Kept without being understood: {warning}")
    note(_imported(suite, before, len(content.cases)))
    return suite


def _is_path(word: str) -> bool:
    if os.sep in word or word.lower().endswith((*agentv.SUFFIXES, ".zip", ".jsonl")):
        return True
    return Path(word).exists() and not Suite.objects.filter(slug=word).exists()


def _content_at(path: Path) -> SuiteContent:
    return agentv.read(path.read_bytes(), file=path.name)


def _imported(suite: Suite, before: int | None, count: int) -> str:
    cases = f"{count} {'case' if count == 1 else 'cases'}"
    if before is None:
        return f"Imported {suite.slug} as a new suite with {cases}."
    if before == suite.version:
        return f"{suite.slug} is at version {suite.version} already: nothing changed, {cases}."
    return f"Imported {suite.slug} as version {suite.version} with {cases}."

"""The suite a command line names: by its short name on the site, or by a path, which is imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs import services
from runs.formats.bundles import bundles_at
from runs.formats.suite_files import SUFFIXES, read_suites
from runs.imports import Imported
from runs.management.names import suite_named
from runs.models import Suite

Note = Callable[[str], None]


class SeveralSuitesError(DomainError):
    """A path holds more suites than one."""

    code = "several_suites"


class ProfileOfStoredSuiteError(DomainError):
    """A suite of the site was to start from a profile."""

    code = "profile_of_stored_suite"


def suite_meant(word: str, *, judge: str, profile: str = "", note: Note) -> Suite:
    """Return the suite; one at a path is imported first, as a new version where it changed.

    A short name goes before a path of the same letters: write ./NAME for the path. `judge` is the
    slug that judges, which stands in where the file names a model that is not here; `profile` is what
    the file starts from. What was imported is noted. Raises DomainError, UnreadableFileError with
    every problem of the files.
    """
    if _is_path(word):
        return _imported(Path(word), judge=judge, profile=profile, note=note)
    suite = suite_named(word)
    if profile:
        raise ProfileOfStoredSuiteError(
            f"--profile says what a file starts from, and {word} is a suite of this site, which has "
            "its evaluators and thresholds. Name a path, or leave --profile out."
        )
    return suite


def told(imported: Imported) -> str:
    """Return in one line what came of a suite."""
    suite, before = imported.suite, imported.version_before
    if before is None:
        return f"{suite.slug}: new, at version {suite.version}. {imported.note}."
    if not imported.is_changed:
        return f"{suite.slug}: unchanged, still at version {suite.version}."
    return f"{suite.slug}: version {suite.version}, before {before}. {imported.note}."


def _is_path(word: str) -> bool:
    if os.sep in word or word.lower().endswith((*SUFFIXES, ".zip")):
        return True
    return Path(word).exists() and not Suite.objects.filter(slug=word).exists()


def _imported(path: Path, *, judge: str, profile: str, note: Note) -> Suite:
    found = read_suites(bundles_at([path]), profile=profile)
    if len(found.suites) > 1:
        files = ", ".join(one.path for one in found.suites)
        raise SeveralSuitesError(
            f"{path} holds {len(found.suites)} suites, and a run is of one. Name its file: {files}."
        )
    [suite] = found.suites
    own_is_known = LanguageModel.objects.filter(slug=suite.content.judge).exists()
    stand_in = judge if judge and suite.content.judge and not own_is_known else None
    [done] = services.import_suites(found.suites, imported_by=None, judge=stand_in)
    for warning in (*found.warnings, *done.notes):
        note(f"Note: {warning}")
    note(told(done.imported))
    return done.imported.suite

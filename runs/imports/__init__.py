"""Bring suites and recorded outputs in: each import is one transaction, whole or not at all."""

from __future__ import annotations

from runs.imports._imported_cases import NotOfThisSuiteError
from runs.imports._models import UnknownJudgeError
from runs.imports.outputs import TargetKindDiffersError, import_recorded_outputs
from runs.imports.results import ImportedResults, import_results
from runs.imports.several import ImportedFile, UnusableSlugError, import_suites
from runs.imports.suites import Imported, import_suite

__all__ = [
    "Imported",
    "ImportedFile",
    "ImportedResults",
    "NotOfThisSuiteError",
    "TargetKindDiffersError",
    "UnknownJudgeError",
    "UnusableSlugError",
    "import_recorded_outputs",
    "import_results",
    "import_suite",
    "import_suites",
]

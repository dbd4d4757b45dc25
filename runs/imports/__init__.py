"""Bring suites and recorded outputs in: each import is one transaction, whole or not at all."""

from __future__ import annotations

from runs.imports.outputs import TargetKindDiffersError, import_recorded_outputs
from runs.imports.suites import UnknownJudgeError, import_suite

__all__ = [
    "TargetKindDiffersError",
    "UnknownJudgeError",
    "import_recorded_outputs",
    "import_suite",
]

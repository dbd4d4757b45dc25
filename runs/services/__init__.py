"""What crosses models or has side effects: each function is one deed, in one transaction."""

from __future__ import annotations

from runs.imports import import_recorded_outputs, import_suite
from runs.services.going_on import CannotResumeError, resume_run, stop_run
from runs.services.reopening import BudgetSpentError
from runs.services.retrying import check_paths, of_kind, retry_results
from runs.services.script_rights import check_scripts, scripts_problem
from runs.services.starting import start_run, suggested_concurrency

__all__ = [
    "BudgetSpentError",
    "CannotResumeError",
    "check_paths",
    "check_scripts",
    "import_recorded_outputs",
    "import_suite",
    "of_kind",
    "resume_run",
    "retry_results",
    "scripts_problem",
    "start_run",
    "stop_run",
    "suggested_concurrency",
]

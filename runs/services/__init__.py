"""What crosses models or has side effects: each function is one deed, in one transaction."""

from __future__ import annotations

from runs.imports import import_recorded_outputs, import_suite, import_suites
from runs.services.going_on import CannotResumeError, resume_run, stop_run
from runs.services.importing import import_results
from runs.services.reopening import BudgetSpentError
from runs.services.retrying import check_paths, of_kind, retry_results
from runs.services.script_rights import check_scripts, scripts_problem
from runs.services.starting import start_run, suggested_concurrency
from runs.services.trying import Question, TriedSettings, case_of, saved_settings, try_target

__all__ = [
    "BudgetSpentError",
    "CannotResumeError",
    "Question",
    "TriedSettings",
    "case_of",
    "check_paths",
    "check_scripts",
    "import_recorded_outputs",
    "import_results",
    "import_suite",
    "import_suites",
    "of_kind",
    "resume_run",
    "retry_results",
    "saved_settings",
    "scripts_problem",
    "start_run",
    "stop_run",
    "suggested_concurrency",
    "try_target",
]

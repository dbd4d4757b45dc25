"""What crosses models or has side effects: each function is one deed, in one transaction."""

from __future__ import annotations

from runs.imports import import_recorded_outputs, import_suite, import_suites
from runs.services.campaigns import rename_campaign, start_campaign, stop_campaign
from runs.services.draft_problems import DraftProblem, InvalidDraftError, problems_of
from runs.services.drafts import (
    DraftChangedError,
    change_draft,
    discard_draft,
    draft_of,
    is_stored,
)
from runs.services.going_on import CannotResumeError, resume_run, stop_run
from runs.services.importing import import_results
from runs.services.reopening import BudgetSpentError
from runs.services.rescoring import CannotRescoreError, NewCallsNeededError, rescore_run
from runs.services.retrying import check_paths, of_kind, retry_results
from runs.services.saving_drafts import (
    Conflict,
    DraftConflictError,
    NothingToSaveError,
    conflict_of,
    rebase_draft,
    save_draft,
)
from runs.services.script_rights import check_scripts, scripts_problem
from runs.services.starting import start_run, suggested_concurrency
from runs.services.trying import Question, TriedSettings, case_of, saved_settings, try_target
from runs.services.versions import CannotRestoreError, record_version, restore_version

__all__ = [
    "BudgetSpentError",
    "CannotRescoreError",
    "CannotRestoreError",
    "CannotResumeError",
    "Conflict",
    "DraftChangedError",
    "DraftConflictError",
    "DraftProblem",
    "InvalidDraftError",
    "NewCallsNeededError",
    "NothingToSaveError",
    "Question",
    "TriedSettings",
    "case_of",
    "change_draft",
    "check_paths",
    "check_scripts",
    "conflict_of",
    "discard_draft",
    "draft_of",
    "import_recorded_outputs",
    "import_results",
    "import_suite",
    "import_suites",
    "is_stored",
    "of_kind",
    "problems_of",
    "rebase_draft",
    "record_version",
    "rename_campaign",
    "rescore_run",
    "restore_version",
    "resume_run",
    "retry_results",
    "save_draft",
    "saved_settings",
    "scripts_problem",
    "start_campaign",
    "start_run",
    "stop_campaign",
    "stop_run",
    "suggested_concurrency",
    "try_target",
]

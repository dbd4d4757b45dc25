"""What crosses models or has side effects: each function is one deed, in one transaction."""

from __future__ import annotations

from runs.imports import import_recorded_outputs, import_suite, import_suites
from runs.services.campaigns import rename_campaign, start_campaign, stop_campaign
from runs.services.case_checks import InvalidCaseError
from runs.services.case_storing import SuiteArchivedError
from runs.services.cases import (
    CaseChangedError,
    CaseKeyInUseError,
    CaseKeyTakenError,
    UnknownCaseError,
    add_case,
    bring_back,
    change_case,
    place_case,
    remove_case,
)
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
from runs.services.many_cases import PutCases, put_cases, remove_cases, tag_cases, untag_cases
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
    "CaseChangedError",
    "CaseKeyInUseError",
    "CaseKeyTakenError",
    "Conflict",
    "DraftChangedError",
    "DraftConflictError",
    "DraftProblem",
    "InvalidCaseError",
    "InvalidDraftError",
    "NewCallsNeededError",
    "NothingToSaveError",
    "PutCases",
    "Question",
    "SuiteArchivedError",
    "TriedSettings",
    "UnknownCaseError",
    "add_case",
    "bring_back",
    "case_of",
    "change_case",
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
    "place_case",
    "problems_of",
    "put_cases",
    "rebase_draft",
    "record_version",
    "remove_case",
    "remove_cases",
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
    "tag_cases",
    "try_target",
    "untag_cases",
]

"""The tables: suites, runs, results, reviews, shares and the ledger."""

from __future__ import annotations

from runs.models.case_uploads import CaseUpload
from runs.models.drafts import SuiteDraft
from runs.models.evaluator_trials import EvaluatorTrial, EvaluatorTrialState
from runs.models.ledger import ANSWERED, CallPurpose, CallStatus, ModelCall
from runs.models.results import (
    OPEN_RESULT_STATUSES,
    Artifact,
    Attempt,
    Result,
    ResultOutput,
    ResultStatus,
    Retry,
    Score,
    ScoreState,
    VerdictChoice,
)
from runs.models.review_uploads import ReviewUpload
from runs.models.reviews import Review, ReviewItem, ReviewSkip
from runs.models.runs import (
    ACTIVE_RUN_STATUSES,
    ALL_ALIKE,
    RESUMABLE_RUN_STATUSES,
    Campaign,
    Run,
    RunEvent,
    RunOwner,
    RunStatus,
)
from runs.models.shares import ShareDepth, ShareLink
from runs.models.suites import (
    Case,
    CaseGate,
    FileContent,
    FinalScore,
    OnUnscored,
    RecordedOutput,
    Suite,
    SuiteFile,
    SuiteVersion,
    Target,
)
from runs.models.tokens import ApiToken
from runs.models.trials import TargetTrial, TrialState
from runs.models.workers import Hand, WorkerProcess

__all__ = [
    "ACTIVE_RUN_STATUSES",
    "ALL_ALIKE",
    "ANSWERED",
    "OPEN_RESULT_STATUSES",
    "RESUMABLE_RUN_STATUSES",
    "ApiToken",
    "Artifact",
    "Attempt",
    "CallPurpose",
    "CallStatus",
    "Campaign",
    "Case",
    "CaseGate",
    "CaseUpload",
    "EvaluatorTrial",
    "EvaluatorTrialState",
    "FileContent",
    "FinalScore",
    "Hand",
    "ModelCall",
    "OnUnscored",
    "RecordedOutput",
    "Result",
    "ResultOutput",
    "ResultStatus",
    "Retry",
    "Review",
    "ReviewItem",
    "ReviewSkip",
    "ReviewUpload",
    "Run",
    "RunEvent",
    "RunOwner",
    "RunStatus",
    "Score",
    "ScoreState",
    "ShareDepth",
    "ShareLink",
    "Suite",
    "SuiteDraft",
    "SuiteFile",
    "SuiteVersion",
    "Target",
    "TargetTrial",
    "TrialState",
    "VerdictChoice",
    "WorkerProcess",
]

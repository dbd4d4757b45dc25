"""Queue a try of one evaluator of a draft on one output, or a dry run that finds what a try would send."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from evaluators.models import AuditEntry
from evaluators.scoring.tree import EvaluatorSpec
from evaluators.scoring.types import DomainError
from runs.models.database import database_now
from runs.models.results import Result
from runs.models.suites import Case, SuiteDraft
from runs.models.temporary import EvaluatorTrial
from runs.queue import TRY_EVALUATOR, queue_trial
from runs.running.checks import check_agents, check_scripts
from runs.suites.edits import UnknownEvaluatorError, nodes_with_paths


class SuiteIsArchivedError(DomainError):
    """The evaluators of an archived suite cannot be tried."""

    code = "suite_archived"


class TryUnderWayError(DomainError):
    """The member has another try under way."""

    code = "try_under_way"


@dataclass(frozen=True, slots=True)
class TriedOutput:
    """The output of a try: that of a result, or a pasted one for a case.

    `pasted` has the form of a recorded line: output, and trace if there is one. `baseline` is the pasted output to
    compare it with, "" for that of the baseline run.
    """

    case: Case
    result: Result | None = None
    pasted: Mapping[str, Any] | None = None
    baseline: str = ""


def find_node(draft: SuiteDraft, node_id: str) -> tuple[str, dict[str, Any]]:
    """Return the path and the settings of an evaluator of the draft; raises UnknownEvaluatorError."""
    for path, node in nodes_with_paths(draft.content["evaluators"]):
        if node["id"] == node_id:
            return path, node
    raise UnknownEvaluatorError("That evaluator is not in your draft.")


def try_evaluator(
    draft: SuiteDraft,
    node_id: str,
    output: TriedOutput,
    *,
    asked_by: User,
    once: UUID,
    is_dry: bool = False,
) -> EvaluatorTrial:
    """Queue a try and return it; a form that is sent twice returns its first try.

    A dry try finds what would be sent and started, and does neither. Raises DomainError if the suite
    is archived, scripts may not run, a target that judges cannot be asked, the member has another try
    under way, or no worker can be reached.
    """
    if before := EvaluatorTrial.objects.filter(asked_by=asked_by, once=once).first():
        return before
    trial = _trial(draft, node_id, output, asked_by=asked_by, once=once)
    trial.is_dry = is_dry
    root = EvaluatorSpec.model_validate(trial.tree)
    if not is_dry:
        check_scripts((root,), None, asked_by)
    check_agents((root,))
    EvaluatorTrial.objects.give_up(now=database_now())
    try:
        with transaction.atomic():
            trial.save()
            _record_trial(trial, asked_by)
    except IntegrityError:
        return _existing_trial(trial)
    queue_trial(TRY_EVALUATOR, trial)
    return trial


def _record_trial(trial: EvaluatorTrial, asked_by: User) -> None:
    AuditEntry.objects.record(
        "try",
        by=asked_by,
        object_type="evaluator",
        object_id=trial.suite_id,
        object_name=trial.path or "the whole tree",
        after={"suite": trial.suite.slug, "dry": trial.is_dry},
    )


def _trial(
    draft: SuiteDraft, node_id: str, output: TriedOutput, *, asked_by: User, once: UUID
) -> EvaluatorTrial:
    if draft.suite.archived_at is not None:
        raise SuiteIsArchivedError("The suite is archived. Restore it to try its evaluators.")
    path, node = find_node(draft, node_id)
    return EvaluatorTrial(
        suite=draft.suite,
        node=node_id,
        path=path,
        tree=EvaluatorSpec.model_validate(node).as_json(),
        policy=draft.content["policy"],
        judge=str(draft.content["judge"]),
        case=output.case,
        result=output.result,
        pasted=None if output.pasted is None else dict(output.pasted),
        baseline=output.baseline,
        asked_by=asked_by,
        once=once,
    )


def _existing_trial(trial: EvaluatorTrial) -> EvaluatorTrial:
    """Return the try that the same form has just queued; raises TryUnderWayError for another."""
    trials = EvaluatorTrial.objects.select_related("suite")
    if before := trials.filter(asked_by=trial.asked_by, once=trial.once).first():
        return before
    other = trials.under_way(trial.asked_by, is_dry=trial.is_dry)
    named = f" of {other.path or 'the whole tree'} in {other.suite.title}" if other else ""
    word = "dry run" if trial.is_dry else "trial"
    raise TryUnderWayError(
        f"You have a {word}{named} in progress. Wait until it ends. Only one at a time is possible."
    )

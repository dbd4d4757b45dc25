"""Have a worker ask a target about one case, with settings that may not be saved yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from celery import current_app
from django.contrib.auth.models import User

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError
from runs.models import Case, RecordedOutput, Suite, Target, TargetTrial
from runs.services.broker import broker_errors
from runs.services.checking import TargetNotReadyError
from runs.services.script_rights import check_scripts
from runs.targets import target_kind_named

TRY_TARGET = "runs.try_target"
OWN_TEXT = "a text of your own"


class NotQueuedError(DomainError):
    """No worker can be asked because the broker does not answer."""

    code = "not_queued"


@dataclass(frozen=True, slots=True)
class Question:
    """What the target is asked: a case of a suite, or a text."""

    case: Case | None = None
    text: str = ""

    def facts(self) -> dict[str, Any]:
        """Return what a target may know of it, as plain JSON."""
        if self.case is None:
            turns = [{"role": "user", "content": self.text}]
            return {"key": OWN_TEXT, "input": turns, "metadata": {}}
        case = self.case
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in case.input]
        return {"key": case.key, "input": turns, "metadata": case.metadata}


@dataclass(frozen=True, slots=True)
class TriedSettings:
    """A target as it stands in a form or in the database; `secrets` are encrypted values by name."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: LanguageModel | None = None
    target: Target | None = None


def saved_settings(target: Target) -> TriedSettings:
    """Return the settings of a target as they are stored."""
    return TriedSettings(target.kind, target.config, target.encrypted_secrets, target.model, target)


def try_target(settings: TriedSettings, question: Question, *, asked_by: User) -> TargetTrial:
    """Queue a try; raises DomainError when the target cannot be asked or no worker can be reached."""
    kind = target_kind_named(settings.kind)
    check_scripts((), kind, asked_by)
    if kind.uses_model and settings.model is None:
        raise TargetNotReadyError("The target has no language model. Choose one for it.")
    trial = TargetTrial.objects.create(
        target=settings.target,
        kind=settings.kind,
        config=dict(settings.config),
        encrypted_secrets=dict(settings.secrets),
        model=settings.model,
        suite=question.case.suite if question.case else None,
        case=question.facts(),
        recorded=_recorded(settings.target, question) if kind.replays else None,
        asked_by=asked_by,
    )
    try:
        current_app.send_task(TRY_TARGET, kwargs={"trial_id": trial.pk}, retry=False)
    except broker_errors() as error:
        trial.delete()
        raise NotQueuedError(
            "The try was not queued: the message broker does not answer. Check CELERY_BROKER_URL."
        ) from error
    return trial


def _recorded(target: Target | None, question: Question) -> Any:
    """Return the output stored for the case: the target's uploads, without any the case's own."""
    if question.case is None or target is None:
        return None
    uploads = RecordedOutput.objects.filter(target=target)
    if not uploads.exists():
        return question.case.recorded_output
    found = uploads.filter(case_key=question.case.key)
    return found.values_list("output", flat=True).first()


def case_of(suite: Suite, key: str) -> Case | None:
    """Return the current case of that key, or the first of the suite without one; None when there is none."""
    cases = Case.objects.filter(suite=suite, is_current=True).select_related("suite")
    return cases.filter(key=key).first() if key else cases.first()

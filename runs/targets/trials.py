"""Try a target on one case: the form, the work that is queued, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Q
from django.urls import reverse_lazy

from evaluators.models import LanguageModel
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.models.temporary import TargetTrial
from runs.queue import TRY_TARGET, queue_trial
from runs.running.checks import TargetNotReadyError, check_scripts
from runs.target_kinds import target_kind_named

OWN_TEXT = "a text of your own"


@dataclass(frozen=True, slots=True)
class TrialInput:
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


def try_target(settings: TriedSettings, question: TrialInput, *, asked_by: User) -> TargetTrial:
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
    queue_trial(TRY_TARGET, trial)
    return trial


def _recorded(target: Target | None, question: TrialInput) -> Any:
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


MAX_TEXT_LENGTH = 20_000
CASES = reverse_lazy("runs:target-try-cases")
OFFER = {"hx-get": CASES, "hx-target": "#try-cases", "hx-swap": "innerHTML"}


class TrialForm(forms.Form):
    """A suite with the key of a case, or a text."""

    suite = forms.ModelChoiceField(
        Suite.objects.filter(archived_at=None),
        required=False,
        to_field_name="slug",
        empty_label="None, ask the text below",
        widget=forms.Select(attrs={**OFFER, "hx-trigger": "change", "hx-include": "#id_try-case"}),
    )
    case = forms.CharField(
        required=False,
        help_text="Its id. Empty: the first case of the suite.",
        widget=forms.TextInput(
            attrs={
                **OFFER,
                "hx-trigger": "focus once, input changed delay:250ms",
                "hx-include": "#id_try-suite",
                "list": "try-cases",
                "autocomplete": "off",
                "spellcheck": "false",
            }
        ),
    )
    text = forms.CharField(
        required=False,
        label="Text of your own",
        max_length=MAX_TEXT_LENGTH,
        help_text="Asked in place of a case.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def __init__(self, data: Any = None, **options: Any) -> None:
        """Keep its names apart from those of the settings beside it."""
        super().__init__(data, prefix="try", **options)
        self.question = TrialInput()

    def clean(self) -> dict[str, Any]:
        """Find what is asked; refuse a case that is not there and a question about nothing."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        suite, key, text = found.get("suite"), found.get("case", ""), found.get("text", "")
        if text:
            self.question = TrialInput(text=text)
        elif suite is None:
            if "suite" not in self.errors:
                self.add_error("suite", "Choose a suite, or write a text of your own.")
        else:
            case = case_of(suite, key.strip())
            if case is None:
                message = f"has no case “{key}”" if key else "has no cases"
                self.add_error("case", f"{suite.title} {message}.")
            self.question = TrialInput(case=case)
        return found


MAX_OFFERED = 30


@dataclass(frozen=True, slots=True)
class TargetTrialReport:
    """How far a try is: waiting, untaken, running, lost, failed or done; and what it found."""

    pk: int
    state: str
    asked_at: datetime
    asked_by: str
    case: str
    suite: str = ""
    title: str = ""
    reason: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    is_saved: bool = True

    @property
    def unreported(self) -> str:
        """Return which paths led nowhere, in words."""
        named = ", ".join(self.found.get("reports_nothing_of") or ())
        return f"{named}. The agent left it out this time, or the path is wrong."

    @property
    def is_open(self) -> bool:
        """Return whether the page has something to wait for."""
        return self.state in ("waiting", "untaken", "running")


def trial_report(trial: TargetTrial) -> TargetTrialReport:
    """Return how far a try is and what it found."""
    found: Mapping[str, Any] = trial.found or {}
    usage: Mapping[str, Any] = found.get("usage") or {}
    usd = usage.get("cost_usd")
    return TargetTrialReport(
        pk=trial.pk,
        state=trial.stage(),
        asked_at=trial.asked_at,
        asked_by=trial.asked_by.get_username(),
        case=str(trial.case.get("key", "")),
        suite=trial.suite.slug if trial.suite else "",
        title=str(found.get("label", "")),
        reason=str(found.get("reason", "")),
        found=found,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cost_usd=None if usd is None else Decimal(usd),
        is_saved=trial.target is not None and trial.config == trial.target.config,
    )


def last_trial(target: Target, member: User) -> TargetTrialReport | None:
    """Return the last try of a member with a target, None without one."""
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    found = trials.filter(target=target, asked_by=member).first()
    return trial_report(found) if found else None


def offered_cases(slug: str, words: str) -> list[tuple[str, str]]:
    """Return keys and titles of a suite's cases that hold the words, in the order of the suite."""
    cases = Case.objects.filter(suite__slug=slug, is_current=True)
    if words:
        cases = cases.filter(Q(key__icontains=words) | Q(title__icontains=words))
    return list(cases.values_list("key", "title")[:MAX_OFFERED])

"""Try a target on one case: the form, the queued work, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.urls import reverse_lazy

from evaluators.models import AuditEntry, LanguageModel
from runs.models.suites import Case, RecordedOutput, Suite, Target
from runs.models.temporary import TargetTrial
from runs.queue import TRY_TARGET, queue_trial
from runs.running.checks import TargetNotReadyError, check_scripts
from runs.target_kinds import get_target_kind

OWN_TEXT = "a text of your own"


@dataclass(frozen=True, slots=True)
class TrialInput:
    """The input of a try: a case of a suite, or a text."""

    case: Case | None = None
    text: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the input as the target receives it, as plain JSON."""
        if self.case is None:
            turns = [{"role": "user", "content": self.text}]
            return {"key": OWN_TEXT, "input": turns, "metadata": {}}
        case = self.case
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in case.input]
        return {"key": case.key, "input": turns, "metadata": case.metadata}


@dataclass(frozen=True, slots=True)
class TriedSettings:
    """The settings of a target, from a form or from the database; `secrets` are encrypted values by name."""

    kind: str
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: LanguageModel | None = None
    target: Target | None = None


def saved_settings(target: Target) -> TriedSettings:
    """Return the stored settings of a target."""
    return TriedSettings(target.kind, target.config, target.encrypted_secrets, target.model, target)


def try_target(settings: TriedSettings, trial_input: TrialInput, *, asked_by: User) -> TargetTrial:
    """Queue a try; raises DomainError when the target cannot be asked or no worker can be reached."""
    kind = get_target_kind(settings.kind)
    check_scripts((), kind, asked_by)
    if kind.uses_model and settings.model is None:
        raise TargetNotReadyError("The target has no language model. Choose one for it.")
    with transaction.atomic():
        trial = TargetTrial.objects.create(
            target=settings.target,
            kind=settings.kind,
            config=dict(settings.config),
            encrypted_secrets=dict(settings.secrets),
            model=settings.model,
            suite=trial_input.case.suite if trial_input.case else None,
            case=trial_input.facts(),
            recorded=_recorded(settings.target, trial_input.case) if kind.replays else None,
            asked_by=asked_by,
        )
        _record_trial(settings, asked_by)
    queue_trial(TRY_TARGET, trial)
    return trial


# What a try reaches: an address of the network, a program, or a model.
REACHED = ("method", "url", "command")


def _record_trial(settings: TriedSettings, asked_by: User) -> None:
    reached = {name: settings.config[name] for name in REACHED if settings.config.get(name)}
    AuditEntry.objects.record(
        "try",
        by=asked_by,
        object_type="target",
        object_id=settings.target.pk if settings.target else "",
        object_name=settings.target.name if settings.target else "a target that is not saved",
        after={
            "kind": settings.kind,
            **reached,
            **({"model": settings.model.slug} if settings.model else {}),
        },
    )


def _recorded(target: Target | None, case: Case | None) -> Any:
    """Return the output stored for the case: from the target's uploads, or the case's own if it has none."""
    if case is None or target is None:
        return None
    uploads = RecordedOutput.objects.filter(target=target)
    if not uploads.exists():
        return case.recorded_output
    return uploads.filter(case_key=case.key).values_list("output", flat=True).first()


def find_case(suite: Suite, key: str) -> Case | None:
    """Return the current case with this key, the first case for an empty key; None if there is none."""
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
        empty_label="None: send the text below",
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
        help_text="Sent instead of a case.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def __init__(self, data: Any = None, **options: Any) -> None:
        """Prefix the names, so that they differ from those of the settings on the same page."""
        super().__init__(data, prefix="try", **options)
        self.trial_input = TrialInput()

    def clean(self) -> dict[str, Any]:
        """Find the input; refuse a case that does not exist, and an empty form."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        suite, key, text = values.get("suite"), values.get("case", ""), values.get("text", "")
        if text:
            self.trial_input = TrialInput(text=text)
        elif suite is None:
            if "suite" not in self.errors:
                self.add_error("suite", "Choose a suite, or write a text of your own.")
        else:
            case = find_case(suite, key.strip())
            if case is None:
                message = f"has no case “{key}”" if key else "has no cases"
                self.add_error("case", f"{suite.title} {message}.")
            self.trial_input = TrialInput(case=case)
        return values


MAX_OFFERED = 30


@dataclass(frozen=True, slots=True)
class TargetTrialReport:
    """The state of a try (waiting, untaken, running, lost, failed or done) and its answer."""

    pk: int
    state: str
    asked_at: datetime
    asked_by: str
    case: str
    suite: str = ""
    title: str = ""
    reason: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    is_saved: bool = True

    @property
    def unreported(self) -> str:
        """Name the paths at which the reply holds nothing."""
        named = ", ".join(self.outcome.get("empty_paths") or ())
        return f"{named}. The agent left it out this time, or the path is wrong."

    @property
    def is_open(self) -> bool:
        """Tell whether the try is not over yet."""
        return self.state in ("waiting", "untaken", "running")


def trial_report(trial: TargetTrial) -> TargetTrialReport:
    """Return the state of a try and its answer."""
    outcome: Mapping[str, Any] = trial.outcome or {}
    usage: Mapping[str, Any] = outcome.get("usage") or {}
    usd = usage.get("cost_usd")
    return TargetTrialReport(
        pk=trial.pk,
        state=trial.stage(),
        asked_at=trial.asked_at,
        asked_by=trial.asked_by.get_username(),
        case=str(trial.case.get("key", "")),
        suite=trial.suite.slug if trial.suite else "",
        title=str(outcome.get("label", "")),
        reason=str(outcome.get("reason", "")),
        outcome=outcome,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cost_usd=None if usd is None else Decimal(usd),
        is_saved=trial.target is not None and trial.config == trial.target.config,
    )


def last_trial(target: Target, member: User) -> TargetTrialReport | None:
    """Return a member's last try of a target, None without one."""
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    trial = trials.filter(target=target, asked_by=member).first()
    return trial_report(trial) if trial else None


def suggest_cases(slug: str, text: str) -> list[tuple[str, str]]:
    """Return keys and titles of the suite's cases whose id or title contains the text, in suite order."""
    cases = Case.objects.filter(suite__slug=slug, is_current=True)
    if text:
        cases = cases.filter(Q(key__icontains=text) | Q(title__icontains=text))
    return list(cases.values_list("key", "title")[:MAX_OFFERED])

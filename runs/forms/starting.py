"""The form that starts runs of one suite."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict

from evaluators.kinds._samples import MOST_SAMPLES
from evaluators.models import LanguageModel
from evaluators.scoring.tree import Node
from evaluators.scoring.types import DomainError
from runs import services
from runs.drafting import tree_of
from runs.drafting.for_one_run import RunRules, ruled
from runs.forms.money import MoneyField
from runs.forms.run_rules import RunRulesFields
from runs.forms.start_cases import CaseChoiceForm
from runs.models import Run, Suite, Target
from runs.reports.estimate import Estimate, Order, estimate
from runs.reports.start_choices import (
    TargetOption,
    UnavailableTarget,
    target_options,
    unavailable_targets,
)
from runs.services.script_rights import scripts_problem_of_suite
from runs.targets import target_kinds
from runs.versions import parts_of

MOST_REPETITIONS = 100
MOST_AT_ONCE = 200
LONGEST_NUMBER = 18


class TargetsField(forms.ModelMultipleChoiceField[Target]):
    """Targets by their ids; an id that no column could hold is a wrong choice like any other."""

    def clean(self, value: Any) -> Any:
        """Return the targets."""
        for pk in value or ():
            if len(str(pk)) >= LONGEST_NUMBER:
                raise forms.ValidationError("Tick targets that are listed.", code="invalid_choice")
        return super().clean(value)


class StartRunForm(CaseChoiceForm):
    """One run for each target that is ticked, all of the same cases, judge, rules and limits."""

    target = TargetsField(
        Target.objects.filter(archived_at=None),
        label="Targets",
        error_messages={"required": "Tick at least one target."},
    )
    repetitions = forms.IntegerField(
        min_value=1,
        max_value=MOST_REPETITIONS,
        initial=1,
        help_text="Scores are averaged, cost adds up",
    )
    concurrency = forms.IntegerField(
        label="At the same time",
        min_value=1,
        max_value=MOST_AT_ONCE,
        initial=8,
        help_text="executions of each run",
    )
    judge = forms.ModelChoiceField(
        LanguageModel.objects.all(), required=False, empty_label="None", label="Model"
    )
    samples = forms.IntegerField(
        label="Samples",
        required=False,
        min_value=1,
        max_value=MOST_SAMPLES,
        help_text="judge calls for each score; empty as in the suite",
    )
    budget = MoneyField(
        label="Stop at",
        required=False,
        min_value=Decimal("0.000001"),
        help_text="US dollars a run, both purses; empty for no limit",
    )
    note = forms.CharField(
        required=False,
        max_length=300,
        label="Note",
        help_text="of several targets it names the campaign too",
    )
    version = forms.IntegerField(required=False, min_value=0, max_value=10**9)
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(
        self,
        suite: Suite,
        data: QueryDict | None = None,
        *,
        rules: RunRules | None = None,
        **options: Any,
    ) -> None:
        """Offer the suite's cases, judge and rules; `rules` are what was asked for before."""
        super().__init__(suite, data, **options)
        self.asked_rules = rules or RunRules()
        self.initial.setdefault("judge", suite.judge_id)
        judges = LanguageModel.objects.all()
        if suite.judge_id:
            self.fields["judge"] = forms.ModelChoiceField(judges, empty_label=None, label="Judge")
        self.initial["form_key"] = secrets.token_urlsafe(16)

    @cached_property
    def options(self) -> tuple[TargetOption, ...]:
        """Return the targets to choose from."""
        return target_options(self.suite)

    @cached_property
    def unavailable_targets(self) -> tuple[UnavailableTarget, ...]:
        """Return what the address asked for that no run can be started against."""
        return () if self.is_bound else unavailable_targets(self.chosen_targets)

    @cached_property
    def chosen_targets(self) -> set[str]:
        """Return the ids of the targets that are ticked."""
        return set(self._list("target"))

    @cached_property
    def rules(self) -> RunRulesFields:
        """Return the fields of weights and thresholds."""
        parts = parts_of(self.suite)
        sent = self.data.get("version", "") if self.is_bound else ""
        old = None
        if sent.isdecimal() and len(sent) < LONGEST_NUMBER and int(sent) != self.suite.version:
            old = self.suite.versions.filter(number=int(sent)).first()
        data = self.data if self.is_bound else None
        return RunRulesFields(parts, old.content if old else parts, self.asked_rules, data)

    @cached_property
    def wanted_rules(self) -> RunRules:
        """Return what the runs do otherwise than the suite, as far as it is right."""
        samples = self._as_filled.get("samples")
        return (
            replace(self.asked_rules, samples=samples)
            if not self.is_bound
            else self.rules.rules(samples)
        )

    def clean(self) -> dict[str, Any]:
        """Refuse rules that no run could be scored by, naming field or evaluator."""
        found = super().clean()
        wanted = self.wanted_rules
        if self.rules.errors:
            self.add_error(None, "Weights and thresholds: correct what is marked there.")
        else:
            try:
                ruled(self.rules.parts, wanted)
            except DomainError as refusal:
                self.add_error(None, f"For this run only: {refusal}")
        return found

    def start(self, *, started_by: User) -> list[Run]:
        """Start the runs, all or none; raises DomainError saying what is in the way.

        Sent twice, it gives what it has started the first time.
        """
        chosen = self.cleaned_data
        return services.start_campaign(
            suite=self.suite,
            targets=list(chosen["target"]),
            started_by=started_by,
            name=chosen["note"],
            form_key=chosen["form_key"],
            repetitions=chosen["repetitions"],
            concurrency=chosen["concurrency"],
            budget_usd=chosen["budget"],
            note=chosen["note"],
            tags=self.wanted_tags(),
            case_keys=self.wanted_keys,
            judge=chosen["judge"],
            rules=self.wanted_rules,
            version=chosen["version"],
        )

    def estimate(self) -> Estimate:
        """Return what the form as it stands would start and cost; wrong fields count as their default."""
        chosen = self._as_filled
        cases, with_outcomes = self.counts
        return estimate(
            Order(
                suite=self.suite,
                root=self._root(),
                targets=self._estimated_targets(),
                cases=cases,
                with_outcomes=with_outcomes,
                repetitions=chosen.get("repetitions") or 1,
                concurrency=chosen.get("concurrency") or 8,
                judge=chosen.get("judge"),
                budget_usd=chosen.get("budget"),
                tags=tuple(self.wanted_tags() or ()),
                keys=self.wanted_keys,
            )
        )

    def scripts_problem(self, user: User) -> str:
        """Return why the site would not start this for the user, when programs are to run; else ""."""
        kinds = {target.kind for target in self._estimated_targets()}
        known = target_kinds()
        targets = [known[kind] for kind in sorted(kinds) if kind in known]
        return scripts_problem_of_suite(self.suite, targets, user)

    @property
    def _as_filled(self) -> dict[str, Any]:
        """Return what the fields hold as far as it is right, also before anything was sent."""
        if self.is_bound:
            return self.cleaned_data if hasattr(self, "cleaned_data") else {}
        found = {}
        for name in ("repetitions", "concurrency", "samples", "budget", "judge"):
            field = self.fields[name]
            with suppress(forms.ValidationError):
                found[name] = field.clean(self.initial.get(name, field.initial))
        return found

    def _root(self) -> Node:
        """Return the tree that the runs are scored by, the suite's while the rules are wrong."""
        try:
            return ruled(self.rules.parts, self.wanted_rules).root
        except DomainError:
            return tree_of(self.rules.parts)

    def _estimated_targets(self) -> list[Target]:
        numbers = [
            int(pk) for pk in self.chosen_targets if pk.isdecimal() and len(pk) < LONGEST_NUMBER
        ]
        targets = Target.objects.filter(archived_at=None, pk__in=numbers)
        return list(targets.select_related("model"))

"""The form that starts runs of one suite."""

from __future__ import annotations

import secrets
from collections import Counter
from decimal import Decimal
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Count, Q

from evaluators.models import LanguageModel
from runs import services
from runs.forms.money import MoneyField
from runs.models import Case, Run, Suite, Target
from runs.reports.estimate import Estimate, Order, estimate
from runs.reports.start_choices import TargetOption, target_options
from runs.services.script_rights import scripts_problem_of_suite
from runs.targets import target_kinds

MOST_REPETITIONS = 100
MOST_AT_ONCE = 200
LONGEST_NUMBER = 18
ALL, BY_TAG = "all", "tag"


class TargetsField(forms.ModelMultipleChoiceField[Target]):
    """Targets by their ids; an id that no column could hold is a wrong choice like any other."""

    def clean(self, value: Any) -> Any:
        """Return the targets."""
        for pk in value or ():
            if len(str(pk)) >= LONGEST_NUMBER:
                raise forms.ValidationError("Tick targets that are listed.", code="invalid_choice")
        return super().clean(value)


class StartRunForm(forms.Form):
    """One run for each target that is ticked, all of the same cases, judge and limits."""

    target = TargetsField(
        Target.objects.filter(archived_at=None),
        label="Targets",
        error_messages={"required": "Tick at least one target."},
    )
    cases = forms.ChoiceField(label="Cases")
    tag = forms.MultipleChoiceField(required=False, label="Tags")
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
    form_key = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, suite: Suite, *args: Any, **options: Any) -> None:
        """Offer the tags of the suite and its own judge."""
        super().__init__(*args, **options)
        self.suite = suite
        choices = [(tag, f"{tag} ({count})") for tag, count in self.tags.items()]
        total = sum(count for _, count, _ in self._cases)
        self.fields["tag"] = forms.MultipleChoiceField(choices=choices, required=False)
        self.fields["cases"] = forms.ChoiceField(
            choices=[(ALL, f"All {total}"), *([(BY_TAG, "By tag")] if choices else ())],
        )
        self.initial.setdefault("judge", suite.judge_id)
        judges = LanguageModel.objects.all()
        if suite.judge_id:
            self.fields["judge"] = forms.ModelChoiceField(judges, empty_label=None, label="Judge")
        self.initial.setdefault("cases", BY_TAG if self.initial.get("tag") else ALL)
        self.initial["form_key"] = secrets.token_urlsafe(16)

    @cached_property
    def options(self) -> tuple[TargetOption, ...]:
        """Return the targets to choose from."""
        return target_options(self.suite)

    @cached_property
    def tags(self) -> dict[str, int]:
        """Return the tags of the suite's cases with the number of cases, most frequent first."""
        counts: Counter[str] = Counter()
        for tags, total, _ in self._cases:
            counts.update(dict.fromkeys(tags, total))
        return dict(counts.most_common())

    @cached_property
    def chosen_targets(self) -> set[str]:
        """Return the ids of the targets that are ticked."""
        ticked = self["target"].value() or []
        return {
            str(getattr(value, "pk", value))
            for value in ([ticked] if isinstance(ticked, str) else ticked)
        }

    @cached_property
    def chosen_tags(self) -> set[str]:
        """Return the tags that are ticked."""
        ticked = self["tag"].value() or []
        return {ticked} if isinstance(ticked, str) else set(ticked)

    def clean(self) -> dict[str, Any]:
        """Refuse an empty choice of cases."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        by_tag = found.get("cases") == BY_TAG
        if by_tag and not found.get("tag") and "tag" not in self.errors:
            self.add_error("tag", "Tick at least one tag, or choose all cases.")
        if not self._cases:
            self.add_error(None, f"{self.suite.title} has no cases yet. Import some first.")
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
            tags=self._wanted_tags(),
            judge=chosen["judge"],
        )

    def estimate(self) -> Estimate:
        """Return what the form as it stands would start and cost; wrong fields count as their default."""
        chosen = self.cleaned_data if self.is_bound and hasattr(self, "cleaned_data") else {}
        wanted = set(self._wanted_tags() or ())
        chosen_cases = [row for row in self._cases if not wanted or wanted & set(row[0])]
        judge = chosen.get("judge") if self.is_bound else self.suite.judge
        return estimate(
            Order(
                suite=self.suite,
                targets=self._estimated_targets(),
                cases=sum(total for _, total, _ in chosen_cases),
                with_outcomes=sum(outcomes for *_, outcomes in chosen_cases),
                repetitions=chosen.get("repetitions") or 1,
                concurrency=chosen.get("concurrency") or 8,
                judge=judge,
                budget_usd=chosen.get("budget"),
                tags=tuple(wanted),
            )
        )

    def scripts_problem(self, user: User) -> str:
        """Return why the site would not start this for the user, when programs are to run; else ""."""
        kinds = {target.kind for target in self._estimated_targets()}
        known = target_kinds()
        targets = [known[kind] for kind in sorted(kinds) if kind in known]
        return scripts_problem_of_suite(self.suite, targets, user)

    def _estimated_targets(self) -> list[Target]:
        numbers = [
            int(pk) for pk in self.chosen_targets if pk.isdecimal() and len(pk) < LONGEST_NUMBER
        ]
        targets = Target.objects.filter(archived_at=None, pk__in=numbers)
        return list(targets.select_related("model"))

    def _wanted_tags(self) -> list[str] | None:
        if self["cases"].value() != BY_TAG:
            return None
        return sorted(self.chosen_tags)

    @cached_property
    def _cases(self) -> list[tuple[list[str], int, int]]:
        """Return of every list of tags how many current cases have it, and how many of them outcomes."""
        rows = Case.objects.filter(suite=self.suite, is_current=True).order_by().values("tags")
        counted = rows.annotate(
            total=Count("id"), with_outcomes=Count("id", filter=~Q(expected_outcomes=[]))
        )
        return list(counted.values_list("tags", "total", "with_outcomes"))

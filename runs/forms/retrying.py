"""Go on with a run that ended early, and ask for results to be tried again."""

from __future__ import annotations

from decimal import Decimal

from django import forms
from django.contrib.auth.models import User

from runs import services
from runs.forms.money import MoneyField
from runs.models import Run
from runs.reports.run_errors import ids_with_error_of

WHICH = (("errored", "errored"), ("failed", "failed"), ("all_missing", "missing"))


class RetryForm(forms.Form):
    """Which results of a run to try again, and whether their outputs stay as they are."""

    which = forms.ChoiceField(choices=WHICH, required=False)
    like = forms.IntegerField(required=False)
    keep_output = forms.BooleanField(required=False)

    def retry(self, run: Run, *, asked_by: User) -> str:
        """Queue the results and say how many; raises DomainError when there are none."""
        self.full_clean()
        chosen = self.cleaned_data
        like = chosen.get("like")
        count = services.retry_results(
            run,
            asked_by=asked_by,
            which=chosen.get("which") or "errored",
            result_ids=ids_with_error_of(run, like) if like else None,
            keep_output=chosen.get("keep_output", False),
        )
        return "1 result is tried again." if count == 1 else f"{count} results are tried again."

    def retry_one(self, run: Run, key: str, repetition: int, *, asked_by: User) -> str:
        """Queue one result and say what is repeated; raises Result.DoesNotExist and DomainError."""
        self.full_clean()
        keeps = self.cleaned_data.get("keep_output", False)
        result = run.results.only("pk", "run").get(case__key=key, repetition=repetition)
        services.retry_results(run, asked_by=asked_by, result_ids=[result.pk], keep_output=keeps)
        return "The output is scored again." if keeps else "The result is tried again."


class ResumeForm(forms.Form):
    """A new cap for a run whose budget is spent; empty leaves the cap as it is."""

    budget = MoneyField(label="New budget", required=False, min_value=Decimal("0.000001"))

    def resume(self, run: Run, *, resumed_by: User) -> str:
        """Let the run go on and say with how much; raises DomainError when it cannot."""
        self.full_clean()
        budget = self.cleaned_data.get("budget")
        count = services.resume_run(run, resumed_by=resumed_by, budget_usd=budget)
        return "1 result is left to run." if count == 1 else f"{count} results are left to run."

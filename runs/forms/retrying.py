"""Ask for results to be tried again."""

from __future__ import annotations

from django import forms
from django.contrib.auth.models import User

from runs import services
from runs.models import Run

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
        count = services.retry_results(
            run,
            asked_by=asked_by,
            which=chosen.get("which") or "errored",
            result_ids=run.results.with_error_of(chosen["like"]) if chosen.get("like") else None,
            keep_output=chosen.get("keep_output", False),
        )
        return (
            f"{count} result is tried again." if count == 1 else f"{count} results are tried again."
        )

    def retry_one(self, run: Run, key: str, repetition: int, *, asked_by: User) -> str:
        """Queue one result and say what is repeated; raises Result.DoesNotExist and DomainError."""
        self.full_clean()
        keeps = self.cleaned_data.get("keep_output", False)
        result = run.results.only("pk").get(case__key=key, repetition=repetition)
        services.retry_results(run, asked_by=asked_by, result_ids=[result.pk], keep_output=keeps)
        return "The output is scored again." if keeps else "The result is tried again."

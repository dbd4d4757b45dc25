"""Bring an old version of a suite back, after seeing what that changes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from evaluators.scoring.types import DomainError
from runs.models import Suite, SuiteVersion
from runs.services.versions import restore_version


class RestoreForm(forms.Form):
    """A note for the version to come; `seen` is the version of the suite the question was asked at."""

    note = forms.CharField(
        max_length=200,
        required=False,
        help_text="One line, behind “Restored version N”.",
    )
    seen = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, suite: Suite, *args: Any, **options: Any) -> None:
        """Ask at the version the suite has now."""
        super().__init__(*args, **{"initial": {"seen": suite.version}} | options)
        self.suite = suite

    def clean_seen(self) -> int:
        """Refuse a question that was asked before the suite changed."""
        seen: int = self.cleaned_data["seen"]
        if seen != self.suite.version:
            raise forms.ValidationError(
                f"Version {self.suite.version} was saved since this page was opened. Look at what "
                "restoring changes now, and press again."
            )
        return seen

    def restore(self, number: int, by: User) -> SuiteVersion | None:
        """Restore the version; None, with the reason among the errors, when that cannot be."""
        if not self.is_valid():
            return None
        try:
            return restore_version(self.suite, number, by=by, note=self.cleaned_data["note"])
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None

"""The form that makes cases or recorded outputs of traces, or deletes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.db.models import Sum
from django.http import QueryDict

from evaluators.templatetags.figures import counted
from runs.files.importing import MAX_TARGET_NAME_LENGTH
from runs.models.suites import Suite
from runs.models.traces import MEGABYTE
from runs.traces.queries import MAX_CHOSEN_MB, ChosenTraces
from runs.traces.services import UsedTraces, create_cases, delete_traces, record_outputs

CASES, OUTPUTS, DELETE = "cases", "outputs", "delete"
FIELDS = {
    CASES: ("into", "keeps_answer", "expects_answer"),
    OUTPUTS: ("into", "target"),
    DELETE: (),
}


class UseTracesForm(forms.Form):
    """What is made of the chosen traces."""

    # Not named suite, as a filter of the list is.
    into = forms.ModelChoiceField(
        label="Suite", queryset=Suite.objects.filter(archived_at=None), to_field_name="slug"
    )
    keeps_answer = forms.BooleanField(
        label="Keep the answer as recorded output of the case", required=False, initial=True
    )
    expects_answer = forms.BooleanField(
        label="Expect this answer",
        required=False,
        help_text="Only if it is right: it becomes the expected output.",
    )
    target = forms.CharField(
        label="Target",
        max_length=MAX_TARGET_NAME_LENGTH,
        initial="recorded traces",
        help_text="The target of recorded outputs that gets the answers; it is created if there is none.",
    )

    def __init__(self, action: str, chosen: ChosenTraces, data: QueryDict | None) -> None:
        """Offer the fields of the action; the suite is the one that most of the traces name."""
        super().__init__(data)
        self.action, self.chosen = action, chosen
        for name in set(self.fields) - set(FIELDS[action]):
            del self.fields[name]
        if "into" in self.fields and data is None:
            named = chosen.traces().exclude(suite=None).values_list("suite__slug", flat=True)
            self.initial["into"] = next((slug for slug, _ in Counter(named).most_common(1)), None)

    @property
    def title(self) -> str:
        """Say what is done with how many traces."""
        count = counted(len(self.chosen.ids), "trace")
        if self.action == CASES:
            return f"Create cases from {count}"
        if self.action == OUTPUTS:
            return f"Record the outputs of {count}"
        return f"Delete {count}?"

    def clean(self) -> dict[str, Any]:
        """Refuse more than is read at once; what is deleted is not read."""
        size = self.chosen.traces().aggregate(total=Sum("size"))["total"] or 0
        if self.action != DELETE and size > MAX_CHOSEN_MB * MEGABYTE:
            raise forms.ValidationError(
                f"These traces have {size / MEGABYTE:,.0f} MB together, and {MAX_CHOSEN_MB} MB is the limit."
                " Choose fewer at a time."
            )
        return self.cleaned_data

    def save(self, by: User) -> str:
        """Do it, and say what was done; raises DomainError."""
        values: dict[str, Any] = dict(self.cleaned_data)
        if "into" in values:
            values["suite"] = values.pop("into")
        traces = list(self.chosen.traces())
        if self.action == CASES:
            return self._message("case", create_cases(traces, by=by, **values))
        if self.action == OUTPUTS:
            return self._message("output", record_outputs(traces, by=by, **values))
        return f"{counted(delete_traces(traces, by=by), 'trace')} deleted."

    def _message(self, noun: str, used: UsedTraces) -> str:
        target = self.cleaned_data.get("target")
        done = f"recorded in the target “{target}”" if target else "created"
        left = f" Left: {' '.join(used.reasons)}" if used.reasons else ""
        return f"{counted(used.count, noun)} {done}.{left}"

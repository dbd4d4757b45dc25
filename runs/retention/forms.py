"""What a member chooses to delete, and the days after which data are removed."""

from __future__ import annotations

from dataclasses import replace

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict

from runs.models.removals import Removal, RemovalPart
from runs.retention.queries import Hold, Selection
from runs.retention.services import DataHeldError, begin_removal

PART_CHOICES = (
    (RemovalPart.RUN.value, "Everything"),
    (
        RemovalPart.OUTPUTS.value,
        "Only outputs: answers, traces, files and the texts of all calls; verdicts and figures stay",
    ),
)


class DeletionForm(forms.Form):
    """What is deleted of a selection; a suite that was run is confirmed by its short name."""

    part = forms.ChoiceField(choices=PART_CHOICES, widget=forms.RadioSelect, label="What goes")
    confirm = forms.CharField(label="Short name of the suite")

    def __init__(self, selection: Selection, data: QueryDict | None) -> None:
        """Keep the fields that the selection needs."""
        super().__init__(data, initial={"part": RemovalPart.RUN.value})
        self.selection = selection
        self.holds: tuple[Hold, ...] = ()
        if not (selection.is_whole_suite and selection.runs):
            del self.fields["confirm"]
        if selection.is_whole_suite:
            del self.fields["part"]

    def clean_confirm(self) -> str:
        """Refuse another name than the suite's."""
        name: str = self.cleaned_data["confirm"].strip()
        if name != self.selection.suite.slug:
            raise forms.ValidationError(f"Type {self.selection.suite.slug} to delete it.")
        return name

    def delete(self, user: User) -> Removal | None:
        """Begin the removal; without one, `holds` say why."""
        part = RemovalPart(self.cleaned_data.get("part") or RemovalPart.RUN)
        try:
            return begin_removal(replace(self.selection, part=part), by=user)
        except DataHeldError as refusal:
            self.holds = refusal.holds
            return None

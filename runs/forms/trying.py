"""Choose what a target is tried on: a case of a suite, or a text of one's own."""

from __future__ import annotations

from typing import Any

from django import forms
from django.urls import reverse_lazy

from runs.models import Suite
from runs.services import Question, case_of

LONGEST_TEXT = 20_000
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
        max_length=LONGEST_TEXT,
        help_text="Asked in place of a case.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )

    def __init__(self, data: Any = None, **options: Any) -> None:
        """Keep its names apart from those of the settings beside it."""
        super().__init__(data, prefix="try", **options)
        self.question = Question()

    def clean(self) -> dict[str, Any]:
        """Find what is asked; refuse a case that is not there and a question about nothing."""
        found: dict[str, Any] = super().clean() or self.cleaned_data
        suite, key, text = found.get("suite"), found.get("case", ""), found.get("text", "")
        if text:
            self.question = Question(text=text)
        elif suite is None:
            if "suite" not in self.errors:
                self.add_error("suite", "Choose a suite, or write a text of your own.")
        else:
            case = case_of(suite, key.strip())
            if case is None:
                said = f"has no case “{key}”" if key else "has no cases"
                self.add_error("case", f"{suite.title} {said}.")
            self.question = Question(case=case)
        return found

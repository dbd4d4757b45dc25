"""What a member chooses to delete, and the days after which data are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict

from evaluators.models import AuditEntry
from runs.models.removals import Removal, RemovalPart
from runs.models.suites import Suite
from runs.retention.queries import Hold, Selection, site_rule, suite_rule
from runs.retention.services import DataHeldError, begin_removal, change_rule, drop_rule

PART_CHOICES = (
    (RemovalPart.RUN.value, "Everything"),
    (
        RemovalPart.OUTPUTS.value,
        "Only outputs: answers, traces, files and the texts of all calls; verdicts and figures stay",
    ),
)


class DeletionForm(forms.Form):
    """What is deleted of a selection; a suite that was run is confirmed by its short name."""

    part = forms.ChoiceField(choices=PART_CHOICES, widget=forms.RadioSelect, label="What to delete")
    confirm = forms.CharField(label="Short name of the suite")

    releases_reviews = forms.BooleanField(
        required=False, label="Take the waiting results out of the review queue, undecided"
    )

    def __init__(
        self, selection: Selection, holds: Sequence[Hold], data: QueryDict | None = None
    ) -> None:
        """Keep the fields that the selection needs; `holds` are what keeps it now."""
        super().__init__(data, initial={"part": RemovalPart.RUN.value})
        self.selection = selection
        self.holds = tuple(hold for hold in holds if not hold.is_review)
        self.waiting = tuple(hold for hold in holds if hold.is_review)
        if not (selection.is_whole_suite and selection.runs):
            del self.fields["confirm"]
        if selection.is_whole_suite:
            del self.fields["part"]
        if not self.waiting:
            del self.fields["releases_reviews"]

    def clean_confirm(self) -> str:
        """Refuse another name than the suite's."""
        name: str = self.cleaned_data["confirm"].strip()
        if name != self.selection.suite.slug:
            raise forms.ValidationError(f"Type {self.selection.suite.slug} to delete it.")
        return name

    def delete(self, user: User) -> Removal | None:
        """Begin the removal; without one, `holds` say why."""
        part = RemovalPart(self.cleaned_data.get("part") or RemovalPart.RUN)
        releases = bool(self.cleaned_data.get("releases_reviews"))
        try:
            return begin_removal(
                replace(self.selection, part=part), by=user, releases_reviews=releases
            )
        except DataHeldError as refusal:
            self.add_error(None, str(refusal))
            return None


MAX_DAYS = 36_500


def _days(label: str, help_text: str) -> forms.IntegerField:
    return forms.IntegerField(
        label=label, required=False, min_value=1, max_value=MAX_DAYS, help_text=help_text
    )


class RetentionForm(forms.Form):
    """After how many days data are removed: by the rule of the site, or by one of a suite's own."""

    follows = forms.ChoiceField(
        label="Rule",
        choices=(("site", "The rule of the site"), ("own", "A rule of its own")),
        widget=forms.RadioSelect,
    )
    outputs_days = _days(
        "Days until outputs and call texts are removed",
        "answers, traces, files, requests and replies; empty: never",
    )
    details_days = _days(
        "Days until everything but figures is removed",
        "reasons, findings, notes of reviewers and comments too; verdicts, scores and costs stay; empty: never",
    )
    # The rule that the form was opened with.
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, suite: Suite | None, data: QueryDict | None = None) -> None:
        """Show the rule in force; the site has no other rule to follow."""
        own = suite_rule(suite) if suite is not None else None
        rule = own or site_rule()
        initial = {name: getattr(rule, name) for name in ("outputs_days", "details_days")}
        is_followed = suite is not None and own is None
        self._now = "follows that of the site" if is_followed else f"keeps {rule.kept}"
        follows = "own" if own else "site"
        super().__init__(data, initial={**initial, "follows": follows, "seen": self._now})
        self.suite = suite
        if suite is None:
            del self.fields["follows"]

    def clean(self) -> dict[str, Any]:
        """Refuse to remove outputs later than what explains them; refuse once to replace what somebody else changed."""
        values = super().clean() or {}
        if values.pop("seen", "") not in ("", self._now):
            data = self.data.copy()  # type: ignore[attr-defined]  # what was sent
            data["seen"] = self._now
            self.data = data
            who = AuditEntry.objects.last_changer("retention", self.suite.pk if self.suite else "")
            self.add_error(
                None,
                f"This rule was changed by {who} after you opened the form. It {self._now} now; save again to "
                "replace it.",
            )
        outputs, details = values.get("outputs_days"), values.get("details_days")
        if outputs and details and outputs >= details:
            self.add_error(
                "outputs_days",
                "Removing everything but figures removes the outputs too, so enter fewer days here.",
            )
        return values

    def save(self, user: User) -> None:
        """Store the rule."""
        values = dict(self.cleaned_data)
        if self.suite is not None and values.pop("follows") == "site":
            drop_rule(self.suite, by=user)
        else:
            change_rule(self.suite, **values, by=user)

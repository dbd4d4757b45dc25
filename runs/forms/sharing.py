"""How deep, how long and under which title something is shared."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils import timezone

from runs.models import ShareDepth

ON_A_DAY, NEVER = "date", "never"
DAYS = (("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), (ON_A_DAY, "on a date"))
LONGEST_DAYS = 365


class ShareForm(forms.Form):
    """Depth, title and expiry of a link; only `may_never` lets one stay open for good."""

    title = forms.CharField(
        label="Title",
        max_length=200,
        help_text="Everybody with the link reads it, and chats show it in their preview.",
    )
    depth = forms.ChoiceField(
        label="What a stranger sees", choices=ShareDepth.choices, widget=forms.RadioSelect
    )
    expiry = forms.ChoiceField()
    until = forms.DateField(
        label="Closes on",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="for “on a date”; the link works until the end of that day",
    )
    looked = forms.BooleanField(label="Share it with what is listed above", required=False)

    use_required_attribute = False

    def __init__(self, sent: QueryDict, *, may_never: bool = False) -> None:
        """Offer the choice of no end to whoever has it."""
        super().__init__(sent)
        choices = (*DAYS, (NEVER, "never")) if may_never else DAYS
        self.fields["expiry"] = forms.ChoiceField(label="Closes", choices=choices)

    def clean(self) -> dict[str, Any]:
        """Return the fields with `expires_at`, None for never."""
        fields: dict[str, Any] = super().clean() or {}
        expiry, until = fields.get("expiry"), fields.get("until")
        if expiry == ON_A_DAY and until is None and "until" not in self.errors:
            self.add_error("until", "Name the day on which the link closes.")
        elif expiry == ON_A_DAY and until is not None:
            fields["expires_at"] = self._end_of(until)
        elif expiry == NEVER:
            fields["expires_at"] = None
        elif expiry:
            fields["expires_at"] = timezone.now() + timedelta(days=int(expiry))
        return fields

    def _end_of(self, day: date) -> datetime | None:
        today = timezone.localdate()
        if not today <= day <= today + timedelta(days=LONGEST_DAYS):
            self.add_error("until", "Choose a day from today to a year from now.")
            return None
        return timezone.make_aware(datetime.combine(day, time(23, 59, 59)))

"""The form of a saved view: its name, whether others see it, and whether it opens by itself."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.http import QueryDict

from evaluators.scoring.types import DomainError
from runs.models.saved_views import MAX_NAME_LENGTH, SavedView
from runs.models.suites import Suite
from runs.requests import CHANGE_SUITE
from runs.saved_views.services import ViewChangedError, change_view, save_view

SHARING = ("is_shared", "is_default")


class ViewForm(forms.Form):
    """A new view, or one that is changed; only those who may change suites share it or make it the suite's default."""

    name = forms.CharField(max_length=MAX_NAME_LENGTH, label="Name")
    is_own_default = forms.BooleanField(
        required=False,
        label="Open it by default for me",
        help_text="Instead of the suite's default",
    )
    is_shared = forms.BooleanField(required=False, label="Share it with all members")
    is_default = forms.BooleanField(
        required=False,
        label="Make it the default of the suite",
        help_text="It is then shared, and opens when an address has no filter",
    )
    revision = forms.IntegerField(required=False, min_value=0, widget=forms.HiddenInput)

    def __init__(self, data: QueryDict | None, *, by: User, view: SavedView | None = None) -> None:
        """Make the form of a view, or of a new one."""
        names = ("name", "is_shared", "is_default", "is_own_default", "revision")
        super().__init__(
            data, initial={name: getattr(view, name) for name in names} if view else {}
        )
        self.by, self.view = by, view
        if not by.has_perm(CHANGE_SUITE):
            for name in SHARING:
                del self.fields[name]
        if view is not None and view.owner_id != by.pk:
            del self.fields["is_own_default"]

    @property
    def values(self) -> dict[str, Any]:
        """Return what a valid form sets."""
        values = {name: value for name, value in self.cleaned_data.items() if name != "revision"}
        if values.get("is_default"):
            values["is_shared"] = True
        return values

    def save(self, suite: Suite, page: str, query: str) -> SavedView | None:
        """Save a new view of a page; None with errors in the form."""
        if not self.is_valid():
            return None
        try:
            return save_view(suite, page, query, self.values, by=self.by)
        except DomainError as refusal:
            self.add_error("name", str(refusal))
            return None

    def change(self) -> bool:
        """Change the view; False with errors in the form, which then shows the present revision."""
        if self.view is None or not self.is_valid():
            return False
        revision = self.cleaned_data["revision"] or 0
        try:
            change_view(self.view, self.values, revision=revision, by=self.by)
        except ViewChangedError as refusal:
            self.add_error(None, str(refusal))
            return False
        except DomainError as refusal:
            self.add_error("name", str(refusal))
            return False
        return True

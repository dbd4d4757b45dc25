"""The form that names a campaign."""

from __future__ import annotations

from django import forms

from runs.models import Campaign


class CampaignNameForm(forms.Form):
    """A name, or none."""

    name = forms.CharField(
        required=False, max_length=200, label="Name", help_text="empty: it goes by its number"
    )

    @classmethod
    def of(cls, campaign: Campaign) -> CampaignNameForm:
        """Return the form filled in with the name the campaign has."""
        return cls(initial={"name": campaign.name})

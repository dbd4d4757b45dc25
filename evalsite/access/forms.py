"""The forms about members."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator

from evalsite.access.roles import MEANINGS, Role
from evalsite.access.tokens import roles_up_to

ROLE_CHOICES = [(role.value, f"{role.label}: {MEANINGS[role]}") for role in Role]
NEVER = "never"
LIFETIMES = (("30", "In 30 days"), ("90", "In 90 days"), ("365", "In a year"))
USUAL_LIFETIME = "90"


class RoleForm(forms.Form):
    """One of the four roles."""

    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial=Role.VIEWER)

    def clean_role(self) -> Role:
        """Return the role itself."""
        return Role(self.cleaned_data["role"])


class ScriptsForm(forms.Form):
    """Whether one member may run scripts, whatever the role."""

    run_scripts = forms.BooleanField(
        label="May run scripts",
        required=False,
        help_text="Start runs whose evaluators or targets run programs on this site's machines, locked "
        "into a sandbox. Only editors start runs, so this changes nothing for viewers and reviewers.",
    )


class MemberForm(RoleForm):
    """A new member."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        help_text="For logging in and beside what the member did: letters, digits and @ . + - _",
    )
    email = forms.EmailField(label="E-mail", required=False)
    field_order = ("username", "email", "role")

    def clean_username(self) -> str:
        """Return the name when nobody has it, in whatever case."""
        username: Any = self.cleaned_data["username"]
        if User.objects.filter(username__iexact=username).exists():
            raise forms.ValidationError(f"There is already a member named {username}.")
        return str(username)


class TokenForm(forms.Form):
    """A new token of the API: with at most the own role, and only an admin's may never expire."""

    name = forms.CharField(
        max_length=100,
        help_text="What will use it, so that you know later which one to revoke: “weekly report”.",
    )
    role = forms.ChoiceField(
        widget=forms.RadioSelect,
        help_text="The API only reads, so every role gives a token the same today: take Viewer. "
        "A token never does more than you may do yourself, also when your role changes.",
    )
    expires = forms.ChoiceField(label="Expires", initial=USUAL_LIFETIME)

    def __init__(self, own: Role | None, *, data: Mapping[str, Any] | None = None) -> None:
        """Offer what a member with this role can choose."""
        super().__init__(data=data, use_required_attribute=False)
        roles = roles_up_to(own)
        self.fields["role"].choices = [  # type: ignore[attr-defined]  # it is a ChoiceField
            (role.value, f"{role.label}: {MEANINGS[role]}") for role in roles
        ]
        self.fields["role"].initial = Role.VIEWER.value
        never = ((NEVER, "Never, until it is revoked"),) if own == Role.ADMIN else ()
        self.fields["expires"].choices = (*LIFETIMES, *never)  # type: ignore[attr-defined]  # it is a ChoiceField

    def values(self, *, now: datetime) -> dict[str, Any]:
        """Return what the token is made of."""
        lifetime = self.cleaned_data["expires"]
        return {
            "name": self.cleaned_data["name"],
            "role": Role(self.cleaned_data["role"]),
            "expires_at": None if lifetime == NEVER else now + timedelta(days=int(lifetime)),
        }

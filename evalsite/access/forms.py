"""The forms about members."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator

from evalsite.access.roles import MEANINGS, Role

ROLE_CHOICES = [(role.value, f"{role.label}: {MEANINGS[role]}") for role in Role]


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

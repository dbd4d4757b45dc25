"""The forms for members, their roles and API tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator

from evalsite.access.roles import MEANINGS, Role
from evalsite.access.tokens import roles_up_to
from runs.requests import MemberRequest, form_data

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
    """Whether a member may run scripts, independent of the role."""

    run_scripts = forms.BooleanField(
        label="May run scripts",
        required=False,
        help_text="Start runs whose evaluators or targets execute programs on this site's machines, inside "
        "a sandbox, and add or change such programs. Only editors do either, so this changes nothing for "
        "viewers and reviewers.",
    )


class MemberForm(RoleForm):
    """A new member."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        help_text="For logging in, and shown with what the member does: letters, digits and @ . + - _",
    )
    email = forms.EmailField(label="E-mail", required=False)
    field_order = ("username", "email", "role")

    def clean_username(self) -> str:
        """Return the name if nobody has it, ignoring case."""
        username: Any = self.cleaned_data["username"]
        if User.objects.filter(username__iexact=username).exists():
            raise forms.ValidationError(f"There is already a member named {username}.")
        return str(username)


class TokenForm(forms.Form):
    """A new API token with at most the member's role; only an admin's token may never expire."""

    name = forms.CharField(
        max_length=100,
        help_text="What will use it, such as “weekly report”, so that you know later which one to revoke.",
    )
    role = forms.ChoiceField(
        widget=forms.RadioSelect,
        help_text="The API only reads, so Viewer is enough. A token never does more than you may do "
        "yourself, even after your role changes.",
    )
    expires = forms.ChoiceField(label="Expires", initial=USUAL_LIFETIME)

    def __init__(self, member_role: Role | None, *, data: Mapping[str, Any] | None = None) -> None:
        """Offer the roles and lifetimes that a member with this role can choose."""
        super().__init__(data=data, use_required_attribute=False)
        roles = roles_up_to(member_role)
        self.fields["role"].choices = [  # type: ignore[attr-defined]  # it is a ChoiceField
            (role.value, f"{role.label}: {MEANINGS[role]}") for role in roles
        ]
        self.fields["role"].initial = Role.VIEWER.value
        never = ((NEVER, "Never, until it is revoked"),) if member_role == Role.ADMIN else ()
        self.fields["expires"].choices = (*LIFETIMES, *never)  # type: ignore[attr-defined]  # it is a ChoiceField

    def values(self, *, now: datetime) -> dict[str, Any]:
        """Return the arguments of `make_token`, except the owner."""
        lifetime = self.cleaned_data["expires"]
        return {
            "name": self.cleaned_data["name"],
            "role": Role(self.cleaned_data["role"]),
            "expires_at": None if lifetime == NEVER else now + timedelta(days=int(lifetime)),
        }


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # it takes none at runtime
    """A password for a member who has none yet, and what else ends with it."""

    revoke_tokens = forms.BooleanField(
        label="Revoke my API tokens too",
        required=False,
        help_text="Tick it if somebody else may know your password.",
    )


class ChangedPasswordForm(NewPasswordForm, PasswordChangeForm):
    """A new password in place of the old one, at which guesses are counted like failed logins."""

    field_order = ("old_password", "new_password1", "new_password2", "revoke_tokens")

    def __init__(self, request: MemberRequest) -> None:
        """Take the request that is counted."""
        super().__init__(request.user, form_data(request))
        self._request = request

    def clean_old_password(self) -> str:
        """Return the old password if it is right."""
        password: str = self.cleaned_data["old_password"]
        if authenticate(self._request, username=self.user.get_username(), password=password):
            return password
        raise forms.ValidationError(self.error_messages["password_incorrect"])


def password_form(request: MemberRequest) -> NewPasswordForm:
    """Return the form for a new password; a member who has only used login links has no old one to enter."""
    if request.user.has_usable_password():
        return ChangedPasswordForm(request)
    return NewPasswordForm(request.user, form_data(request))

"""The forms for members, their roles, API tokens, second factors and confirmations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib.auth.forms import (
    AuthenticationForm,
    PasswordChangeForm,
    SetPasswordForm,
    UsernameField,
)
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.http import HttpRequest
from django.utils import timezone

from evalsite.access import factors
from evalsite.access.logins import (
    TooManyTriesError,
    check_code,
    check_password,
    check_recovery_code,
)
from evalsite.access.roles import MEANINGS, SCOPE_MEANINGS, Role, Scope, role_scopes
from evaluators.model_calls.models import KeyUnreadableError
from runs.requests import MemberRequest, form_data

NEVER = "never"
LIFETIMES = (("30", "In 30 days"), ("90", "In 90 days"), ("365", "In a year"))
USUAL_LIFETIME = "90"


def role_choices(roles: Iterable[Role]) -> list[tuple[str, str]]:
    """Return the choices of a field for roles, each with what it means."""
    return [(role.value, f"{role.label}: {MEANINGS[role]}") for role in roles]


class RoleForm(forms.Form):
    """One of the four roles."""

    role = forms.ChoiceField(
        choices=role_choices(Role), widget=forms.RadioSelect, initial=Role.VIEWER
    )

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


class EmailForm(forms.Form):
    """The email address by which the provider's account of a member is found."""

    email = forms.EmailField(label="Email", required=False, max_length=254)

    def __init__(self, *args: Any, **options: Any) -> None:
        """Say what the address is for where members sign in with a provider."""
        super().__init__(*args, **options)
        if settings.OIDC_ISSUER:
            self.fields["email"].help_text = (
                f"The person who first signs in with {settings.OIDC_NAME} and this address, verified there, "
                "becomes this member."
            )


class LoginForm(AuthenticationForm):
    """Name and password; a name that is longer than any is refused before a failure is counted for it."""

    username = UsernameField(max_length=150, widget=forms.TextInput(attrs={"autofocus": True}))


class MemberForm(EmailForm, RoleForm):
    """A new member."""

    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        help_text="For logging in, and shown with what the member does: letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={"autofocus": True}),
    )
    field_order = ("username", "email", "role")

    def clean_username(self) -> str:
        """Return the name as it is stored, in one spelling, if nobody has it, ignoring case."""
        username = str(User.normalize_username(self.cleaned_data["username"]))
        self.fields["username"].run_validators(username)
        if User.objects.filter(username__iexact=username).exists():
            raise forms.ValidationError(f"There is already a member named {username}.")
        return username


class TokenForm(forms.Form):
    """A new API token with scopes that the member's role allows; only an admin's token may never expire."""

    name = forms.CharField(
        max_length=100,
        help_text="What will use it, such as “weekly report”, so that you know later which one to revoke.",
    )
    scopes = forms.MultipleChoiceField(
        label="May read, and also",
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="Choose no more than the program needs. A token never does more than you may do yourself, "
        "even after your role changes.",
    )
    expires = forms.ChoiceField(label="Expires", initial=USUAL_LIFETIME)

    def __init__(self, member_role: Role | None, *, data: Mapping[str, Any] | None = None) -> None:
        """Offer the scopes and lifetimes that a member with this role can choose."""
        super().__init__(data=data, use_required_attribute=False)
        self.allowed = role_scopes(member_role)
        self.fields["scopes"].choices = [  # type: ignore[attr-defined]  # it is a choice field
            (scope.value, f"{scope.label}: {SCOPE_MEANINGS[scope]}")
            for scope in self.allowed
            if scope != Scope.READ
        ]
        never = ((NEVER, "Never, until it is revoked"),) if member_role == Role.ADMIN else ()
        self.fields["expires"].choices = (*LIFETIMES, *never)  # type: ignore[attr-defined]  # it is a ChoiceField

    def values(self, *, now: datetime) -> dict[str, Any]:
        """Return the arguments of `make_token`, except the owner."""
        lifetime = self.cleaned_data["expires"]
        return {
            "name": self.cleaned_data["name"],
            "scopes": [Scope(name) for name in self.cleaned_data["scopes"]],
            "expires_at": None if lifetime == NEVER else now + timedelta(days=int(lifetime)),
        }


class NewPasswordForm(SetPasswordForm):  # type: ignore[type-arg]  # it takes none at runtime
    """A password for a member who has none yet, and what else ends with it."""

    revoke_tokens = forms.BooleanField(
        label="Revoke my API tokens too",
        required=False,
        help_text="Recommended if another person may know your password.",
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
        try:
            if check_password(self._request, self._request.user, password):
                return password
        except TooManyTriesError as refusal:
            raise forms.ValidationError(str(refusal)) from refusal
        raise forms.ValidationError(self.error_messages["password_incorrect"])


def password_form(request: MemberRequest) -> NewPasswordForm:
    """Return the form for a new password; a member who has only used login links has no old one to enter."""
    if request.user.has_usable_password():
        return ChangedPasswordForm(request)
    return NewPasswordForm(request.user, form_data(request))


class CodeField(forms.CharField):
    """Six digits of an authenticator app."""

    def __init__(self, **options: Any) -> None:
        """Let phones offer digits, and fill in the code where they know it."""
        attributes = {"autocomplete": "one-time-code", "inputmode": "numeric"}
        widget = forms.TextInput(attrs={**attributes, "spellcheck": "false", "data-code": ""})
        super().__init__(max_length=20, widget=widget, **options)


class AppForm(forms.Form):
    """The first code of a new authenticator app."""

    code = CodeField(label="Code that the app shows")

    def __init__(self, member: User, secret: str, data: Mapping[str, Any] | None) -> None:
        """Take the member and the secret that the app was given."""
        super().__init__(data=data, use_required_attribute=False)
        self.member, self.secret = member, secret
        self.fields["code"].widget.attrs["autofocus"] = True

    def clean_code(self) -> str:
        """Store the app if its code is right."""
        code: str = self.cleaned_data["code"]
        if not factors.add_app(self.member, self.secret, code, now=timezone.now()):
            raise forms.ValidationError(
                "The app shows another code now. Enter the newest one. If it is refused too, check the "
                "clock of that device."
            )
        return code


class _ProofForm(forms.Form):
    """Proofs of who somebody is, of which one is enough; a wrong one counts as a failed login."""

    nothing_entered: ClassVar[str]
    # The fields in their order, with what checks each and its name in words.
    proofs: ClassVar[Sequence[tuple[str, Callable[[HttpRequest, User, str], bool], str]]]

    def __init__(
        self,
        request: HttpRequest,
        member: User,
        data: Mapping[str, Any] | None,
        prefix: str | None = None,
    ) -> None:
        """Take the request that failures are counted by, and who has to be proved."""
        super().__init__(data=data, prefix=prefix, use_required_attribute=False)
        self.request, self.member = request, member
        self.way = ""

    def full_clean(self) -> None:
        """Take any one of the fields, though the page calls none of them optional."""
        for field in self.fields.values():
            field.required = False
        super().full_clean()
        for field in self.fields.values():
            field.required = True

    def clean(self) -> dict[str, Any]:
        """Check the first proof that was entered, and set `way` to its name.

        Raises:
            TooManyTriesError: nobody may try now.

        """
        for name, check, way in self.proofs:
            entered = self.cleaned_data.get(name)
            if name not in self.fields or not entered:
                continue
            try:
                is_right = check(self.request, self.member, entered)
            except (factors.CodesPausedError, KeyUnreadableError) as refusal:
                raise forms.ValidationError({name: str(refusal)}) from refusal
            if not is_right:
                raise forms.ValidationError({name: f"This is not the right {way}."})
            self.way = way
            return self.cleaned_data
        if not self.errors:
            raise forms.ValidationError(self.nothing_entered)
        return self.cleaned_data


class SecondFactorForm(_ProofForm):
    """A code of the app, or a recovery code; a wrong app code cannot be tried again as another one."""

    code = CodeField(help_text="Six digits, from your authenticator app.")
    recovery_code = forms.CharField(
        label="Recovery code",
        max_length=60,
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "data-code": ""}
        ),
        help_text="One of the codes that you have kept. Each works once.",
    )
    nothing_entered = "Enter a code."
    proofs = (("code", check_code, "code"), ("recovery_code", check_recovery_code, "recovery code"))

    def __init__(self, request: HttpRequest, member: User, data: Mapping[str, Any] | None) -> None:
        """Ask for a code only where there is an app that shows one."""
        super().__init__(request, member, data)
        if factors.has_app(member):
            self.fields["code"].widget.attrs["autofocus"] = True
        else:
            del self.fields["code"]


class ConfirmForm(_ProofForm):
    """The member's password or a code of the app, before a sensitive action."""

    password = forms.CharField(
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    code = CodeField(label="Or a code", help_text="Six digits, from your authenticator app.")
    nothing_entered = "Nothing was entered."
    proofs = (("password", check_password, "password"), ("code", check_code, "code"))

    def __init__(
        self, request: HttpRequest, member: User, data: Mapping[str, Any] | None, prefix: str
    ) -> None:
        """Ask only for what the member has."""
        super().__init__(request, member, data, prefix)
        if not (member.has_usable_password() and settings.PASSWORD_LOGIN):
            del self.fields["password"]
            self.fields["code"].label = "Code"
        if not factors.has_app(member):
            del self.fields["code"]
        for field in [*self.fields.values()][:1]:
            field.widget.attrs["autofocus"] = True


class PasskeyForm(forms.Form):
    """What a browser fills in when it has made a passkey or answered by one, and the name of a new one."""

    name = forms.CharField(
        max_length=60,
        help_text="Which device or key it is, so that you know later which one to remove.",
    )
    answer = forms.CharField(widget=forms.HiddenInput)
    state = forms.CharField(widget=forms.HiddenInput)

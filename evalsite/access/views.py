"""The pages for logging in and out, the account, the members, and the tokens of the API."""

from __future__ import annotations

from contextlib import suppress

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from evalsite.access import factors, members
from evalsite.access.forms import (
    EmailForm,
    LoginForm,
    MemberForm,
    RoleForm,
    ScriptsForm,
    TokenForm,
    password_form,
)
from evalsite.access.logins import (
    TooManyTriesError,
    finish_first_factor,
    password_check,
    read_next_path,
    refuse_wide_guessing,
    wait_page,
)
from evalsite.access.members import LOGIN_TOKENS, PASSWORD_TOKENS, find_link_user, use_link
from evalsite.access.models import ApiToken
from evalsite.access.roles import MEANINGS, Role, highest_role
from evalsite.access.sessions import (
    LOGOUT_URL,
    end_sessions,
    keep_secret,
    read_kept,
    session_rows,
    take_kept,
)
from evalsite.access.single_sign_on.services import linked_since, unlink
from evalsite.access.tokens import (
    ScopeNotAllowedError,
    TooManyTokensError,
    make_token,
    revoke_token,
    token_rows,
)
from evaluators.templatetags.figures import counted
from runs.requests import (
    CHANGE_MEMBERS,
    REFUSED,
    MemberRequest,
    form_data,
    may_change_members,
    site_address,
)

LINK_IN_SESSION = "access.one_time_link"


@login_not_required
@never_cache
@sensitive_post_parameters("password")
def login_page(request: HttpRequest) -> HttpResponse:
    """Log in by name and password, then continue to the requested page."""
    if request.user.is_authenticated:
        return HttpResponseRedirect(read_next_path(request))
    form = LoginForm(request, data=form_data(request) if settings.PASSWORD_LOGIN else None)
    if form.is_bound:
        try:
            # Failures are counted by the name as the form reads it; a name that it refuses is not tried.
            with suppress(ValidationError):
                name = form.fields["username"].clean(request.POST.get("username"))
                refuse_wide_guessing(request, name)
            with password_check():
                form.full_clean()
        except TooManyTriesError as refusal:
            return wait_page(request, refusal.seconds)
    if form.is_valid():
        return finish_first_factor(
            request, form.get_user(), way="password", next_path=read_next_path(request)
        )
    context = {"form": form, "next": read_next_path(request)}
    return render(request, "access/login.html", context, status=_status(form.is_bound))


@require_POST
def logout_page(request: HttpRequest) -> HttpResponse:
    """Log out, let the browser forget the pages it has kept, and show the log-in page.

    Somebody who is still logged in at the provider is told so, with a way to log out there.
    """
    at_provider = read_kept(request.session, LOGOUT_URL)
    logout(request)
    if at_provider:
        context = {"logout_url": at_provider}
        response: HttpResponse = render(request, "access/logged_out.html", context)
    else:
        response = redirect("access:login")
    response["Clear-Site-Data"] = '"cache"'
    return response


@login_not_required
@never_cache
def login_once(request: HttpRequest, user_code: str, token: str) -> HttpResponse:
    """Log in by a one-time link; opening it only shows a button, so that a chat preview cannot use it up."""
    user = find_link_user(user_code, token, LOGIN_TOKENS)
    if user is None:
        return render(request, "access/link_used.html", status=410)
    if request.method != "POST":
        return render(request, "access/login_once.html", {"member": user})
    if not use_link(user):
        return render(request, "access/link_used.html", status=410)
    return finish_first_factor(request, user, way="one-time link", next_path=reverse("home"))


@login_not_required
@never_cache
@sensitive_post_parameters()
def password_set(request: HttpRequest, user_code: str, token: str) -> HttpResponse:
    """Set a password by a one-time link, and log in."""
    _require_passwords()
    user = find_link_user(user_code, token, PASSWORD_TOKENS)
    if user is None:
        return render(request, "access/link_used.html", status=410)
    form = SetPasswordForm(user, form_data(request))
    if form.is_valid():
        if not use_link(user):
            return render(request, "access/link_used.html", status=410)
        members.change_password(form, revokes_tokens=False)
        end_sessions(user)
        return finish_first_factor(request, user, way="password link", next_path=reverse("home"))
    context = {"form": form, "member": user}
    return render(request, "access/password_set.html", context, status=_status(form.is_bound))


@require_safe
def account(request: MemberRequest) -> HttpResponse:
    """Show the member's account and role."""
    role = highest_role(request.user)
    context = {
        "role": role,
        "meaning": MEANINGS[role] if role else "",
        "factors": factors.factor_names([request.user])[request.user.pk],
        "is_factor_required": factors.requires_factor(request.user),
        "sessions": session_rows(request.user, current=request.session.session_key),
        "linked_since": linked_since(request.user),
    }
    return render(request, "access/account.html", context)


@require_POST
def sessions_end(request: MemberRequest) -> HttpResponse:
    """End all other sessions of the member."""
    this = request.session.session_key
    ended = members.end_other_sessions(request.user, this, actor=request.user)
    messages.success(request, f"{counted(ended, 'other session')} ended.")
    return redirect("access:account")


@sensitive_post_parameters()
def password(request: MemberRequest) -> HttpResponse:
    """Change the member's password, log out all other sessions, and revoke all tokens if asked to."""
    _require_passwords()
    form = password_form(request)
    if form.is_valid():
        members.change_password(form, revokes_tokens=form.cleaned_data["revoke_tokens"])
        update_session_auth_hash(request, request.user)
        end_sessions(request.user, but=request.session.session_key)
        messages.success(request, "Password changed. Other sessions are logged out.")
        return redirect("access:account")
    return render(request, "access/password.html", {"form": form}, status=_status(form.is_bound))


@require_safe
@may_change_members
def member_list(request: MemberRequest) -> HttpResponse:
    """List the members with their roles."""
    people = list(members.members())
    names = factors.factor_names(people)
    rows = [
        (person, highest_role(person), names[person.pk], factors.requires_factor(person))
        for person in people
    ]
    return render(request, "access/members.html", {"rows": rows, "roles": MEANINGS.items()})


@may_change_members
def member_add(request: MemberRequest) -> HttpResponse:
    """Add a member and show the link for setting the password; the address may name the role to choose."""
    role = request.GET.get("role")
    form = MemberForm(form_data(request), initial={"role": role} if role in Role.values else None)
    if form.is_valid():
        try:
            member = members.add_member(actor=request.user, **form.cleaned_data)
        except members.MemberNameTakenError as refusal:
            form.add_error("username", str(refusal))
        else:
            if settings.PASSWORD_LOGIN:
                _keep_link(request, member)
            return redirect("access:member", member.pk)
    return render(request, "access/member_add.html", {"form": form}, status=_status(form.is_bound))


@may_change_members
@never_cache
def member(request: MemberRequest, pk: int) -> HttpResponse:
    """Show a member, and change the role."""
    person = get_object_or_404(members.members(), pk=pk)
    form = RoleForm(form_data(request), initial={"role": highest_role(person)})
    error = ""
    if form.is_valid():
        try:
            members.change_role(person, actor=request.user, role=form.cleaned_data["role"])
        except members.LastAdminError as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"{person.username} is now {form.cleaned_data['role']}.")
            return redirect("access:member", pk)
    return _member_page(request, person, form=form, error=error)


@may_change_members
@require_POST
def member_status(request: MemberRequest, pk: int) -> HttpResponse:
    """Deactivate or reactivate a member."""
    person = get_object_or_404(members.members(), pk=pk)
    try:
        if request.POST.get("active") == "1":
            members.reactivate(person, actor=request.user)
        else:
            members.deactivate(person, actor=request.user)
    except members.LastAdminError as refusal:
        return _member_page(
            request,
            person,
            form=RoleForm(initial={"role": highest_role(person)}),
            error=str(refusal),
        )
    return redirect("access:member", pk)


@may_change_members
@require_POST
def member_sessions_end(request: MemberRequest, pk: int) -> HttpResponse:
    """End the sessions of a member, but for the one that asks."""
    person = get_object_or_404(members.members(), pk=pk)
    this = request.session.session_key
    ended = members.end_other_sessions(person, this, actor=request.user)
    messages.success(request, f"{counted(ended, 'session')} ended.")
    return redirect("access:member", pk)


@may_change_members
@require_POST
def member_scripts(request: MemberRequest, pk: int) -> HttpResponse:
    """Allow or forbid a member to run scripts."""
    person = get_object_or_404(members.members(), pk=pk)
    form = ScriptsForm(request.POST)
    form.is_valid()
    allowed = form.cleaned_data["run_scripts"]
    members.allow_scripts(person, actor=request.user, allowed=allowed)
    messages.success(request, f"{person.username} may {'' if allowed else 'not '}run scripts.")
    return redirect("access:member", pk)


@may_change_members
@require_POST
def member_link(request: MemberRequest, pk: int) -> HttpResponse:
    """Make a link for setting the member's password."""
    _require_passwords()
    person = get_object_or_404(User, pk=pk, is_active=True)
    members.record_link(person, actor=request.user)
    _keep_link(request, person)
    return redirect("access:member", pk)


@may_change_members
def member_email(request: MemberRequest, pk: int) -> HttpResponse:
    """Change the email address of a member."""
    person = get_object_or_404(members.members(), pk=pk)
    form = EmailForm(form_data(request), initial={"email": person.email})
    if form.is_valid():
        members.change_email(person, actor=request.user, email=form.cleaned_data["email"])
        messages.success(request, "Email address changed.")
        return redirect("access:member", pk)
    context = {"form": form, "member": person}
    return render(request, "access/member_email.html", context, status=_status(form.is_bound))


@may_change_members
@require_POST
def member_unlink(request: MemberRequest, pk: int) -> HttpResponse:
    """End the link of a member to an account at the provider."""
    person = get_object_or_404(members.members(), pk=pk)
    unlink(person, actor=request.user)
    messages.success(request, f"{person.username} is no longer linked to an account.")
    return redirect("access:member", pk)


@may_change_members
@never_cache
def member_erase(request: MemberRequest, pk: int) -> HttpResponse:
    """Name what the site has of a member, and replace the person by a name without one."""
    person = get_object_or_404(members.members(), pk=pk)
    error = ""
    if request.method == "POST":
        try:
            erased = members.erase_member(person, actor=request.user)
        except members.LastAdminError as refusal:
            error = str(refusal)
        else:
            messages.success(request, f"The personal data are deleted. The member is {erased} now.")
            return redirect("access:members")
    context = {"member": person, "data": members.personal_data(person), "error": error}
    return render(request, "access/member_erase.html", context, status=_status(bool(error)))


def _member_page(
    request: MemberRequest, person: User, *, form: RoleForm, error: str
) -> HttpResponse:
    reason = members.runs_scripts(person)
    context = {
        "member": person,
        "role": highest_role(person),
        "form": form,
        "factors": factors.factor_names([person])[person.pk],
        "is_factor_required": factors.requires_factor(person),
        "scripts_by": reason,
        "scripts": ScriptsForm(initial={"run_scripts": reason == "own"}),
        "scripts_on": settings.SCRIPTS,
        "linked_since": linked_since(person),
        "groups_decide": bool(settings.OIDC_ROLES),
        "sessions": session_rows(person, current=request.session.session_key),
        "error": error,
        "link": take_kept(request, LINK_IN_SESSION),
    }
    status = _status(bool(error) or form.is_bound)
    return render(request, "access/member.html", context, status=status)


def _keep_link(request: MemberRequest, member: User) -> None:
    link = site_address(request, members.password_path(member))
    keep_secret(request.session, LINK_IN_SESSION, link)


def _require_passwords() -> None:
    if not settings.PASSWORD_LOGIN:
        raise Http404("Login by password is off here (EVALSITE_PASSWORD_LOGIN).")


def _status(is_refused: bool) -> int:
    return REFUSED if is_refused else 200


TOKEN_IN_SESSION = "access.new_api_token"  # noqa: S105  # a key of the session, not a secret


@never_cache
def token_list(request: MemberRequest) -> HttpResponse:
    """List the member's tokens, and for an admin everybody's; make a token and show its secret once."""
    now = timezone.now()
    form = TokenForm(highest_role(request.user), data=form_data(request))
    if form.is_valid():
        try:
            _, secret = make_token(owner=request.user, **form.values(now=now))
        except (TooManyTokensError, ScopeNotAllowedError) as refusal:
            form.add_error(None, str(refusal))
        else:
            keep_secret(request.session, TOKEN_IN_SESSION, secret)
            return redirect("access:tokens")
    context = {
        "form": form,
        "secret": take_kept(request, TOKEN_IN_SESSION),
        "rows": token_rows(now=now, owner=request.user),
        "others": _other_members_tokens(request),
    }
    return render(request, "access/tokens.html", context, status=_status(form.is_bound))


@never_cache
def token_revoke(request: MemberRequest, pk: int) -> HttpResponse:
    """Confirm and revoke a token; its owner and admins can."""
    token = get_object_or_404(ApiToken.objects.select_related("owner"), pk=pk)
    if token.owner_id != request.user.pk and not request.user.has_perm(CHANGE_MEMBERS):
        raise Http404("Members see only their own tokens.")
    if request.method != "POST":
        return render(request, "access/token_revoke.html", {"token": token})
    if revoke_token(token, actor=request.user, now=timezone.now()):
        messages.success(request, f"Token {token.name} is revoked.")
    return redirect("access:tokens")


def _other_members_tokens(request: MemberRequest) -> list[object]:
    if not request.user.has_perm(CHANGE_MEMBERS):
        return []
    rows = token_rows(now=timezone.now())
    return [row for row in rows if row.token.owner_id != request.user.pk]

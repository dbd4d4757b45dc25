"""The pages for second factors: asking for one at login, setting them up, and confirming who somebody is."""

from __future__ import annotations

import segno
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render, resolve_url
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from evalsite.access import factors, passkeys
from evalsite.access.confirmation import confirm
from evalsite.access.forms import AppForm, LoginForm, PasskeyForm, SecondFactorForm
from evalsite.access.logins import (
    FIRST_FACTOR,
    FirstFactor,
    TooManyTriesError,
    count_failure,
    finish_login,
    first_factor,
    read_next_path,
    wait_page,
)
from evalsite.access.members import members
from evalsite.access.models import Passkey
from evalsite.access.sessions import (
    MUST_SET_UP,
    browser_name,
    end_sessions,
    is_confirmed,
    keep_secret,
    read_kept,
    take_kept,
)
from evaluators.templatetags.figures import counted
from runs.requests import REFUSED, MemberRequest, form_data, may_change_members

SECRET_IN_SESSION = "access.new_app"  # noqa: S105  # a key of the session, not a secret
CODES_IN_SESSION = "access.recovery_codes"


@login_not_required
@never_cache
@sensitive_post_parameters()
def login_second(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor of somebody who has given a password or opened a link."""
    first = first_factor(request)
    if first is None:
        if FIRST_FACTOR in request.session:
            messages.info(request, "The login took too long. Begin again.")
        return redirect_to_login(resolve_url("home"))
    if not factors.has_factor(first.member):
        messages.info(request, "Your second factor was removed. Log in again.")
        return redirect_to_login(first.next_path)
    form = SecondFactorForm(request, first.member, form_data(request))
    try:
        is_right = form.is_valid()
    except TooManyTriesError as refusal:
        return wait_page(request, refusal.seconds)
    if not is_right:
        return _second_page(request, first, form)
    if form.way == "recovery code":
        left = factors.read_factors(first.member).recovery_codes_left
        messages.warning(request, f"You have {counted(left, 'recovery code')} left.")
    return finish_login(
        request, first.member, way=f"{first.way} and {form.way}", next_path=first.next_path
    )


def _second_page(
    request: HttpRequest, first: FirstFactor, form: SecondFactorForm, problem: str = ""
) -> HttpResponse:
    context = {
        "form": form,
        "member": first.member,
        "next": first.next_path,
        "factors": factors.read_factors(first.member),
        "problem": problem,
    }
    status = REFUSED if form.is_bound or problem else 200
    return render(request, "access/login_second.html", context, status=status)


@login_not_required
@require_safe
@never_cache
def login_question(request: HttpRequest) -> JsonResponse:
    """Answer what a browser needs to log in by a passkey."""
    return JsonResponse(passkeys.question(request, passkeys.LOGIN))


@login_not_required
@require_POST
@never_cache
@sensitive_post_parameters()
def login_passkey(request: HttpRequest) -> HttpResponse:
    """Log in by a passkey alone, which stands for both factors; after another first factor it is the second."""
    first = first_factor(request)
    if not settings.PASSWORD_LOGIN and first is None:
        raise Http404("Members log in with the provider here (EVALSITE_PASSWORD_LOGIN is off).")
    try:
        passkey = passkeys.use_passkey(
            request,
            purpose=passkeys.LOGIN,
            answer=request.POST.get("answer", ""),
            state=request.POST.get("state", ""),
            member=first.member if first else None,
        )
    except passkeys.PasskeyRefusedError as refusal:
        if refusal.member is not None:
            count_failure(request, refusal.member)
        if first:
            form = SecondFactorForm(request, first.member, None)
            return _second_page(request, first, form, str(refusal))
        context = {
            "form": LoginForm(request),
            "next": read_next_path(request),
            "problem": str(refusal),
        }
        return render(request, "access/login.html", context, status=REFUSED)
    return finish_login(request, passkey.user, way="passkey", next_path=read_next_path(request))


@never_cache
@sensitive_post_parameters()
def confirm_page(request: MemberRequest) -> HttpResponse:
    """Ask for a proof before a form that has files, which no page could keep."""
    where = read_next_path(request)
    if request.method == "POST" and is_confirmed(request.session):
        # By the provider, in another tab.
        return HttpResponseRedirect(where)
    page = confirm(
        request,
        request.user,
        form_data(request),
        action=reverse("access:confirm"),
        kept=[("next", where)],
    )
    return page or HttpResponseRedirect(where)


@require_safe
@never_cache
def confirm_question(request: MemberRequest) -> JsonResponse:
    """Answer what a browser needs to confirm by one of the member's passkeys."""
    purpose = passkeys.confirm_purpose(request.user)
    return JsonResponse(passkeys.question(request, purpose, request.user))


@require_safe
@never_cache
def factors_page(request: MemberRequest) -> HttpResponse:
    """Show the member's app, passkeys and recovery codes, new codes once, and forms to add and remove."""
    return _factors_page(request, codes=take_kept(request, CODES_IN_SESSION))


def _factors_page(
    request: MemberRequest,
    *,
    codes: str = "",
    form: PasskeyForm | None = None,
    problem: str = "",
) -> HttpResponse:
    client = request.headers.get("User-Agent", "")
    context = {
        "factors": factors.read_factors(request.user),
        "codes": codes,
        "form": form or PasskeyForm(initial={"name": browser_name(client)}),
        "problem": problem,
        "passkeys_problem": passkeys.passkeys_problem(request),
        "must_set_up": MUST_SET_UP in request.session,
        "next": read_next_path(request) if "next" in request.GET else "",
    }
    status = REFUSED if problem or form else 200
    return render(request, "access/factors.html", context, status=status)


@never_cache
@sensitive_post_parameters()
def app(request: MemberRequest) -> HttpResponse:
    """Show the key of a new authenticator app as a QR code and as text, and store it once a code proves it."""
    # A key that was shown on an earlier page is not offered again: somebody else may have opened that page.
    kept = read_kept(request.session, SECRET_IN_SESSION) if request.method == "POST" else ""
    secret = kept or factors.new_secret()
    keep_secret(request.session, SECRET_IN_SESSION, secret)
    form = AppForm(request.user, secret, form_data(request))
    if form.is_valid():
        request.session.pop(SECRET_IN_SESSION, None)
        return _added(request, "The authenticator app is set up.")
    address = factors.app_address(secret, member=request.user, site=request.get_host())
    code = segno.make(address, error="m", micro=False)
    context = {
        "form": form,
        "qr": SafeString(code.svg_inline(omitsize=True, border=4, dark="#000", light="#fff")),
        "key": " ".join(secret[start : start + 4] for start in range(0, len(secret), 4)),
        "has_app": factors.has_app(request.user),
    }
    return render(request, "access/app.html", context, status=REFUSED if form.is_bound else 200)


@require_POST
def app_remove(request: MemberRequest) -> HttpResponse:
    """Remove the authenticator app."""
    try:
        factors.remove_app(request.user)
    except factors.LastFactorError as refusal:
        return _factors_page(request, problem=str(refusal))
    return _changed(request, "The authenticator app is removed.")


@require_POST
def recovery_codes(request: MemberRequest) -> HttpResponse:
    """Make new recovery codes, which replace the old ones, and show them once."""
    if factors.has_factor(request.user):
        _show_codes(request)
    return redirect("access:factors")


@require_safe
@never_cache
def passkey_question(request: MemberRequest) -> JsonResponse:
    """Answer what a browser needs to make a passkey."""
    return JsonResponse(passkeys.question_for_new(request, request.user))


@require_POST
@sensitive_post_parameters()
def passkey_add(request: MemberRequest) -> HttpResponse:
    """Store a passkey that the browser has made."""
    form = PasskeyForm(request.POST)
    if not form.is_valid():
        problem = "" if "name" in form.errors else "The browser sent no passkey."
        return _factors_page(request, form=form, problem=problem)
    try:
        passkeys.add_passkey(request, request.user, **form.cleaned_data)
    except passkeys.PasskeyRefusedError as refusal:
        return _factors_page(request, problem=str(refusal))
    return _added(request, f"The passkey {form.cleaned_data['name']} is added.")


@require_POST
def passkey_remove(request: MemberRequest, pk: int) -> HttpResponse:
    """Remove one of the member's passkeys."""
    try:
        factors.remove_passkey(request.user, pk)
    except Passkey.DoesNotExist as error:
        raise Http404("The member has no such passkey.") from error
    except factors.LastFactorError as refusal:
        return _factors_page(request, problem=str(refusal))
    return _changed(
        request, "The passkey is removed. Your device may still offer it. Remove it there too."
    )


@may_change_members
@require_POST
def member_factors_remove(request: MemberRequest, pk: int) -> HttpResponse:
    """Remove all factors of another member who has lost them; the member is told at the next login."""
    person = get_object_or_404(members(), pk=pk)
    if person == request.user:
        return redirect("access:factors")
    if factors.remove_factors(person, by=request.user):
        end_sessions(person)
        messages.success(request, f"{person.username} has no second factor now.")
    return redirect("access:member", pk)


def _added(request: MemberRequest, message: str) -> HttpResponse:
    """Show recovery codes where there are none yet, and let a member go on who had to set a factor up."""
    where = request.session.pop(MUST_SET_UP, "")
    if not factors.read_factors(request.user).recovery_codes_left:
        _show_codes(request)
    _changed(request, message)
    query = f"?{urlencode({'next': where})}" if where else ""
    return redirect(f"{reverse('access:factors')}{query}")


def _changed(request: MemberRequest, message: str) -> HttpResponse:
    """End all other sessions, which somebody else may have begun, and say so."""
    ended = end_sessions(request.user, but=request.session.session_key)
    messages.success(request, f"{message}{' Other sessions are logged out.' if ended else ''}")
    return redirect("access:factors")


def _show_codes(request: MemberRequest) -> None:
    codes = factors.new_recovery_codes(request.user)
    keep_secret(request.session, CODES_IN_SESSION, "\n".join(codes))

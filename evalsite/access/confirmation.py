"""Confirm it is you: sensitive actions want a proof again when the last one is older than EVALSITE_CONFIRM_MINUTES.

A form that was sent too late is not lost: its fields stand hidden in the page that asks, which sends them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from evalsite.access.factors import read_factors
from evalsite.access.forms import ConfirmForm
from evalsite.access.logins import (
    TooManyTriesError,
    count_failure,
    record_confirmation,
    wait_page,
)
from evalsite.access.passkeys import PasskeyRefusedError, confirm_purpose, use_passkey
from evalsite.access.sessions import MUST_SET_UP, is_confirmed, mark_confirmed
from evalsite.access.single_sign_on.services import linked_since
from runs.documents import DetailLevel
from runs.requests import REFUSED, RUN_SCRIPTS

PREFIX = "identity"
PASSWORD, CODE, ANSWER, STATE = (
    f"{PREFIX}-{name}" for name in ("password", "code", "answer", "state")
)
PROOFS = (PASSWORD, CODE, ANSWER, STATE)


def _always(request: HttpRequest) -> bool:
    return True


def _without_password(request: HttpRequest) -> bool:
    """Who has a password enters it there anyway."""
    return isinstance(request.user, User) and not request.user.has_usable_password()


def _shares_outputs(request: HttpRequest) -> bool:
    has_texts = request.POST.get("detail_level") in (DetailLevel.OUTPUTS, DetailLevel.TRACES)
    return has_texts or "comments" in request.POST


def _sends_program(request: HttpRequest) -> bool:
    match = request.resolver_match
    is_script = match is not None and match.kwargs.get("kind") == "script"
    sends = any(name.endswith(("-script", "-command")) for name in request.POST)
    return settings.SCRIPTS and (is_script or sends)


def _sends_evaluators(request: HttpRequest) -> bool:
    """Tell whether a case comes with its own evaluators, of which any could be a script."""
    return bool(request.POST.get("evaluators", "").strip()) and _may_run_scripts(request)


def _may_run_scripts(request: HttpRequest) -> bool:
    return (
        settings.SCRIPTS and isinstance(request.user, User) and request.user.has_perm(RUN_SCRIPTS)
    )


# What somebody must not be able to do with a browser that was left unlocked or a session that was stolen. Ending
# sessions and revoking tokens or links are not listed: nothing should hold up a member who defends an account.
SENSITIVE: Mapping[str, Callable[[HttpRequest], bool]] = {
    "access:password": _without_password,
    "access:app": _always,
    "access:app-remove": _always,
    "access:passkey-add": _always,
    "access:passkey-remove": _always,
    "access:recovery-codes": _always,
    "access:tokens": _always,
    "access:member-add": _always,
    "access:member": _always,
    "access:member-status": _always,
    "access:member-scripts": _always,
    "access:member-email": _always,
    "access:member-unlink": _always,
    "access:member-link": _always,
    "access:member-factors-remove": _always,
    "access:member-erase": _always,
    "evaluators:language-model-new": _always,
    "evaluators:language-model-edit": _always,
    "evaluators:language-model-delete": _always,
    "runs:target-new": _always,
    "runs:target-new-try": _always,
    "runs:target-edit": _always,
    "runs:target-edit-try": _always,
    "runs:target-outputs-delete": _always,
    "runs:suite-delete": _always,
    "runs:run-delete": _always,
    "runs:campaign-delete": _always,
    "runs:retention-rule": _always,
    "runs:suite-retention": _always,
    "runs:share-new": _shares_outputs,
    "runs:evaluator-add": _sends_program,
    "runs:evaluator": _sends_program,
    "runs:evaluator-try": _sends_program,
    "runs:case-new": _sends_evaluators,
    "runs:case-edit": _sends_evaluators,
    "runs:suite-import": _may_run_scripts,
    # An earlier version may have other scripts than the present one.
    "runs:version-restore": _may_run_scripts,
}
# Files cannot be kept in a page, so these ask before the form is filled in.
WITH_FILES = ("runs:suite-import",)
# What can be opened while nothing else can, until a second factor is set up.
SET_UP_PAGES = (
    "access:factors",
    "access:app",
    "access:passkey-question",
    "access:passkey-add",
    "access:confirm",
    "access:confirm-question",
    "access:logout",
)


def answer_before(request: HttpRequest, member: User, page: str) -> HttpResponseBase | None:
    """Return the answer that comes before a page: set up a factor, or prove who you are; None if the page may follow.

    `page` is the full name of the page's address, such as `access:tokens`. Only members who must set up a factor
    and pages that are SENSITIVE need this call.
    """
    if MUST_SET_UP in request.session and page not in SET_UP_PAGES:
        return redirect("access:factors")
    is_sensitive = page in SENSITIVE and not is_confirmed(request.session)
    if not is_sensitive or not SENSITIVE[page](request):
        return None
    if request.method == "POST":
        return _confirm_sent(request, member)
    if request.method == "GET" and page in WITH_FILES:
        path = request.get_full_path()
        return redirect(f"{reverse('access:confirm')}?{urlencode({'next': path})}")
    return None


def _confirm_sent(request: HttpRequest, member: User) -> HttpResponse | None:
    """Check the proof that was sent with a form and let the form pass, or ask for a proof with the form kept."""
    sent = request.POST
    fields = sent.copy()
    for name in PROOFS:
        fields.pop(name, None)
    request.POST = QueryDict(fields.urlencode(), encoding=fields.encoding)
    kept = [(name, value) for name, values in fields.lists() for value in values]
    has_proof = any(name in sent for name in PROOFS)
    data = sent if has_proof else None
    return confirm(request, member, data, action=request.get_full_path(), kept=kept)


def confirm(
    request: HttpRequest,
    member: User,
    data: QueryDict | None,
    *,
    action: str,
    kept: list[tuple[str, str]],
) -> HttpResponse | None:
    """Return None after a right proof in `data`; else the page that asks for one and sends it, with `kept`, to `action`."""
    form = ConfirmForm(request, member, None if data and data.get(ANSWER) else data, PREFIX)
    problem = ""
    try:
        way = _use_answer(request, member, data) if data and data.get(ANSWER) else ""
        if form.is_bound and form.is_valid():
            way = form.way
    except PasskeyRefusedError as refusal:
        problem, way = str(refusal), ""
    except TooManyTriesError as refusal:
        return wait_page(request, refusal.seconds)
    if way:
        mark_confirmed(request.session)
        record_confirmation(request, member, way=way)
        return None
    context = {
        "form": form,
        "problem": problem,
        "action": action,
        "kept": [field for field in kept if field[0] != "csrfmiddlewaretoken"],
        "has_files": bool(request.FILES),
        "factors": read_factors(member),
        "is_linked": linked_since(member) is not None,
        "minutes": settings.CONFIRM_MINUTES,
    }
    page = render(request, "access/confirm.html", context, status=200 if data is None else REFUSED)
    # It may hold what nobody should read later, such as a key that was typed.
    page["Cache-Control"] = "private, no-store"
    return page


def _use_answer(request: HttpRequest, member: User, data: QueryDict) -> str:
    try:
        use_passkey(
            request,
            purpose=confirm_purpose(member),
            answer=data.get(ANSWER, ""),
            state=data.get(STATE, ""),
            member=member,
        )
    except PasskeyRefusedError:
        count_failure(request, member)
        raise
    return "passkey"

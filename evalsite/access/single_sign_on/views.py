"""The way to the provider and back, and the pages of those who are not let in."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from secrets import compare_digest

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from evalsite.access.logins import (
    TooManyTriesError,
    count_failed_sign_in,
    log_in,
    read_next_path,
    record_confirmation,
    record_refused_sign_in,
    refuse_wide_guessing,
    wait_page,
)
from evalsite.access.sessions import LOGOUT_URL, keep_secret, mark_confirmed
from evalsite.access.single_sign_on import services
from evalsite.access.single_sign_on.identity import (
    Identity,
    Journey,
    ProviderDownError,
    ProviderError,
)
from runs.requests import site_address

COOKIE_SALT = "evalsite.access.single_sign_on"
# How long somebody may take to log in at the provider.
JOURNEY_S = 15 * 60
WAY = "single sign-on"
OK, BAD_REQUEST, FORBIDDEN, BAD_GATEWAY = 200, 400, 403, 502
# Longer addresses are more than browsers and servers take.
MAX_LOGOUT_URL_LENGTH = 6_000
logger = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def sign_in(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider, which leads it back to `sign_in_return`.

    With `?confirm=1` a member who is logged in proves again who it is.
    """
    _require_provider()
    confirms = request.user.is_authenticated and request.GET.get("confirm") == "1"
    if request.user.is_authenticated and not confirms:
        return HttpResponseRedirect(read_next_path(request))
    # Its libraries take 4 MB and a quarter of a second, which sites without a provider do not pay.
    from evalsite.access.single_sign_on import provider

    try:
        address, journey = provider.begin(
            _return_address(request), next_path=read_next_path(request), confirms=confirms
        )
    except ProviderError as failure:
        return _provider_failed(request, failure)
    response = HttpResponseRedirect(address)
    response.set_cookie(
        settings.SIGN_IN_COOKIE_NAME,
        signing.dumps(asdict(journey), salt=COOKIE_SALT),
        max_age=JOURNEY_S,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        # Strict ones are not sent when another site leads back here.
        samesite="Lax",
    )
    return response


@login_not_required
@never_cache
@require_safe
def sign_in_return(request: HttpRequest) -> HttpResponse:
    """Let in whom the provider names, or say why not; each journey ends here once."""
    _require_provider()
    response = _returned(request)
    response.delete_cookie(settings.SIGN_IN_COOKIE_NAME, samesite="Lax")
    return response


def _returned(request: HttpRequest) -> HttpResponse:
    from evalsite.access.single_sign_on import provider

    journey = _journey(request)
    if journey is None or not compare_digest(
        journey.state.encode(), request.GET.get("state", "").encode(errors="replace")
    ):
        return _page(request, "lost", status=BAD_REQUEST)
    if "error" in request.GET:
        # The person went back; the provider has not failed.
        if request.GET["error"] == "access_denied":
            return _page(request, "cancelled", status=FORBIDDEN)
        error = " ".join(request.GET["error"][:100].split())
        return _provider_failed(
            request, ProviderError(f"{settings.OIDC_NAME} refuses with “{error}”.")
        )
    try:
        refuse_wide_guessing(request, journey.state)
    except TooManyTriesError as refusal:
        return wait_page(request, refusal.seconds)
    try:
        identity = provider.complete(
            journey,
            request.GET.get("code", ""),
            _return_address(request),
            back_at=site_address(request, reverse("access:login")),
        )
    except ProviderDownError as failure:
        return _provider_failed(request, failure)
    except ProviderError as failure:
        count_failed_sign_in(request, journey.state)
        record_refused_sign_in(request, None, reason=str(failure))
        return _provider_failed(request, failure)
    return (_confirm if journey.confirms else _let_in)(request, identity, journey)


def _let_in(request: HttpRequest, identity: Identity, journey: Journey) -> HttpResponse:
    try:
        admission = services.admit(identity)
    except services.SignInRefusedError as refusal:
        return _refused(request, identity, refusal.member, str(refusal))
    log_in(request, admission.member, way=WAY)
    if identity.checked_at:
        # A login there hours ago proves nothing now.
        mark_confirmed(request.session, at=datetime.fromtimestamp(identity.checked_at, UTC))
    if 0 < len(identity.logout_url) <= MAX_LOGOUT_URL_LENGTH:
        keep_secret(request.session, LOGOUT_URL, identity.logout_url)
    if admission.notice:
        messages.warning(request, admission.notice)
    return HttpResponseRedirect(journey.next_path)


def _refused(
    request: HttpRequest, identity: Identity, member: User | None, reason: str
) -> HttpResponse:
    record_refused_sign_in(request, member, name=identity.shown, reason=reason)
    return _page(request, "refused", status=FORBIDDEN, reason=reason)


def _confirm(request: HttpRequest, identity: Identity, journey: Journey) -> HttpResponse:
    """Note that the member has proved again who it is; the account of another member proves nothing."""
    member = services.linked_member(identity)
    if member is None or member != request.user:
        reason = "That is not the account that you are logged in with here."
        return _refused(request, identity, member, reason)
    try:
        # The role follows the groups here, too.
        services.admit(identity)
    except services.SignInRefusedError as refusal:
        return _refused(request, identity, refusal.member, str(refusal))
    mark_confirmed(request.session)
    record_confirmation(request, member, way=WAY)
    return _page(request, "confirmed", status=OK)


def _journey(request: HttpRequest) -> Journey | None:
    # Another version of this site may have written it.
    with suppress(KeyError, signing.BadSignature, TypeError):
        kept = request.COOKIES[settings.SIGN_IN_COOKIE_NAME]
        return Journey(**signing.loads(kept, salt=COOKIE_SALT, max_age=JOURNEY_S))
    return None


def _return_address(request: HttpRequest) -> str:
    return site_address(request, reverse("access:sign-in-return"))


def _require_provider() -> None:
    if not settings.OIDC_ISSUER:
        raise Http404("No provider is set up.")


def _provider_failed(request: HttpRequest, failure: ProviderError) -> HttpResponse:
    logger.warning("Signing in failed: %s", failure)
    return _page(request, "failed", status=BAD_GATEWAY, reason=str(failure))


def _page(request: HttpRequest, outcome: str, *, status: int, reason: str = "") -> HttpResponse:
    context = {"outcome": outcome, "reason": reason}
    return render(request, "access/sign_in_ended.html", context, status=status)

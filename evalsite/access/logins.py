"""Logins: guessing is slowed down, and the audit has each login, for those who may change members.

Guesses are counted by name and address (django-axes), by address alone and by name alone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from axes.models import AccessAttempt
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models import Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from evalsite.access.sessions import begin_session
from evaluators.models import AuditEntry

TOO_MANY_REQUESTS = 429
# A provider gives one customer a whole network of this many bits, so the rest of an IPv6 address names no client.
IPV6_CLIENT_BITS = 64
# Failures within AXES_COOLOFF_TIME, besides AXES_FAILURE_LIMIT for one name from one address. A company may share
# one address, and a member whose name is under attack from many addresses still has one-time links.
MAX_FAILURES_OF_ADDRESS, MAX_FAILURES_OF_NAME = 50, 100
BUSY_S = 1
# A password takes a third of a second of the processor to check; pages are served meanwhile by the other turns.
PASSWORD_CHECKS = threading.BoundedSemaphore(2)


def client_address(request: HttpRequest) -> str | None:
    """Return the address that failed logins are counted by; behind a trusted proxy, the one it reports.

    For IPv6 this is the network, because one client can use every address in it.
    """
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "") if settings.TRUST_PROXY else ""
    # The proxy appends its client; the client may have made up everything before that.
    for text in (forwarded.rpartition(",")[2].strip(), request.META.get("REMOTE_ADDR", "")):
        with suppress(ValueError):
            return str(_client(ip_address(text)))
    return None


def _client(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    return IPv6Address(int(address) >> IPV6_CLIENT_BITS << IPV6_CLIENT_BITS)


def is_guessed_widely(request: HttpRequest, username: str) -> bool:
    """Tell whether this address failed with many names, or this name from many addresses."""
    recent = AccessAttempt.objects.filter(
        attempt_time__gt=timezone.now() - settings.AXES_COOLOFF_TIME
    )
    address = Q(ip_address=client_address(request))
    counted = recent.aggregate(
        address=Sum("failures_since_start", filter=address, default=0),
        name=Sum("failures_since_start", filter=Q(username=username), default=0),
    )
    of_address, of_name = counted["address"], counted["name"]
    return bool(of_address >= MAX_FAILURES_OF_ADDRESS or of_name >= MAX_FAILURES_OF_NAME)


def locked_out(
    request: HttpRequest, response: HttpResponse | None, credentials: Any
) -> HttpResponse:
    """Show how long to wait after too many failed logins; the same for names that do not exist."""
    return _wait_page(request, int(settings.AXES_COOLOFF_TIME.total_seconds()))


def busy(request: HttpRequest) -> HttpResponse:
    """Ask to try again at once: as many passwords as possible are being checked."""
    return _wait_page(request, BUSY_S)


def _wait_page(request: HttpRequest, seconds: int) -> HttpResponse:
    context = {"minutes": seconds // 60}
    page = render(request, "access/locked_out.html", context, status=TOO_MANY_REQUESTS)
    page["Retry-After"] = str(seconds)
    return page


NOT_LOGGED_IN, UNKNOWN_NAMES = "not logged in", "unknown names"
WAYS = {"login": "password", "login-once": "one-time link", "password-set": "password link"}


def audit_logins() -> None:
    """Write logins, failed logins and logouts to the audit from now on."""
    user_logged_in.connect(_logged_in, dispatch_uid="access.logged_in")
    user_logged_out.connect(_logged_out, dispatch_uid="access.logged_out")
    user_login_failed.connect(_failed, dispatch_uid="access.login_failed")
    user_locked_out.connect(_locked_out, dispatch_uid="access.locked_out")


def _logged_in(request: HttpRequest, user: User, **signal: Any) -> None:
    begin_session(request.session, client=request.headers.get("User-Agent", ""))
    match = request.resolver_match
    way = WAYS.get(match.url_name or "", "") if match else ""
    _record("logged_in", user, request, by=user, facts={"with": way})


def _logged_out(request: HttpRequest, user: User | None, **signal: Any) -> None:
    if user is not None:
        _record("logged_out", user, request, by=user)


def _failed(
    credentials: Mapping[str, Any], request: HttpRequest | None = None, **signal: Any
) -> None:
    """Record a failure for a member's name; other names may be passwords in the wrong field."""
    # Attempts during the pause are not even checked.
    if request is None or getattr(request, "axes_locked_out", False):
        return
    member = User.objects.filter(username=credentials.get("username")).first()
    if member is not None:
        _record("login_failed", member, request)


def _locked_out(request: HttpRequest, username: str, **signal: Any) -> None:
    """Record the beginning of a pause, and no attempts during it, for a member's name."""
    if member := User.objects.filter(username=username).first():
        _record_pause(member, request)


def record_wide_guessing(request: HttpRequest, username: str) -> None:
    """Record the beginning of the pause of an address or a name; a name that is no member's is left out."""
    _record_pause(User.objects.filter(username=username).first(), request)


def _record_pause(member: User | None, request: HttpRequest) -> None:
    since = timezone.now() - settings.AXES_COOLOFF_TIME
    known = AuditEntry.objects.filter(
        action="session.locked_out",
        object_id=str(member.pk) if member else "",
        at__gt=since,
        after__address=client_address(request),
    )
    if not known.exists():
        _record("locked_out", member, request)


def _record(
    action: str,
    member: User | None,
    request: HttpRequest,
    *,
    by: User | None = None,
    facts: Mapping[str, str] | None = None,
) -> None:
    AuditEntry.objects.record(
        f"session.{action}",
        by=by,
        nobody=NOT_LOGGED_IN,
        object_type="session",
        object_id=member.pk if member else "",
        object_name=member.get_username() if member else UNKNOWN_NAMES,
        after={"address": client_address(request), **(facts or {})},
    )

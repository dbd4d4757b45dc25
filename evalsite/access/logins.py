"""Logins: limits for guessing, checks of what members enter, the two steps of a login, and its audit.

Guesses are counted by name and address (django-axes), by address alone and by name alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.handlers.proxy import AxesProxyHandler
from axes.models import AccessAttempt
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import IntegrityError
from django.db.models import Q, Sum
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.encoding import iri_to_uri
from django.utils.http import url_has_allowed_host_and_scheme

from evalsite.access import factors
from evalsite.access.sessions import MUST_SET_UP, begin_session
from evaluators.models import NOT_LOGGED_IN, AuditEntry
from evaluators.scoring.types import DomainError

TOO_MANY_REQUESTS = 429
# A provider gives one customer a whole network of this many bits, so the rest of an IPv6 address names no client.
IPV6_CLIENT_BITS = 64
# Failures within AXES_COOLOFF_TIME, besides AXES_FAILURE_LIMIT for one name from one address. A company may share
# one address, and a member whose name is under attack from many addresses still has one-time links.
MAX_FAILURES_OF_ADDRESS, MAX_FAILURES_OF_NAME = 50, 100
# A password takes a third of a second of the processor to check. So many are checked at once; the other threads
# serve pages, and one more login may be tried again after BUSY_S seconds.
PASSWORD_CHECKS, BUSY_S = threading.BoundedSemaphore(2), 1


class AttemptsHandler(AxesDatabaseHandler):  # type: ignore[misc]  # without types
    """Stores failed logins as django-axes does, also while the member logs in somewhere else."""

    def user_login_failed(self, *arguments: Any, **facts: Any) -> None:
        """Store a failed login; a second time if the row that stood in the way is gone: a login removes it."""
        try:
            super().user_login_failed(*arguments, **facts)
        except IntegrityError:
            super().user_login_failed(*arguments, **facts)


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


def _is_guessed_widely(request: HttpRequest, username: str) -> bool:
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
    return wait_page(request, int(settings.AXES_COOLOFF_TIME.total_seconds()))


def wait_page(request: HttpRequest, seconds: int) -> HttpResponse:
    """Show that a login may be tried again in so many seconds; less than a minute means that others log in now."""
    context = {"minutes": seconds // 60}
    page = render(request, "access/locked_out.html", context, status=TOO_MANY_REQUESTS)
    page["Retry-After"] = str(seconds)
    return page


@contextmanager
def hide_sent_fields(request: HttpRequest) -> Iterator[None]:
    """Hide the sent fields while a proof is checked: django-axes stores those of a failed try in clear."""
    sent, request.POST = request.POST, QueryDict()
    try:
        yield
    finally:
        request.POST = sent


@contextmanager
def password_check() -> Iterator[None]:
    """Take one of the few turns to check a password; raises TooManyTriesError while all are taken."""
    if not PASSWORD_CHECKS.acquire(blocking=False):
        raise TooManyTriesError(BUSY_S)
    try:
        yield
    finally:
        PASSWORD_CHECKS.release()


def check_password(request: HttpRequest, member: User, password: str) -> bool:
    """Tell whether it is the member's password; a wrong one counts as a failed login.

    Raises:
        TooManyTriesError: nobody may try now.

    """
    refuse_wide_guessing(request, member.get_username())
    with password_check(), hide_sent_fields(request):
        proved = authenticate(request, username=member.get_username(), password=password)
    return proved == member


def check_code(request: HttpRequest, member: User, code: str) -> bool:
    """Tell whether it is the code of the member's app at this time; a wrong one counts as a failed login.

    Raises:
        TooManyTriesError: nobody may try now.

    """
    _refuse_guessing(request, member)
    return factors.use_code(member, code, now=timezone.now()) or count_failure(request, member)


def check_recovery_code(request: HttpRequest, member: User, code: str) -> bool:
    """Use up one of the member's recovery codes; False for a wrong or used one, which counts as a failed login.

    Raises:
        TooManyTriesError: nobody may try now.

    """
    _refuse_guessing(request, member)
    return factors.use_recovery_code(member, code) or count_failure(request, member)


class TooManyTriesError(DomainError):
    """Too many tries failed, or too many passwords are being checked; `seconds` says how long to wait."""

    code = "too_many_tries"

    def __init__(self, seconds: int) -> None:
        """Take the time after which another try may succeed."""
        minutes = seconds // 60
        super().__init__(
            f"Too many tries failed. Wait {minutes} minutes, then try again."
            if minutes
            else "Many passwords are being checked at this moment. Try again at once."
        )
        self.seconds = seconds


def refuse_wide_guessing(request: HttpRequest, username: str) -> None:
    """Raise TooManyTriesError while this address has failed with many names, or this name from many addresses."""
    if _is_guessed_widely(request, username):
        _record_pause(User.objects.filter(username=username).first(), request)
        raise TooManyTriesError(int(settings.AXES_COOLOFF_TIME.total_seconds()))


def _refuse_guessing(request: HttpRequest, member: User) -> None:
    """Raise TooManyTriesError while this address has failed too often with this name.

    Guesses from many addresses are counted by the member's app itself: nobody who does not know the password can
    keep a member out who has a one-time link.
    """
    if not AxesProxyHandler.is_allowed(request, {"username": member.get_username()}):
        raise TooManyTriesError(int(settings.AXES_COOLOFF_TIME.total_seconds()))


def count_failure(request: HttpRequest, member: User) -> bool:
    """Count a failed login of a member, and return False."""
    credentials = {"username": member.get_username()}
    with hide_sent_fields(request):
        user_login_failed.send(sender=__name__, credentials=credentials, request=request)
    return False


BACKEND = "django.contrib.auth.backends.ModelBackend"
# The path waits in a cookie while somebody is at the provider, and browsers drop cookies over 4 KB.
MAX_NEXT_LENGTH = 2_000


def read_next_path(request: HttpRequest) -> str:
    """Return the path on this site where a login leads: the home page if none, another site or a very long one is named."""
    path = request.POST.get("next") or request.GET.get("next") or ""
    if len(iri_to_uri(path)) > MAX_NEXT_LENGTH:
        return resolve_url("home")
    is_on_this_site = url_has_allowed_host_and_scheme(
        path, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return path if is_on_this_site and path.startswith("/") else resolve_url("home")


# In the session of somebody who has proved the first factor alone.
FIRST_FACTOR = "access.first_factor"
SECOND_FACTOR_WITHIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class FirstFactor:
    """Who has given a right password or link and not yet the second factor, and where the login leads."""

    member: User
    way: str
    next_path: str


def finish_first_factor(
    request: HttpRequest, member: User, *, way: str, next_path: str
) -> HttpResponseRedirect:
    """Log a member in who gave a password or opened a link, or lead to the second factor if there is one.

    `way` is how the audit says which proof it was.
    """
    if not factors.has_factor(member):
        return finish_login(request, member, way=way, next_path=next_path)
    if request.user.is_authenticated:
        logout(request)
    request.session.cycle_key()
    request.session[FIRST_FACTOR] = {
        "member": member.pk,
        "hash": member.get_session_auth_hash(),
        "at": timezone.now().isoformat(),
        "way": way,
        "next": next_path,
    }
    return redirect("access:login-second")


def first_factor(request: HttpRequest) -> FirstFactor | None:
    """Return whose second factor is awaited; None after ten minutes or another change of the password."""
    kept = request.session.get(FIRST_FACTOR)
    if not kept or timezone.now() - datetime.fromisoformat(kept["at"]) > SECOND_FACTOR_WITHIN:
        return None
    member = User.objects.filter(pk=kept["member"], is_active=True).first()
    if member is None or member.get_session_auth_hash() != kept["hash"]:
        return None
    return FirstFactor(member, kept["way"], kept["next"])


def finish_login(
    request: HttpRequest, member: User, *, way: str, next_path: str
) -> HttpResponseRedirect:
    """Log a member in who gave all factors, and lead to the page, or to setting up a factor that is required."""
    request.session.pop(FIRST_FACTOR, None)
    log_in(request, member, way=way)
    for notice in factors.take_notices(member):
        messages.warning(request, notice)
    if factors.requires_factor(member) and not factors.has_factor(member):
        request.session[MUST_SET_UP] = next_path
        return redirect("access:factors")
    return HttpResponseRedirect(next_path)


def log_in(request: HttpRequest, member: User, *, way: str) -> None:
    """Begin the session of a member without asking for anything else, and record it."""
    login(request, member, backend=BACKEND)
    _record("logged_in", member, request, by=member, facts={"with": way})


def record_confirmation(request: HttpRequest, member: User, *, way: str) -> None:
    """Record that a member has proved again who it is, before a sensitive action."""
    _record("confirmed", member, request, by=member, facts={"with": way})


UNKNOWN_NAMES = "unknown names"


def audit_logins() -> None:
    """Begin sessions, and write failed logins and logouts to the audit, from now on."""
    user_logged_in.connect(_logged_in, dispatch_uid="access.logged_in")
    user_logged_out.connect(_logged_out, dispatch_uid="access.logged_out")
    user_login_failed.connect(_failed, dispatch_uid="access.login_failed")
    user_locked_out.connect(_locked_out, dispatch_uid="access.locked_out")


def _logged_in(request: HttpRequest, user: User, **signal: Any) -> None:
    begin_session(request.session, client=request.headers.get("User-Agent", ""))


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
    name: str = "",
    facts: Mapping[str, str] | None = None,
) -> None:
    AuditEntry.objects.record(
        f"session.{action}",
        by=by,
        nobody=NOT_LOGGED_IN,
        object_type="session",
        object_id=member.pk if member else "",
        object_name=member.get_username() if member else name or UNKNOWN_NAMES,
        after={"address": client_address(request), **(facts or {})},
    )


def record_refused_sign_in(
    request: HttpRequest, member: User | None, *, reason: str, name: str = ""
) -> None:
    """Record that a sign-in was refused; `name` is what the provider calls somebody who is no member."""
    _record("sign_in_refused", member, request, name=name, facts={"reason": reason})


def count_failed_sign_in(request: HttpRequest, journey: str) -> None:
    """Count a sign-in that the provider did not confirm, by address and by journey, which stands for a name."""
    credentials = {"username": f"sign-in {journey}"}
    user_login_failed.send(sender=__name__, credentials=credentials, request=request)

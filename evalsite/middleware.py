"""The middleware: headers, logins, share links, downloads, refused requests; and the context of every template."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.db import DatabaseError, IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render
from django.utils import timezone
from django.utils.http import parse_header_parameters

from evalsite.access.confirmation import SENSITIVE, answer_before
from evalsite.access.rate_limits import RATE_LIMIT
from evalsite.access.sessions import MUST_SET_UP
from evalsite.health import storage_outage
from evalsite.serving import MEMBER
from evaluators.models import AuditEntry, ErasedMemberError
from runs.engine.plan import UnreadableSnapshotError
from runs.models.results import Result
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.models.temporary import CaseUpload, ReviewUpload

NUL, ESCAPED_NUL = "\0", "%00"
# Share links, which open without an account, start with this path.
FOR_ANONYMOUS = "/s/"
TO_ANONYMOUS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Robots-Tag": "noindex, nofollow",
    "Referrer-Policy": "no-referrer",
    # No cache may serve a revoked link.
    "Cache-Control": "private, no-store",
}


def for_anonymous(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Serve share links without reading or setting cookies, and with stricter headers."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(FOR_ANONYMOUS):
            return get_response(request)
        request.META.pop("HTTP_COOKIE", None)
        response = get_response(request)
        response.cookies.clear()
        for name, value in TO_ANONYMOUS.items():
            response[name] = value
        return response

    return answer


# What no page needs, and what no other site may show.
FOR_EVERY_ANSWER = {
    # In place of the server's name and kind.
    "Server": "Evalsite",
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The browser keeps a page, because going back to a form has to find what was typed, until the logout clears all.
FOR_PAGES, FOR_FILES = "private, no-cache", "private, no-store"


def add_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Add the headers of every answer, files of the site included."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        for name, value in FOR_EVERY_ANSWER.items():
            response.headers.setdefault(name, value)
        return response

    return answer


# Of what is smaller, such as the parts that pages ask for again and again, little is left to save.
LEAST_COMPRESSED = 4096


class CompressPagesMiddleware(GZipMiddleware):
    """Compresses pages to about a fifth; with random bytes, so that no size gives away what a page contains."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        """Return pages compressed for clients that accept it, other answers as they are."""
        is_page = response.headers.get("Content-Type", "").startswith("text/html")
        if not is_page or not isinstance(response, HttpResponse):
            return response
        if len(response.content) < LEAST_COMPRESSED:
            return response
        return super().process_response(request, response)


def for_members(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Keep answers to members out of shared caches, add rate limits, and write downloads and refusals to the audit."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        has_session = settings.SESSION_COOKIE_NAME in request.COOKIES
        is_known = has_session or "Authorization" in request.headers
        if is_known:
            is_page = response.headers.get("Content-Type", "").startswith("text/html")
            response.headers.setdefault("Cache-Control", FOR_PAGES if is_page else FOR_FILES)
        disposition = response.headers.get("Content-Disposition", "")
        is_file = disposition.startswith("attachment") and response.status_code == HTTPStatus.OK
        if is_known and is_file and isinstance(request.user, User):
            request.META[MEMBER] = request.user.pk
            _record_download(request, request.user, disposition)
        for name, value in request.META.get(RATE_LIMIT, {}).items():
            response.headers[name] = value
        if response.status_code == HTTPStatus.FORBIDDEN:
            record_refusal(request)
        return response

    return answer


def _record_download(request: HttpRequest, member: User, disposition: str) -> None:
    _, parameters = parse_header_parameters(disposition)
    # What can be read can be downloaded while nothing can be stored.
    with suppress(DatabaseError):
        AuditEntry.objects.record(
            "download",
            by=member,
            object_type="file",
            object_name=parameters.get("filename", ""),
            after={"address": request.get_full_path()},
        )


REFUSAL_IS_RECORDED_EVERY = timedelta(hours=1)
# A reason can quote what another site sent.
MAX_REASON_LENGTH = 200


def record_refusal(request: HttpRequest, *, reason: str = "") -> None:
    """Record what a member or a token may not do: once an hour for each kind of address, however often it is tried.

    `reason` is given if it is not the role.
    """
    match = request.resolver_match
    if match is None or not isinstance(request.user, User):
        return
    # Pages can be refused while nothing can be stored, and to a member who is just erased.
    with suppress(DatabaseError, ErasedMemberError):
        known = AuditEntry.objects.filter(
            object_type="refusal",
            object_name=f"/{match.route}",
            actor=request.user,
            at__gt=timezone.now() - REFUSAL_IS_RECORDED_EVERY,
        )
        if known.exists():
            return
        address = settings.SECRET_PATH.sub(r"\1…", request.path)
        why = {"reason": reason[:MAX_REASON_LENGTH]} if reason else {}
        AuditEntry.objects.record(
            "refused",
            by=request.user,
            object_type="refusal",
            object_name=f"/{match.route}",
            after={"method": request.method, "address": address, **why},
        )


def refuse_nul(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Answer 404 to addresses with the character NUL, which PostgreSQL rejects."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        # The key of a case is escaped twice, so a path may still contain an escape.
        parts = (request.path_info, request.META.get("QUERY_STRING", ""))
        if any(NUL in part or ESCAPED_NUL in part for part in parts):
            raise Http404("No address contains the character NUL.")
        return get_response(request)

    return answer


# What somebody may delete after a request has read it, and before it changes anything.
DELETABLE = (
    *(Suite.DoesNotExist, Run.DoesNotExist, Result.DoesNotExist),
    *(CaseUpload.DoesNotExist, ReviewUpload.DoesNotExist, ReviewItem.DoesNotExist),
)
# PostgreSQL's code for a row that refers to none.
FOREIGN_KEY = "23503"


class UnavailableDataMiddleware:
    """Shows a page instead of a server error for data that were just deleted or that this version cannot read."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        """Take the next handler."""
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the page with status 409, or None for any other error; raises Http404 for what is gone."""
        is_gone = isinstance(exception, DELETABLE) and not _names_existing_run(request)
        if is_gone or _refers_to_what_is_gone(exception):
            raise Http404("It was deleted in the meantime.") from exception
        if not isinstance(exception, UnreadableSnapshotError):
            return None
        return render(request, "409.html", {"reason": str(exception)}, status=409)


def _refers_to_what_is_gone(error: BaseException) -> bool:
    """Tell whether a row could not be stored because another, to which it refers, was deleted."""
    cause = error.__cause__
    on_sqlite = getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
    on_postgresql = getattr(cause, "sqlstate", None) == FOREIGN_KEY
    return isinstance(error, IntegrityError) and (on_sqlite or on_postgresql)


def _names_existing_run(request: HttpRequest) -> bool:
    """Tell whether the address is that of a run that still exists; then what is missing is a fault of the site."""
    place = request.resolver_match.kwargs if request.resolver_match else {}
    if not {"slug", "number"} <= place.keys():
        return False
    return Run.objects.filter(suite__slug=place["slug"], number=place["number"]).exists()


class MembersOnlyMiddleware(LoginRequiredMiddleware):
    """Requires a login, and what must come before some pages: a second factor, or a proof of who it is.

    On pages that need no login the session is not read: the health page must answer even if none can be.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """Return the page that comes first, such as the login page, or None if the request may continue."""
        if not getattr(view_func, "login_required", True):
            return None
        login = super().process_view(request, view_func, view_args, view_kwargs)
        if login is not None or not isinstance(request.user, User):
            return login
        page = request.resolver_match.view_name if request.resolver_match else ""
        if page not in SENSITIVE and MUST_SET_UP not in request.session:
            return None
        return answer_before(request, request.user, page)

    def handle_no_permission(
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase]
    ) -> HttpResponseRedirect:
        """Lead to the login, and from there back: after a form that was sent, to the page that has it.

        Most addresses that forms are sent to have no page of their own.
        """
        page = urlsplit(request.headers.get("Referer", ""))
        if request.method != "POST" or page.netloc != request.get_host():
            return super().handle_no_permission(request, view_func)
        path = urlunsplit(("", "", page.path, page.query, ""))
        return redirect_to_login(path, self.get_login_url(view_func))


def site(request: HttpRequest) -> dict[str, object]:
    """Return what every template knows: whether the judge's replies are scripted, and how members log in.

    Templates that name `storage_outage` ask the database for it.
    """
    return {
        "is_demo": settings.DEMO,
        "with_password": settings.PASSWORD_LOGIN,
        # "" if members sign in with no provider.
        "provider_name": settings.OIDC_NAME,
        "storage_outage": storage_outage,
    }

"""What is refused before any page sees it, what anonymous readers get, and what every template is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from runs.engine.plan import UnreadableSnapshotError

NUL, ESCAPED_NUL = "\0", "%00"
# Where everything lives that opens without an account, by a share link.
FOR_ANONYMOUS = "/s/"
TO_ANONYMOUS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Robots-Tag": "noindex, nofollow",
    "Referrer-Policy": "no-referrer",
    # A revoked link must open nothing from any cache.
    "Cache-Control": "private, no-store",
}


def for_anonymous(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Serve what share links open without reading a cookie or setting one, and with headers of its own."""

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


def refuse_nul(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Answer 404 to addresses with the character NUL, over which PostgreSQL would break off."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        # A case's key is escaped twice, so its address may still hold an escape here.
        parts = (request.path_info, request.META.get("QUERY_STRING", ""))
        if any(NUL in part or ESCAPED_NUL in part for part in parts):
            raise Http404("No address holds the character NUL.")
        return get_response(request)

    return answer


class OtherVersionsMiddleware:
    """Says of a run whose snapshot this version cannot read that it is so, in the place of an error of the server."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        """Take what answers."""
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer as it is."""
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the page with status 409, or None for any other error; files are refused before they begin."""
        if not isinstance(exception, UnreadableSnapshotError):
            return None
        return render(request, "409.html", {"reason": str(exception)}, status=409)


class MembersOnlyMiddleware(LoginRequiredMiddleware):
    """Asks for a login where one is needed, and elsewhere not even whether somebody is logged in.

    The health page has to answer while no session can be read.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """Return the way to the login page, or None for whoever may go on."""
        if not getattr(view_func, "login_required", True):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


def site(request: HttpRequest) -> dict[str, object]:
    """Return `is_demo`: whether the judge's replies are scripted."""
    return {"is_demo": settings.DEMO}

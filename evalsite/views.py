"""The health page, the reports of browsers about the content security policy, and the error pages."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe
from pydantic import BaseModel, Field

from evalsite.access.members import admin_names
from evalsite.access.roles import highest_role
from evalsite.health import OK, PARTS, find_outage, health
from evalsite.middleware import FOR_ANONYMOUS, record_refusal
from evaluators.reading.json import read_json
from runs.api.schema import NOTHING_HERE, is_for_api, problem_page
from runs.home.queries import find_missing
from runs.models.database import discard_connection
from runs.requests import VIEW
from runs.sharing.views import gone_page

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 5
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@require_safe
@never_cache
@login_not_required
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 if database, broker and a worker are available and no work waits unclaimed, else 503.

    The answer has the state of each part. `?parts=database,broker` checks only some of them: a web
    process is healthy without a worker.
    """
    parts = request.GET.get("parts", ",".join(PARTS)).split(",")
    if not set(parts) <= set(PARTS):
        return JsonResponse({"error": f"The parts are {', '.join(PARTS)}."}, status=400)
    found = health(parts)
    ages = {"written_s_ago": found.written_s_ago, "unclaimed_s": found.unclaimed_s}
    known = {name: round(seconds, 1) for name, seconds in ages.items() if seconds is not None}
    status = {"status": OK if found.is_ok else "unavailable", **found.states, **known}
    return JsonResponse(status, status=200 if found.is_ok else 503)


MAX_REPORT_BYTES, MAX_REPORTED_LENGTH = 16 * 1024, 200


class CspViolation(BaseModel):
    """What a browser says it refused: of which page, by which rule, and from where."""

    page: str = Field("", alias="document-uri")
    rule: str = Field("", alias="violated-directive")
    source: str = Field("", alias="blocked-uri")

    def text(self) -> str:
        """Return the report as one line of plain ASCII, without queries and without the secrets of links."""
        parts = (self.rule, _place(self.source), _place(self.page))
        rule, source, page = (ascii(part[:MAX_REPORTED_LENGTH]) for part in parts)
        return f"on {page}, {rule} refused {source}"


def _place(address: str) -> str:
    """Return the host of another site or the path of a page; a word such as "inline" as it is."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "an address"
    if parts.netloc and parts.hostname not in settings.ALLOWED_HOSTS:
        return f"{parts.scheme}://{parts.netloc}"
    return str(settings.SECRET_PATH.sub(r"\1…", parts.path))


class ReportLog:
    """Logs each report once an hour, and a limited number: anybody can send any number of reports."""

    every, most = timedelta(hours=1), 20

    def __init__(self) -> None:
        """Begin without reports."""
        self._lock = threading.Lock()
        self._logged: dict[str, datetime] = {}

    def write(self, text: str, *, now: datetime) -> None:
        """Log a report, unless it was logged within the hour or too many others were."""
        with self._lock:
            self._logged = {
                known: at for known, at in self._logged.items() if at > now - self.every
            }
            if text in self._logged or len(self._logged) >= self.most:
                return
            self._logged[text] = now
        logger.warning("A browser reports (anyone can send this): %s", text)


REPORTS = ReportLog()


@csrf_exempt
@require_POST
@never_cache
@login_not_required
def csp_report(request: HttpRequest) -> HttpResponse:
    """Log what a browser refused because of the content security policy."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_REPORT_BYTES:
        return HttpResponse(status=413)
    try:
        sent = read_json(request.body.decode(), unstorable="replace")
        report = sent.get("csp-report") if isinstance(sent, dict) else None
        violation = CspViolation.model_validate(report)
    except ValueError:
        return HttpResponse(status=400)
    REPORTS.write(violation.text(), now=timezone.now())
    return HttpResponse(status=204)


@login_not_required
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Explain that a form was refused because its page was too old or another site sent it."""
    record_refusal(request, reason=reason)
    return render(request, "403_csrf.html", status=403)


@login_not_required
def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Show the member's role and who can change it."""
    user = request.user
    role = highest_role(user) if isinstance(user, User) else None
    return render(request, "403.html", {"role": role, "admins": admin_names()}, status=403)


@login_not_required
def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer that the page does not exist, and what does instead; to API clients as problem details.

    Under the path of share links the answer is the same as for an invalid link.
    """
    if is_for_api(request):
        return problem_page(request, 404, NOTHING_HERE)
    if request.path_info.startswith(FOR_ANONYMOUS):
        return gone_page()
    match = request.resolver_match
    if match is None or not request.user.has_perm(VIEW):
        return render(request, "404.html", status=404)
    missing = find_missing(match.route, match.kwargs)
    return render(request, "404.html", {"missing": missing}, status=404)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request that is too large or damaged; Django's own page would read its form again."""
    return HttpResponse(render_to_string("400.html"), status=400)


def server_error(request: HttpRequest) -> HttpResponse:
    """Explain a database outage if one caused the error, else show a general error page.

    Called while the error is being handled, so it must not need the database.
    """
    error = sys.exc_info()[1]
    outage = find_outage(error)
    if outage is None:
        if is_for_api(request):
            return problem_page(request, 500, "An unexpected error occurred. It is logged.")
        return HttpResponse(render_to_string("500.html"), status=500)
    logger.warning("%s (%s %s): %s", outage.title, request.method, request.path, error)
    discard_connection()
    response: HttpResponse
    if is_for_api(request):
        response = problem_page(request, 503, f"{outage.title}. {outage.meaning}")
    else:
        is_form = request.method not in SAFE_METHODS
        page = render_to_string("503.html", {"outage": outage, "is_form": is_form})
        response = HttpResponse(page, status=503)
    response["Retry-After"] = str(RETRY_AFTER_S)
    response["Cache-Control"] = "no-store"
    return response

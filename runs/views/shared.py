"""What strangers open: the page behind a share link, and its file. No cookie is read or set.

Every answer under /s/ leaves through `evalsite.middleware.for_strangers`, which sets its headers.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from runs.models import ShareLink
from runs.reports.shared_page import shared_page
from runs.services.sharing import count_view, share_of

# Chats and search engines that fetch an address to show what it leads to. Nobody read anything.
FETCHERS = (
    *("bot", "crawler", "spider", "facebookexternalhit", "whatsapp", "skypeuripreview"),
    *("embedly", "slack-imgproxy", "preview", "curl-link", "mastodon", "iframely"),
)


@require_safe
@login_not_required
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Show what was frozen behind a token."""
    link = _looked_at(request, token)
    if link is None:
        return gone()
    context = {
        "page": shared_page(link),
        "download_url": reverse("runs:shared-file", kwargs={"token": token}),
    }
    # Without the request no context processor asks who is there.
    return HttpResponse(render_to_string("shares/public.html", context))


@require_safe
@login_not_required
def shared_file(request: HttpRequest, token: str) -> HttpResponse:
    """Give the same page as one file that opens without a server."""
    link = _looked_at(request, token)
    if link is None:
        return gone()
    style = _style()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    context = {"page": shared_page(link), "style": style, "policy": policy}
    response = HttpResponse(render_to_string("shares/download.html", context))
    name = slugify(link.title)[:80] or "shared"
    response["Content-Disposition"] = f'attachment; filename="evalsite-{name}.html"'
    return response


def gone() -> HttpResponse:
    """Answer alike whether a token is wrong, or was right once."""
    return HttpResponse(render_to_string("shares/gone.html"), status=404)


def _looked_at(request: HttpRequest, token: str) -> ShareLink | None:
    now = timezone.now()
    link = share_of(token, now=now)
    if link is None or not _is_read(request):
        return link
    return link if count_view(link, now=now) else None


def _is_read(request: HttpRequest) -> bool:
    """Tell whether a person asks, as far as a request shows."""
    agent = request.headers.get("User-Agent", "").lower()
    purposes = (request.headers.get("Purpose", ""), request.headers.get("Sec-Purpose", ""))
    is_fetched_ahead = any("prefetch" in purpose or "preview" in purpose for purpose in purposes)
    return (
        request.method == "GET"
        and not is_fetched_ahead
        and not any(map(agent.__contains__, FETCHERS))
    )


@cache
def _style() -> str:
    """Return the style sheet of the site; a file that is opened from disk brings it along."""
    path = finders.find("css/app.css")
    if not isinstance(path, str):
        raise FileNotFoundError("css/app.css")
    return Path(path).read_text().replace("\r\n", "\n")

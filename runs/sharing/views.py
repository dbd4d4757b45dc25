"""Pages to make, list and revoke share links, and their public pages, which neither read nor set cookies."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.text import slugify
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from evaluators.model_calls.models import KeyUnreadableError, decrypt, encrypt
from evaluators.scoring.types import DomainError
from runs.documents import DetailLevel
from runs.models.sharing import DETAIL_LEVEL_CHOICES, ShareLink
from runs.requests import REFUSED, MemberRequest, may_share, site_address
from runs.sharing.queries import SharePreview, SharesQuery, share_list, share_preview, shared_page
from runs.sharing.services import (
    CHANGES_ALL,
    MAX_DAYS,
    ShareSubject,
    count_opening,
    find_share,
    make_share,
    read_subject,
    record_opening,
    revoke_share,
    share_document,
    share_sources,
)

ON_A_DAY, NEVER = "date", "never"
DAYS = (("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), (ON_A_DAY, "on a date"))


class ShareForm(forms.Form):
    """Title, detail level and expiry of a link; only with `may_never` can it stay open for good."""

    title = forms.CharField(
        label="Title",
        max_length=200,
        help_text="Everyone with the link sees it, and chats show it in their preview.",
    )
    detail_level = forms.ChoiceField(
        label="What people with the link see",
        choices=DETAIL_LEVEL_CHOICES,
        widget=forms.RadioSelect,
    )
    comments = forms.BooleanField(
        label="Include comments",
        required=False,
        help_text="With the names of their authors. They may quote what the detail level leaves out.",
    )
    expiry = forms.ChoiceField()
    until = forms.DateField(
        label="Expires on",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="For “on a date”. The link works until the end of that day",
    )
    looked = forms.BooleanField(label="Share it with what is listed above", required=False)

    use_required_attribute = False

    def __init__(self, sent: QueryDict, *, may_never: bool = False) -> None:
        """Offer a link without an end to members who may make one."""
        super().__init__(sent)
        choices = (*DAYS, (NEVER, "never")) if may_never else DAYS
        self.fields["expiry"] = forms.ChoiceField(label="Closes", choices=choices)

    def clean(self) -> dict[str, Any]:
        """Return the fields with `expires_at`, None for never."""
        fields: dict[str, Any] = super().clean() or {}
        expiry, until = fields.get("expiry"), fields.get("until")
        if expiry == ON_A_DAY and until is None and "until" not in self.errors:
            self.add_error("until", "Enter the day on which the link expires.")
        elif expiry == ON_A_DAY and until is not None:
            fields["expires_at"] = self._end_of_day(until)
        elif expiry == NEVER:
            fields["expires_at"] = None
        elif expiry:
            fields["expires_at"] = timezone.now() + timedelta(days=int(expiry))
        return fields

    def _end_of_day(self, day: date) -> datetime | None:
        today = timezone.localdate()
        if not today <= day <= today + timedelta(days=MAX_DAYS):
            self.add_error("until", "Choose a day from today to a year from now.")
            return None
        return timezone.make_aware(datetime.combine(day, time(23, 59, 59)))


MADE_IN_SESSION = "runs.made_share_link"
LOOK = "Check the strings that look private, and tick that they may be shared."
LOOK_AGAIN = "The content has changed since the preview. Check it again, then create the link."


@dataclass(frozen=True, slots=True)
class ShareRequest:
    """A share link in the making: its subject, the form as it was sent, and the preview."""

    subject: ShareSubject
    form: ShareForm
    preview: SharePreview
    now: datetime

    @property
    def problem(self) -> str:
        """Return why it cannot be shared, "" when it can."""
        if not self.form.is_valid():
            return "Correct the marked fields."
        if self.form.data.get("seen") != self.preview.seen:
            return LOOK_AGAIN
        return LOOK if self.preview.scan.count and not self.preview.has_looked else ""


@never_cache
@may_share
def share_new(request: MemberRequest) -> HttpResponse:
    """Show what anonymous readers would see, and make the link."""
    sent = request.POST if request.method == "POST" else request.GET
    try:
        draft = _read_draft(request, sent)
    except DomainError as refusal:
        context = {"problem": str(refusal)}
        status = REFUSED if request.method == "POST" else 200
        return render(request, "sharing/new.html", context, status=status)
    if request.method != "POST":
        return _page(request, draft)
    if draft.problem:
        return _page(request, draft, draft.problem)
    return _create_link(request, draft)


@require_safe
@never_cache
@may_share
def share_preview_part(request: MemberRequest) -> HttpResponse:
    """Show what anonymous readers would see at the chosen detail level."""
    try:
        preview = _read_draft(request, request.GET).preview
    except DomainError as refusal:
        return render(request, "sharing/_refused.html", {"problem": str(refusal)})
    return render(request, "sharing/_preview.html", {"preview": preview})


@require_safe
@never_cache
@may_share
def share_links(request: MemberRequest) -> HttpResponse:
    """List the links of a member, or of everybody, and show once the one that was just made."""
    links, is_of_all = ShareLink.objects.all(), request.user.has_perm(CHANGES_ALL)
    own = links if is_of_all else links.filter(created_by=request.user)
    page = share_list(own, SharesQuery.read(request.GET), is_of_all=is_of_all, now=timezone.now())
    context = {"page": page, "made": _shown_once(request)}
    return render(request, "sharing/list.html", context)


@require_POST
@may_share
def share_revoke(request: MemberRequest, pk: int) -> HttpResponse:
    """Close a link at once."""
    links = ShareLink.objects.all()
    own = links if request.user.has_perm(CHANGES_ALL) else links.filter(created_by=request.user)
    link = get_object_or_404(own.defer("frozen"), pk=pk)
    if revoke_share(link, by=request.user, now=timezone.now()):
        messages.success(request, f"{link.title} is revoked. It can no longer be opened.")
    return HttpResponseRedirect(reverse("runs:share-list"))


def _read_draft(request: MemberRequest, sent: QueryDict) -> ShareRequest:
    now = timezone.now()
    subject = read_subject({name: str(sent[name]) for name in sent})
    filled = sent.copy()
    for name, usual in (
        ("title", subject.title),
        ("detail_level", DetailLevel.FIGURES),
        ("expiry", "30"),
    ):
        if name not in filled:
            filled[name] = usual
    form = ShareForm(filled, may_never=request.user.has_perm(CHANGES_ALL))
    chosen = str(filled["detail_level"])
    detail_level = DetailLevel(chosen) if chosen in list(DetailLevel) else DetailLevel.FIGURES
    with_comments = "comments" in filled
    document = share_document(subject, detail_level, with_comments=with_comments, now=now)
    title = str(filled["title"]).strip() or subject.title
    until = form.cleaned_data.get("expires_at") if form.is_valid() else None
    preview = share_preview(
        document,
        title,
        expires_at=until,
        has_looked="looked" in filled,
        lacks_comments=with_comments and not document.get("comments"),
    )
    return ShareRequest(subject, form, preview, now)


def _page(request: HttpRequest, draft: ShareRequest, problem: str = "") -> HttpResponse:
    context = {
        "subject": draft.subject,
        "form": draft.form,
        "preview": draft.preview,
        "problem": problem,
    }
    return render(request, "sharing/new.html", context, status=REFUSED if problem else 200)


def _create_link(request: MemberRequest, draft: ShareRequest) -> HttpResponse:
    _, token = make_share(
        by=request.user,
        kind=draft.subject.kind,
        title=draft.form.cleaned_data["title"],
        document=draft.preview.document,
        sources=share_sources(draft.subject),
        expires_at=draft.form.cleaned_data["expires_at"],
        has_comments=draft.form.cleaned_data["comments"],
    )
    path = reverse("runs:shared", kwargs={"token": token})
    # Sessions are in the database, which must not hold a readable link.
    request.session[MADE_IN_SESSION] = encrypt(site_address(request, path))
    return HttpResponseRedirect(reverse("runs:share-list"))


def _shown_once(request: HttpRequest) -> str:
    # A HEAD request shows nothing.
    stored = request.session.pop(MADE_IN_SESSION, "") if request.method == "GET" else ""
    try:
        return decrypt(stored) if stored else ""
    except KeyUnreadableError:
        return ""


# Chats and search engines that fetch an address for a preview, which is no view. Anybody can call themselves so, so
# fetches are counted too.
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
        return gone_page()
    context = {
        "page": shared_page(link),
        "download_url": reverse("runs:shared-file", kwargs={"token": token}),
    }
    # Rendering without the request keeps context processors from reading the user.
    return HttpResponse(render_to_string("sharing/public.html", context))


@require_safe
@login_not_required
def shared_file(request: HttpRequest, token: str) -> HttpResponse:
    """Return the page as one file that opens without a server."""
    link = _looked_at(request, token)
    if link is None:
        return gone_page()
    style = _style()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    # The policy has the hash of this element, so it must stay exactly as it is.
    style_element = SafeString(f"<style>{style}</style>")
    context = {"page": shared_page(link), "style": style_element, "policy": policy}
    response = HttpResponse(render_to_string("sharing/download.html", context))
    name = slugify(link.title)[:80] or "shared"
    response["Content-Disposition"] = f'attachment; filename="evalsite-{name}.html"'
    return response


def gone_page() -> HttpResponse:
    """Return the same answer for wrong and for closed tokens."""
    return HttpResponse(render_to_string("sharing/gone.html"), status=404)


def _looked_at(request: HttpRequest, token: str) -> ShareLink | None:
    now = timezone.now()
    link = find_share(token, now=now)
    if link is None:
        return None
    is_read = _is_read(request)
    if not count_opening(link, now=now, is_view=is_read):
        return None
    record_opening(link, now=now, is_counted=is_read)
    return link


def _is_read(request: HttpRequest) -> bool:
    """Tell whether a person sent the request, as far as it shows."""
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
    """Return the style sheet of the site for files that are opened from disk, where no font is beside them."""
    names = [name for name in settings.STYLE_SHEETS if name != "fonts"]
    paths = [finders.find(f"css/{name}.css") for name in names]
    return "\n".join(Path(str(path)).read_text() for path in paths).replace("\r\n", "\n")

"""Making, listing and revoking share links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from evaluators.judging.keys import KeyUnreadableError, decrypt, encrypt
from evaluators.scoring.types import DomainError
from runs.comparison import Tolerances
from runs.forms.sharing import ShareForm
from runs.forms.tolerances import TolerancesForm
from runs.models import Run, ShareLink
from runs.plan import read_plan
from runs.reports.comparison_query import ComparisonQuery
from runs.reports.share_list import share_list
from runs.reports.shared_page import SharePreview, share_preview
from runs.reports.shared_subjects import Subject, document_of, sources_of, subject_of
from runs.services.sharing import make_share, revoke_share
from runs.sharing import Depth
from runs.views._requests import REFUSED, MemberRequest, may_share

CHANGES_ALL = "runs.change_sharelink"
MADE_IN_SESSION = "runs.made_share_link"
LOOK = "Look at the strings that look private, and tick that they may be shared."
LOOK_AGAIN = (
    "What would be shared is not what was shown before. Look at it again, then make the link."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be shared: the form as it was sent, what a stranger would see, and where from."""

    subject: Subject
    form: ShareForm
    preview: SharePreview
    now: datetime

    @property
    def problem(self) -> str:
        """Return why it may not be shared as it was sent, "" when it may."""
        if not self.form.is_valid():
            return "Look at the marked fields."
        if self.form.data.get("seen") != self.preview.seen:
            return LOOK_AGAIN
        return LOOK if self.preview.scan.count and not self.preview.has_looked else ""


@never_cache
@may_share
def share_new(request: MemberRequest) -> HttpResponse:
    """Show what a stranger would see of a thing, and make the link to it."""
    sent = request.POST if request.method == "POST" else request.GET
    try:
        asked = _asked(request, sent)
    except DomainError as refusal:
        context = {"problem": str(refusal)}
        status = REFUSED if request.method == "POST" else 200
        return render(request, "shares/share_new.html", context, status=status)
    if request.method != "POST":
        return _page(request, asked)
    if asked.problem:
        return _page(request, asked, asked.problem)
    return _made(request, asked)


@require_safe
@never_cache
@may_share
def share_preview_part(request: MemberRequest) -> HttpResponse:
    """Show what a stranger would see at the depth that is chosen."""
    try:
        preview = _asked(request, request.GET).preview
    except DomainError as refusal:
        return render(request, "shares/_share_refused.html", {"problem": str(refusal)})
    return render(request, "shares/_share_preview.html", {"preview": preview})


@require_safe
@never_cache
@may_share
def share_links(request: MemberRequest) -> HttpResponse:
    """List the links of a member, or of everybody, and show once the one that was just made."""
    links, is_of_all = ShareLink.objects.all(), request.user.has_perm(CHANGES_ALL)
    own = links if is_of_all else links.filter(created_by=request.user)
    page = share_list(own, request.GET.get("after", ""), is_of_all=is_of_all, now=timezone.now())
    context = {"page": page, "made": _shown_once(request)}
    return render(request, "shares/share_list.html", context)


@require_POST
@may_share
def share_revoke(request: MemberRequest, pk: int) -> HttpResponse:
    """Close a link at once."""
    links = ShareLink.objects.all()
    own = links if request.user.has_perm(CHANGES_ALL) else links.filter(created_by=request.user)
    link = get_object_or_404(own.defer("frozen"), pk=pk)
    if revoke_share(link, by=request.user, now=timezone.now()):
        messages.success(request, f"{link.title} is closed. Nobody can open it any more.")
    return HttpResponseRedirect(reverse("runs:share-list"))


def _asked(request: MemberRequest, sent: QueryDict) -> Asked:
    now = timezone.now()
    subject = subject_of({name: str(sent[name]) for name in sent}, _tolerances)
    filled = sent.copy()
    for name, usual in (("title", subject.title), ("depth", Depth.FIGURES), ("expiry", "30")):
        if name not in filled:
            filled[name] = usual
    form = ShareForm(filled, may_never=request.user.has_perm(CHANGES_ALL))
    chosen = str(filled["depth"])
    depth = Depth(chosen) if chosen in list(Depth) else Depth.FIGURES
    document = document_of(subject, depth, now=now)
    title = str(filled["title"]).strip() or subject.title
    until = form.cleaned_data.get("expires_at") if form.is_valid() else None
    preview = share_preview(document, title, expires_at=until, has_looked="looked" in filled)
    return Asked(subject, form, preview, now)


def _page(request: HttpRequest, asked: Asked, problem: str = "") -> HttpResponse:
    context = {
        "subject": asked.subject,
        "form": asked.form,
        "preview": asked.preview,
        "problem": problem,
    }
    return render(request, "shares/share_new.html", context, status=REFUSED if problem else 200)


def _made(request: MemberRequest, asked: Asked) -> HttpResponse:
    _, token = make_share(
        by=request.user,
        kind=asked.subject.kind,
        title=asked.form.cleaned_data["title"],
        document=asked.preview.document,
        sources=sources_of(asked.subject),
        expires_at=asked.form.cleaned_data["expires_at"],
    )
    path = reverse("runs:shared", kwargs={"token": token})
    # Behind a proxy only the address people type is sure to be theirs.
    site = settings.SITE_URL.rstrip("/")
    address = f"{site}{path}" if site else request.build_absolute_uri(path)
    # Sessions lie in the database, which is to hold no link that can be read.
    request.session[MADE_IN_SESSION] = encrypt(address)
    return HttpResponseRedirect(reverse("runs:share-list"))


def _shown_once(request: HttpRequest) -> str:
    # A browser that only looks whether the page is there has shown nothing.
    stored = request.session.pop(MADE_IN_SESSION, "") if request.method == "GET" else ""
    try:
        return decrypt(stored) if stored else ""
    except KeyUnreadableError:
        return ""


def _tolerances(candidate: Run, query: ComparisonQuery) -> Tolerances:
    usual = Tolerances.of(read_plan(candidate.snapshot).policy)
    return TolerancesForm(usual, dict(query.limits)).tolerances

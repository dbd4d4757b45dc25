"""The calls that list, make and revoke share links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.scoring.types import DomainError
from runs.api.bodies import Body
from runs.api.params import ListRequest
from runs.api.schema import reads, writes
from runs.documents import DetailLevel, Document
from runs.lists import NEWEST_FIRST, ListQuery
from runs.models.sharing import ShareLink
from runs.requests import site_address
from runs.sharing.queries import share_preview
from runs.sharing.services import (
    CHANGES_ALL,
    MAX_DAYS,
    make_share,
    read_subject,
    revoke_share,
    share_document,
    share_sources,
)

MAY_SHARE = "runs.share"
SHARE = OpenApiParameter("share", int, "path", description="The id of a share link.")


@dataclass(frozen=True, slots=True)
class ApiSharesQuery(ListQuery):
    """All share links that the member may see."""


class PrivateTextsError(DomainError):
    """What would be shared holds texts that look private, and the call does not accept them."""

    code = "looks_private"


class ShareBody(Body):
    """What to share, as the address of its page names it, and for how long."""

    kind: Literal["comparison", "run", "result"]
    """What it is."""
    run: str = ""
    """The run, or that of the result: support-agent:12."""
    case: str = ""
    """The key of the case of a result."""
    repetition: Annotated[int, Field(ge=1)] = 1
    """Which repetition of the case."""
    baseline: str = ""
    """The baseline of a comparison: support-agent:11."""
    candidate: str = ""
    """The candidate of a comparison."""
    title: Annotated[str, Field(max_length=200)] = ""
    """What everybody with the link sees first; "" for the usual one, without names."""
    detail_level: DetailLevel = DetailLevel.FIGURES
    """What people with the link see."""
    comments: bool = False
    """Whether comments are included, with the names of their authors."""
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = 30
    """After how many days the link closes."""
    accept_private: bool = False
    """Whether texts that look private, such as keys and addresses, may be shared."""


class ShareDoc(Document):
    """A share link. Its address is known only when it is made."""

    id: int
    """Its id."""
    kind: str
    """What it shares: comparison, run or result."""
    title: str
    """What everybody with the link sees first."""
    detail_level: DetailLevel
    """What people with the link see."""
    made_by: str | None
    """Who made it; null for a deleted member."""
    created_at: datetime
    """When it was made."""
    expires_at: datetime | None
    """When it closes; null for never."""
    revoked_at: datetime | None
    """When it was revoked; null if it was not."""
    views: int
    """How often it was opened by people."""


class MadeShareDoc(ShareDoc):
    """A share link that was just made."""

    url: str
    """Its address, which is given only here."""


def _facts(link: ShareLink) -> dict[str, Any]:
    return {
        "id": link.pk,
        "kind": link.kind,
        "title": link.title,
        "detail_level": link.detail_level,
        "made_by": link.created_by.get_username() if link.created_by else None,
        "created_at": link.created_at,
        "expires_at": link.expires_at,
        "revoked_at": link.revoked_at,
        "views": link.view_count,
    }


def _links(request: Request) -> QuerySet[ShareLink]:
    """Return the links that the member may see: all, or the own ones."""
    links = ShareLink.objects.select_related("created_by").defer("frozen")
    return links if request.user.has_perm(CHANGES_ALL) else links.filter(created_by=request.user.pk)


def _rows(links: Sequence[ShareLink]) -> list[ShareDoc]:
    return [ShareDoc(**_facts(link)) for link in links]


@reads("Share links", ShareDoc, lists=ApiSharesQuery, tag="shares")
def shares(request: Request) -> Response:
    """List the member's share links, newest first; an admin's call lists everybody's."""
    return ListRequest.read(request, ApiSharesQuery).page(_links(request), NEWEST_FIRST, _rows)


@writes(
    "Make a share link",
    MadeShareDoc,
    body=ShareBody,
    permission=MAY_SHARE,
    tag="shares",
    status=201,
)
def make(request: Request, body: ShareBody) -> MadeShareDoc:
    """Freeze a comparison, run or result behind a link that opens without an account.

    409 with the code `looks_private` names texts that look like secrets; look at them before you accept them.
    """
    now = timezone.now()
    named = body.model_dump(include={"kind", "run", "case", "baseline", "candidate"})
    subject = read_subject({**named, "repetition": str(body.repetition)})
    document = share_document(subject, body.detail_level, with_comments=body.comments, now=now)
    title = body.title.strip() or subject.title
    scan = share_preview(document, title).scan
    if scan.count and not body.accept_private:
        raise PrivateTextsError(
            f"{scan.count} texts look private. Look at the preview on the site, "
            "or send accept_private to share them."
        )
    member: Any = request.user
    link, token = make_share(
        by=member,
        kind=subject.kind,
        title=title,
        document=document,
        sources=share_sources(subject),
        expires_at=now + timedelta(days=body.days),
        has_comments=body.comments,
    )
    path = reverse("runs:shared", kwargs={"token": token})
    return MadeShareDoc(**_facts(link), url=site_address(request._request, path))


@writes(
    "Revoke a share link",
    None,
    permission=MAY_SHARE,
    path=[SHARE],
    tag="shares",
    method="DELETE",
    status=204,
)
def revoke(request: Request, share: int) -> None:
    """Close a link at once."""
    member: Any = request.user
    if not revoke_share(
        get_object_or_404(_links(request), pk=share), by=member, now=timezone.now()
    ):
        raise Http404("It is revoked already.")

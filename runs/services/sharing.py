"""Make links that open a frozen snapshot without an account, revoke them, and count who looks."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models import ShareLink

# 256 bits: nobody finds one by trying.
TOKEN_BYTES = 32


class SeenOtherwiseError(DomainError):
    """What would be shared is not what the maker looked at."""

    code = "seen_otherwise"


def make_share(
    *,
    by: User,
    kind: str,
    title: str,
    document: Mapping[str, Any],
    sources: Mapping[str, Any],
    expires_at: datetime | None,
) -> tuple[ShareLink, str]:
    """Freeze a document behind a new token, which is returned and kept nowhere."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        link = ShareLink.objects.create(
            token_hash=hash_of(token),
            kind=kind,
            title=title,
            depth=document["depth"],
            sources=dict(sources),
            created_by=by,
            expires_at=expires_at,
            frozen=dict(document),
        )
        until = expires_at.isoformat(timespec="seconds") if expires_at else None
        _record(link, by, "share", {"depth": link.depth, "expires_at": until})
    return link, token


def revoke_share(link: ShareLink, *, by: User, now: datetime) -> bool:
    """Close a link from this moment on; False when it was closed before."""
    with transaction.atomic():
        open_ = ShareLink.objects.filter(pk=link.pk, revoked_at=None)
        if not open_.update(revoked_at=now):
            return False
        _record(link, by, "revoke", {"revoked_at": now.isoformat(timespec="seconds")})
    return True


def share_of(token: str, *, now: datetime) -> ShareLink | None:
    """Return the link that a token opens; None for a wrong, an expired and a revoked one alike."""
    return _open(now).filter(token_hash=hash_of(token)).first()


def count_view(link: ShareLink, *, now: datetime) -> bool:
    """Count one look at a link; False when it was closed meanwhile."""
    seen = _open(now).filter(pk=link.pk)
    return bool(seen.update(view_count=F("view_count") + 1, last_viewed_at=now))


def hash_of(token: str) -> str:
    """Return what is kept of a token, and what it is looked up by."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _open(now: datetime) -> QuerySet[ShareLink]:
    return ShareLink.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None)


def _record(link: ShareLink, by: User, action: str, after: Mapping[str, Any]) -> None:
    AuditEntry.objects.create(
        actor=by,
        actor_name=by.get_username(),
        action=action,
        object_type="share",
        object_id=str(link.pk),
        object_name=link.title,
        after=dict(after),
    )

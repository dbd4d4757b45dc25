"""Share links, which open without an account."""

from __future__ import annotations

import hashlib
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q

from runs.documents import DetailLevel

DETAIL_LEVEL_CHOICES = [
    (DetailLevel.FIGURES.value, "Figures"),
    (DetailLevel.CASE_NAMES.value, "Figures and case names"),
    (DetailLevel.OUTPUTS.value, "Outputs too"),
    (DetailLevel.TRACES.value, "Outputs and traces"),
]


class ShareLinkQuerySet(models.QuerySet["ShareLink"]):
    """Share links."""

    def forget_closed(self, *, now: datetime) -> None:
        """Remove the copies of closed links, which nobody can open again: what they show may be deleted since."""
        closed = self.filter(Q(expires_at__lte=now) | Q(revoked_at__isnull=False))
        closed.exclude(frozen={}).update(frozen={})


class ShareLink(models.Model):
    """A frozen comparison, run or result behind a random token, of which only the hash is kept.

    The public page shows only `frozen`, which is {} of a closed link. `fetch_count` counts openings by clients that
    call themselves programs. `sources` names the live rows that the copy was made from, and their state: {"runs":
    […], "results": […] of a single result, "address", "digest"}.
    """

    token_hash = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=20)
    title = models.CharField(max_length=200, blank=True, default="")
    detail_level = models.CharField(
        max_length=12, choices=DETAIL_LEVEL_CHOICES, default=DetailLevel.FIGURES.value
    )
    has_comments = models.BooleanField(default=False)
    sources = models.JSONField(default=dict)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    view_count = models.PositiveIntegerField(default=0)
    fetch_count = models.PositiveIntegerField(default=0)
    last_viewed_at = models.DateTimeField(null=True, blank=True)
    frozen = models.JSONField()

    objects = ShareLinkQuerySet.as_manager()

    class Meta:
        """Newest first. Members who may change share links see and revoke those of others too."""

        ordering = ("-created_at", "-id")
        permissions = (("share", "Can share snapshots by links that need no account"),)

    def __str__(self) -> str:
        """Return the title."""
        return self.title


def token_hash(secret: str) -> str:
    """Return the stored hash of a token; a random token needs no slow hash."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()

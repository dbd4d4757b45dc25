"""Share links, which open without an account; tokens of the API; sessions of members, and who they are elsewhere."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q

from runs.documents import DetailLevel

DETAIL_LEVEL_CHOICES = [
    (DetailLevel.FIGURES.value, "Figures"),
    (DetailLevel.CASE_NAMES.value, "Figures and case names"),
    (DetailLevel.OUTPUTS.value, "Outputs too"),
    (DetailLevel.TRACES.value, "Outputs and traces"),
]


class ShareLink(models.Model):
    """A frozen comparison, run or result behind a random token, of which only the hash is kept.

    The public page shows only `frozen`. `fetch_count` counts openings by clients that call themselves programs.
    `sources` names the live rows that the copy was made from, and their state: {"runs": […], "results": […] of a
    single result, "address", "digest"}.
    """

    token_hash = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=20)
    title = models.CharField(max_length=200, blank=True, default="")
    detail_level = models.CharField(
        max_length=12, choices=DETAIL_LEVEL_CHOICES, default=DetailLevel.FIGURES.value
    )
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

    class Meta:
        """Newest first. Members who may change share links see and revoke those of others too."""

        ordering = ("-created_at", "-id")
        permissions = (("share", "Can share snapshots by links that need no account"),)

    def __str__(self) -> str:
        """Return the title."""
        return self.title


# Recording every use would turn each read of the API into a write.
USE_IS_NOTED_EVERY = timedelta(minutes=1)
ACTIVE, EXPIRED, REVOKED, INACTIVE = "active", "expired", "revoked", "inactive"


def token_hash(secret: str) -> str:
    """Return the stored hash of a token; a random token needs no slow hash."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    """API tokens."""

    def working(self, secret: str, *, now: datetime) -> ApiToken | None:
        """Return the token of this secret with its owner; None for a wrong, revoked or expired one.

        Tokens of deactivated members do not work either. The search is by hash, so its duration reveals
        nothing about the token.
        """
        alive = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
        links = self.filter(alive, token_hash=token_hash(secret), owner__is_active=True)
        return links.select_related("owner").first()

    def note_use(self, token: ApiToken, *, now: datetime) -> None:
        """Record the use of a token, at most once a minute."""
        if token.last_used_at is None or now - token.last_used_at >= USE_IS_NOTED_EVERY:
            self.filter(pk=token.pk).update(last_used_at=now)


class ApiToken(models.Model):
    """A program's key to the API, limited to a role; only its hash and its first characters are stored."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, blank=True, default="")
    token_hash = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=20)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def state(self, *, now: datetime) -> str:
        """Return active, expired, revoked, or inactive while its owner is deactivated."""
        if self.revoked_at is not None:
            return REVOKED
        if self.expires_at is not None and self.expires_at <= now:
            return EXPIRED
        return ACTIVE if self.owner.is_active else INACTIVE


class MemberSession(AbstractBaseSession):
    """A session of a browser. `session_key` is a hash of the key in the cookie; `client` describes the browser."""

    session_key = models.CharField(max_length=64, primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+"
    )
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    client = models.CharField(max_length=200, blank=True, default="")

    def __str__(self) -> str:
        """Return the beginning of the hash."""
        return self.session_key[:12]


class MemberIdentity(models.Model):
    """The account of a member at a provider, by what never changes there: `subject` at `issuer`."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities"
    )
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    linked_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        """An account is of one member, who has one account at a provider."""

        constraints = (
            models.UniqueConstraint(fields=("issuer", "subject"), name="one_member_for_an_account"),
            models.UniqueConstraint(fields=("user", "issuer"), name="one_account_of_a_member"),
        )

    def __str__(self) -> str:
        """Return the subject and its issuer."""
        return f"{self.subject} at {self.issuer}"

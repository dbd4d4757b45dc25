"""Factors, API tokens, sessions and accounts elsewhere of members, and the audit of what changes about a member."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import DatabaseError, models
from django.db.models import Q

from evalsite.access.roles import Scope
from evaluators.models import COMMAND_LINE, AuditEntry, hold_member
from runs.models.sharing import token_hash


class MemberFactors(models.Model):
    """The authenticator app of a member, the wrong codes entered for it, and who took the factors away last.

    `encrypted_secret` is "" without an app. `last_step` is the time step of the last code that was accepted: no
    code works twice. `handle` is what passkeys know the member by, which tells nobody who it is.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="factors"
    )
    handle = models.CharField(max_length=64, unique=True)
    encrypted_secret = models.TextField(blank=True, default="")
    app_added_at = models.DateTimeField(null=True, blank=True)
    last_step = models.BigIntegerField(default=0)
    wrong_codes = models.PositiveIntegerField(default=0)
    first_wrong_at = models.DateTimeField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    removed_by = models.CharField(max_length=150, blank=True, default="")
    removed_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        """Return the handle, which is no secret."""
        return self.handle[:12]


class RecoveryCode(models.Model):
    """A code that stands in for a lost factor once; only its hash is stored."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes"
    )
    code_hash = models.CharField(max_length=64, unique=True)
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        """Return the beginning of the hash."""
        return self.code_hash[:12]


class Passkey(models.Model):
    """A passkey of a member; `credential` is its id and public key as the authenticator made them.

    A challenge made before `last_challenge_at` is refused: no answer works twice. `sign_count` is the number of
    signatures that the authenticator reports; many always report 0.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="passkeys"
    )
    name = models.CharField(max_length=60)
    credential_id = models.CharField(max_length=1400, unique=True)
    credential = models.BinaryField()
    sign_count = models.BigIntegerField(default=0)
    last_challenge_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Oldest first."""

        ordering = ("created_at", "pk")

    def __str__(self) -> str:
        """Return the name."""
        return self.name


# Recording every use would turn each read of the API into a write.
USE_IS_NOTED_EVERY = timedelta(minutes=1)
ACTIVE, EXPIRED, REVOKED, INACTIVE = "active", "expired", "revoked", "inactive"


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
            # A program can read while nothing can be stored.
            with suppress(DatabaseError):
                self.filter(pk=token.pk).update(last_used_at=now)


class ApiToken(models.Model):
    """A program's key to the API, limited to `scopes`, divided by spaces; its secret is stored as a hash alone."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, blank=True, default="")
    token_hash = models.CharField(max_length=64, unique=True)
    scopes = models.CharField(max_length=60)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        """Newest first."""

        db_table = "runs_apitoken"
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    @property
    def scope_list(self) -> list[Scope]:
        """Return the scopes."""
        return [Scope(name) for name in self.scopes.split()]

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

    class Meta(AbstractBaseSession.Meta):
        """The name of a table stays when its model moves."""

        db_table = "runs_membersession"

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

        db_table = "runs_memberidentity"
        constraints = (
            models.UniqueConstraint(fields=("issuer", "subject"), name="one_member_for_an_account"),
            models.UniqueConstraint(fields=("user", "issuer"), name="one_account_of_a_member"),
        )

    def __str__(self) -> str:
        """Return the subject and its issuer."""
        return f"{self.subject} at {self.issuer}"


def record_change(
    actor: User | None,
    action: str,
    member: User,
    *,
    before: Mapping[str, str | None] | None = None,
    after: Mapping[str, str | None] | None = None,
    nobody: str = COMMAND_LINE,
) -> None:
    """Record a change of a member; `nobody` is who made it if no member. Raises ErasedMemberError."""
    if member != actor:
        hold_member(member)
    AuditEntry.objects.record(
        action,
        by=actor,
        nobody=nobody,
        object_type="user",
        object_id=member.pk,
        object_name=member.get_username(),
        before=before,
        after=after,
    )

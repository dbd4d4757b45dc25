"""What members prove their identity with besides a password, and the audit of what changes about a member."""

from __future__ import annotations

from collections.abc import Mapping

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models

from evaluators.models import COMMAND_LINE, AuditEntry


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


def record_change(
    actor: User | None,
    action: str,
    member: User,
    *,
    before: Mapping[str, str | None] | None = None,
    after: Mapping[str, str | None] | None = None,
    nobody: str = COMMAND_LINE,
) -> None:
    """Record a change of a member; `nobody` is who made it if no member."""
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

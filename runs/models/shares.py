"""Links that open a frozen snapshot without an account."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class ShareDepth(models.TextChoices):
    """How much a stranger sees."""

    FIGURES = "figures", "Figures"
    CASE_NAMES = "case_names", "Figures and case names"
    OUTPUTS = "outputs", "Outputs too"
    TRACES = "traces", "Outputs and traces"


class ShareLink(models.Model):
    """A frozen comparison, run or result behind a random token, of which only the hash is kept.

    `frozen` is all that the public page is drawn from. `sources` tells which live rows it was made
    of and how they stood: {"runs": […], "results": […] of a single result, "address", "digest"}.
    """

    token_hash = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=20)
    title = models.CharField(max_length=200, blank=True, default="")
    depth = models.CharField(max_length=12, choices=ShareDepth.choices, default=ShareDepth.FIGURES)
    sources = models.JSONField(default=dict)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    view_count = models.PositiveIntegerField(default=0)
    last_viewed_at = models.DateTimeField(null=True, blank=True)
    frozen = models.JSONField()

    class Meta:
        """Newest first. Who may change share links sees and revokes those of others too."""

        ordering = ("-created_at", "-id")
        permissions = (("share", "Can share snapshots by links that need no account"),)

    def __str__(self) -> str:
        """Return the title."""
        return self.title

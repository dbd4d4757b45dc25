"""Drafts: what one person changes of one suite before it becomes a version."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from runs.models.suites import Suite
from runs.plan import content_hash

STAMP_DIGITS = 12


class SuiteDraft(models.Model):
    """What somebody edits of a suite; `content` is that of `runs.drafting`.

    `base_version` is the version it started from, or was last brought up to. `revision` counts the
    changes, so that a form of an earlier state can be told.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="drafts")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="suite_drafts"
    )
    base_version = models.PositiveIntegerField()
    content = models.JSONField()
    revision = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        """One draft of a suite for each person, the latest first."""

        ordering = ("-updated_at", "-id")
        constraints = (
            models.UniqueConstraint(fields=("suite", "author"), name="suite_draft_one_a_person"),
        )

    def __str__(self) -> str:
        """Return the suite's title and whose draft it is."""
        return f"{self.suite} by {self.author}"

    @property
    def stamp(self) -> str:
        """Return what a form of this state carries; it is another after every change.

        A draft that is not stored yet is stamped with its content: nothing else tells it from others.
        """
        if self._state.adding:
            return f"new-{content_hash(self.content)[:STAMP_DIGITS]}"
        return f"{self.pk}-{self.revision}"

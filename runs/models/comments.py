"""Comments of members on results, cases, runs and comparisons, and whom they mention."""

from __future__ import annotations

from collections.abc import Collection
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from runs.models.database import database_now
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Suite

UNKNOWN_AUTHOR = "a former member"


class CommentQuerySet(models.QuerySet["Comment"]):
    """Comments."""

    def on_runs(self, run_ids: Collection[int]) -> Self:
        """Return those on some runs, on their results, and on comparisons with them."""
        return self.filter(Q(run__in=run_ids) | Q(baseline__in=run_ids))


class Comment(models.Model):
    """What a member says about a result, a case, a run, or a comparison of two runs.

    A comment on a result has its `run` and `result`, one on a run its `run`, one on a comparison the candidate
    as its `run` and the `baseline`; one on a case has no run. `generation` is that of the output that counted when a
    result was commented on, 0 for other comments. A reply has a `parent`, which is no reply itself. A deleted
    comment that has replies stays without its text. `revision` counts changes, so that nobody overwrites what they
    have not seen.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="+")
    case_key = models.CharField(max_length=200, blank=True, default="")
    run = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, related_name="+")
    baseline = models.ForeignKey(Run, on_delete=models.CASCADE, null=True, related_name="+")
    result = models.ForeignKey(Result, on_delete=models.CASCADE, null=True, related_name="comments")
    generation = models.PositiveIntegerField(default=0)
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="replies")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )
    text = models.TextField()
    revision = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=database_now)
    edited_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+"
    )

    objects = CommentQuerySet.as_manager()

    class Meta:
        """Newest first."""

        ordering = ("-id",)
        indexes = (models.Index(fields=("suite", "case_key"), name="comment_by_case"),)

    def __str__(self) -> str:
        """Return the beginning of the text."""
        return self.text[:60]

    @property
    def author_name(self) -> str:
        """Return who wrote it."""
        return self.author.get_username() if self.author else UNKNOWN_AUTHOR


class Mention(models.Model):
    """A member who is mentioned in a comment; `read_at` is when they opened it."""

    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="mentions")
    member = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    read_at = models.DateTimeField(null=True)

    class Meta:
        """Once for each comment and member."""

        constraints = (
            models.UniqueConstraint(fields=("comment", "member"), name="mention_one_a_comment"),
        )
        indexes = (models.Index(fields=("member", "read_at"), name="mention_unread"),)

    def __str__(self) -> str:
        """Return who is mentioned."""
        return f"mention of member {self.member_id}"

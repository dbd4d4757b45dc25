"""Saved views: what a member saw of a list of a suite, under a name."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from runs.models.database import database_now
from runs.models.suites import Suite

MAX_NAME_LENGTH = 100


class ViewPage(models.TextChoices):
    """The page that a view is of."""

    RESULTS = "results", "Results of a run"
    COMPARISON = "comparison", "Cases of a comparison"
    CASES = "cases", "Cases of the suite"
    RUNS = "runs", "Runs side by side"


class SavedView(models.Model):
    """A view of a page of a suite: `query` is the query part of its address, without runs and limits.

    Only its owner sees it unless it `is_shared`. A page without parameters opens the view that its reader made
    their own default (`is_own_default`), otherwise that of the suite (`is_default`). `revision` counts changes, so
    that nobody overwrites what they have not seen.
    """

    suite = models.ForeignKey(Suite, on_delete=models.CASCADE, related_name="saved_views")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views"
    )
    page = models.CharField(max_length=10, choices=ViewPage.choices)
    name = models.CharField(max_length=MAX_NAME_LENGTH)
    query = models.TextField(blank=True)
    is_shared = models.BooleanField(default=False)
    is_default = models.BooleanField(default=False)
    is_own_default = models.BooleanField(default=False)
    revision = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=database_now)

    class Meta:
        """By name."""

        ordering = ("name", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("suite", "page", "owner", "name"), name="saved_view_one_a_name"
            ),
            models.UniqueConstraint(
                fields=("suite", "page"),
                condition=Q(is_default=True),
                name="saved_view_one_default",
            ),
            models.UniqueConstraint(
                fields=("suite", "page", "owner"),
                condition=Q(is_own_default=True),
                name="saved_view_one_own_default",
            ),
            models.CheckConstraint(
                condition=Q(is_default=False) | Q(is_shared=True), name="saved_view_default_shared"
            ),
        )

    def __str__(self) -> str:
        """Return the name."""
        return self.name

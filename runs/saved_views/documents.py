"""A saved view as a document, for the API."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from django.contrib.auth.models import User
from django.urls import reverse

from runs.documents import Document
from runs.models.saved_views import SavedView


class SavedViewDoc(Document):
    """What is on screen of a page of a suite, under a name."""

    id: int
    """Its id."""
    page: Literal["results", "comparison", "cases", "runs"]
    """The page that it is of: the results of a run, the cases of a comparison or of the suite, or runs side by side."""
    name: str
    """Its name."""
    query: str
    """The parameters of the page's address, such as verdict=fail&sort=-cost; "" for none."""
    owner: str
    """The name of the member who saved it."""
    is_shared: bool
    """Whether all members see it."""
    is_default: bool
    """Whether the page opens it where an address names nothing."""
    is_own_default: bool
    """Whether the page opens it for you, Instead of the suite's default."""
    changed_at: datetime
    """When it was last changed."""
    url: str
    """The path that opens it."""


def saved_view_document(view: SavedView, member: User) -> SavedViewDoc:
    """Describe a view, with its suite and owner, for a member who sees it."""
    return SavedViewDoc(
        id=view.pk,
        page=view.page,
        name=view.name,
        query=view.query,
        owner=view.owner.get_username(),
        is_shared=view.is_shared,
        is_default=view.is_default,
        is_own_default=view.is_own_default and view.owner_id == member.pk,
        changed_at=view.changed_at,
        url=reverse("runs:saved-view", args=[view.suite.slug, view.pk]),
    )

"""What changes saved views: save, change and delete, each with an entry in the audit.

Others read the audit too, so it has neither name nor address of a view that only its owner sees.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError
from runs.models.database import database_now
from runs.models.saved_views import SavedView
from runs.models.suites import Suite
from runs.requests import CHANGE_SUITE
from runs.suites.services import lock_suite

MAX_VIEWS = 100
MAX_QUERY_LENGTH = 4_000
MARKS = ("page", "is_shared", "is_default", "is_own_default")


class ViewRefusedError(DomainError):
    """The view cannot be stored as it is."""

    code = "view_refused"


class ViewChangedError(DomainError):
    """The view was changed or deleted since it was shown."""

    code = "view_changed"


def may_change(view: SavedView, member: User) -> bool:
    """Tell whether a member may change a view: a shared one with the suite, otherwise one's own."""
    return member.has_perm(CHANGE_SUITE) if view.is_shared else view.owner_id == member.pk


def save_view(
    suite: Suite, page: str, query: str, values: Mapping[str, Any], *, by: User
) -> SavedView:
    """Save a view with its name, and whether it is shared or a default, and return it.

    Raises ViewRefusedError for a name that the member has on this page, too many views, too long an address, or
    sharing by a member who may not change suites.
    """
    view = SavedView(suite=suite, owner=by, page=page, query=query)
    with transaction.atomic():
        lock_suite(suite)
        if SavedView.objects.filter(suite=suite, owner=by).count() >= MAX_VIEWS:
            raise ViewRefusedError(
                f"You have {MAX_VIEWS} views of this suite. Delete one of them first."
            )
        _store(view, values, by)
        _record("create", view, by, after=_facts(view))
    return view


def change_view(view: SavedView, values: Mapping[str, Any], *, revision: int, by: User) -> None:
    """Change some of name, query, sharing and defaults of a view that had this revision when it was shown.

    Raises ViewChangedError where it has another one now, and ViewRefusedError as `save_view` does.
    """
    with transaction.atomic():
        lock_suite(view.suite)
        held = SavedView.objects.filter(pk=view.pk).select_related("suite").first()
        if held is None or not (held.is_shared or held.owner_id == by.pk):
            raise ViewChangedError("This view was deleted meanwhile, or is no longer shared.")
        if not may_change(held, by):
            raise ViewRefusedError("Only editors and admins can change a shared view.")
        if held.revision != revision:
            raise ViewChangedError(
                "Another member changed this view meanwhile. It is shown as it is now; save again to replace it."
            )
        before = _facts(held)
        _store(held, values, by)
        if (after := _facts(held)) != before:
            _record("change", held, by, before=before, after=after)


def delete_view(view: SavedView, *, by: User) -> None:
    """Delete a view; nothing happens to one that is gone. Raises ViewRefusedError for another member's."""
    with transaction.atomic():
        lock_suite(view.suite)
        held = SavedView.objects.filter(pk=view.pk).select_related("suite").first()
        if held is None:
            return
        if not may_change(held, by):
            raise ViewRefusedError("Only editors and admins can delete a shared view.")
        _record("delete", held, by, before=_facts(held))
        held.delete()


def _store(view: SavedView, values: Mapping[str, Any], by: User) -> None:
    """Write a view with new values; the suite is locked, so that names and defaults stay unique."""
    was_shared = view.is_shared
    for name, value in values.items():
        setattr(view, name, value)
    view.name = clean_name(view.name)
    view.is_default = view.is_default and view.is_shared
    if view.is_shared and not was_shared and not by.has_perm(CHANGE_SUITE):
        raise ViewRefusedError("Only editors and admins can share a view.")
    if len(view.query) > MAX_QUERY_LENGTH:
        raise ViewRefusedError(
            f"Its address has {len(view.query):,} characters, and a view at most "
            f"{MAX_QUERY_LENGTH:,}. Choose fewer columns or a shorter filter."
        )
    others = SavedView.objects.filter(suite=view.suite, page=view.page).exclude(pk=view.pk)
    if others.filter(owner=view.owner_id, name__iexact=view.name).exists():
        raise ViewRefusedError(f"There is a view “{view.name}” already. Choose another name.")
    if view.is_default:
        others.filter(is_default=True).update(is_default=False)
    if view.is_own_default:
        others.filter(owner=view.owner_id, is_own_default=True).update(is_own_default=False)
    if view.pk:
        view.revision += 1
    view.changed_at = database_now()
    view.save()


def clean_name(name: str) -> str:
    """Return a name in one spelling, without white space around it; raises ViewRefusedError for an empty one."""
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not any(char.isprintable() and not char.isspace() for char in name):
        raise ViewRefusedError("Give the view a readable name.")
    return name


def _facts(view: SavedView) -> dict[str, Any]:
    """Return what the audit says of a view."""
    names = ("name", "query", *MARKS) if view.is_shared else MARKS
    return {name: getattr(view, name) for name in names}


def _record(action: str, view: SavedView, by: User, **values: Any) -> None:
    AuditEntry.objects.record(
        action,
        by=by,
        object_type="saved_view",
        object_id=view.pk,
        object_name=f"{view.suite.slug}: {view.name}" if view.is_shared else view.suite.slug,
        **values,
    )

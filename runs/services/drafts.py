"""A person's draft of a suite: found or begun, changed step by step, discarded."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from evaluators.scoring.types import DomainError
from runs.drafting import Content, Operation, change, content_of, edited_parts
from runs.models import Suite, SuiteDraft
from runs.versions import locked, parts_of

# How many versions may be saved while a page of the suite stays open, for what is entered there to be kept.
MOST_VERSIONS_BACK = 20
CHANGED = (
    "Your draft was changed in another tab, or the suite was, since this page was opened. "
    "Nothing of this form was applied. Open the page again and make the change there."
)


class DraftChangedError(DomainError):
    """A form was made for a draft as it no longer is: changed in another tab, saved or discarded."""

    code = "draft_changed"


def draft_of(suite: Suite, author: User) -> SuiteDraft:
    """Return the person's draft of the suite, or one as the suite is now, which is not stored yet."""
    found = SuiteDraft.objects.filter(suite=suite, author=author).first()
    return found or _begun(suite, author)


def draft_for(suite: Suite, author: User, stamp: str) -> SuiteDraft:
    """Return the draft that a form was made for.

    That is the person's draft. Where none is stored and others saved since the page was opened, it is one
    of the version that the page showed, so that what was entered is kept and meets theirs as a conflict.
    """
    found = draft_of(suite, author)
    if not stamp or is_stored(found) or found.stamp == stamp:
        return found
    earlier = suite.versions.filter(number__lt=suite.version).order_by("-number")
    for version in earlier.only("suite", "number", "content")[:MOST_VERSIONS_BACK]:
        begun = SuiteDraft(
            suite=suite,
            author=author,
            base_version=version.number,
            content=content_of(version.content),
        )
        if begun.stamp == stamp:
            return begun
    return found


def is_stored(draft: SuiteDraft) -> bool:
    """Tell whether anything was changed in the draft since it was begun."""
    return not draft._state.adding


def change_draft(draft: SuiteDraft, stamp: str, *operations: Operation) -> SuiteDraft:
    """Make the changes, all or none, and return the draft as it is then; the first one stores it.

    `stamp` is that of the draft which the form was made for. Raises DraftChangedError when the draft
    is another by now, and what `runs.drafting.change` refuses with; the draft then stays as it was.
    """
    with transaction.atomic():
        held = held_draft(draft, stamp)
        content = change(held.content, *operations)
        if content != held.content:
            _refuse_what_is_so(held, content)
            held.content = content
            held.revision += 1
            held.save()
    return held


def discard_draft(draft: SuiteDraft, stamp: str) -> None:
    """Throw away what was changed; the suite stays as it is. Raises DraftChangedError."""
    with transaction.atomic():
        held = held_draft(draft, stamp)
        if is_stored(held):
            held.delete()


def held_draft(draft: SuiteDraft, stamp: str) -> SuiteDraft:
    """Return the draft as it is stored, locked until the transaction ends; raises DraftChangedError.

    One that is not stored is held by the suite's row: nobody can store one, nor change the suite.
    """
    if is_stored(draft):
        held = SuiteDraft.objects.select_for_update(of=("self",)).filter(pk=draft.pk).first()
        if held is None:
            raise DraftChangedError(
                "This draft was saved or discarded meanwhile, in another tab. Open the page again to go on."
            )
    else:
        held = draft_for(locked(draft.suite), draft.author, draft.stamp)
    if held.stamp != stamp:
        raise DraftChangedError(CHANGED)
    return held


def _refuse_what_is_so(draft: SuiteDraft, content: Content) -> None:
    """Refuse to begin a draft of an earlier version that says what the suite says: a form sent twice."""
    if is_stored(draft) or draft.base_version == draft.suite.version:
        return
    if edited_parts(content) == edited_parts(parts_of(draft.suite)):
        raise DraftChangedError(CHANGED)


def _begun(suite: Suite, author: User) -> SuiteDraft:
    content = content_of(parts_of(suite))
    return SuiteDraft(suite=suite, author=author, base_version=suite.version, content=content)

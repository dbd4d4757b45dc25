"""What changes comments: add, edit, delete, resolve and reopen, each with an entry in the audit."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Length

from evaluators.models import AuditEntry
from evaluators.reading.json import storable
from evaluators.scoring.types import DomainError
from evaluators.templatetags.figures import thousands
from runs.comments.queries import Subject, comment_subject, members
from runs.comments.text import mentioned_names
from runs.models.comments import Comment, Mention
from runs.models.database import database_now
from runs.requests import CHANGE_MEMBERS

MAX_LENGTH = 5_000
MAX_MENTIONS = 20
MAX_REPLIES = 100
# Of a comment and its replies together: a page shows ten of these threads whole.
MAX_THREAD_LENGTH = 50_000
GONE = "This comment was deleted meanwhile."


class CommentRefusedError(DomainError):
    """The comment cannot be stored as it is."""

    code = "comment_refused"


class CommentChangedError(DomainError):
    """The comment was changed or deleted since it was shown."""

    code = "comment_changed"


def add_comment(subject: Subject, text: str, *, by: User, parent: Comment | None = None) -> Comment:
    """Add a comment, or a reply to one, and return it; the members it mentions will see it.

    Raises CommentRefusedError for too many mentions, replies or characters, CommentChangedError where the comment
    that it replies to was deleted.
    """
    mentioned = _mentioned(text, by)
    with transaction.atomic():
        if parent is not None:
            _check_parent(parent)
            _check_thread(parent.pk, text)
        comment = Comment.objects.create(
            **subject.columns,
            generation=subject.generation(),
            parent=parent,
            author=by,
            text=storable(text),
        )
        Mention.objects.bulk_create(Mention(comment=comment, member=one) for one in mentioned)
        names = [one.get_username() for one in mentioned]
        _record("create", comment, by, after={"is_reply": parent is not None, "mentions": names})
    return comment


def _check_parent(parent: Comment) -> None:
    held = (
        Comment.objects.select_for_update(of=("self",), no_key=True)
        .filter(pk=parent.pk, parent=None)
        .first()
    )
    if held is None:
        raise CommentChangedError(f"{GONE} Your reply was not stored.")
    if held.replies.count() >= MAX_REPLIES:
        raise CommentRefusedError(
            f"A comment has at most {MAX_REPLIES} replies. Write a new comment."
        )


def _check_thread(root_id: int, text: str, *, instead_of: int = 0) -> None:
    """Refuse a text, new or `instead_of` a comment, that would make a thread too long."""
    others = Comment.objects.filter(Q(pk=root_id) | Q(parent=root_id)).exclude(pk=instead_of)
    length = others.aggregate(length=Sum(Length("text"), default=0))["length"] + len(text)
    if length > MAX_THREAD_LENGTH:
        raise CommentRefusedError(
            f"A comment and its replies have at most {thousands(MAX_THREAD_LENGTH)} characters together, and these "
            f"would have {thousands(length)}. Write a new comment."
        )


def edit_comment(comment: Comment, text: str, *, revision: int, by: User) -> None:
    """Change the text of one's own comment that had this revision when it was shown.

    Raises CommentChangedError where it has another one now, CommentRefusedError for another member's comment, too
    many mentions, and a longer text that makes its thread too long.
    """
    _check_author(comment, by)
    mentioned = _mentioned(text, by)
    with transaction.atomic():
        if len(text) > len(comment.text):
            _check_thread(comment.parent_id or comment.pk, text, instead_of=comment.pk)
        seen = Comment.objects.filter(pk=comment.pk, revision=revision, deleted_at=None)
        if not seen.update(
            text=storable(text), revision=F("revision") + 1, edited_at=database_now()
        ):
            raise CommentChangedError(
                "You changed this comment elsewhere meanwhile. Its present text is shown above; yours is kept below."
            )
        comment.mentions.exclude(member__in=mentioned).delete()
        Mention.objects.bulk_create(
            (Mention(comment=comment, member=one) for one in mentioned), ignore_conflicts=True
        )
        names = [one.get_username() for one in mentioned]
        _record("change", comment, by, after={"mentions": names})


def delete_comment(comment: Comment, *, by: User) -> bool:
    """Delete one's own comment; those who may change members delete every comment. Tell whether it is gone.

    Where replies hang on it, an empty place stays until the last of them is deleted. Nothing happens to one that
    is deleted already. Raises CommentRefusedError for another member's comment.
    """
    if not by.has_perm(CHANGE_MEMBERS):
        _check_author(comment, by)
    with transaction.atomic():
        root_id = comment.parent_id or comment.pk
        root = (
            Comment.objects.select_for_update(of=("self",), no_key=True).filter(pk=root_id).first()
        )
        held = Comment.objects.filter(pk=comment.pk, deleted_at=None).first()
        if root is None or held is None:
            return False
        _record("delete", comment, by)
        if held == root and root.replies.exists():
            root.mentions.all().delete()
            empty: dict[str, Any] = {"text": "", "deleted_at": database_now()}
            Comment.objects.filter(pk=root.pk).update(**empty, revision=F("revision") + 1)
            return False
        held.delete()
        if root.deleted_at and not root.replies.exists():
            root.delete()
    return True


def resolve_comment(comment: Comment, *, is_resolved: bool, by: User) -> None:
    """Mark a comment with its replies as resolved, or open it again; anybody who sees it may."""
    with transaction.atomic():
        values: dict[str, Any] = {"resolved_at": None, "resolved_by": None}
        if is_resolved:
            values = {"resolved_at": database_now(), "resolved_by": by}
        of_state = Comment.objects.filter(
            pk=comment.pk, parent=None, resolved_at__isnull=is_resolved
        )
        if of_state.update(**values):
            _record("resolve" if is_resolved else "reopen", comment, by)


def read_mentions(member: User, *, comment: Comment | None = None) -> None:
    """Mark every mention of a member as read, or only that in one comment."""
    unread = Mention.objects.filter(member=member, read_at=None)
    if comment is not None:
        unread = unread.filter(comment=comment)
    unread.update(read_at=database_now())


def _check_author(comment: Comment, by: User) -> None:
    if comment.author_id != by.pk:
        raise CommentRefusedError("Only its author can change this comment.")


def _mentioned(text: str, by: User) -> list[User]:
    """Return the members that a text mentions, without its author."""
    if "@" not in text:
        return []
    found = list(members().filter(username__in=mentioned_names(text)).exclude(pk=by.pk))
    if len(found) > MAX_MENTIONS:
        raise CommentRefusedError(
            f"A comment mentions at most {MAX_MENTIONS} members, and this one mentions {len(found)}."
        )
    return found


def _record(action: str, comment: Comment, by: User, **values: Any) -> None:
    """Write the action to the audit, never with the text: what is deleted must be gone."""
    AuditEntry.objects.record(
        action,
        by=by,
        object_type="comment",
        object_id=comment.pk,
        object_name=comment_subject(comment).name,
        **values,
    )

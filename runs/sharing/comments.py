"""The comments of a share link: frozen when its maker includes them, and shown while anybody may read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import User

from runs.comments.queries import (
    Subject,
    comparison_subject,
    public_comments,
    result_subject,
    run_subject,
)
from runs.comments.text import mentioned_names, without_name
from runs.models.comments import UNKNOWN_AUTHOR, Comment
from runs.models.runs import Run
from runs.models.sharing import ShareLink
from runs.sharing.documents import SharedCommentDoc

# With their replies; a link of more shows the newest threads. Their Markdown is read while an anonymous reader waits.
MAX_COMMENTS, MAX_CHARACTERS = 200, 100_000
A_MEMBER = "a member"


def commented_subject(runs: Sequence[Run], key: str, repetition: int) -> Subject:
    """Return the result of one run, else the run, else the comparison of two, as what is commented on."""
    if len(runs) > 1:
        return comparison_subject(*runs)
    if not key:
        return run_subject(runs[0])
    results = runs[0].results.select_related("case")
    return result_subject(results.get(case__key=key, repetition=repetition), runs[0])


def shared_comments(subject: Subject) -> dict[str, Any]:
    """Return the comments on a subject that anybody may read, the newest thread first, as fields of a document.

    Two queries.
    """
    comments = subject.comments().filter(pk__in=public_comments().values("pk")).order_by("-pk")
    found = comments.select_related("author")
    replies: dict[int, list[SharedCommentDoc]] = defaultdict(list)
    roots: list[Comment] = []
    left = MAX_CHARACTERS
    for comment in found[:MAX_COMMENTS]:
        left -= len(comment.text)
        if left < 0:
            break
        if comment.parent_id is None:
            roots.append(comment)
        elif comment.deleted_at is None:
            replies[comment.parent_id].insert(0, _described(comment))
    described = (_described(root, replies[root.pk]) for root in roots)
    threads = [thread for thread in described if thread.text or thread.replies]
    shown = count_comments([thread.model_dump() for thread in threads])
    older = comments.filter(deleted_at=None).count() - shown
    return {"comments": threads, "older_comments": older}


def count_comments(threads: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of comments in threads, without the empty places of deleted ones."""
    return sum(bool(row["text"]) for root in threads for row in (root, *root["replies"]))


def standing_comments(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the frozen comments that anybody may still read, by the present names of their authors. One query.

    A comment that was deleted since leaves an empty place while it has replies.
    """
    ids = [row["id"] for root in rows for row in (root, *root["replies"])]
    found = public_comments().filter(pk__in=ids, deleted_at=None).select_related("author")
    names = {comment.pk: _display_name(comment) for comment in found}

    def standing(shown: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "author": names[row["id"]]} for row in shown if row["id"] in names]

    threads = []
    for root in rows:
        replies = standing(root["replies"])
        kept = standing([root]) or ([{**root, "author": "", "text": ""}] if replies else [])
        threads += [{**row, "replies": replies} for row in kept]
    return threads


def erase_author(link: ShareLink, member: User, instead: str) -> None:
    """Take a member out of the frozen comments of a link: as their author, and where they mention the member."""
    name = member.get_username()
    for root in link.frozen.get("comments", ()):
        for row in (root, *root.get("replies", ())):
            row["text"] = without_name(row["text"], name, instead)
            if row["author"] in (name, member.get_full_name()):
                row["author"] = instead
    link.save(update_fields=["frozen"])


def _described(comment: Comment, replies: Sequence[SharedCommentDoc] = ()) -> SharedCommentDoc:
    text = comment.text
    for name in sorted(mentioned_names(text)):
        if "@" in name:
            text = without_name(text, name, A_MEMBER)
    return SharedCommentDoc(
        id=comment.pk,
        author=_display_name(comment) if text else "",
        written_on=f"{comment.created_at.day} {comment.created_at:%b %Y}",
        text=text,
        is_resolved=comment.resolved_at is not None,
        replies=list(replies),
    )


def _display_name(comment: Comment) -> str:
    """Return the name of an author as anybody may read it; a user name can be an email address."""
    if comment.author is None:
        return UNKNOWN_AUTHOR
    name = comment.author.get_full_name() or comment.author.get_username()
    return A_MEMBER if "@" in name else name

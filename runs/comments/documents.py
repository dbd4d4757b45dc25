"""A comment as a document, for the API. No export or file of results has comments."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from django.urls import reverse

from runs.comments.queries import comment_subject
from runs.documents import Document, TextOrNone
from runs.models.comments import Comment


class CommentDoc(Document):
    """What a member says about a result, a case, a run or a comparison."""

    id: int
    """Its id."""
    about: Literal["result", "case", "run", "comparison"]
    """What it is about."""
    suite: str
    """The short name of the suite; of a comparison, that of the candidate."""
    case: TextOrNone
    """The key of the case; null for runs and comparisons."""
    run_id: int | None
    """The id of the run; of a comparison, that of the candidate; null for cases."""
    baseline_run_id: int | None
    """The id of the baseline of a comparison; null for others."""
    result_id: int | None
    """The id of the result; null for others."""
    reply_to: int | None
    """The id of the comment that it replies to; null for the first of a thread."""
    author: str
    """The name of its author."""
    text: str
    """The text as Markdown."""
    mentions: list[str]
    """The names of the members it mentions."""
    created_at: datetime
    """When it was written."""
    edited_at: datetime | None
    """When it was last edited; null if it never was."""
    resolved_at: datetime | None
    """When its thread was resolved; null for an open one and for replies."""
    url: str
    """The path of its page."""


def comment_document(comment: Comment) -> CommentDoc:
    """Describe a comment whose mentions are loaded."""
    return CommentDoc(
        id=comment.pk,
        about=comment_subject(comment).kind,
        suite=comment.suite.slug,
        case=comment.case_key,
        run_id=comment.run_id,
        baseline_run_id=comment.baseline_id,
        result_id=comment.result_id,
        reply_to=comment.parent_id,
        author=comment.author_name,
        text=comment.text,
        mentions=sorted(mention.member.get_username() for mention in comment.mentions.all()),
        created_at=comment.created_at,
        edited_at=comment.edited_at,
        resolved_at=comment.resolved_at,
        url=reverse("runs:comment", args=[comment.pk]),
    )

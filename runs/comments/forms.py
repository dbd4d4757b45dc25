"""The forms of comments."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from evaluators.scoring.types import DomainError
from runs.comments.queries import Subject
from runs.comments.services import MAX_LENGTH, add_comment, edit_comment
from runs.models.comments import Comment

TOO_LONG = f"A comment has at most {MAX_LENGTH:,} characters."


class CommentForm(forms.Form):
    """The text of a new comment, of a reply to `parent`, or of one's own comment that is edited.

    `revision` is that of the edited comment when it was shown.
    """

    text = forms.CharField(
        max_length=MAX_LENGTH,
        error_messages={"required": "Write something first.", "max_length": TOO_LONG},
    )
    parent = forms.IntegerField(required=False)
    revision = forms.IntegerField(required=False)

    @property
    def typed(self) -> str:
        """Return the text as it was typed, to show it again; nobody types more than ten times the limit."""
        return str(self.data.get("text", ""))[: MAX_LENGTH * 10]

    @property
    def problem(self) -> str:
        """Return what is wrong as a text."""
        return " ".join(str(error) for errors in self.errors.values() for error in errors)

    def add(self, subject: Subject, *, by: User) -> Comment | None:
        """Add the comment of a valid form; None where it is refused, which the form then says."""
        number = self.cleaned_data["parent"]
        parent = None
        if number is not None:
            parent = subject.comments().filter(pk=number, parent=None).first() or Comment(pk=0)
        try:
            return add_comment(subject, self.cleaned_data["text"], by=by, parent=parent)
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return None

    def edit(self, comment: Comment, *, by: User) -> bool:
        """Change a comment to a valid form; False where it is refused, which the form then says."""
        values: dict[str, Any] = {"revision": self.cleaned_data["revision"] or 0, "by": by}
        try:
            edit_comment(comment, self.cleaned_data["text"], **values)
        except DomainError as refusal:
            self.add_error(None, str(refusal))
            return False
        return True

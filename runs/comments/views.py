"""The comments on a result, a case, a run or a comparison: inside its page and as a page; and one's mentions."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.comments.forms import CommentForm
from runs.comments.queries import (
    MAX_LISTED_MEMBERS,
    MentionsQuery,
    Subject,
    ThreadsQuery,
    case_subject,
    comment_subject,
    comments_page,
    comparison_subject,
    get_comments,
    members,
    mentions_page,
    result_subject,
    run_subject,
    suggest_members,
    thread_page,
    visible_comments,
)
from runs.comments.services import MAX_LENGTH, delete_comment, read_mentions, resolve_comment
from runs.models.comments import Comment
from runs.models.results import Result
from runs.models.suites import Case
from runs.requests import (
    REFUSED,
    MemberRequest,
    form_data,
    get_named_run_or_404,
    get_run_or_404,
    get_suite_or_404,
    may_view,
)

MAX_WORD_LENGTH = 200
reads_and_adds = require_http_methods(["GET", "HEAD", "POST"])


@reads_and_adds
@never_cache
@vary_on_headers("HX-Request")
@may_view
def result_comments(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Show the comments on a result, or add one."""
    run = get_run_or_404(slug, number)
    results = Result.objects.select_related("case").filter(run=run, repetition=repetition)
    return _show(request, result_subject(get_object_or_404(results, case__key=key), run))


@reads_and_adds
@never_cache
@vary_on_headers("HX-Request")
@may_view
def case_comments(request: MemberRequest, slug: str, key: str) -> HttpResponse:
    """Show the comments on a case in all its revisions, or add one."""
    suite = get_suite_or_404(slug=slug)
    if not Case.objects.filter(suite=suite, key=key).exists():
        raise Http404(f"{suite.title} has no case {key}.")
    return _show(request, case_subject(suite, key))


@reads_and_adds
@never_cache
@vary_on_headers("HX-Request")
@may_view
def run_comments(request: MemberRequest, slug: str, number: int) -> HttpResponse:
    """Show the comments on a run, or add one."""
    return _show(request, run_subject(get_run_or_404(slug, number)))


@reads_and_adds
@never_cache
@vary_on_headers("HX-Request")
@may_view
def compare_comments(request: MemberRequest) -> HttpResponse:
    """Show the comments on a comparison, or add one."""
    runs = [get_named_run_or_404(request.GET.get(role, "")) for role in ("baseline", "candidate")]
    return _show(request, comparison_subject(*runs))


def _show(request: MemberRequest, subject: Subject) -> HttpResponse:
    """Show the comments on a subject after adding what was sent; a refused comment keeps its text."""
    form = CommentForm(form_data(request))
    if form.is_valid() and (added := form.add(subject, by=request.user)):
        return _show_changed(
            request, added, "Reply added." if added.parent_id else "Comment added."
        )
    return _panel(request, subject, form, status=REFUSED if form.is_bound else 200)


def _panel(
    request: MemberRequest,
    subject: Subject,
    form: CommentForm,
    *,
    status: int = 200,
    number: int = 0,
    message: str = "",
) -> HttpResponse:
    """Show one page of comments, as the part of a page for htmx."""
    query = ThreadsQuery.read(request.GET)
    query = query.changed(page=number) if number else query
    context: dict[str, Any] = {
        "page": comments_page(subject, query, request.user),
        "form": form,
        "message": message,
        "max_length": MAX_LENGTH,
        # A page of the comments, and what was done with one, shows them; another page first shows how many there are.
        "is_open": not request.htmx or request.method == "POST" or "page" in request.GET,
    }
    if request.htmx:
        return render(request, "comments/_comments.html", context, status=status)
    names = members().exclude(pk=request.user.pk).values_list("username", flat=True)
    context["names"] = names[:MAX_LISTED_MEMBERS]
    return render(request, "comments/comments.html", context, status=status)


def _show_changed(request: MemberRequest, comment: Comment, message: str) -> HttpResponse:
    """Show the page of comments on which one was changed, and say what happened."""
    subject, number = comment_subject(comment), thread_page(comment, request.user)
    if request.htmx:
        return _panel(request, subject, CommentForm(), number=number, message=message)
    messages.success(request, message)
    return redirect(f"{subject.page_of_comments(number)}#comment-{comment.pk}")


def _get_visible(request: MemberRequest, pk: int) -> Comment:
    """Return a comment that the reader may see; raises Http404 for others and deleted ones."""
    visible = visible_comments(request.user).filter(deleted_at=None)
    comment = get_comments().filter(pk=pk, pk__in=visible.values("pk")).first()
    if comment is None:
        raise Http404("This comment was deleted, or you may not see it yet.")
    return comment


@require_safe
@never_cache
@may_view
def comment(request: MemberRequest, pk: int) -> HttpResponse:
    """Lead to a comment, and mark the reader's mention in it as read if they may see it yet."""
    found = get_object_or_404(get_comments(), pk=pk)
    if visible_comments(request.user).filter(pk=pk).exists():
        read_mentions(request.user, comment=found)
    comments = comment_subject(found).page_of_comments(thread_page(found, request.user))
    return redirect(f"{comments}#comment-{pk}")


@reads_and_adds
@never_cache
@vary_on_headers("HX-Request")
@may_view
def comment_edit(request: MemberRequest, pk: int) -> HttpResponse:
    """Edit one's own comment; with the text typed before where it is refused."""
    found = _get_visible(request, pk)
    if found.author_id != request.user.pk:
        raise PermissionDenied
    form = CommentForm(form_data(request))
    if form.is_valid() and form.edit(found, by=request.user):
        response = _show_changed(request, found, "Comment saved.")
        # A refused form replaces only the comment.
        response["HX-Retarget"] = "#comments"
        return response
    if form.is_bound:
        found = _get_visible(request, pk)
    subject = comment_subject(found)
    context = {
        "comment": found,
        "form": form,
        "subject": subject,
        "back": subject.page_of_comments(thread_page(found, request.user)),
        "max_length": MAX_LENGTH,
    }
    template = "comments/_edit.html" if request.htmx else "comments/edit.html"
    return render(request, template, context, status=REFUSED if form.is_bound else 200)


@require_POST
@may_view
def comment_delete(request: MemberRequest, pk: int) -> HttpResponse:
    """Delete a comment."""
    found = _get_visible(request, pk)
    subject, number = comment_subject(found), thread_page(found, request.user)
    message = "Comment deleted."
    try:
        delete_comment(found, by=request.user)
    except DomainError:
        raise PermissionDenied from None
    if request.htmx:
        return _panel(request, subject, CommentForm(), number=number, message=message)
    messages.success(request, message)
    return redirect(f"{subject.page_of_comments(number)}#comment-{found.parent_id or pk}")


@require_POST
@may_view
def comment_resolve(request: MemberRequest, pk: int) -> HttpResponse:
    """Mark a comment with its replies as resolved, or with `reopen` as open again."""
    found, is_resolved = _get_visible(request, pk), "reopen" not in request.POST
    resolve_comment(found, is_resolved=is_resolved, by=request.user)
    return _show_changed(request, found, "Resolved." if is_resolved else "Reopened.")


@require_safe
@never_cache
@may_view
def comment_members(request: MemberRequest) -> JsonResponse:
    """Return the members whose names begin with the @word that is typed."""
    word = request.GET.get("q", "")[:MAX_WORD_LENGTH]
    return JsonResponse({"suggestions": suggest_members(word, request.user)})


@require_safe
@never_cache
@may_view
def mentions(request: MemberRequest) -> HttpResponse:
    """List the comments that mention the reader, newest first."""
    page = mentions_page(request.user, MentionsQuery.read(request.GET))
    return render(request, "comments/mentions.html", {"page": page})


@require_POST
@may_view
def mentions_read(request: MemberRequest) -> HttpResponse:
    """Mark all mentions of the reader as read."""
    read_mentions(request.user)
    return redirect("runs:mentions")

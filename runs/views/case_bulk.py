"""Many cases at once: tag, delete and export those that are ticked."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST

from evaluators.scoring.types import DomainError
from runs.exports import UnknownVersionError
from runs.forms.case_ticks import TickedCases, delete, is_sure, retag, ticked_cases
from runs.reports.case_files import case_file
from runs.reports.case_page import runs_with
from runs.reports.suite import suite_head
from runs.views._requests import MemberRequest, may_change_suites, may_view, suite_of

NONE = "No case is ticked. Tick some rows, or all that match."


@require_POST
@may_change_suites
def case_bulk(request: MemberRequest, slug: str) -> HttpResponse:
    """Tag the ticked cases, take tags from them, or delete them after asking."""
    ticked = ticked_cases(suite_of(slug=slug), request.POST)
    deed = request.POST.get("deed")
    if ticked.keys and deed == "delete" and not is_sure(ticked, request.POST):
        return _asked(request, ticked)
    try:
        said = _done(request, ticked, deed) if ticked.keys else NONE
    except DomainError as refusal:
        said = str(refusal)
    messages.info(request, said)
    back = redirect("runs:suite-cases", slug)
    back["Location"] += ticked.asked.address().removesuffix("?")
    return back


@require_POST
@may_view
def case_export(request: MemberRequest, slug: str) -> HttpResponseBase:
    """Give the ticked cases as a file."""
    suite = suite_of(slug=slug)
    ticked = ticked_cases(suite, request.POST)
    if not ticked.keys:
        messages.info(request, NONE)
        return redirect("runs:suite-cases", slug)
    try:
        file = case_file(suite, ticked.keys, request.POST.get("format", ""))
    except UnknownVersionError as error:
        raise Http404(str(error)) from error
    headers = {"Content-Disposition": str(content_disposition_header(True, file.name))}
    return StreamingHttpResponse(file.parts, content_type=file.media_type, headers=headers)


def _done(request: MemberRequest, ticked: TickedCases, deed: str | None) -> str:
    if deed == "delete":
        return delete(ticked, request.user)
    tags = request.POST.get("tags", "")
    said = retag(ticked, tags, is_added=deed == "tag", by=request.user)
    return said or "Write the tag, up to 200 characters."


def _asked(request: MemberRequest, ticked: TickedCases) -> HttpResponse:
    suite = ticked.suite
    context = {"suite": suite, "head": suite_head(suite), "ticked": ticked}
    context["runs"] = runs_with(suite, ticked.keys)
    return render(request, "suites/cases_delete.html", context)

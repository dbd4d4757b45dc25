"""The pages of the inbox: the list of traces, one of them, and what is made of them."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from evaluators.scoring.types import DomainError
from runs.models.traces import Trace
from runs.requests import (
    REFUSED,
    MemberRequest,
    follow_address,
    may_change_suites,
    may_view,
    site_address,
)
from runs.traces.forms import FIELDS, UseTracesForm
from runs.traces.queries import TracesQuery, chosen_traces, trace_list, trace_page


@require_safe
@may_view
def traces(request: MemberRequest) -> HttpResponse:
    """List the traces of the inbox."""
    context = {
        "list": trace_list(TracesQuery.read(request.GET)),
        "endpoint": site_address(request, reverse("runs:api-traces")),
    }
    return render(request, "traces/traces.html", context)


@require_safe
@may_view
def trace_rows(request: MemberRequest) -> HttpResponse:
    """Return only the rows, at the address of the page."""
    found = trace_list(TracesQuery.read(request.GET))
    response = render(request, "traces/_rows.html", {"list": found})
    if not found.query.after:  # rows added below do not change the address
        follow_address(request, response, found.query.at(reverse("runs:traces")))
    return response


@require_safe
@may_view
def trace(request: MemberRequest, pk: int) -> HttpResponse:
    """Show one trace in full."""
    found = get_object_or_404(Trace.objects.select_related("suite"), pk=pk)
    return render(request, "traces/trace.html", {"page": trace_page(found), "trace": found})


@require_POST
@may_change_suites
def trace_use(request: MemberRequest) -> HttpResponse:
    """Make cases or recorded outputs of the chosen traces, or delete them; asks how before it does."""
    chosen, action = chosen_traces(request.POST), request.POST.get("action", "")
    back = redirect(chosen.query.at(reverse("runs:traces")))
    if chosen.refusal or action not in FIELDS:
        messages.info(request, chosen.refusal or "Choose what to do with the traces.")
        return back
    form = UseTracesForm(action, chosen, request.POST if "sure" in request.POST else None)
    if form.is_valid():
        try:
            messages.success(request, form.save(request.user))
        except DomainError as refusal:
            form.add_error(None, str(refusal))
        else:
            return back
    context = {"form": form, "chosen": chosen}
    return render(request, "traces/use.html", context, status=REFUSED if form.is_bound else 200)

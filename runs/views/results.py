"""One result: its page, its calls and its whole output."""

from __future__ import annotations

from pathlib import PurePosixPath

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.text import get_valid_filename
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from runs.models import Artifact, ModelCall, Result, ResultOutput
from runs.reports import model_calls
from runs.reports.result_files import one_file
from runs.reports.result_page import is_finished, result_page, whole_output
from runs.reports.review_blind import keeps_machine, kept_from
from runs.reports.review_item import item_of_result
from runs.views._requests import STOP_POLLING, MemberRequest, may_view, run_of


@require_safe
@may_view
def result(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Show one result in full."""
    try:
        page = result_page(run_of(slug, number), key, repetition)
    except Result.DoesNotExist:
        raise Http404(f"Run #{number} has no repetition {repetition} of {key}.") from None
    item = item_of_result(page.result)
    kept = kept_from(request.user, page.result, item, page.policy)
    context = {"page": page, "run": page.run, "item": item, "kept": kept}
    is_blind = kept.machine and not (kept.may_look and request.GET.get("shown"))
    template = "runs/result_blind.html" if is_blind else "runs/result.html"
    return render(request, template, context)


@require_safe
@never_cache
@may_view
def result_progress(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Say whether a result is finished yet; once it is, the page loads again."""
    run = run_of(slug, number)
    try:
        is_over = is_finished(run, key, repetition)
    except Result.DoesNotExist:
        raise Http404 from None
    if is_over:
        return HttpResponse(status=STOP_POLLING, headers={"HX-Refresh": "true"})
    return HttpResponse(status=204)


@require_safe
@vary_on_headers("HX-Request")
@may_view
def result_calls(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Give every call made for a result, with request and reply: in its page, or as a page."""
    run = run_of(slug, number)
    if keeps_machine(request.user, run, key, repetition):
        return redirect("runs:result", slug, number, key, repetition)
    context = {"calls": model_calls.result_calls(run, key, repetition), "run": run}
    context |= {"key": key, "repetition": repetition}
    template = "runs/_result_calls.html" if request.htmx else "runs/result_calls.html"
    return render(request, template, context)


@require_safe
@may_view
def result_call(
    request: MemberRequest, slug: str, number: int, key: str, repetition: int, pk: int
) -> HttpResponse:
    """Give one call whole, as a file."""
    run = run_of(slug, number)
    if keeps_machine(request.user, run, key, repetition):
        return redirect("runs:result", slug, number, key, repetition)
    try:
        call = model_calls.one_call(run, key, repetition, pk)
    except ModelCall.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}-call-{pk}.json")
    disposition = f'attachment; filename="{name}"'
    return JsonResponse(
        call,
        json_dumps_params={"indent": 2, "ensure_ascii": False},
        headers={"Content-Disposition": disposition},
    )


@require_safe
@may_view
def result_output(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int
) -> HttpResponse:
    """Give the whole text that the target answered, as a file."""
    try:
        text = whole_output(run_of(slug, number), key, repetition)
    except ResultOutput.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}.txt")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/plain; charset=utf-8", headers=headers)


@require_safe
@may_view
def result_file(
    request: HttpRequest, slug: str, number: int, key: str, repetition: int, file: str
) -> HttpResponse:
    """Give a file that the target left, never to be shown as a page of this site."""
    try:
        content = one_file(run_of(slug, number), key, repetition, file)
    except Artifact.DoesNotExist:
        raise Http404 from None
    name = get_valid_filename(f"{slug}-{number}-{key}-{repetition}-{PurePosixPath(file).name}")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)

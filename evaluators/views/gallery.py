"""The pages that explain every kind of evaluator."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from evaluators.gallery import KindTrialForm, kind_page, kinds_shown
from evaluators.kinds import UnknownKindError


@require_safe
def gallery(request: HttpRequest) -> HttpResponse:
    """Show every kind of evaluator in a sentence."""
    return render(request, "evaluators/gallery.html", {"kinds": kinds_shown()})


@require_http_methods(["GET", "HEAD", "POST"])
def kind(request: HttpRequest, name: str) -> HttpResponse:
    """Show one kind whole, and write an evaluator of it from the settings given."""
    try:
        page = kind_page(name)
    except UnknownKindError as error:
        raise Http404(str(error)) from error
    form = KindTrialForm(page.kind, request.POST if request.method == "POST" else None)
    written = form.written() if form.is_bound and form.is_valid() else ""
    status = 422 if form.is_bound and not written else 200
    context = {"page": page, "form": form, "written": written}
    return render(request, "evaluators/kind.html", context, status=status)

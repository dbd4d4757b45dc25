"""The pages of language models and of the kinds of evaluators."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from evaluators.broker import NotQueuedError, queue_task
from evaluators.catalog.forms import LanguageModelForm, ModelChangedError, ModelSlugTakenError
from evaluators.catalog.queries import (
    KindTrialForm,
    gallery_kinds,
    key_problem,
    kind_page,
    model_facts,
    model_rows,
    trial_report,
)
from evaluators.detours import come_back, way_back
from evaluators.kinds._refusals import UnknownKindError
from evaluators.models import LanguageModel, ModelInUseError


@require_safe
def gallery(request: HttpRequest) -> HttpResponse:
    """List the kinds of evaluators with one sentence each."""
    return render(request, "catalog/kinds.html", {"kinds": gallery_kinds()})


@require_http_methods(["GET", "HEAD", "POST"])
def kind(request: HttpRequest, name: str) -> HttpResponse:
    """Show the manual of a kind, and write an evaluator from the settings in the form."""
    try:
        page = kind_page(name)
    except UnknownKindError as error:
        raise Http404(str(error)) from error
    form = KindTrialForm(page.kind, request.POST if request.method == "POST" else None)
    written = form.written() if form.is_bound and form.is_valid() else ""
    status = 422 if form.is_bound and not written else 200
    context = {"page": page, "form": form, "written": written}
    return render(request, "catalog/kind.html", context, status=status)


TEST_TASK = "evaluators.tasks.test_language_model"


def queue_test(model: LanguageModel, *, actor: User) -> None:
    """Queue a test of the model; raises NotQueuedError if the broker does not answer."""
    previous = model.last_test
    model.request_test(actor=actor)
    try:
        queue_task(TEST_TASK, "The test", {"model_id": model.pk})
    except NotQueuedError:
        model.last_test = previous
        model.save(update_fields=["last_test"])
        raise


REFUSED = 422
may_view = permission_required("runs.view_run", raise_exception=True)
may_change = permission_required("evaluators.change_languagemodel", raise_exception=True)


class CatalogRequest(HttpRequest):
    """A request of a user who is logged in."""

    user: User


@may_view
@require_GET
def language_models(request: CatalogRequest) -> HttpResponse:
    """List the language models with limit, key, price and last test."""
    return render(request, "catalog/language_models.html", {"rows": model_rows()})


@may_view
@require_GET
def language_model(request: CatalogRequest, slug: str) -> HttpResponse:
    """Show one model: settings, limit, users and last test."""
    model = get_object_or_404(LanguageModel, slug=slug)
    return _page(request, model)


@may_change
@never_cache
@sensitive_post_parameters("api_key")
def language_model_new(request: CatalogRequest) -> HttpResponse:
    """Add a model."""
    form = LanguageModelForm(_posted(request))
    if form.is_valid():
        try:
            model = form.save_as(request.user)
        except ModelSlugTakenError as refusal:
            form.add_error("slug", str(refusal))
        else:
            messages.success(request, f"{model.name} added. Test it to see that it answers.")
            return come_back(request, model.pk) or redirect("evaluators:language-model", model.slug)
    return _form_page(request, form)


@may_change
@never_cache
@sensitive_post_parameters("api_key")
def language_model_edit(request: CatalogRequest, slug: str) -> HttpResponse:
    """Change a model."""
    model = get_object_or_404(LanguageModel, slug=slug)
    form = LanguageModelForm(_posted(request), instance=model)
    if form.is_valid():
        try:
            form.save_as(request.user)
        except ModelChangedError as refusal:
            form.add_error(None, str(refusal))
        else:
            if form.dropped_key:
                messages.warning(
                    request,
                    "The base URL changed, so the stored key was removed. Enter the key again.",
                )
            messages.success(
                request, f"{model.name} saved. Runs that were started keep the old settings."
            )
            return redirect("evaluators:language-model", model.slug)
    return _form_page(request, form)


@may_change
@require_POST
def language_model_delete(request: CatalogRequest, slug: str) -> HttpResponse:
    """Delete an unused model."""
    model = get_object_or_404(LanguageModel, slug=slug)
    try:
        model.remove(actor=request.user)
    except ModelInUseError as refusal:
        return _page(request, model, error=str(refusal), status=409)
    messages.success(request, f"{model.name} deleted.")
    return redirect("evaluators:language-models")


@may_change
@require_POST
def language_model_test_start(request: CatalogRequest, slug: str) -> HttpResponse:
    """Queue a test of the model and show the page, which waits for it."""
    model = get_object_or_404(LanguageModel, slug=slug)
    try:
        queue_test(model, actor=request.user)
    except NotQueuedError as refusal:
        return _page(request, model, error=str(refusal), status=503)
    return redirect("evaluators:language-model", slug)


@may_view
@require_GET
@never_cache
def language_model_test(request: CatalogRequest, slug: str) -> HttpResponse:
    """Show the state of the test, in a fragment that polls until it is done."""
    model = get_object_or_404(LanguageModel, slug=slug)
    context = {"model": model, "test": trial_report(model)}
    return render(request, "catalog/_language_model_test.html", context)


def _page(
    request: CatalogRequest, model: LanguageModel, *, error: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "model": model,
        "key_problem": key_problem(model),
        "facts": model_facts(model),
        "users": model.users(),
        "test": trial_report(model),
        "error": error,
    }
    return render(request, "catalog/language_model.html", context, status=status)


def _form_page(request: CatalogRequest, form: LanguageModelForm) -> HttpResponse:
    status = REFUSED if form.is_bound else 200
    context = {"form": form, "way_back": way_back(request)}
    return render(request, "catalog/language_model_form.html", context, status=status)


def _posted(request: HttpRequest) -> QueryDict | None:
    return request.POST if request.method == "POST" else None

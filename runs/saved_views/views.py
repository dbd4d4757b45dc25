"""The saved views of a suite: the menu beside a table, the page that lists them, and the forms that change them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django.views.decorators.vary import vary_on_headers

from evaluators.scoring.types import DomainError
from runs.lists import read_integer
from runs.models.saved_views import SavedView, ViewPage
from runs.requests import REFUSED, MemberRequest, form_data, get_suite_or_404, may_view
from runs.saved_views.forms import ViewForm
from runs.saved_views.queries import (
    PLAIN,
    VIEW,
    PlaceQuery,
    screen_query,
    view_address,
    view_rows,
    view_state,
    visible_views,
)
from runs.saved_views.services import change_view, delete_view, may_change


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@vary_on_headers("HX-Request")
@may_view
def suite_views(request: MemberRequest, slug: str) -> HttpResponse:
    """List the views of a suite, in the menu of a page or as a page; save what is on screen as a new one."""
    suite = get_suite_or_404(slug=slug)
    sent = request.POST if request.method == "POST" else request.GET
    place = PlaceQuery.read({name: sent[name] for name in sent})
    screen = _screen(sent["screen"]) if "screen" in sent else {name: sent[name] for name in sent}
    form = ViewForm(form_data(request), by=request.user)
    if saved := form.save(suite, place.on, screen_query(screen)):
        messages.info(request, f"Saved as “{saved.name}”.")
        return redirect(view_address(place.path(suite), saved) + place.anchor)
    state = view_state(suite, place, screen, request.user)
    context = {
        "suite": suite,
        "place": place,
        "form": form,
        "state": state,
        "screen": screen_query(screen),
        "plain_url": f"{place.path(suite)}{VIEW}={PLAIN}",
        "may_update": state.view is not None and may_change(state.view, request.user),
    }
    if request.htmx:
        context["rows"] = view_rows(suite, place, request.user)
        return render(request, "saved_views/_menu.html", context)
    context["pages"] = [
        (label, rows)
        for page, label in ViewPage.choices
        if (rows := view_rows(suite, place.changed(on=page), request.user))
    ]
    status = REFUSED if form.is_bound else 200
    return render(request, "saved_views/views.html", context, status=status)


def _screen(query: str) -> dict[str, str]:
    return dict(parse_qsl(query))


@require_safe
@may_view
def saved_view(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Open a view on the cases of its suite, its last run, the comparison of that, or its newest runs side by side."""
    view = _get_view(request, slug, pk)
    return redirect(view_address(PlaceQuery(on=view.page).path(view.suite), view))


@require_http_methods(["GET", "HEAD", "POST"])
@may_view
def saved_view_edit(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Rename a view, share it, or make it a default."""
    view = _get_view(request, slug, pk)
    if not may_change(view, request.user):
        raise PermissionDenied
    form = ViewForm(form_data(request), by=request.user, view=view)
    if form.change():
        messages.info(request, "View saved.")
        return redirect("runs:suite-views", slug)
    context = {"suite": view.suite, "form": form, "view": view}
    status = REFUSED if form.is_bound else 200
    return render(request, "saved_views/edit.html", context, status=status)


@require_POST
@may_view
def saved_view_update(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Let a view show what is on screen."""
    view = _get_view(request, slug, pk)
    screen = screen_query(_screen(request.POST.get("screen", "")))
    revision = read_integer(request.POST.get("revision", "")) or 0
    place = PlaceQuery.read({**request.POST.dict(), "on": view.page})
    try:
        change_view(view, {"query": screen}, revision=revision, by=request.user)
    except DomainError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.info(request, f"View “{view.name}” updated.")
    shown = SavedView(pk=view.pk, query=screen)
    return redirect(view_address(place.path(view.suite), shown) + place.anchor)


@require_POST
@may_view
def saved_view_delete(request: MemberRequest, slug: str, pk: int) -> HttpResponse:
    """Delete a view."""
    view = _get_view(request, slug, pk)
    try:
        delete_view(view, by=request.user)
        messages.info(request, f"View “{view.name}” deleted.")
    except DomainError as refusal:
        messages.error(request, str(refusal))
    return redirect("runs:suite-views", slug)


def _get_view(request: MemberRequest, slug: str, pk: int) -> SavedView:
    views = visible_views(request.user).select_related("suite", "owner")
    return get_object_or_404(views, suite__slug=slug, suite__is_deleted=False, pk=pk)

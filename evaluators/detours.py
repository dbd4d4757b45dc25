"""Leave a form to add what one of its fields lacks, and come back to it with the new thing chosen."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib import messages
from django.forms import FileField, ModelChoiceField
from django.forms.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

NEXT, ADD, ADDED, CHOSEN = "next", "add", "added", "chosen"
MAX_KEY_DIGITS = 18
KEPT = "kept_forms"
# A session is read with every request, so it keeps few forms, and none with a long list of cases.
MAX_KEPT, MAX_LENGTH = 3, 100_000
NOT_KEPT = (ADD, "csrfmiddlewaretoken")


@dataclass(frozen=True, slots=True)
class AddPage:
    """The page that adds a choice to a field; `permission` is what it takes."""

    name: str
    label: str
    permission: str


ADD_MODEL = AddPage(
    "evaluators:language-model-new", "Add a model", "evaluators.change_languagemodel"
)


def offer(form: BaseForm, name: str, page: AddPage) -> None:
    """Let a field of a form offer to add a choice; `components/field.html` draws the button."""
    form.fields[name].adds = page  # type: ignore[attr-defined]  # Django's fields take any attribute


def leave(request: HttpRequest, form: BaseForm) -> HttpResponse | None:
    """Lead to the page that adds what a field of a sent form lacks; None unless its button was pressed.

    The session keeps what was typed until the member comes back; files cannot be kept.
    """
    name = request.POST.get(ADD, "")
    page: AddPage | None = getattr(form.fields.get(name), "adds", None)
    if page is None:
        return None
    place = _place(request)
    fields = {key: request.POST.getlist(key) for key in request.POST if key not in NOT_KEPT}
    if sum(len(value) for values in fields.values() for value in values) > MAX_LENGTH:
        messages.warning(request, "That form was too long to be kept: fill it in again.")
        fields = {}
    kept = {key: old for key, old in request.session.get(KEPT, {}).items() if key != place}
    request.session[KEPT] = dict([*kept.items()][-MAX_KEPT + 1 :]) | {place: fields}
    back = f"{place}{'&' if '?' in place else '?'}{urlencode({ADDED: name})}"
    return redirect(f"{reverse(page.name)}?{urlencode({NEXT: back})}")


def kept_data(request: HttpRequest) -> QueryDict | None:
    """Return what was typed into the form of this address before its member left, with what was added."""
    fields = request.session.get(KEPT, {}).get(_place(request))
    if request.method != "GET" or not fields or ADDED not in request.GET:
        return None
    data = QueryDict(mutable=True)
    for name, values in fields.items():
        data.setlist(name, values)
    if CHOSEN in request.GET:
        data.appendlist(request.GET[ADDED], request.GET[CHOSEN])
    return data


def fill_again(request: HttpRequest, form: BaseForm) -> None:
    """Fill an empty form with what was typed into it before, and choose what was added meanwhile."""
    data = kept_data(request)
    if data is None or form.is_bound:
        return
    for name, field in form.fields.items():
        if not isinstance(field, FileField):
            typed = field.widget.value_from_datadict(data, {}, form.add_prefix(name))
            form.initial[name] = typed
    added, chosen = form.fields.get(request.GET[ADDED]), request.GET.get(CHOSEN, "")
    is_key = chosen.isdecimal() and len(chosen) <= MAX_KEY_DIGITS
    if isinstance(added, ModelChoiceField) and added.queryset is not None and is_key:
        form.initial[request.GET[ADDED]] = added.queryset.filter(pk=chosen).first()


def way_back(request: HttpRequest) -> str:
    """Return the address on this site that a member came from to add something, "" for none."""
    address = request.GET.get(NEXT, "")
    is_ours = address.startswith("/") and url_has_allowed_host_and_scheme(
        address, allowed_hosts=None
    )
    return address if is_ours else ""


def come_back(request: HttpRequest, added: int) -> HttpResponseRedirect | None:
    """Lead back to where a member came from, with the id of what was added; None for nowhere."""
    address = way_back(request)
    if not address:
        return None
    is_form = f"{ADDED}=" in address
    return redirect(f"{address}&{urlencode({CHOSEN: added})}" if is_form else address)


def _place(request: HttpRequest) -> str:
    """Return the address of a form without what a member brought back to it."""
    query = request.GET.copy()
    for name in (ADDED, CHOSEN):
        query.pop(name, None)
    return f"{request.path}?{query.urlencode()}" if query else request.path

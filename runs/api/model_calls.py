"""The calls that read and change language models. Keys are taken and never given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.catalog.forms import TEMPERATURE, LanguageModelForm, ModelSlugTakenError
from evaluators.models import AuditEntry, LanguageModel
from runs.api.bodies import Body, UnusableBodyError, form_errors, pointer
from runs.api.params import ListRequest, NoParams
from runs.api.safe_changes import ETAG, IF_MATCH, check_unchanged, tagged
from runs.api.schema import reads, writes
from runs.lists import Key, Keyset, ListQuery
from runs.targets.documents import ModelDoc, ModelSettings, model_document

MAY_CHANGE = "evaluators.change_languagemodel"
MODEL = OpenApiParameter("slug", str, "path", description="The short name of a language model.")
BY_NAME = Keyset(Key("name", str), Key("pk", int))


@dataclass(frozen=True, slots=True)
class ModelsQuery(ListQuery):
    """All language models."""


class ModelBody(ModelSettings, Body):
    """A language model with its settings; what is left out gets its default."""

    slug: str = ""
    """Its short name, made from the name where it is left out. It cannot change."""
    api_key: str = ""
    """Its key, which is stored encrypted. Left out of a change, the stored one stays."""
    remove_key: bool = False
    """Whether the stored key is removed."""


@reads("Language models", ModelDoc, lists=ModelsQuery, tag="models")
def models(request: Request) -> Response:
    """List the language models by name."""
    params = ListRequest.read(request, ModelsQuery)
    return params.page(
        LanguageModel.objects.all(), BY_NAME, lambda rows: [model_document(row) for row in rows]
    )


@reads("One language model", ModelDoc, path=[MODEL, ETAG], tag="models")
def model(request: Request, slug: str) -> Response:
    """Return a language model with its settings, without its key."""
    NoParams.read(request)
    found = get_object_or_404(LanguageModel, slug=slug)
    return tagged(model_document(found), found.updated_at.isoformat())


@writes(
    "Add a language model",
    ModelDoc,
    body=ModelBody,
    permission=MAY_CHANGE,
    tag="models",
    status=201,
)
def add_model(request: Request, body: ModelBody) -> ModelDoc:
    """Add a language model."""
    return _save(request, body, None)


@writes(
    "Change a language model",
    ModelDoc,
    body=ModelBody,
    permission=MAY_CHANGE,
    path=[MODEL, IF_MATCH],
    tag="models",
    method="PUT",
)
def put_model(request: Request, body: ModelBody, slug: str) -> ModelDoc:
    """Replace the settings of a model; runs that were started keep theirs. A new base URL removes the stored key."""
    with transaction.atomic():
        found = get_object_or_404(LanguageModel.objects.select_for_update(no_key=True), slug=slug)

        def describe() -> str:
            who = AuditEntry.objects.last_changer("language_model", found.pk)
            return f"{who} changed the model “{slug}” at {found.updated_at:%Y-%m-%d %H:%M} UTC"

        check_unchanged(request, found.updated_at.isoformat(), describe)
        return _save(request, body, found)


@writes(
    "Delete a language model",
    None,
    permission=MAY_CHANGE,
    path=[MODEL],
    tag="models",
    method="DELETE",
    status=204,
)
def delete_model(request: Request, slug: str) -> None:
    """Delete a model that nothing uses; 409 names what does."""
    member: Any = request.user
    get_object_or_404(LanguageModel, slug=slug).remove(actor=member)


def _save(request: Request, body: ModelBody, model: LanguageModel | None) -> ModelDoc:
    """Save a model by the rules of its form; raises UnusableBodyError that names each place."""
    if model is not None and body.slug not in ("", model.slug):
        raise UnusableBodyError({pointer("slug"): [f"It is {model.slug!r} and cannot change."]})
    sent = body.model_dump(exclude={"parameters", "send_trace_headers", "remove_key"})
    parameters = dict(body.parameters)
    data = {name: str(value) for name, value in sent.items() if value is not None}
    if TEMPERATURE in parameters:
        data[TEMPERATURE] = str(parameters.pop(TEMPERATURE))
    data["parameters"] = json.dumps(parameters)
    data |= {name: "on" for name in ("send_trace_headers", "remove_key") if getattr(body, name)}
    form = LanguageModelForm(data, instance=model)
    if not form.is_valid():
        raise UnusableBodyError(form_errors(form, {TEMPERATURE: ("parameters", TEMPERATURE)}))
    member: Any = request.user
    try:
        saved = form.save_as(member)
        saved.refresh_from_db()
        return model_document(saved)
    except ModelSlugTakenError as error:
        raise UnusableBodyError({pointer("slug"): [str(error)]}) from None

"""The calls that read and change language models. Keys are taken and never given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.catalog.forms import TEMPERATURE, LanguageModelForm, ModelSlugTakenError
from evaluators.models import LanguageModel
from runs.api.bodies import Body, UnusableBodyError, form_errors, pointer
from runs.api.params import ListRequest, NoParams
from runs.api.schema import reads, writes
from runs.documents import Document, Dollars
from runs.lists import Key, Keyset, ListQuery

MAY_CHANGE = "evaluators.change_languagemodel"
MODEL = OpenApiParameter("slug", str, "path", description="The short name of a language model.")
BY_NAME = Keyset(Key("name", str), Key("pk", int))


@dataclass(frozen=True, slots=True)
class ModelsQuery(ListQuery):
    """All language models."""


class ModelSettings(Document):
    """What a model's calls need, and what they cost."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Its name."""
    base_url: str
    """The part of the address before /chat/completions."""
    model_id: Annotated[str, Field(min_length=1, max_length=200)]
    """The id that the server uses."""
    key_variable: str = ""
    """The variable of the server that holds the key; "" for none."""
    reply_mode: str = "json_schema"
    """The first way to ask for a structured reply: json_schema, json_object or text."""
    parameters: dict[str, Any] = {}
    """What is sent with every call, such as temperature and max_tokens."""
    concurrency: int = 8
    """The most calls in flight, over all workers: 1 to 500."""
    requests_per_minute: int | None = None
    """The most calls that start in a minute; null for no limit."""
    timeout_s: int = 60
    """The longest a call may take, seconds: 1 to 600."""
    input_price_usd_per_mtok: Dollars | None = None
    """The price of a million input tokens, US dollars; null for that of the price library."""
    output_price_usd_per_mtok: Dollars | None = None
    """The price of a million output tokens, US dollars; null for that of the price library."""
    cached_price_usd_per_mtok: Dollars | None = None
    """The price of a million cached input tokens, US dollars; null for that of the price library."""
    send_trace_headers: bool = False
    """Whether target, case and evaluator of each call are sent to the server."""


class ModelDoc(ModelSettings):
    """A language model behind an OpenAI-compatible endpoint."""

    slug: str
    """Its short name, by which suites and targets name it."""
    has_stored_key: bool
    """Whether a key is stored. It is never given."""
    last_tested_at: datetime | None
    """When it was tested last; null for never, or not since it was changed."""
    updated_at: datetime
    """When it was last changed."""


class ModelBody(ModelSettings, Body):
    """A language model with its settings; what is left out gets its default."""

    slug: str = ""
    """Its short name, made from the name where it is left out. It cannot change."""
    api_key: str = ""
    """Its key, which is stored encrypted. Left out of a change, the stored one stays."""
    remove_key: bool = False
    """Whether the stored key is removed."""


def model_document(model: LanguageModel) -> ModelDoc:
    """Describe a model without its key."""
    return ModelDoc(
        **model.facts(), last_tested_at=model.last_tested_at, updated_at=model.updated_at
    )


@reads("Language models", ModelDoc, lists=ModelsQuery, tag="models")
def models(request: Request) -> Response:
    """List the language models by name."""
    params = ListRequest.read(request, ModelsQuery)
    return params.page(
        LanguageModel.objects.all(), BY_NAME, lambda rows: [model_document(row) for row in rows]
    )


@reads("One language model", ModelDoc, path=[MODEL], tag="models")
def model(request: Request, slug: str) -> Response:
    """Return a language model with its settings, without its key."""
    NoParams.read(request)
    return Response(model_document(get_object_or_404(LanguageModel, slug=slug)).as_json())


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
    path=[MODEL],
    tag="models",
    method="PUT",
)
def put_model(request: Request, body: ModelBody, slug: str) -> ModelDoc:
    """Replace the settings of a model; runs that were started keep theirs. A new base URL removes the stored key."""
    return _save(request, body, get_object_or_404(LanguageModel, slug=slug))


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

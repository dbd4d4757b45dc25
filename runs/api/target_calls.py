"""The calls that read and change targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.models import AuditEntry, LanguageModel
from runs import lists
from runs.api.bodies import Body, UnusableBodyError, form_errors, pointer, read_body
from runs.api.params import ListRequest, NoParams
from runs.api.safe_changes import ETAG, IF_MATCH, check_unchanged, tagged
from runs.api.schema import reads, writes
from runs.lists import Key, Keyset, ListQuery
from runs.models.suites import Target
from runs.target_kinds import UnknownTargetKindError
from runs.targets.documents import TargetDoc, target_document
from runs.targets.forms import MAX_ROWS, HeadersField, TargetForm, form_data, target_form

MAY_CHANGE = "runs.change_target"
TARGET = OpenApiParameter("target", int, "path", description="The id of a target.")
BY_NAME = Keyset(Key("name", str), Key("pk", int))


@dataclass(frozen=True, slots=True)
class ApiTargetsQuery(ListQuery):
    """Which targets the API lists; archived ones are left out."""

    kind: str = lists.text(help="Only targets of this kind, such as chat.")


class TargetBody(Body):
    """A target with its settings."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    """Its name, unique on the site."""
    kind: str
    """Its kind: chat, http, command or pushed. It cannot change."""
    description: str = ""
    """What it is."""
    model: str | None = None
    """The short name of its language model; only for the kind chat."""
    config: dict[str, Any] = {}
    """The settings of its kind. A header with `secret: true` is stored encrypted; without a value it keeps its own."""


class HeaderBody(Body):
    """A header of a request to a target."""

    name: str
    value: str = ""
    secret: bool = False


class HeadersBody(Body):
    """The headers among the settings of a target."""

    headers: Annotated[tuple[HeaderBody, ...], Field(max_length=MAX_ROWS)]


@reads("Targets", TargetDoc, lists=ApiTargetsQuery, tag="targets")
def targets(request: Request) -> Response:
    """List the targets by name."""
    params = ListRequest.read(request, ApiTargetsQuery)
    rows = Target.objects.filter(archived_at=None).select_related("model")
    if params.query.kind:
        rows = rows.filter(kind=params.query.kind)
    return params.page(rows, BY_NAME, lambda rows: [target_document(row) for row in rows])


@reads("One target", TargetDoc, path=[TARGET, ETAG], tag="targets")
def target(request: Request, target: int) -> Response:
    """Return a target with its settings."""
    NoParams.read(request)
    found = get_object_or_404(Target.objects.select_related("model"), pk=target)
    return tagged(target_document(found), found.updated_at.isoformat())


@writes(
    "Add a target",
    TargetDoc,
    body=TargetBody,
    permission=MAY_CHANGE,
    tag="targets",
    status=201,
)
def add_target(request: Request, body: TargetBody) -> TargetDoc:
    """Add a target; recorded outputs are imported as a file instead."""
    return _save(request, body, None)


@writes(
    "Change a target",
    TargetDoc,
    body=TargetBody,
    permission=MAY_CHANGE,
    path=[TARGET, IF_MATCH],
    tag="targets",
    method="PUT",
)
def put_target(request: Request, body: TargetBody, target: int) -> TargetDoc:
    """Replace the settings of a target; runs that were started keep theirs."""
    with transaction.atomic():
        found = get_object_or_404(Target.objects.select_for_update(no_key=True), pk=target)

        def describe() -> str:
            who = AuditEntry.objects.last_changer("target", found.pk)
            return (
                f"{who} changed the target “{found.name}” at {found.updated_at:%Y-%m-%d %H:%M} UTC"
            )

        check_unchanged(request, found.updated_at.isoformat(), describe)
        return _save(request, body, found)


def _save(request: Request, body: TargetBody, target: Target | None) -> TargetDoc:
    """Save a target by the rules of its form; raises UnusableBodyError that names each place."""
    if target is not None and body.kind != target.kind:
        raise UnusableBodyError({pointer("kind"): [f"It is {target.kind!r} and cannot change."]})
    try:
        blank = target_form(body.kind, target=target)
    except UnknownTargetKindError as error:
        raise UnusableBodyError({pointer("kind"): [str(error)]}) from None
    settings = blank.kind.config.model_fields
    if unknown := sorted(body.config.keys() - settings.keys()):
        known = f"there are {', '.join(settings)}" if settings else "there are none"
        raise UnusableBodyError(
            {pointer("config", name): [f"There is no such setting; {known}."] for name in unknown}
        )
    if blank.kind.replays and target is None:
        raise UnusableBodyError({pointer("kind"): ["Recorded outputs are imported as a file."]})
    form = target_form(body.kind, form_data(blank, _values(blank, body)), target=target)
    if not form.is_valid():
        raise UnusableBodyError(form_errors(form, {name: ("config", name) for name in settings}))
    member: Any = request.user
    return target_document(form.save(saved_by=member))


def _values(form: TargetForm, body: TargetBody) -> dict[str, Any]:
    """Return the values of the body by field; raises UnusableBodyError for a model or header that cannot be."""
    values = {**body.config, "name": body.name, "description": body.description}
    for name in body.config:
        if isinstance(form.fields[name], HeadersField):
            values[name] = _header_rows(name, body.config[name])
    if body.model is not None and "model" in form.fields:
        model = LanguageModel.objects.filter(slug=body.model).first()
        if model is None:
            raise UnusableBodyError(
                {pointer("model"): [f"There is no language model {body.model!r}."]}
            )
        values["model"] = model.pk
    return values


def _header_rows(name: str, rows: Any) -> list[dict[str, Any]]:
    try:
        return [dict(header) for header in read_body(HeadersBody, {"headers": rows}).headers]
    except UnusableBodyError as error:
        errors = {place.removeprefix("/headers"): texts for place, texts in error.errors.items()}
        raise UnusableBodyError(
            {pointer("config", name) + place: texts for place, texts in errors.items()}
        ) from None

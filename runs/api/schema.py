"""What all calls of the API share: they read, they are described in the schema, and errors are problem details."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, JsonResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import Field, create_model
from rest_framework.decorators import api_view
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from evaluators.scoring.types import DomainError
from runs.api.params import NoParams, QueryParams, list_params
from runs.documents import Document
from runs.exports.documents import ExportDoc
from runs.exports.specs import MEDIA_TYPES
from runs.filters.language import FilterError
from runs.lists import ListQuery

PROBLEM = "application/problem+json"
ROOT = "/api/"
NOTHING_HERE = "There is nothing at this address."


class ProblemDoc(Document):
    """What went wrong (RFC 9457)."""

    type: str = "about:blank"
    """Always about:blank: the status says which kind of problem it is."""
    title: str
    """The name of the status."""
    status: int
    """The HTTP status."""
    detail: str
    """What went wrong in this request."""
    instance: str
    """The path of the request."""
    errors: dict[str, list[str]] = Field(default={}, exclude_if=lambda errors: not errors)
    """The errors of each parameter; only with status 400."""


class CannotBeAnswered(APIException):
    """The requested object exists but cannot be shown, such as a run of another version."""

    status_code = HTTPStatus.CONFLICT


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the answer to an error; None for an unexpected one."""
    if isinstance(error, FilterError):
        error = ValidationError({"filter": [str(error)]})
    if isinstance(error, DomainError):
        error = CannotBeAnswered(str(error))
    if isinstance(error, Http404):
        # Django's message for a missing object names classes.
        error = NotFound(NOTHING_HERE)
    response = exception_handler(error, dict(context))
    if response is None:
        return None
    errors = _errors(response.data)
    response.data = problem(
        response.status_code,
        "; ".join(f"{name}: {' '.join(texts)}" for name, texts in errors.items())
        if errors
        else str(response.data["detail"]),
        context["request"].path,
        errors=errors,
    )
    response.content_type = PROBLEM
    return response


def problem(
    status: int, detail: str, path: str, *, errors: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """Return problem details as JSON values."""
    return ProblemDoc(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=path,
        errors=errors or {},
    ).as_json()


def problem_page(request: HttpRequest, status: int, detail: str) -> JsonResponse:
    """Return problem details for a request that is refused before it reaches the API."""
    document = problem(status, detail, request.path)
    return JsonResponse(document, status=status, content_type=PROBLEM)


def is_for_api(request: HttpRequest) -> bool:
    """Tell whether a request is for the API, whose clients cannot read HTML."""
    return request.path_info.startswith(ROOT)


def _errors(data: Any) -> dict[str, list[str]]:
    """Return the errors of each parameter; none if the error is a single sentence."""
    if not isinstance(data, Mapping) or set(data) == {"detail"}:
        return {}
    return {
        name: [str(text) for text in (texts if isinstance(texts, list) else [texts])]
        for name, texts in data.items()
    }


View = Callable[..., Any]
SLUG = OpenApiParameter("slug", str, "path", description="The short name of a suite.")
RUN = OpenApiParameter(
    "run", str, "path", description="The id of a run, or its suite and number: support-agent:12."
)
KEY = OpenApiParameter("key", str, "path", description="The key of a case.")
NUMBER = OpenApiParameter("number", int, "path", description="The number of a version.")
EXPORT = OpenApiParameter("export", UUID, "path", description="The id of an export.")
RESULT = OpenApiParameter("result", int, "path", description="The id of a result.")
CAMPAIGN = OpenApiParameter("campaign", int, "path", description="The id of a campaign.")
REFUSALS: Mapping[int, str] = {
    400: "A parameter is wrong; errors says which.",
    401: "There is no token and no session, or the token is wrong, expired or revoked.",
    403: "The role of the member or of the token does not allow it.",
    404: "It does not exist.",
    409: "The stored object cannot be shown, such as a run of another version.",
    429: "More requests, or more wrong tokens, than a minute allows; Retry-After says when to try again.",
}


def reads(
    summary: str,
    answer: type[Document],
    *,
    params: type[QueryParams] = NoParams,
    lists: type[ListQuery] | None = None,
    path: Sequence[OpenApiParameter] = (),
    tag: str,
    methods: Sequence[str] = ("GET",),
) -> Callable[[View], View]:
    """Make a function a call of the API for GET, described by its docstring.

    With `lists` it answers one page of the documents that match the query. Other `methods` than GET need a
    description of their own.
    """
    body = _page_model(answer) if lists else answer
    read = list_params(lists) if lists else params  # type: ignore[arg-type]  # a class is hashable
    answers = {200: OpenApiResponse(body, description="Found.")}
    return partial(_api_call, summary, answers, params=read, path=path, tag=tag, methods=methods)


def sends(
    summary: str,
    *endings: str,
    params: type[QueryParams] = NoParams,
    path: Sequence[OpenApiParameter] = (),
) -> Callable[[View], View]:
    """Make a function a call of the API that answers a file, or how far the making of a large one is.

    `endings` are those of the names that the file can have, by default any.
    """
    answers: dict[Any, OpenApiResponse] = {
        (200, MEDIA_TYPES[ending].partition(";")[0]): OpenApiResponse(
            OpenApiTypes.BINARY, description="The file."
        )
        for ending in endings or MEDIA_TYPES
    }
    answers[202] = OpenApiResponse(ExportDoc, description=PREPARED)
    return partial(_api_call, summary, answers, params=params, path=path, tag="files")


def _api_call(
    summary: str,
    answers: Mapping[Any, OpenApiResponse],
    view: View,
    *,
    params: type[QueryParams],
    path: Sequence[OpenApiParameter],
    tag: str,
    methods: Sequence[str] = ("GET",),
) -> View:
    refusals = {
        (status, PROBLEM): OpenApiResponse(ProblemDoc, description=text)
        for status, text in REFUSALS.items()
    }
    described = extend_schema(
        operation_id=view.__name__,
        summary=summary,
        description=view.__doc__,
        parameters=[*path, *([] if params is NoParams else [params])],
        responses={**answers, **refusals},
        tags=[tag],
        methods=["GET"],
    )
    call: View = described(api_view(list(methods))(view))
    return call


PREPARED = (
    "The file is large, so a worker prepares it. Location is the address of its state: poll it until the "
    "file is ready, or repeat this request."
)


def _page_model(answer: type[Document]) -> type[Document]:
    fields: dict[str, Any] = {
        "next": (str | None, Field(description="Where the next page is; null on the last one.")),
        "results": (list[answer], Field(description="The rows of this page.")),  # type: ignore[valid-type]  # a model made at run time
    }
    return create_model(
        f"{answer.__name__}Page", __base__=Document, __doc__="One page of many.", **fields
    )

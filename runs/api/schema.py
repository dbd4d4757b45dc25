"""What every call of the API has in common: it reads, it is described, and it refuses alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http import Http404, HttpRequest, JsonResponse
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.decorators import api_view
from rest_framework.exceptions import APIException, NotFound
from rest_framework.response import Response
from rest_framework.views import exception_handler

from evaluators.scoring.types import DomainError
from runs.api.params import NoParams, QueryParams, list_params
from runs.lists import ListQuery

if TYPE_CHECKING:
    pass


PROBLEM = "application/problem+json"
ROOT = "/api/"
NOTHING_HERE = "There is nothing at this address."


class ProblemSerializer(serializers.Serializer[Any]):
    """What went wrong (RFC 9457)."""

    type = serializers.CharField(help_text="Always about:blank: the status says what kind it is.")
    title = serializers.CharField(help_text="The name of the status.")
    status = serializers.IntegerField(help_text="The HTTP status.")
    detail = serializers.CharField(help_text="What went wrong here, in words.")
    instance = serializers.CharField(help_text="The path that was asked.")
    errors = serializers.DictField(  # type: ignore[assignment]  # fields are taken out of the class
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="What is wrong with which parameter; with status 400 alone.",
    )


class CannotBeAnswered(APIException):
    """What was asked for is there and cannot be told, such as runs of another version."""

    status_code = HTTPStatus.CONFLICT


def refused(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Return the answer to an error; None for one that nobody thought of."""
    if isinstance(error, DomainError):
        error = CannotBeAnswered(str(error))
    if isinstance(error, Http404):
        # What Django says of an object that is not there names classes.
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
    """Return problem details as plain JSON values."""
    told = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": path,
    }
    return told | ({"errors": errors} if errors else {})


def problem_page(request: HttpRequest, status: int, detail: str) -> JsonResponse:
    """Return problem details for what is refused before the API sees it."""
    told = problem(status, detail, request.path)
    return JsonResponse(told, status=status, content_type=PROBLEM)


def is_for_api(request: HttpRequest) -> bool:
    """Tell whether a program asks, to which no page can be shown."""
    return request.path_info.startswith(ROOT)


def _errors(said: Any) -> dict[str, list[str]]:
    """Return what is wrong with which parameter; nothing where it is one sentence."""
    if not isinstance(said, Mapping) or set(said) == {"detail"}:
        return {}
    return {
        name: [str(text) for text in (texts if isinstance(texts, list) else [texts])]
        for name, texts in said.items()
    }


View = Callable[..., Any]
SLUG = OpenApiParameter("slug", str, "path", description="The slug of a suite.")
RUN = OpenApiParameter(
    "run", str, "path", description="The id of a run, or its suite and number: support-agent:12."
)
KEY = OpenApiParameter("key", str, "path", description="The key of a case.")
NUMBER = OpenApiParameter("number", int, "path", description="The number of a version.")
RESULT = OpenApiParameter("result", int, "path", description="The id of a result.")
CAMPAIGN = OpenApiParameter("campaign", int, "path", description="The id of a campaign.")
REFUSALS: Mapping[int, str] = {
    400: "A parameter is wrong; errors says which.",
    401: "There is no token and no session, or the token is wrong, expired or revoked.",
    403: "The role of the member or of the token does not allow it.",
    404: "There is no such thing.",
    409: "What is stored cannot be told, such as a run of another version.",
}


def reads(
    summary: str,
    answer: type[serializers.Serializer[Any]],
    *,
    params: type[QueryParams] = NoParams,
    lists: type[ListQuery] | None = None,
    place: Sequence[OpenApiParameter] = (),
    tag: str,
) -> Callable[[View], View]:
    """Make a function a call of the API that answers GET, its docstring being the description.

    With `lists` it answers one page of what the query asks for.
    """

    def described(view: View) -> View:
        body = _page_of(answer) if lists else answer
        read = list_params(lists) if lists else params  # type: ignore[arg-type]  # a class is hashable
        answers: dict[Any, Any] = {200: OpenApiResponse(body, description="Found.")}
        for status, text in REFUSALS.items():
            answers[status, PROBLEM] = OpenApiResponse(ProblemSerializer, description=text)
        extend = extend_schema(
            operation_id=view.__name__,
            summary=summary,
            description=view.__doc__,
            parameters=[*place, *([] if read is NoParams else [read])],
            responses=answers,
            tags=[tag],
        )
        made: View = extend(api_view(["GET"])(view))
        return made

    return described


def _page_of(answer: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    name = answer.__name__.removesuffix("Serializer")
    return inline_serializer(
        f"{name}Page",
        {
            "next": serializers.URLField(
                allow_null=True, help_text="Where the next page is; null on the last one."
            ),
            "results": answer(many=True, help_text="The rows of this page."),
        },
    )

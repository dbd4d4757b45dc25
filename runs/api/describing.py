"""What every call of the API has in common: it reads, it is described, and it refuses alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.decorators import api_view

from runs.api.asking import Asked, NothingAsked
from runs.api.problems import PROBLEM, ProblemSerializer

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
    asked: type[Asked],
    place: Sequence[OpenApiParameter] = (),
    tag: str,
    pages: bool = False,
) -> Callable[[View], View]:
    """Make a function a call of the API that answers GET, its docstring being the description.

    With `pages` it answers one page of many.
    """

    def described(view: View) -> View:
        body = _page_of(answer) if pages else answer
        answers: dict[Any, Any] = {200: OpenApiResponse(body, description="Found.")}
        for status, text in REFUSALS.items():
            answers[status, PROBLEM] = OpenApiResponse(ProblemSerializer, description=text)
        extend = extend_schema(
            operation_id=view.__name__,
            summary=summary,
            description=view.__doc__,
            parameters=[*place, *([] if asked is NothingAsked else [asked])],
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

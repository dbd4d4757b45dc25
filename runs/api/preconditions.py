"""What keeps two people who edit the same thing from undoing each other: ETag and If-Match."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from runs.documents import Document

ETAG = OpenApiParameter(
    "ETag", str, "header", description="Its state, to send back as If-Match.", response=[200]
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    "header",
    description="The ETag of the state that you know: if another member has changed it since, the call is refused "
    "with 412 and says who.",
)


class PreconditionFailed(APIException):
    """Another member changed it since it was read."""

    status_code = HTTPStatus.PRECONDITION_FAILED


def tagged(document: Document, state: object) -> Response:
    """Return the answer of a document, with its state for `If-Match`."""
    return Response(document.as_json(), headers={"ETag": f'"{state}"'})


def expected_state(request: Request) -> str | None:
    """Return the state that the program knows; None where any will do."""
    value = request.headers.get(IF_MATCH.name, "").strip()
    return value.removeprefix("W/").strip('"') if value and value != "*" else None


def check_unchanged(request: Request, state: str, describe: Callable[[], str]) -> None:
    """Raise PreconditionFailed, with the change as described, unless the program knows this state."""
    expected = expected_state(request)
    if expected not in (None, state):
        raise PreconditionFailed(f"{describe()}. You know {expected}. Nothing was changed.")

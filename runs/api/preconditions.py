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


def check_unchanged(request: Request, state: str, describe: Callable[[], str]) -> None:
    """Raise PreconditionFailed, with the change as described, unless the program knows this state; "" is of nothing.

    `*` is any state, but not that of nothing.
    """
    given = request.headers.get(IF_MATCH.name, "").strip()
    if not given or (given == "*" and state):
        return
    expected = given.removeprefix("W/").strip('"')
    if expected != state:
        known = "" if given == "*" else f" You know {expected}."
        raise PreconditionFailed(f"{describe()}.{known} Nothing was changed.")

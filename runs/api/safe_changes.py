"""Safe changes: If-Match keeps a program from undoing newer work, Idempotency-Key from making a change twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from evaluators.model_calls.models import decrypt, encrypt
from runs.documents import Document
from runs.engine.plan import content_hash
from runs.models.temporary import MAX_IDEMPOTENCY_KEY_LENGTH, IdempotentRequest

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


HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    str,
    "header",
    description="A text of your own for this change. A request with the same key and body within a day is "
    "answered as the first one, and changes nothing.",
)
REPEATED = {"Idempotency-Replayed": "true"}


class KeyReused(APIException):
    """A key was used for another request."""

    status_code = 422


def once(request: Request, perform: Callable[[], Response]) -> Response:
    """Perform a change, or return the answer to the same request with the same key.

    A refused change leaves its key free. Raises KeyReused for another request with the key, and
    ValidationError for a key that is too long.
    """
    key = request.headers.get(HEADER, "")
    if not key:
        return perform()
    if len(key) > MAX_IDEMPOTENCY_KEY_LENGTH:
        message = f"A key has at most {MAX_IDEMPOTENCY_KEY_LENGTH} characters."
        raise ValidationError({HEADER: [message]})
    member: Any = request.user
    digest = content_hash([request.method, request.get_full_path(), _content(request.data)])
    with transaction.atomic():
        # The same request at the same time waits here until the first one is stored.
        row, is_first = IdempotentRequest.objects.get_or_create(
            member=member, key=key, defaults={"digest": digest}
        )
        if not is_first:
            if row.digest != digest:
                raise KeyReused(f"The {HEADER} {key!r} was used for another request.")
            answer = json.loads(decrypt(str(row.answer)))
            return Response(answer, status=row.status, headers=REPEATED)
        response = perform()
        # It may hold the address of a share link, whose secret is stored nowhere else.
        row.status, row.answer = response.status_code, encrypt(json.dumps(response.data))
        row.save(update_fields=["status", "answer"])
    return response


def _content(data: Any) -> Any:
    """Return a body as JSON: a file that was sent as it is by its hash."""
    return sha256(data).hexdigest() if isinstance(data, bytes) else data

"""Pages of a list by cursor: each begins behind the last row of the one before, whatever was added."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

Row = TypeVar("Row", bound=Model)
LARGEST = 2**63
UNREADABLE = "No list has given this cursor. Begin without one, and follow “next”."


def page_of(
    rows: QuerySet[Row],
    *,
    by: Mapping[str, type],
    request: Request,
    asked: Mapping[str, Any],
    told: Callable[[Sequence[Row]], Sequence[Mapping[str, Any]]],
    is_descending: bool = False,
) -> dict[str, Any]:
    """Return one page as plain JSON values, and the address of the next one, None at the end.

    `by` are the columns of the order with the types of their values; together they are unique.
    """
    sign = "-" if is_descending else ""
    ordered = rows.order_by(*(f"{sign}{column}" for column in by))
    if asked.get("cursor"):
        place = _read(asked["cursor"], by)
        ordered = ordered.filter(_behind(place, is_descending=is_descending))
    limit = asked["limit"]
    found = list(ordered[: limit + 1])
    shown = found[:limit]
    has_more = len(found) > limit
    return {
        "next": _next(request, [_value(shown[-1], name) for name in by]) if has_more else None,
        "results": list(told(shown)),
    }


def _behind(place: Mapping[str, Any], *, is_descending: bool) -> Q:
    """Return what comes after a place in the order of its columns."""
    beyond = "lt" if is_descending else "gt"
    found, names = Q(), list(place)
    for index, name in enumerate(names):
        same = Q(**{earlier: place[earlier] for earlier in names[:index]})
        found |= same & Q(**{f"{name}__{beyond}": place[name]})
    # It follows from the rest, and leads the database to the place in its index.
    return Q(**{f"{names[0]}__{beyond}e": place[names[0]]}) & found


def _next(request: Request, values: Sequence[Any]) -> str:
    text = json.dumps(values, separators=(",", ":"))
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return replace_query_param(request.build_absolute_uri(), "cursor", cursor)


def _read(cursor: str, by: Mapping[str, type]) -> dict[str, Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        raise ValidationError({"cursor": [UNREADABLE]}) from None
    if not isinstance(values, list) or not _fits(values, by):
        raise ValidationError({"cursor": [UNREADABLE]})
    return dict(zip(by, values, strict=True))


def _fits(values: Sequence[Any], by: Mapping[str, type]) -> bool:
    if [type(value) for value in values] != list(by.values()):
        return False
    return all(
        abs(value) < LARGEST if isinstance(value, int) else "\0" not in value for value in values
    )


def _value(row: Model, name: str) -> Any:
    return getattr(row, name)

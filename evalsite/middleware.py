"""What is refused before any page sees it."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase

NUL, ESCAPED_NUL = "\0", "%00"


def refuse_nul(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Answer 404 to addresses with the character NUL, over which PostgreSQL would break off."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        # A case's key is escaped twice, so its address may still hold an escape here.
        parts = (request.path_info, request.META.get("QUERY_STRING", ""))
        if any(NUL in part or ESCAPED_NUL in part for part in parts):
            raise Http404("No address holds the character NUL.")
        return get_response(request)

    return answer

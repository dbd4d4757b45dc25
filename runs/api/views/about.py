"""The API about itself: where it begins, its schema, and the page to try it on."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import serializers
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from runs.api.asking import NothingAsked
from runs.api.describing import reads
from runs.views._requests import may_view

BEGINNINGS = {
    "suites": "runs:api-suites",
    "runs": "runs:api-runs",
    "compare": "runs:api-compare",
    "campaigns": "runs:api-campaigns",
    "schema": "runs:api-schema",
    "docs": "runs:api-docs",
}


class BeginningsSerializer(serializers.Serializer[Any]):
    """Where the API begins."""

    suites = serializers.URLField(help_text="The suites.")
    runs = serializers.URLField(help_text="The runs.")
    compare = serializers.URLField(help_text="Two runs compared.")
    campaigns = serializers.URLField(help_text="The campaigns.")
    schema = serializers.URLField(help_text="This description.")
    docs = serializers.URLField(help_text="The page to try it on.")


@reads("Where the API begins", BeginningsSerializer, asked=NothingAsked, tag="about")
def beginnings(request: Request) -> Response:
    """Give the addresses to begin at."""
    NothingAsked.of(request)
    return Response({name: reverse(view, request=request) for name, view in BEGINNINGS.items()})


@extend_schema(exclude=True)
@api_view(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def nothing_here(request: Request, rest: str) -> Response:
    """Say that there is nothing at an address."""
    raise Http404


class SchemaView(SpectacularJSONAPIView):
    """The schema of the API, for whoever may use it."""

    schema = None


@require_safe
@may_view
def docs(request: HttpRequest) -> HttpResponse:
    """Show every call of the API with a form to try it."""
    return render(request, "api/docs.html")

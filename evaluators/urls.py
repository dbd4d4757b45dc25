"""Where the pages of evaluators live."""

from __future__ import annotations

from django.urls.resolvers import URLPattern

app_name = "evaluators"
urlpatterns: list[URLPattern] = []

"""Where the pages of runs live."""

from __future__ import annotations

from django.urls.resolvers import URLPattern

app_name = "runs"
urlpatterns: list[URLPattern] = []

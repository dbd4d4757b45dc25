"""Where every page of the site lives."""

from __future__ import annotations

from django.urls import include, path
from django.views.generic import RedirectView

from evalsite.views import healthz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("", RedirectView.as_view(pattern_name="access:account"), name="home"),
    path("", include("evalsite.access.urls")),
    path("", include("evaluators.urls")),
    path("", include("runs.urls")),
]
handler403 = "evalsite.views.permission_denied"

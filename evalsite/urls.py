"""The URLs of the site."""

from __future__ import annotations

from django.urls import include, path

from evalsite.views import csp_report, healthz
from runs.home.views import suite_list

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("csp-report", csp_report, name="csp-report"),
    path("", suite_list, name="home"),
    path("", include("evalsite.access.urls")),
    path("", include("evaluators.catalog.urls")),
    path("", include("runs.urls")),
]
handler400 = "evalsite.views.bad_request"
handler403 = "evalsite.views.permission_denied"
handler404 = "evalsite.views.page_not_found"
handler500 = "evalsite.views.server_error"

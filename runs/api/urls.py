"""Where the API lives."""

from __future__ import annotations

from django.urls import path

from runs.api.views import about, results, runs, suites

urlpatterns = [
    path("", about.beginnings, name="api"),
    path("schema", about.SchemaView.as_view(), name="api-schema"),
    path("docs/", about.docs, name="api-docs"),
    path("suites", suites.suites, name="api-suites"),
    path("suites/<slug:slug>", suites.suite, name="api-suite"),
    path("suites/<slug:slug>/versions", suites.suite_versions, name="api-suite-versions"),
    path(
        "suites/<slug:slug>/versions/<int:number>", suites.suite_version, name="api-suite-version"
    ),
    path("suites/<slug:slug>/cases", suites.suite_cases, name="api-suite-cases"),
    path("suites/<slug:slug>/cases/<path:key>", suites.suite_case, name="api-suite-case"),
    path("runs", runs.runs, name="api-runs"),
    path("runs/compare", runs.compare_runs, name="api-compare"),
    path("runs/<str:run>", runs.run, name="api-run"),
    path("runs/<str:run>/results", results.run_results, name="api-run-results"),
    path("results/<int:result>", results.result, name="api-result"),
    path("results/<int:result>/output", results.result_output, name="api-result-output"),
    path("campaigns", runs.campaigns, name="api-campaigns"),
    path("campaigns/<int:campaign>", runs.campaign, name="api-campaign"),
    path("<path:rest>", about.nothing_here, name="api-nothing"),
]

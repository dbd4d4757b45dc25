"""The addresses of the evaluator pages."""

from __future__ import annotations

from django.urls import path

from evaluators.catalog import views

MODEL = "models/<slug:slug>/"

app_name = "evaluators"
urlpatterns = [
    path("evaluators/", views.gallery, name="gallery"),
    path("evaluators/<slug:name>/", views.kind, name="kind"),
    path("models/", views.language_models, name="language-models"),
    path("models/new/", views.language_model_new, name="language-model-new"),
    path(MODEL, views.language_model, name="language-model"),
    path(f"{MODEL}edit/", views.language_model_edit, name="language-model-edit"),
    path(f"{MODEL}delete/", views.language_model_delete, name="language-model-delete"),
    path(f"{MODEL}test/", views.language_model_test, name="language-model-test"),
    path(
        f"{MODEL}test/start/",
        views.language_model_test_start,
        name="language-model-test-start",
    ),
]

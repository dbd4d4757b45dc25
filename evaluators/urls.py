"""Where the pages of evaluators live."""

from __future__ import annotations

from django.urls import path

from evaluators.views import gallery
from evaluators.views import language_models as models

MODEL = "models/<slug:slug>/"

app_name = "evaluators"
urlpatterns = [
    path("evaluators/", gallery.gallery, name="gallery"),
    path("evaluators/<slug:name>/", gallery.kind, name="kind"),
    path("models/", models.language_models, name="language-models"),
    path("models/new/", models.language_model_new, name="language-model-new"),
    path(MODEL, models.language_model, name="language-model"),
    path(f"{MODEL}edit/", models.language_model_edit, name="language-model-edit"),
    path(f"{MODEL}delete/", models.language_model_delete, name="language-model-delete"),
    path(f"{MODEL}test/", models.language_model_test, name="language-model-test"),
    path(
        f"{MODEL}test/start/",
        models.language_model_test_start,
        name="language-model-test-start",
    ),
]

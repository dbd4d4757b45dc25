"""The work that pages about language models queue by name."""

from __future__ import annotations

import asyncio

from celery import shared_task

from evaluators.model_calls.models import model_spec
from evaluators.model_calls.trial import try_model
from evaluators.models import LanguageModel


@shared_task(name="evaluators.tasks.test_language_model", ignore_result=True)
def test_language_model(*, model_id: int, **later: object) -> None:
    """Try a model out and keep what was found; a test that is not asked for any more is left."""
    model = LanguageModel.objects.filter(pk=model_id).first()
    if model is not None and model.begin_test():
        model.finish_test(asyncio.run(try_model(model_spec(model))).as_json())

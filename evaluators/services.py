"""What pages about language models set in motion."""

from __future__ import annotations

from celery import current_app
from django.contrib.auth.models import User
from kombu.exceptions import OperationalError

from evaluators.models import LanguageModel
from evaluators.scoring.types import DomainError

TEST_TASK = "evaluators.tasks.test_language_model"


class BrokerUnreachableError(DomainError):
    """Work cannot be queued because the broker does not answer."""

    code = "broker_unreachable"


def queue_test(model: LanguageModel, *, actor: User) -> None:
    """Ask a worker to test the model; raises BrokerUnreachableError when none can be asked."""
    previous = model.last_test
    model.ask_for_test(actor=actor)
    try:
        current_app.send_task(TEST_TASK, kwargs={"model_id": model.pk}, retry=False)
    except (OperationalError, OSError) as error:
        model.last_test = previous
        model.save(update_fields=["last_test"])
        raise BrokerUnreachableError(
            "The test was not queued: the message broker does not answer. Check CELERY_BROKER_URL."
        ) from error

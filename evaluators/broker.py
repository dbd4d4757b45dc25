"""Hand work to the workers through the message broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

from evaluators.scoring.types import DomainError

if TYPE_CHECKING:
    from celery import Celery


class NotQueuedError(DomainError):
    """No worker can be reached because the broker does not answer."""

    code = "not_queued"


def task_app() -> Celery:
    """Return the Celery application of the site; a command that queues nothing never loads it."""
    app: Celery = import_string(settings.TASK_APP)
    return app


def queue_task(task: str, what: str, kwargs: Mapping[str, Any]) -> None:
    """Queue a task that somebody waits for; raises NotQueuedError, which says that `what` was not queued."""
    try:
        task_app().send_task(task, kwargs=dict(kwargs), retry=False)
    except broker_errors() as error:
        raise NotQueuedError(
            f"{what} was not queued: the message broker does not answer. Check CELERY_BROKER_URL."
        ) from error


def broker_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a broker that does not answer raises.

    The embedded worker needs no Redis client, so it is imported only here.
    """
    from kombu.exceptions import OperationalError
    from redis import RedisError

    return OperationalError, RedisError, OSError

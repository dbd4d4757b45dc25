"""Ask the broker how it is: whether it answers, and how many tasks wait in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError

if TYPE_CHECKING:
    import redis

ANSWER_S = 0.5


@dataclass(frozen=True, slots=True)
class BrokerState:
    """`waiting` tasks are those no worker has taken yet; None where nobody can count them."""

    answers: bool
    waiting: int | None = None


def ask_broker() -> BrokerState:
    """Return the broker's state after half a second at most; raises nothing.

    The embedded one lies in the memory of the process that serves, and always answers.
    """
    if settings.IS_EMBEDDED:
        return BrokerState(answers=True)
    away: tuple[type[Exception], ...] = (*broker_errors(), ValueError)
    queue = current_app.conf.task_default_queue
    try:
        waiting = _client(settings.CELERY_BROKER_URL).llen(queue)
    except away:
        return BrokerState(answers=False)
    return BrokerState(answers=True, waiting=waiting)


def broker_errors() -> tuple[type[Exception], ...]:
    """Return what is raised where the broker does not answer.

    The embedded worker needs no client of Redis: it is loaded when something was raised.
    """
    from redis import RedisError

    return OperationalError, RedisError, OSError


@cache
def _client(url: str) -> redis.Redis:
    import redis

    return redis.Redis.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)

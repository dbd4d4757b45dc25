"""The Celery application, the heartbeat of its workers, and loading the site."""

from __future__ import annotations

import gc
import logging
import os
import threading
from typing import Any

import django
from celery import Celery
from celery.signals import celeryd_init, worker_ready, worker_shutting_down
from django.apps import apps


def load() -> None:
    """Load settings, apps and models once, and keep them out of garbage collection.

    Otherwise the collector walks all of them again and again: while they load, while the site serves
    and at exit. That is a third of the time of a short command.
    """
    if apps.ready:
        return
    gc.disable()
    try:
        django.setup()
    finally:
        gc.freeze()
        gc.enable()


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")

app = Celery("evalsite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["runs", "evaluators"])

logger = logging.getLogger(__name__)


@celeryd_init.connect
def load_site(**signal: Any) -> None:
    """Load the site before Celery does it without freezing the objects."""
    load()


@worker_ready.connect
def start_heartbeat(**signal: Any) -> None:
    """Start the heartbeat of a worker process."""
    # Imported here: the web process must not load the execution of runs.
    from evalsite.heartbeat import HEARTBEAT

    HEARTBEAT.start()


@worker_shutting_down.connect
def stop_heartbeat(**signal: Any) -> None:
    """Release the runs of a process that shuts down."""
    from evalsite.heartbeat import HEARTBEAT

    threading.Thread(target=HEARTBEAT.stop, name="release").start()

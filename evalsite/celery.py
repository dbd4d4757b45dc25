"""The Celery application, the heartbeat of its workers, and how the site is loaded."""

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
    """Load settings, apps and models, and have the collector never look at them; once is enough.

    Else it looks at all of them time and again, while they are loaded, while the site serves, and
    at the end: a third of what a short command takes.
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
    """Load the site in our way before Celery does it in its own."""
    load()


@worker_ready.connect
def start_heartbeat(**signal: Any) -> None:
    """Let a worker process reap and show itself as alive."""
    # Imported when a worker starts: the web process must not load the execution of runs.
    from evalsite.heartbeat import HEARTBEAT

    HEARTBEAT.start()


@worker_shutting_down.connect
def stop_heartbeat(**signal: Any) -> None:
    """Release what the process works on when it has to end."""
    from evalsite.heartbeat import HEARTBEAT

    threading.Thread(target=HEARTBEAT.stop, name="release").start()

"""The Celery application, and the heartbeat of its workers."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from celery import Celery
from celery.signals import import_modules, worker_ready, worker_shutting_down

from evalsite import load

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
# They import every page, and Celery drops what they report.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


@import_modules.connect
def load_site(**signal: Any) -> None:
    """Load the site before Celery does it, which connects to this signal later, without freezing the objects."""
    load()


app = Celery("evalsite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["runs", "evaluators"])

logger = logging.getLogger(__name__)


@worker_ready.connect
def start_heartbeat(sender: Any, **signal: Any) -> None:
    """Start the heartbeat of a worker process, which may have been given another number of threads."""
    # Imported here: the web process must not load the execution of runs.
    from evalsite.heartbeat import HEARTBEAT
    from runs.execution.run_worker import offer_places

    offer_places(sender.controller.concurrency)
    HEARTBEAT.start()


@worker_shutting_down.connect
def stop_heartbeat(**signal: Any) -> None:
    """Release the runs of a process that shuts down."""
    from evalsite.heartbeat import HEARTBEAT

    threading.Thread(target=HEARTBEAT.stop, name="release").start()

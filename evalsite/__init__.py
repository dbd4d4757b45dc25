"""Evalsite: settings, members, health, the worker and the command line."""

from __future__ import annotations

import gc
import os


def load() -> None:
    """Load settings, apps and models once, and keep them out of garbage collection.

    Otherwise the collector walks all of them again and again: while they load, while the site serves
    and at exit. That is a third of the time of a short command.
    """
    # Imported here: a list of the commands needs none of it.
    import django
    from django.apps import apps

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    if apps.ready:
        return
    gc.disable()
    try:
        django.setup()
    finally:
        gc.freeze()
        gc.enable()

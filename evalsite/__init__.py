"""Evalsite: settings, members, health, the worker and the command line."""

from __future__ import annotations

import gc
import os
from contextlib import suppress

# With Python's own 700 the collector walks the objects of a comparison of 20,000 cases some hundred
# times, half of the time of its page. Garbage in cycles is rare here and can wait a little longer.
OBJECTS_UNTIL_COLLECTION = 50_000
# Texts of megabytes are allocated apart from others. Otherwise glibc, once it has freed some, puts more of them between
# small objects of every thread, which keep their memory from the system for as long as the process lives.
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 1024 * 1024
# Otherwise numpy starts a thread for every core. Between two products of matrices they wait without rest, which
# takes more time from other requests than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def version() -> str:
    """Return the installed version, which stands in pyproject.toml alone."""
    # Imported here, as it takes longer than the list of the commands.
    import importlib.metadata

    try:
        return importlib.metadata.version("evalsite")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def load() -> None:
    """Load settings, apps and models once, and keep them out of garbage collection.

    Otherwise the collector walks all of them again and again: while they load, while the site serves
    and at exit. That is a third of the time of a short command.
    """
    # Imported here: a list of the commands needs none of it.
    import ctypes

    import django
    from django.apps import apps

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "evalsite.settings")
    if apps.ready:
        return
    # Only glibc has it.
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    gc.disable()
    try:
        django.setup()
    finally:
        gc.freeze()
        gc.set_threshold(OBJECTS_UNTIL_COLLECTION)
        gc.enable()

"""Bring in results that another installation or another tool came to."""

from __future__ import annotations

from functools import partial

from django.contrib.auth.models import User
from django.db import transaction

from runs import imports
from runs.models import Suite
from runs.services.queueing import SUMMARISE_RUN, queue


def import_results(
    content: bytes,
    *,
    file: str,
    suite: Suite | None,
    imported_by: User | None,
    target_name: str = "",
) -> imports.ImportedResults:
    """Store the results of a file as completed runs, and have their figures made on commit.

    As `runs.imports.import_results` does, which says what it raises.
    """
    with transaction.atomic():
        done = imports.import_results(
            content, file=file, suite=suite, imported_by=imported_by, target_name=target_name
        )
        for run in done.runs:
            transaction.on_commit(partial(queue, SUMMARISE_RUN, run.pk))
    return done

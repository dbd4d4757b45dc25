"""Execute runs in a thread, and read their counts."""

from __future__ import annotations

import threading

from django.db import connection
from django.db.models import Sum

from runs.execution.run_worker import work_on_run
from runs.models.results import ModelCall
from tests.support.model_server import good


def counts(run):
    run.refresh_from_db()
    return (run.status, run.done_count, run.pass_count, run.error_count)


def costs(run):
    run.refresh_from_db()
    return run.run_cost_usd + run.evaluation_cost_usd


def ledger(run):
    return ModelCall.objects.filter(run=run).aggregate(usd=Sum("cost_usd"))["usd"]


def work_in_thread(run, work_on=work_on_run):
    def work():
        try:
            work_on(run.pk)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


async def late(request):
    """Answer well once the server is released."""
    await request.hang()
    return await good()(request)

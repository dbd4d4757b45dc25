"""A site that is asked to stop: calls in flight are stored, and slow clients change nothing of that."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest
from aiohttp import web

from tests.production.test_backup import CASES, store
from tests.services.database import SQLITE, Database
from tests.services.processes import running, scratch_folder, wait_until
from tests.services.site import SQLITE_FILE, Site
from tests.services.slow_clients import LARGE_FILE, clients_of, connect, get
from tests.support.model_server import ModelServer, Request, good

pytestmark = [pytest.mark.slow, pytest.mark.processes]

CALLS_AT_ONCE = 4


def test_calls_in_flight_are_stored_though_a_slow_client_holds_a_connection(
    model_server: ModelServer,
) -> None:
    may_answer = threading.Event()

    async def held(request: Request) -> web.StreamResponse:
        while not may_answer.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.02)
        return await good()(request)

    with scratch_folder("stopping") as folder:
        site = Site(folder)
        site.migrate()
        store(site, model_server)
        model_server.behave(then=held)
        database = Database(f"{SQLITE}{folder / SQLITE_FILE}")
        with running(site.web), connect(site.url, get(LARGE_FILE) * 5) as slow:
            client = slow.getsockname()[1]
            wait_until(lambda: client in clients_of(site))
            wait_until(lambda: model_server.in_flight == CALLS_AT_ONCE)
            site.web.signal(signal.SIGTERM)
            wait_until(lambda: client not in clients_of(site))
            may_answer.set()
            assert site.web.wait() == 0
        assert len(model_server.chats) == CALLS_AT_ONCE
        with running(site.web):
            wait_until(lambda: database.says("SELECT status = 'completed' FROM runs_run"))
        database.close()
        assert len(model_server.chats) == 2 * CASES

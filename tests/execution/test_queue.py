"""Work is queued through a broker that may be slow, full or away."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
import redis
from celery import Celery

from evalsite.settings import REDIS_OPTIONS
from runs import queue as runs_queue
from runs.queue import WORK_ON_RUN, queue
from tests.services.redis import RedisServer, redis_process

pytestmark = [pytest.mark.slow, pytest.mark.processes]

KEY = "celery"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_process() as found:
        yield found


@pytest.fixture(autouse=True)
def _app(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    app = Celery(broker=server.url, set_as_current=False)
    app.conf.broker_transport_options = REDIS_OPTIONS | {"socket_timeout": 0.3}
    monkeypatch.setattr("evalsite.celery.app", app)
    monkeypatch.setattr(runs_queue, "BROKER", runs_queue.Broker())
    server.empty()
    yield
    app.close()


def waiting(server: RedisServer) -> int:
    with redis.Redis.from_url(server.url) as client:
        return int(str(client.llen(KEY)))


def test_what_is_queued_waits_in_the_broker(server: RedisServer):
    queue(WORK_ON_RUN, 1)
    assert waiting(server) == 1


def test_what_expires_says_when(server: RedisServer):
    queue(WORK_ON_RUN, 1, expires_s=60.0)
    with redis.Redis.from_url(server.url) as client:
        [message] = client.lrange(KEY, 0, -1)
    assert json.loads(message)["headers"]["expires"]


def test_a_broker_that_froze_holds_up_one_caller_for_a_moment_and_the_next_not_at_all(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    queue(WORK_ON_RUN, 1)
    server.process.freeze()
    try:
        # Without a timeout this would wait for as long as the broker is frozen.
        queue(WORK_ON_RUN, 2)
        queued: list[str] = []
        monkeypatch.setattr("evalsite.celery.app.send_task", lambda *a, **k: queued.append("task"))
        queue(WORK_ON_RUN, 3)
        assert queued == []
    finally:
        server.process.wake()
    monkeypatch.setattr(runs_queue, "BROKER", runs_queue.Broker(away_until=time.monotonic() - 1))
    queue(WORK_ON_RUN, 4)
    assert queued == ["task"]


def test_a_broker_that_was_started_again_is_used_at_once(server: RedisServer):
    queue(WORK_ON_RUN, 1)
    server.process.kill()
    server.process.start()
    queue(WORK_ON_RUN, 2)
    assert waiting(server) == 1


def test_a_broker_that_is_full_is_like_one_that_is_away(
    server: RedisServer, caplog: pytest.LogCaptureFixture
):
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1")
        try:
            queue(WORK_ON_RUN, 1)
        finally:
            client.config_set("maxmemory", "0")
    assert "waits for the reaper" in caplog.text

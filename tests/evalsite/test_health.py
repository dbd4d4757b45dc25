from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from evalsite.health import file_health
from evalsite.settings import is_not_health_check
from runs.models.runs import LEASE, WorkerProcess
from tests.services.disk import full_disk
from tests.services.processes import free_port

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]


def make_worker(age: timedelta) -> WorkerProcess:
    now = timezone.now()
    return WorkerProcess.objects.create(
        name=f"worker-{age}",
        host="here",
        pid=1,
        version="1",
        started_at=now,
        heartbeat_at=now - age,
    )


def test_the_health_page_needs_no_login_and_sets_no_cookie(client: Client) -> None:
    make_worker(timedelta(seconds=1))
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "database": "ok", "broker": "ok", "worker": "ok"}
    assert not response.cookies
    assert "no-store" in response["Cache-Control"]


def test_a_worker_without_a_recent_heartbeat_is_missing(client: Client) -> None:
    make_worker(LEASE + timedelta(seconds=1))
    response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json()["worker"] == "missing"
    assert response.json()["database"] == "ok"


def test_failing_health_checks_do_not_fill_the_log(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get("/healthz").status_code == 503
    client.get("/nothing/here/")
    written = [record.getMessage() for record in caplog.records if is_not_health_check(record)]
    assert written == ["Not Found: /nothing/here/"]


def test_an_unreachable_broker_is_reported(client: Client, settings: Settings) -> None:
    make_worker(timedelta(seconds=1))
    settings.IS_EMBEDDED = False
    settings.CELERY_BROKER_URL = f"redis://:secret@127.0.0.1:{free_port()}/0"
    response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json()["broker"] == "unreachable"
    assert response.json()["worker"] == "ok"
    assert b"secret" not in response.content


@pytest.mark.slow
def test_a_real_broker_answers(client: Client, settings: Settings, redis_url: str) -> None:
    settings.IS_EMBEDDED = False
    settings.CELERY_BROKER_URL = redis_url
    assert client.get("/healthz").json()["broker"] == "ok"


def test_an_unreachable_database_is_reported(client: Client) -> None:
    def refuse(*args: Any) -> None:
        raise OperationalError("secret host")

    with connection.execute_wrapper(refuse):
        response = client.get("/healthz")
    assert response.status_code == 503
    assert b"secret" not in response.content
    assert response.json() == {
        "status": "unavailable",
        "database": "unreachable",
        "broker": "ok",
        "worker": "unknown",
    }


def test_a_web_process_is_healthy_without_a_worker(client: Client) -> None:
    response = client.get("/healthz?parts=database,broker")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "database": "ok", "broker": "ok"}


def test_an_unknown_part_is_refused(client: Client) -> None:
    response = client.get("/healthz?parts=redis")
    assert response.status_code == 400
    assert response.json() == {"error": "The parts are database, broker, worker."}


def test_a_database_without_room_is_full_although_it_can_be_read(client: Client) -> None:
    if connection.vendor == "sqlite":
        with full_disk(os.getpid()):
            assert client.get("/healthz?parts=database").json()["database"] == "full"
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            # A quota in place of a full disk, which only root could make: reading does not notice it.
            cursor.execute("SET LOCAL temp_file_limit = '64kB'")
            assert client.get("/healthz?parts=database").status_code == 503
            transaction.set_rollback(True)
    assert client.get("/healthz?parts=database").status_code == 200


def test_a_database_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "evalsite.sqlite3"
    assert file_health(path) == "read-only"
    path.touch()
    assert file_health(path) == "ok"
    with full_disk(os.getpid()):
        assert file_health(path) == "full"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]

"""The health page: database, broker and workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from evalsite import health
from evalsite.health import STALLED_AFTER_S, Occasional, file_health
from evalsite.settings import is_not_health_check
from runs.execution.reaper import reap
from runs.execution.shares import register_run_worker
from runs.models.database import database_now
from runs.models.runs import LEASE, Run, WorkerProcess
from runs.running.retrying import resume_run, stop_run
from tests.services.disk import full_disk
from tests.services.processes import free_port
from tests.support.clock import Clock
from tests.support.factories import make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock", "fresh_probes")]

StartRun = Callable[..., Run]


@pytest.fixture
def fresh_probes() -> Iterator[None]:
    """Let no test see what an earlier one found."""
    for probe in (health.ROOM, health.UNCLAIMED):
        probe.forget()
    yield
    for probe in (health.ROOM, health.UNCLAIMED):
        probe.forget()


@pytest.fixture
def probes_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_EVERY_S", 0.0)


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
    answer = response.json()
    assert 0 <= answer.pop("written_s_ago") < health.PROBE_EVERY_S
    assert answer == {
        **{"status": "ok", "database": "ok", "broker": "ok", "worker": "ok", "work": "ok"},
        "unclaimed_s": 0.0,
    }
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
        "work": "unknown",
    }


def test_a_web_process_is_healthy_without_a_worker(client: Client) -> None:
    response = client.get("/healthz?parts=database,broker")
    assert response.status_code == 200
    states = {"status": "ok", "database": "ok", "broker": "ok"}
    assert {name: response.json()[name] for name in states} == states
    assert set(response.json()) - set(states) == {"written_s_ago"}


def test_an_unknown_part_is_refused(client: Client) -> None:
    response = client.get("/healthz?parts=redis")
    assert response.status_code == 400
    assert response.json() == {"error": "The parts are database, broker, worker, work."}


@pytest.mark.usefixtures("probes_every_time")
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


def without_room(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Answer as PostgreSQL does whose disk is full, to what would write a file of its own."""
    if "generate_series" in sql:
        raise OperationalError from psycopg.errors.DiskFull("no space")
    return execute(sql, params, many, context)


@pytest.mark.usefixtures("probes_every_time")
def test_the_workers_page_says_why_runs_stand_still(viewer_client: Client) -> None:
    address, title = reverse("runs:workers"), "The disk of the database is full"
    assert title not in viewer_client.get(address).text
    if connection.vendor == "sqlite":
        with full_disk(os.getpid()):
            text = viewer_client.get(address).text
    else:
        with connection.execute_wrapper(without_room):
            text = viewer_client.get(address).text
    assert title in text
    assert "Runs stand still" in text


def test_a_database_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "evalsite.sqlite3"
    assert file_health(path) == "read-only"
    path.touch()
    assert file_health(path) == "ok"
    with full_disk(os.getpid()):
        assert file_health(path) == "full"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_costs_something_is_done_once_for_all_who_ask_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, reads = [100.0], iter("abc")
    monkeypatch.setattr(health.time, "monotonic", lambda: now[0])
    probe = Occasional(lambda: next(reads))

    assert probe.get() == ("a", 0.0)
    now[0] += health.PROBE_EVERY_S - 1
    assert probe.get() == ("a", health.PROBE_EVERY_S - 1)
    now[0] += 1
    assert probe.get() == ("b", 0.0)


def test_a_probe_that_failed_is_tried_again_by_the_next_who_asks() -> None:
    answers = iter([OperationalError("away"), "ok"])

    def read() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    probe = Occasional(read)
    with pytest.raises(OperationalError):
        probe.get()
    assert probe.get()[0] == "ok"


@pytest.mark.usefixtures("probes_every_time")
class TestWork:
    """What waits although a worker should take it."""

    @pytest.fixture
    def run(self, start_recorded: StartRun, clock: Clock) -> Run:
        run = start_recorded("a refund", "a refund")
        # The column's default is the time of the server, which has not stopped.
        Run.objects.update(waits_since=clock.now)
        return run

    def ask(self, client: Client) -> tuple[str, float]:
        """Return the state of the work and how long it has waited."""
        WorkerProcess.objects.all().delete()
        make_worker(timedelta(seconds=1))
        response = client.get("/healthz?parts=work")
        answer = response.json()
        assert response.status_code == (200 if answer["work"] == "ok" else 503)
        return answer["work"], answer["unclaimed_s"]

    def test_a_run_that_no_worker_takes_is_stalled_after_a_while(
        self, client: Client, run: Run, clock: Clock
    ) -> None:
        clock.advance(seconds=STALLED_AFTER_S)
        assert self.ask(client) == ("ok", STALLED_AFTER_S)
        clock.advance(seconds=1)
        assert self.ask(client) == ("stalled", STALLED_AFTER_S + 1)

        register_run_worker(run.pk, "mine", under_way=0, now=database_now())
        assert self.ask(client) == ("ok", 0.0)

    def test_work_counts_as_unclaimed_from_when_it_lost_its_worker(
        self, client: Client, run: Run, clock: Clock
    ) -> None:
        clock.advance(hours=1)
        register_run_worker(run.pk, "dead", under_way=0, now=database_now())
        clock.advance(seconds=LEASE.total_seconds() + 1)
        assert self.ask(client) == ("ok", LEASE.total_seconds() + 1)
        reap(now=database_now())
        assert self.ask(client) == ("ok", 0.0)
        clock.advance(seconds=STALLED_AFTER_S + 1)
        assert self.ask(client)[0] == "stalled"

    def test_work_that_was_resumed_has_not_waited_since_its_start(
        self, client: Client, run: Run, clock: Clock
    ) -> None:
        stop_run(run, stopped_by=None)
        clock.advance(hours=1)
        assert self.ask(client) == ("ok", 0.0)
        resume_run(run, resumed_by=None)
        assert self.ask(client) == ("ok", 0.0)

    def test_a_run_waits_for_a_busy_worker_as_long_as_it_takes(
        self, client: Client, run: Run, start_recorded: StartRun, clock: Clock, settings: Settings
    ) -> None:
        settings.CELERY_WORKER_CONCURRENCY = 1
        clock.advance(hours=1)
        busy = start_recorded("a refund")
        register_run_worker(busy.pk, "busy", under_way=1, now=database_now())
        assert self.ask(client) == ("ok", 0.0)
        settings.CELERY_WORKER_CONCURRENCY = 2
        assert self.ask(client) == ("stalled", 3600.0)

    def test_a_run_waits_for_another_of_its_member_as_long_as_it_takes(
        self, client: Client, run: Run, start_recorded: StartRun, clock: Clock, settings: Settings
    ) -> None:
        settings.CELERY_WORKER_CONCURRENCY = 2
        ann = make_user()
        Run.objects.update(created_by=ann)
        clock.advance(hours=1)
        busy = start_recorded("a refund", started_by=ann)
        register_run_worker(busy.pk, "busy", under_way=1, now=database_now())
        assert self.ask(client) == ("ok", 0.0)
        Run.objects.filter(pk=run.pk).update(created_by=make_user())
        assert self.ask(client) == ("stalled", 3600.0)

    @pytest.mark.usefixtures("run")
    def test_the_run_of_a_command_line_waits_for_no_worker(
        self, client: Client, clock: Clock
    ) -> None:
        Run.objects.update(owner="command_line", owner_id="x/y/1/1")
        clock.advance(hours=1)
        assert self.ask(client) == ("ok", 0.0)

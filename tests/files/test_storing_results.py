"""Runs of a file are stored bit by bit: others write in between, and nobody sees a run before it is whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from evaluators.models import AuditEntry
from runs.execution.reaper import SILENCE, reap
from runs.files import storing_results
from runs.files.importing_results import import_results
from runs.files.storing_results import ImportCutOffError
from runs.finishing import summarise_run
from runs.models import database
from runs.models.database import atomic_batch, database_now
from runs.models.removals import Removal, RemovalPart
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.retention.queries import Selection, select_runs
from runs.retention.services import begin_removal, remove_data
from tests.support.clock import Clock
from tests.support.factories import make_case, make_suite

pytestmark = pytest.mark.django_db(transaction=True)

FAILED = "the power went out"


def results(*targets: str, cases: int = 3) -> bytes:
    lines = [
        {"eval_id": f"C-{n}", "score": 0.9, "target": target, "output": "Hello"}
        for target in targets
        for n in range(cases)
    ]
    return "\n".join(map(json.dumps, lines)).encode()


def bring_in(content: bytes, suite: Suite) -> tuple[Run, ...]:
    return import_results(content, file="r.jsonl", suite=suite, imported_by=None).runs


@pytest.fixture
def suite() -> Suite:
    made = make_suite(slug="support")
    for number in range(3):
        make_case(suite=made, key=f"C-{number}", position=number)
    return made


@pytest.fixture
def after_each_batch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """Store one result or case at a time, and do these things, one after each transaction, in another thread."""
    waiting: list[Callable[[], object]] = []
    threads = ThreadPoolExecutor(1)

    @contextmanager
    def atomic_then() -> Iterator[None]:
        with atomic_batch():
            yield
        if waiting:
            threads.submit(do, waiting.pop(0)).result()

    def do(action: Callable[[], object]) -> object:
        try:
            return action()
        finally:
            connection.close()

    monkeypatch.setattr(storing_results, "BATCH", 1)
    monkeypatch.setattr(storing_results, "atomic_batch", atomic_then)
    yield waiting
    threads.shutdown()


def test_others_write_between_its_batches_and_do_not_see_a_run_before_all_are_whole(
    suite: Suite, after_each_batch: list[Callable[[], object]], viewer_client: Client
) -> None:
    addresses = [f"/suites/support/runs/{number}/" for number in (1, 2)]
    seen: list[Any] = []

    def write_and_look() -> None:
        AuditEntry.objects.record("sign_in", by=None, object_type="user", object_id=1)
        statuses = [viewer_client.get(address).status_code for address in addresses]
        listed = viewer_client.get("/api/runs?suite=support").json()["results"]
        found = viewer_client.get("/suites/support/cases/C-0/").content.decode()
        seen.append((statuses, listed, "agent" in found))

    # Each of two runs has three results and as many cases.
    after_each_batch += [write_and_look] * 12
    runs = bring_in(results("agent 1", "agent 2"), suite)
    assert seen == [([404, 404], [], False)] * 12
    for run in runs:
        summarise_run(run.pk)
    assert [viewer_client.get(address).status_code for address in addresses] == [200, 200]
    assert [run.results.count() for run in runs] == [3, 3]
    assert [entry.object_name for entry in AuditEntry.objects.filter(action="import")] == [
        "support #2",
        "support #1",
    ]


def test_who_waits_for_the_only_writer_of_sqlite_finds_a_moment_between_two_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    moments = iter((10.0, 10.2, 20.0, 29.0))
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=pauses.append)
    monkeypatch.setattr(database, "time", clock)
    for _ in range(2):
        with atomic_batch():
            Suite.objects.count()
    expected = [pytest.approx(0.05), 0.1] if connection.vendor == "sqlite" else []
    assert pauses == expected


def fail() -> None:
    raise RuntimeError(FAILED)


def test_nothing_of_an_import_that_fails_can_be_seen_and_a_worker_removes_it(
    suite: Suite, after_each_batch: list[Callable[[], object]], viewer_client: Client
) -> None:
    after_each_batch += [int, int, fail]
    with pytest.raises(RuntimeError, match=FAILED):
        bring_in(results("agent 1", "agent 2"), suite)
    assert not Run.objects.exists()
    assert not AuditEntry.objects.filter(action="import").exists()
    first, second = Removal.objects.all()
    assert (str(first), first.asked_by_name) == ("support #1", "a cut-off import")
    assert remove_data(first.pk)
    assert remove_data(second.pk)
    assert not Result.objects.exists()
    assert not Run.including_deleted.exists()

    [run] = bring_in(results("agent"), suite)
    assert viewer_client.get(f"/suites/support/runs/{run.number}/").status_code == 200


@pytest.mark.parametrize("is_dead", [False, True])
def test_the_reaper_removes_what_a_killed_import_has_stored(
    suite: Suite,
    after_each_batch: list[Callable[[], object]],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    is_dead: bool,
) -> None:
    after_each_batch += [int, fail]
    with monkeypatch.context() as killed:
        killed.setattr(Removal.objects, "remove_cut_off", lambda runs: None)
        with pytest.raises(RuntimeError):
            bring_in(results("agent"), suite)
    reap(now=database_now())
    assert not Removal.objects.exists()
    if is_dead:
        Run.including_deleted.update(owner_id="elsewhere/boot/4242424/1")
        monkeypatch.setattr("runs.execution.reaper.is_dead", lambda name: "4242424" in name)
    else:
        clock.advance(seconds=SILENCE.total_seconds() + 1)
    reap(now=database_now())
    reap(now=database_now())
    assert remove_data(Removal.objects.get().pk)
    assert not Run.including_deleted.exists()


def test_an_import_that_stood_still_until_it_counted_as_dead_stores_nothing(
    suite: Suite, after_each_batch: list[Callable[[], object]], clock: Clock
) -> None:
    def stand_still() -> None:
        clock.advance(seconds=SILENCE.total_seconds() + 1)
        reap(now=database_now())
        assert remove_data(Removal.objects.get().pk)

    after_each_batch += [int, stand_still]
    with pytest.raises(ImportCutOffError, match="stood still for too long"):
        bring_in(results("agent"), suite)
    assert not Run.including_deleted.exists()
    assert not Result.objects.exists()
    assert not Removal.objects.exists()


def test_a_suite_that_is_deleted_meanwhile_takes_the_import_with_it(
    suite: Suite, after_each_batch: list[Callable[[], object]]
) -> None:
    def delete_suite() -> None:
        whole = Selection(RemovalPart.RUN, suite, select_runs(suite), is_whole_suite=True)
        remove_data(begin_removal(whole, by=None, in_background=False).pk)

    after_each_batch += [int, delete_suite]
    with pytest.raises(ImportCutOffError, match="support was deleted meanwhile"):
        bring_in(results("agent"), suite)
    assert not Suite.including_deleted.exists()
    assert not Run.including_deleted.exists()
    assert not Result.objects.exists()
    assert not Removal.objects.exists()


def test_a_case_that_changes_meanwhile_keeps_the_revision_that_was_scored(
    suite: Suite, after_each_batch: list[Callable[[], object]]
) -> None:
    before = list(suite.cases.order_by("position"))

    def replace_case() -> None:
        suite.cases.filter(key="C-2").update(is_current=False)
        Case.objects.create(suite=suite, key="C-2", revision=2, content_hash="new")

    after_each_batch += [replace_case]
    [run] = bring_in(results("agent"), suite)
    assert [result.case for result in run.results.order_by("position")] == before


def test_a_transaction_stores_fewer_results_where_they_are_long(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[int] = []

    @contextmanager
    def atomic_then_count() -> Iterator[None]:
        with atomic_batch():
            yield
        stored.append(Result.objects.count())

    monkeypatch.setattr(storing_results, "MAX_BATCH_LENGTH", 100_000)
    monkeypatch.setattr(storing_results, "atomic_batch", atomic_then_count)
    lengths = (90_000, 90_000, 10, 10, 200_000)
    lines = [{"eval_id": "C-0", "score": 0.9, "output": "x" * length} for length in lengths]
    bring_in("\n".join(map(json.dumps, lines)).encode(), suite)
    # Its cases and the end follow.
    assert stored == [1, 4, 5, 5, 5]

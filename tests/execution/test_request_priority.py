"""Run workers in a web process yield to requests, and still finish their work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runs.execution import run_worker
from runs.execution.run_worker import (
    RequestPriority,
    pause_for_requests,
    work_on_run,
    yield_to_waiting_requests,
)
from runs.models.runs import RunStatus
from tests.support.runs import StartRun


@pytest.fixture
def waiting() -> Iterator[list[str]]:
    """Give the list of those who wait."""
    who: list[str] = []
    yield_to_waiting_requests(lambda: bool(who))
    yield who
    yield_to_waiting_requests(run_worker._nobody)


def most_beside_each_other(executions: int) -> tuple[int, int]:
    """Let executions begin together; returns how many gave way, and how many at the same time."""
    inside: list[int] = []
    counts: list[int] = []

    async def sleep(seconds: float) -> None:
        inside.append(1)
        counts.append(len(inside))
        await asyncio.sleep(0)
        inside.pop()

    async def begin() -> None:
        polite = RequestPriority(sleep)
        async with asyncio.TaskGroup() as group:
            for _ in range(executions):
                group.create_task(polite.yield_to_requests())

    asyncio.run(begin())
    return len(counts), max(counts, default=0)


def test_one_execution_begins_at_a_time_while_somebody_waits(waiting: list[str]) -> None:
    waiting.append("a reader")

    assert most_beside_each_other(5) == (5, 1)


def test_nobody_is_given_way_to_when_nobody_waits(waiting: list[str]) -> None:
    assert most_beside_each_other(5) == (0, 0)


@pytest.mark.parametrize(("at_most_s", "asked"), [(3600.0, 5), (0.0, 1)])
def test_a_batch_waits_until_nobody_waits_or_long_enough(at_most_s: float, asked: int) -> None:
    answers = [True, True, True, True, False]
    yield_to_waiting_requests(lambda: answers.pop(0))
    pause_for_requests(at_most_s=at_most_s)
    yield_to_waiting_requests(run_worker._nobody)
    assert len(answers) == 5 - asked


def test_a_large_file_is_made_in_a_minute_though_somebody_waits_all_the_time(
    waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.append("a reader")
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(run_worker, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    for _ in range(20_000):
        pause_for_requests()
    assert 0 < now_s < 60


@pytest.mark.django_db(transaction=True)
def test_a_run_ends_though_somebody_waits_all_the_time(
    waiting: list[str], start_recorded: StartRun
) -> None:
    waiting.append("a reader")
    run = start_recorded("your refund", "nothing", concurrency=2)

    work_on_run(run.pk)

    run.refresh_from_db()
    assert (run.status, run.pass_count, run.fail_count) == (RunStatus.COMPLETED, 1, 1)

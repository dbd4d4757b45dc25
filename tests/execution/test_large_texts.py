"""Limits on the large outputs that are in memory at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextlib import suppress
from typing import Any

import pytest

from evaluators.model_calls.client import Try
from runs.execution import claims, large_texts, result_writer
from runs.execution.agents import AgentTry
from runs.execution.claims import claim_jobs
from runs.execution.large_texts import LARGE_BYTES, MAX_HELD_BYTES, LargeTexts
from runs.execution.loading import load_work
from runs.execution.run_worker import work_on_run
from runs.files.importing import import_suite
from runs.formats import suite_files
from runs.models.results import Result
from runs.running.retrying import retry_results
from runs.running.services import start_run
from tests.support.agent_server import AgentServer, says
from tests.support.factories import make_case, make_model, make_suite, make_target
from tests.support.model_server import ModelServer
from tests.support.runs import StartRun
from tests.support.trees import CHECK, JUDGED, tree

HALF = MAX_HELD_BYTES // 2


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every text, and let only one be held."""
    monkeypatch.setattr(large_texts, "LARGE_BYTES", 1)
    monkeypatch.setattr(large_texts, "MAX_HELD_BYTES", 1)


def test_texts_wait_for_those_that_are_held() -> None:
    async def check() -> list[str]:
        texts, log = LargeTexts(), list[str]()

        async def hold(result: int, size: int) -> None:
            await texts.take(result, size)
            log.append(f"{result} held")

        await hold(1, HALF)
        await hold(2, HALF)
        await hold(3, LARGE_BYTES - 1)
        # Who holds one would wait for itself.
        await hold(1, MAX_HELD_BYTES)
        async with asyncio.TaskGroup() as group:
            late = group.create_task(hold(4, HALF))
            served = group.create_task(texts.nobody_waits())
            for _ in range(3):
                await asyncio.sleep(0)
            assert not late.done()
            assert not served.done()
            texts.release([2])
            for _ in range(3):
                await asyncio.sleep(0)
            assert not late.done()
            log.append("1 released")
            texts.release([1])
        return log

    log = asyncio.run(check())
    assert log == ["1 held", "2 held", "3 held", "1 held", "1 released", "4 held"]


def test_a_text_of_any_size_is_held_alone_and_who_stops_waiting_is_forgotten() -> None:
    async def check() -> None:
        texts = LargeTexts()
        await texts.take(1, 10 * MAX_HELD_BYTES)
        waiting = asyncio.ensure_future(texts.take(2, LARGE_BYTES))
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await texts.nobody_waits()
        texts.release([1])
        await texts.take(3, 10 * MAX_HELD_BYTES)

    asyncio.run(check())


def test_who_waited_for_room_finds_no_garbage_of_those_before() -> None:
    class Match:
        """Leads to itself, as what a path finds in JSON does."""

        def __init__(self) -> None:
            self.parent = self

    async def check() -> object:
        texts = LargeTexts()
        await texts.take(1, MAX_HELD_BYTES)
        waiting = asyncio.ensure_future(texts.take(2, MAX_HELD_BYTES))
        await asyncio.sleep(0)
        found = weakref.ref(Match())
        texts.release([1])
        await waiting
        return found()

    gc.disable()
    try:
        assert asyncio.run(check()) is None
    finally:
        gc.enable()


def test_loops_of_several_threads_share_the_room() -> None:
    texts, is_held = LargeTexts(), threading.Event()

    async def hold_until_released() -> None:
        await texts.take(2, MAX_HELD_BYTES)
        is_held.set()

    asyncio.run(texts.take(1, MAX_HELD_BYTES))
    thread = threading.Thread(target=lambda: asyncio.run(hold_until_released()))
    thread.start()
    assert not is_held.is_set()
    texts.release([1])
    thread.join()
    assert is_held.is_set()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("one_at_a_time")
def test_the_answers_of_agents_are_read_one_after_the_other_when_they_are_large(
    agent_server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = list[str]()
    read, write = AgentTry.read_answer, result_writer.write_results

    def note_read(ended: AgentTry, *args: Any) -> None:
        log.append("read")
        read(ended, *args)

    def note_written(accepted: Any, **options: Any) -> None:
        log.extend("written" for _ in accepted)
        write(accepted, **options)

    monkeypatch.setattr(AgentTry, "read_answer", note_read)
    monkeypatch.setattr(result_writer, "write_results", note_written)
    agent_server.behave(then=says({"output": "You get a refund."}))
    run = _start(agent_server, tree(CHECK))
    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.pass_count) == ("completed", 4)
    assert log == ["read", "written"] * 4
    assert run.model_calls.count() == 4


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("one_at_a_time")
def test_the_answers_of_models_are_read_one_after_the_other_when_they_are_large(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = list[str]()
    answered, write = Try.answered, result_writer.write_results

    def note_read(ended: Try, *args: Any) -> None:
        log.append(ended.call.key.purpose)
        answered(ended, *args)

    def note_written(accepted: Any, **options: Any) -> None:
        log.extend("written" for _ in accepted)
        write(accepted, **options)

    monkeypatch.setattr(Try, "answered", note_read)
    monkeypatch.setattr(result_writer, "write_results", note_written)
    # Who has the room needs a slot of the same model, which those who wait must not hold.
    model = make_model(slug="both", base_url=model_server.base_url, concurrency=2)
    suite = make_suite(judge=model, tree=tree(JUDGED))
    for number in range(4):
        make_case(suite=suite, key=f"C-{number}", position=number)
    target = make_target(name="agent", kind="chat", model=model)
    run = start_run(suite=suite, target=target, started_by=None, concurrency=4)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.done_count, run.error_count) == ("completed", 4, 0)
    assert log == ["target", "evaluation", "written"] * 4
    assert run.model_calls.count() == 8


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("one_at_a_time")
def test_a_large_reply_of_an_agent_that_judges_does_not_wait_for_the_answer_that_it_judges(
    agent_server: AgentServer,
) -> None:
    make_target(
        name="judge", kind="http", config=_config(agent_server) | {"output_path": "verdict"}
    )
    agent_server.behave(
        then=says({"output": "A refund.", "verdict": {"reasoning": "Good", "score": 90}})
    )
    content = suite_files.read_suite(JUDGED_BY_AGENT.encode())
    suite = import_suite(content, imported_by=None)
    target = make_target(name="agent", kind="http", config=_config(agent_server))
    run = start_run(suite=suite, target=target, started_by=None, concurrency=4)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.done_count, run.error_count) == ("completed", 4, 0)


JUDGED_BY_AGENT = """\
name: refunds
evaluators:
  - {name: quality, type: agent_judge, agent: judge, criteria: Says what happens.}
tests:
  - {id: C-1, input: One}
  - {id: C-2, input: Two}
  - {id: C-3, input: Three}
  - {id: C-4, input: Four}
"""


def _config(agent_server: AgentServer) -> dict[str, Any]:
    return {"url": agent_server.url, "output_path": "output", "concurrency": 4}


def _start(agent_server: AgentServer, evaluators: Any) -> Any:
    suite = make_suite(tree=evaluators)
    for number in range(4):
        make_case(suite=suite, key=f"C-{number}", position=number)
    target = make_target(name="agent", kind="http", config=_config(agent_server))
    return start_run(suite=suite, target=target, started_by=None, concurrency=4)


@pytest.mark.django_db(transaction=True)
def test_so_many_results_are_claimed_as_their_stored_outputs_fit_into_memory(
    start_recorded: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MAX_HELD_BYTES", 2_000)
    run = start_recorded("refund" + "x" * 900, "refund" + "ü" * 100, *["refund" * 500] * 3)
    work = load_work(run)

    def claim(token: str) -> list[int]:
        jobs = claim_jobs(work, token=token, most=9, held=())
        return [job.claim.stored_size for job in jobs]

    first, second = claim("a"), claim("b")
    assert len(first) == 2
    assert sum(first) <= 2_000
    # One of any size.
    assert [size > 2_000 for size in second] == [True]
    Result.objects.update(status="pending", lease_token="", lease_until=None)
    work_on_run(run.pk)
    run.refresh_from_db()
    assert (run.status, run.pass_count) == ("completed", 5)
    # Outputs that are kept for another scoring count besides those of the cases.
    retry_results(
        run, asked_by=None, result_ids=[row.pk for row in run.results.all()], keep_output=True
    )
    run.refresh_from_db()
    [size] = claim("c")
    assert size > 1_800

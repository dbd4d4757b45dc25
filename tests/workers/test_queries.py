"""What the page of workers shows: states, queue, models, errors."""

from __future__ import annotations

import os
import socket

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from evaluators.models import SlotLease, StartGrant
from runs.models.runs import LEASE, Run, RunEvent
from runs.queue import BrokerState, ask_broker
from runs.workers import queries as workers_queries
from runs.workers.page import workers_page
from tests.services.processes import free_port
from tests.support.factories import (
    make_call,
    make_model,
    make_result,
    make_run,
    make_user,
    throttle_state,
)
from tests.support.worker_lines import ago, ahead, hold, make_open_run, make_run_worker, make_worker

pytestmark = [pytest.mark.each_database, pytest.mark.django_db, pytest.mark.usefixtures("clock")]

SILENT = LEASE.total_seconds() + 5


@pytest.fixture
def on_redis(settings):
    """Let the site use a broker of its own; nobody is there."""
    settings.IS_EMBEDDED = False
    settings.CELERY_BROKER_URL = f"redis://:hush@127.0.0.1:{free_port()}/0"


def the_run():
    [row] = workers_page().queue
    return row


def the_model():
    [line] = workers_page().models.lines
    return line


def lease(model, token, *, slots, wanted, **columns):
    SlotLease.objects.create(
        model=model, holder=token, slots=slots, wanted=wanted, expires_at=ahead(10), **columns
    )


class TestState:
    def test_no_worker_ever_in_the_embedded_form(self):
        state = workers_page().state
        assert state.sentence == ""
        [notice] = state.notices
        assert (notice.title, notice.command) == ("No worker is running.", "evalsite up")
        assert "Runs started now wait until one starts." in notice.text

    def test_no_worker_with_a_broker_names_the_command_of_a_worker(self, on_redis):
        make_open_run(cases=3)
        first, second = workers_page().state.notices
        assert first.text.startswith("1 run with 3 open results stands still until one starts.")
        assert first.command == "celery -A evalsite worker"
        assert second.title == "The broker does not answer."

    def test_silent_workers_are_none(self):
        make_worker(seen=SILENT)
        make_worker(pid=2, seen=SILENT)
        page = workers_page()
        assert "2 workers are silent." in page.state.notices[0].text
        assert (page.totals.alive, page.totals.silent) == (0, 2)

    def test_all_quiet(self):
        make_worker()
        make_worker(pid=2)
        page = workers_page()
        assert page.state.sentence == "2 workers are ready; nothing waits."
        assert page.state.notices == ()
        assert page.queue == page.recent_errors == ()

    def test_workers_at_work(self):
        first, second = make_worker(), make_worker(pid=2)
        run = make_open_run(cases=9)
        make_run_worker(run=run, worker=first, token="a", holds=3)
        assert workers_page().state.sentence == ("1 of 2 workers executes 1 run; 6 results wait.")
        make_run_worker(run=run, worker=second, token="b", holds=6)
        assert workers_page().state.sentence == "2 workers execute 1 run; nothing else waits."

    def test_a_run_just_started(self):
        make_worker()
        make_open_run(cases=2, status="queued")
        assert workers_page().state.sentence == (
            "1 worker is alive, none is busy yet; 1 run waits; 2 results wait."
        )

    def test_a_command_line_alone(self):
        make_worker()
        run = make_open_run(cases=2, owner="command_line", heartbeat_at=ago(1))
        make_run_worker(run=run, worker="laptop/x/9/1", token="a", holds=2)
        assert workers_page().state.sentence == (
            "1 command line executes its own run; 1 worker is idle; nothing else waits."
        )

    def test_a_worker_that_ends_while_another_is_ready(self):
        make_worker()
        make_run_worker(run=make_open_run(cases=2), worker="eval-9/x/1/1", token="a", holds=1)
        assert workers_page().state.sentence == (
            "1 worker is ready; one that is ending releases 1 run; 1 result waits."
        )

    def test_different_versions_are_pointed_out_unless_their_worker_is_silent(self):
        make_worker()
        make_worker(pid=2, version="0.0.9", seen=SILENT)
        assert workers_page().state.notices == ()
        make_worker(pid=3)
        make_worker(pid=4, version="0.0.8")
        [notice] = workers_page().state.notices
        assert notice.text.startswith("0.1.0 (2 workers), 0.0.8 (1 worker).")


class TestCrews:
    def test_a_worker_with_its_runs(self):
        worker = make_worker(last_error="OSError: no space", last_error_at=ago(60))
        run = make_open_run(cases=9)
        make_run_worker(run=run, worker=worker, token="a", holds=5, in_flight=3)
        [worker_line] = workers_page().worker_lines
        assert (
            worker_line.host,
            worker_line.pid,
            worker_line.kind,
            worker_line.version,
        ) == (*("eval-1", "4121", "process", "0.1.0"),)
        assert (worker_line.sandbox, worker_line.last_error) == (
            "bubblewrap 0.11.0",
            "OSError: no space",
        )
        [run_worker] = worker_line.run_workers
        assert (run_worker.run.number, run_worker.under_way, run_worker.held) == (run.number, 3, 5)
        assert 15_000 < run_worker.lease_left_ms <= 20_000
        totals = workers_page().totals
        assert (totals.under_way, totals.held, totals.run_workers) == (3, 5, 1)

    def test_run_workers_without_a_report_are_starting(self):
        now = ago(1)
        run = make_open_run(cases=2)
        columns = {"started_at": now, "heartbeat_at": now, "in_flight": 0}
        make_run_worker(run=run, worker=make_worker(), token="a", holds=2, **columns)
        [worker_line] = workers_page().worker_lines
        assert worker_line.run_workers[0].under_way is None

    def test_the_silent_come_first_then_those_at_work(self):
        make_worker(pid=1)
        busy = make_worker(pid=2)
        make_worker(pid=3, seen=SILENT)
        make_run_worker(run=make_open_run(cases=1), worker=busy, token="a", holds=1)
        assert [worker_line.pid for worker_line in workers_page().worker_lines] == [
            "3",
            "2",
            "1",
        ]

    def test_a_command_line_is_no_worker_but_shown(self):
        run = make_open_run(cases=2, owner="command_line", heartbeat_at=ago(1))
        make_run_worker(run=run, worker="a/host/x/77/1", token="a", holds=2)
        page = workers_page()
        [worker_line] = page.worker_lines
        assert (worker_line.kind, worker_line.host, worker_line.pid) == (
            "command_line",
            "a/host",
            "77",
        )
        assert page.totals.alive == 0

    def test_run_workers_of_a_process_that_took_itself_off_the_list(self):
        make_run_worker(run=make_open_run(cases=1), worker="odd name", token="a", holds=1)
        [worker_line] = workers_page().worker_lines
        assert (worker_line.kind, worker_line.host, worker_line.pid) == (
            "unlisted",
            "odd name",
            "",
        )

    def test_the_worker_inside_this_process_is_told_apart(self):
        make_worker(pid=os.getpid())
        page = workers_page()
        assert page.worker_lines[0].kind == "embedded"
        assert page.totals.is_embedded


class TestQueue:
    def test_a_run_under_way(self):
        workers = [make_worker(pid=pid) for pid in (1, 2, 3)]
        run = make_open_run(cases=20, concurrency=8)
        make_run_worker(run=run, worker=workers[0], token="a", holds=5)
        row = the_run()
        assert (row.waiting, row.held, row.done, row.executions) == (15, 5, 0, 20)
        assert (row.run_workers, row.useful) == (1, 3)
        assert row.why == "could use 2 more workers"
        for worker, token in zip(workers[1:], "bc", strict=True):
            make_run_worker(run=run, worker=worker, token=token, holds=1)
        assert (the_run().why, the_run().is_stuck) == ("", False)

    def test_finished_results_neither_wait_nor_are_held(self):
        make_worker()
        run = make_open_run(cases=3)
        make_result(run=run, case=run.suite.cases.get_or_create(key="x")[0], verdict="pass")
        row = the_run()
        assert (row.waiting, row.held, row.done, row.executions) == (3, 0, 1, 4)

    def test_what_a_stop_left_out_waits_for_nobody(self):
        make_worker()
        run = make_open_run(cases=3)
        run.results.filter(pk=run.results.first().pk).update(status="cancelled")
        assert the_run().waiting == 2

    def test_nobody_there(self):
        make_open_run(cases=1)
        assert (the_run().why, the_run().is_stuck) == ("waits for a worker", True)

    def test_nobody_at_it_yet(self):
        make_worker()
        make_open_run(cases=1)
        assert the_run().why == "starts within seconds"

    def test_calls_of_before_it_was_resumed_leave_no_room(self):
        worker = make_worker()
        run = make_open_run(cases=5, concurrency=2)
        make_run_worker(run=run, worker=worker, token="late", share=1, wanted=0)
        assert the_run().why == "starts within seconds"
        make_run_worker(run=run, worker=worker, token="too late", share=1, wanted=0)
        row = the_run()
        assert (row.run_workers, row.is_stuck) == (0, False)
        assert row.why == "waits for the replies to 2 earlier calls, a minute at most"

    def test_everybody_is_busy_elsewhere(self, settings):
        settings.CELERY_WORKER_CONCURRENCY = 1
        worker = make_worker()
        make_run_worker(run=make_open_run(cases=1), worker=worker, token="a", holds=1)
        make_open_run(cases=1)
        why = [row.why for row in workers_page().queue]
        assert why == ["", "waits until a worker is done with another run"]

    def test_a_member_has_all_places_but_one(self, settings):
        settings.CELERY_WORKER_CONCURRENCY = 2
        worker, ann = make_worker(), make_user()
        make_run_worker(run=make_open_run(cases=1), worker=worker, token="a", holds=1)
        Run.objects.update(created_by=ann)
        make_open_run(cases=1)
        assert [row.why for row in workers_page().queue] == ["", "starts within seconds"]
        Run.objects.update(created_by=ann)
        why = [row.why for row in workers_page().queue]
        assert why == ["", "waits until another run of the same member is done"]

    def test_the_broker_is_away(self, on_redis):
        make_worker()
        make_open_run(cases=1)
        assert (the_run().why, the_run().is_stuck) == ("waits for the broker", True)

    def test_the_last_result_is_written(self):
        make_worker()
        make_open_run()
        assert the_run().why == "finishing"

    def test_what_lost_workers_hold_is_shown_with_its_end(self):
        make_worker()
        run = make_open_run(cases=5)
        hold(run.results.all()[:2], token="gone", seconds=9)
        row = the_run()
        assert (row.waiting, row.held, row.gone) == (3, 2, 2)
        assert 5_000 < row.gone_left_ms <= 9_000

    def test_a_command_line_is_named_and_its_silence_too(self):
        run = make_open_run(cases=2, owner="command_line", heartbeat_at=ago(1))
        assert (the_run().why, the_run().is_own) == ("executed by a command line", True)
        run.heartbeat_at = ago(SILENT)
        run.save()
        assert the_run().why.startswith("its command line has been silent for ")
        assert the_run().is_stuck

    def test_the_longest_waiting_comes_first_counted_from_its_last_retry(self, clock):
        first = make_open_run(cases=1)
        clock.advance(seconds=1)
        second = make_open_run(cases=1)
        assert [row.run.url for row in workers_page().queue] == [
            f"/suites/{run.suite.slug}/runs/1/" for run in (first, second)
        ]
        clock.advance(seconds=1)
        RunEvent.objects.create(run=first, kind="retry", text="1 result tried again")
        again, later = reversed(workers_page().queue)
        assert again.run.url == f"/suites/{first.suite.slug}/runs/1/"
        assert again.since > later.since

    def test_ended_runs_are_not_in_it(self):
        make_run()
        assert workers_page().queue == ()


class TestModels:
    @pytest.fixture
    def run_worker(self):
        return make_run_worker(run=make_open_run(cases=8), worker=make_worker(), token="a", holds=8)

    def test_a_model_that_gives_what_is_wanted(self, run_worker):
        lease(make_model(name="Juno 2", concurrency=8), "a", slots=8, wanted=8)
        line = the_model()
        assert (line.slots, line.most, line.slows_runs) == (8, 8, False)
        assert line.holders[0].run.number == run_worker.run.number
        assert the_run().why == ""

    def test_a_slowed_model_says_why(self, run_worker):
        state = throttle_state(rate=9.3, slow_since=ago(40))
        model = make_model(name="Juno 2", concurrency=8, throttle_state=state)
        lease(model, "a", slots=8, wanted=8, starts_wanted=3)
        line = the_model()
        assert (line.slowdown.rate, line.most, line.slows_runs) == (9.3, 8, True)
        assert line.slowdown.reason == "429 from the server"
        assert not line.waits_for_minute
        assert the_run().why == "Juno 2 is slowed to 9.3 calls a second"

    def test_a_model_that_does_not_answer_says_why(self, run_worker):
        state = throttle_state(silent_since=ago(40), reason="503 from the server")
        model = make_model(name="Juno 2", throttle_state=state)
        lease(model, "a", slots=8, wanted=8, starts_wanted=3)
        assert the_model().slows_runs
        assert the_run().why == "Juno 2 does not answer; it is retried with one call at a time"

    def test_a_slowed_model_that_nobody_calls_slows_nobody_down(self):
        make_model(throttle_state=throttle_state(rate=2.0, slow_since=ago(40)))
        page = workers_page()
        assert page.models.slowing == ()
        assert page.models.idle == 1

    def test_what_is_forgotten_with_the_next_call_is_not_shown(self, run_worker):
        state = throttle_state(rate=2.0, slow_since=ago(900), used_at=ago(130))
        lease(make_model(throttle_state=state), "a", slots=8, wanted=8)
        assert not the_model().slowdown
        assert the_run().why == ""

    def test_a_pause_says_how_long_it_lasts_and_ends(self, run_worker):
        model = make_model(name="Juno 2", throttle_state=throttle_state(paused_until=ahead(12)))
        lease(model, "a", slots=8, wanted=8)
        assert 9_000 < the_model().paused_ms <= 12_000
        assert the_run().why.startswith("Juno 2 is paused for 1")
        model.throttle_state = throttle_state(paused_until=ago(1))
        model.save()
        assert the_model().paused_ms is None
        assert the_run().why == ""

    def test_calls_that_wait_for_the_minute(self, run_worker):
        model = make_model(name="Juno 2", requests_per_minute=60)
        lease(model, "a", slots=8, wanted=8, starts_wanted=3, starts_wanted_since=ago(5))
        StartGrant.objects.create(model=model, holder="a", granted_at=ago(30), calls=58)
        StartGrant.objects.create(model=model, holder="a", granted_at=ago(90), calls=9)
        line = the_model()
        assert (line.started, line.per_minute, line.slows_runs) == (58, 60, True)
        assert the_run().why == "Juno 2 takes 60 calls a minute"

    def test_slots_of_workers_that_are_gone_end_with_their_lease(self, run_worker):
        model = make_model()
        lease(model, "gone", slots=3, wanted=3)
        assert the_model().holders[0].run is None
        SlotLease.objects.update(expires_at=ago(1))
        assert workers_page().models.lines == ()

    def test_failed_calls_of_the_last_hour_by_kind(self):
        model = make_model()
        result = make_result(run=make_run(), case=make_open_run(cases=1).suite.cases.get())
        for status, number in (("ok", 5), ("rate_limited", 3), ("timeout", 1)):
            for _ in range(number):
                make_call(result=result, model=model, status=status, created_at=ago(30))
        make_call(result=result, model=model, status="timeout", created_at=ago(4000))
        make_call(result=result, model=model, is_cached=True, created_at=ago(30))
        make_call(result=result, model=model, created_at=ago(300))
        page = workers_page()
        counts = the_model().calls
        assert (counts.failed, counts.calls, counts.last_minute) == (4, 10, 9)
        assert counts.kinds == (("rate limited", 3), ("timed out", 1))
        assert (page.models.failed, page.models.calls) == (4, 10)
        assert page.models.window.in_words == "in the last hour"

    def test_after_very_many_calls_the_window_is_shorter_and_says_so(self, monkeypatch):
        monkeypatch.setattr(workers_queries, "MAX_COUNTED", 3)
        result = make_result(run=make_run(), case=make_open_run(cases=1).suite.cases.get())
        model = make_model()
        for minutes in range(8):
            make_call(result=result, model=model, created_at=ago(60 * minutes + 5))
        models = workers_page().models
        assert models.calls == 4
        assert models.window.in_words == "in the last 3\u00a0min"


class TestTroubles:
    def test_the_newest_first_with_their_runs_and_without_passwords(self):
        text = "OperationalError: redis://user:hush@10.0.0.3:6379 is away"
        make_worker(last_error=text, last_error_at=ago(30))
        run = make_open_run(cases=1)
        event = RunEvent.objects.create(
            run=run, kind="worker_lost", text="A worker was lost while working on 5 results"
        )
        RunEvent.objects.filter(pk=event.pk).update(at=ago(60))
        RunEvent.objects.create(
            run=run, kind="model_slowed", text="Juno 2: slowed to 2 calls a second"
        )
        failed = make_run(status="failed", status_reason="401.", finished_at=ago(90))
        found = workers_page().recent_errors
        assert [one.text for one in found] == [
            "OperationalError: redis://…@10.0.0.3:6379 is away",
            "A worker was lost while working on 5 results",
            "The run failed. 401.",
        ]
        assert [one.where for one in found] == ["eval-1 4121", "", ""]
        assert [one.run and one.run.url for one in found] == [
            *(None, f"/suites/{run.suite.slug}/runs/1/", f"/suites/{failed.suite.slug}/runs/1/"),
        ]

    def test_yesterdays_are_forgotten_and_only_the_last_listed(self):
        old = 25 * 3600
        make_worker(last_error="old", last_error_at=ago(old))
        make_run(status="failed", finished_at=ago(old))
        assert workers_page().recent_errors == ()
        run = make_open_run(cases=1)
        for number in range(20):
            RunEvent.objects.create(run=run, kind="worker_crashed", text=f"crash {number}")
        found = workers_page().recent_errors
        assert [one.text for one in found] == [f"crash {number}" for number in range(19, 11, -1)]


class TestBroker:
    def test_the_embedded_one_is_there_and_uncounted(self):
        assert ask_broker() == BrokerState(answers=True, waiting=None)

    def test_nobody_answers(self, on_redis):
        assert ask_broker() == BrokerState(answers=False)

    def test_one_that_is_frozen_holds_a_page_up_for_a_moment_only(self, settings):
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            settings.IS_EMBEDDED = False
            settings.CELERY_BROKER_URL = f"redis://127.0.0.1:{frozen.getsockname()[1]}/0"
            assert not ask_broker().answers

    def test_an_address_that_is_none(self, settings):
        settings.IS_EMBEDDED = False
        settings.CELERY_BROKER_URL = "redis://[broken/0"
        assert not ask_broker().answers

    @pytest.mark.redis
    def test_a_real_one_counts_what_waits(self, settings, redis_url):
        import redis

        settings.IS_EMBEDDED = False
        settings.CELERY_BROKER_URL = redis_url
        with redis.Redis.from_url(redis_url) as client:
            client.delete("celery")
            assert ask_broker() == BrokerState(answers=True, waiting=0)
            client.lpush("celery", "{}", "{}")
            assert ask_broker() == BrokerState(answers=True, waiting=2)
            client.delete("celery")


def queries():
    with CaptureQueriesContext(connection) as captured:
        workers_page()
    return len(captured)


def test_a_large_site_takes_as_many_queries_as_a_small_one():
    make_run_worker(
        run=make_open_run(cases=1), worker=make_worker(pid=1000), token="first", holds=1
    )
    small = queries()
    runs = [make_open_run(cases=4) for _ in range(10)]
    for pid in range(50):
        worker = make_worker(pid=pid)
        for number in range(4):
            make_run_worker(run=runs[pid % 10], worker=worker, token=f"{pid}-{number}", holds=1)
    for number in range(100):
        lease(make_model(), f"{number % 50}-{number % 4}", slots=1, wanted=2)
    assert queries() == small
    page = workers_page()
    assert page.totals.run_workers == 201
    assert (len(page.worker_lines), page.workers_left) == (25, 26)
    assert (len(page.lines), page.lines_left) == (25, 75)

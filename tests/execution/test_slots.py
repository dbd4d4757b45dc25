"""How workers share the limits of a model."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db.models import Sum
from django.utils import timezone

from evaluators.model_calls.limit_policy import (
    BEHIND_OTHERS_S,
    COUNTS_S,
    MARGIN_S,
    MEMORY_S,
    CallEnds,
    LimitRequest,
    LimitState,
)
from evaluators.models import LanguageModel, SlotLease, StartGrant
from evaluators.sandbox.processes import process_name
from runs.execution.reaper import reap
from runs.execution.shared_limits import agree, grant_starts, leave, note_wait
from runs.models.runs import LEASE, RunEvent, RunWorker
from tests.support.factories import make_model, make_run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

CALM = LimitRequest(wanted=8, in_flight=0)
NOTHING = CallEnds()
BUSY = CallEnds(answered=60, refused=40, seconds=1.0, latency_s=0.1, reason="429 from the server")
FREE = CallEnds(answered=40, seconds=1.0, latency_s=0.1)
AWAY = CallEnds(failures=10, seconds=1.0, reason="503 from the server")


def lease(model, holder, wanted, *, in_flight=0, run=None):
    ask = replace(CALM, wanted=wanted, in_flight=in_flight)
    return agree(model.pk, (run or make_run()).pk, holder, ask).slots


def tell(model, run, holder, ends=NOTHING, **news) -> LimitState:
    return agree(model.pk, run.pk, holder, replace(CALM, ends=ends, **news))


def pause(seconds) -> CallEnds:
    return CallEnds(refused=1, pause_s=seconds, reason="429 from the server")


def throttle(model):
    return LanguageModel.objects.get(pk=model.pk).throttle


def register_run_worker(run, token, worker="w"):
    now = timezone.now()
    RunWorker.objects.create(run=run, token=token, worker=worker, started_at=now, heartbeat_at=now)


def events(run):
    return list(run.events.order_by("id").values_list("kind", "text"))


def test_holders_never_have_more_than_the_model_allows_together():
    model = make_model(concurrency=8)

    assert lease(model, "a", 6) == 6
    assert lease(model, "b", 6) == 2
    assert lease(model, "c", 6) == 0


def test_while_another_is_short_nobody_keeps_more_than_an_even_share():
    model = make_model(concurrency=8)
    lease(model, "a", 8)
    assert lease(model, "b", 8) == 0

    assert lease(model, "a", 8) == 4
    assert lease(model, "b", 8) == 4


def test_slots_in_use_stay_held_until_their_calls_end_but_are_not_used_again():
    model = make_model(concurrency=8)
    lease(model, "a", 8)
    lease(model, "b", 8)

    assert lease(model, "a", 8, in_flight=7) == 4
    assert lease(model, "b", 8) == 1
    assert lease(model, "a", 8, in_flight=4) == 4
    assert lease(model, "b", 8) == 4


def test_slots_that_do_not_go_evenly_into_the_holders_go_round(clock):
    model = make_model(concurrency=1)
    got = []
    for _ in range(6):
        for _ in range(2):
            slots = {holder: lease(model, holder, 8) for holder in ("a", "b", "c")}
        got += [holder for holder, count in slots.items() if count]
        clock.advance(seconds=LEASE.total_seconds() / 6)

    assert len(got) == 6
    assert set(got[2:5]) == {"a", "b", "c"}


def test_slots_of_the_dead_expire_and_those_given_back_are_free():
    model = make_model(concurrency=4)
    lease(model, "dead", 4)
    SlotLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert lease(model, "a", 4) == 4

    leave("a", {})
    assert lease(model, "b", 4) == 4


def test_slots_of_a_process_that_is_surely_dead_are_free_with_the_next_reaping():
    model, run = make_model(concurrency=4), make_run(status="running")
    register_run_worker(run, "dead", worker=f"{process_name()}0")
    register_run_worker(run, "alive", worker=process_name())
    lease(model, "dead", 3)
    lease(model, "alive", 1)
    reap(now=timezone.now())

    assert list(SlotLease.objects.values_list("holder", flat=True)) == ["alive"]


def test_a_model_that_is_gone_has_no_slots_to_agree_on():
    assert agree(0, make_run().pk, "a", CALM) is None
    assert grant_starts(0, "a", 5, {}) is None


def test_workers_whose_calls_are_refused_slow_down_together():
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    for holder in ("a", "b"):
        register_run_worker(run, holder)
        tell(model, run, holder)

    assert not tell(model, run, "a", BUSY).is_metered
    assert tell(model, run, "b", BUSY).is_metered
    assert tell(model, run, "a").is_metered

    # 120 of 200 were answered in one second.
    assert throttle(model).rate == pytest.approx(0.9 * 120)
    assert throttle(model).reason == "429 from the server"
    assert events(run) == [
        ("model_slowed", "Big model: slowed to 108 calls a second (429 from the server)"),
    ]


def test_starts_of_a_slowed_model_are_granted_to_all_together(clock):
    run, model = make_run(), make_model(concurrency=50)
    for holder in ("a", "b"):
        tell(model, run, holder, wanted=25)
    tell(model, run, "a", BUSY)
    tell(model, run, "b", BUSY)
    got = 0
    for _ in range(100):
        clock.advance(seconds=0.1)
        got += sum(grant_starts(model.pk, holder, 25, {}).calls for holder in ("a", "b"))

    assert got == pytest.approx(10 * 108, rel=0.1)
    assert not StartGrant.objects.exists()


def test_a_pause_counts_for_all_and_is_never_shortened():
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", pause(30.0))
    tell(model, run, "b", pause(2.0))

    assert tell(model, run, "c").pause_s == 30.0


def test_a_model_that_falls_silent_is_tried_by_one_call_of_all_workers(clock):
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    for holder in ("a", "b"):
        register_run_worker(run, holder)
        tell(model, run, holder)
    assert tell(model, run, "a", AWAY).is_silent
    assert tell(model, run, "b").is_silent
    assert [grant_starts(model.pk, holder, 8, {}).calls for holder in "ab"] == [0, 0]
    clock.advance(seconds=1)

    assert [grant_starts(model.pk, holder, 8, {}).calls for holder in "ab"] == [1, 0]
    clock.advance(seconds=10)
    assert not tell(model, run, "b", FREE).is_silent
    assert events(run) == [
        (
            "model_silent",
            "Big model: does not answer (503 from the server); retried with one call at a time",
        ),
        ("model_answers", "Big model: answers again, after 11 s"),
    ]


def test_a_model_that_slows_down_again_and_again_is_told_in_two_events(clock):
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    register_run_worker(run, "a")
    for _ in range(3):
        tell(model, run, "a", BUSY)
        while throttle(model).rate is not None:
            clock.advance(seconds=1)
            tell(model, run, "a", FREE)

    assert events(run) == [
        ("model_slowed", "Big model: slowed to 54 calls a second (429 from the server)"),
        ("model_freed", "Big model: no longer slowed"),
    ]


def test_a_long_pause_is_told_and_short_ones_are_not():
    run, model = make_run(), make_model(name="Small model", concurrency=1)
    for seconds in (3.0, 20.0, 0.4):
        tell(model, run, "a", pause(seconds))

    assert events(run) == [
        ("model_paused", "Small model: no calls for 17.0 s (429 from the server)")
    ]


def test_every_run_whose_calls_are_affected_tells_of_it_once():
    model = make_model(name="Big model", concurrency=8)
    met, shares, later, other = (make_run() for _ in range(4))
    for run, holder in ((met, "a"), (shares, "b"), (shares, "b2"), (other, "d")):
        register_run_worker(run, holder)
    for run, holder in ((met, "a"), (shares, "b"), (shares, "b2")):
        tell(model, run, holder)
    tell(make_model(), other, "d")

    tell(model, met, "a", AWAY)
    silent = "Big model: does not answer (503 from the server); retried with one call at a time"
    assert events(met) == events(shares) == [("model_silent", silent)]
    assert events(other) == []
    tell(model, later, "c")
    assert events(later) == [("model_silent", silent)]
    assert len(events(met)) == 1


def test_an_event_brought_up_to_date_is_the_newest(clock):
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", BUSY)
    RunEvent.objects.create(run=run, kind="retry", text="Retried")
    clock.advance(seconds=1)
    tell(model, run, "a", replace(BUSY, answered=20))

    assert run.events.first().text.endswith("slowed to 27 calls a second (429 from the server)")


def test_what_was_learned_is_forgotten_when_nobody_has_called_for_a_while(clock):
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", BUSY)
    leave("a", {})
    clock.advance(seconds=MEMORY_S - 1)
    assert tell(model, run, "b").is_metered
    leave("b", {})
    clock.advance(seconds=MEMORY_S + 1)

    assert not tell(model, run, "c").is_metered
    assert throttle(model).rate is None


def use_up(model, holder, calls, clock):
    """Take so many starts of a minute, as they come."""
    while calls:
        granted = grant_starts(model.pk, holder, calls, {})
        calls -= granted.calls
        clock.advance(seconds=granted.wait_s)


def test_the_minute_is_one_for_all_holders_and_does_not_forget_those_that_died(clock):
    model = make_model(requests_per_minute=60)
    use_up(model, "killed", 50, clock)
    use_up(model, "new", 10, clock)
    StartGrant.objects.update(granted_at=timezone.now())

    none = grant_starts(model.pk, "new", 1, {})
    assert none.calls == 0
    assert none.wait_s == COUNTS_S + MARGIN_S
    clock.advance(seconds=COUNTS_S - MARGIN_S)
    assert grant_starts(model.pk, "new", 1, {}).calls == 0
    clock.advance(seconds=MARGIN_S)
    assert grant_starts(model.pk, "new", 1, {}).calls == 1


def test_starts_that_were_not_used_are_free_for_others_and_given_back_once(clock):
    model, run = make_model(requests_per_minute=60), make_run()
    first = grant_starts(model.pk, "a", 6, {})
    use_up(model, "a", 54, clock)
    StartGrant.objects.update(granted_at=timezone.now())
    assert grant_starts(model.pk, "b", 6, {first.grant: 2}).calls == 0, "not the grant of b"

    for _ in range(2):
        tell(model, run, "a", used={first.grant: 2})
    assert grant_starts(model.pk, "b", 4, {}).calls == 4
    assert grant_starts(model.pk, "b", 1, {}).calls == 0
    assert StartGrant.objects.aggregate(calls=Sum("calls"))["calls"] == 60
    leave("a", {grant.pk: 0 for grant in StartGrant.objects.filter(holder="a")})
    assert StartGrant.objects.aggregate(calls=Sum("calls"))["calls"] == 4


def test_starts_of_long_ago_are_removed(clock):
    model = make_model(requests_per_minute=60)
    grant_starts(model.pk, "a", 6, {})
    clock.advance(seconds=63)
    grant_starts(model.pk, "a", 1, {})
    assert StartGrant.objects.count() == 1
    clock.advance(seconds=63)
    leave("a", {})
    assert not StartGrant.objects.exists()


def test_who_waits_longest_for_the_minute_comes_first_and_no_dead_are_waited_for(clock):
    model, run = make_model(requests_per_minute=2), make_run()
    for holder in ("a", "b", "c"):
        tell(model, run, holder, wanted=2)
    assert grant_starts(model.pk, "a", 2, {}).calls == 2
    assert grant_starts(model.pk, "b", 2, {}).calls == 0
    assert grant_starts(model.pk, "c", 2, {}).calls == 0
    # As if a minute had gone by, but no lease had ended.
    StartGrant.objects.update(granted_at=timezone.now() - timedelta(seconds=COUNTS_S))
    LanguageModel.objects.update(throttle_state={})
    clock.advance(seconds=1)

    behind = grant_starts(model.pk, "a", 2, {})
    assert (behind.calls, behind.wait_s) == (0, BEHIND_OTHERS_S)
    assert grant_starts(model.pk, "b", 2, {}).calls == 1
    SlotLease.objects.filter(holder="c").update(expires_at=timezone.now())
    assert grant_starts(model.pk, "a", 2, {}).calls == 1


def test_who_has_nothing_to_start_any_more_is_not_waited_for(clock):
    model, run = make_model(requests_per_minute=2), make_run()
    for holder in ("a", "b"):
        tell(model, run, holder, wanted=2)
    use_up(model, "a", 2, clock)
    assert grant_starts(model.pk, "b", 2, {}).calls == 0
    clock.advance(seconds=COUNTS_S)
    tell(model, run, "b", wanted=0)

    assert grant_starts(model.pk, "a", 2, {}).calls == 2


def test_waiting_for_the_minute_is_told_with_its_figure():
    run, model = make_run(), make_model(name="Big model", requests_per_minute=60)
    note_wait(run.pk, model.pk)
    note_wait(run.pk, model.pk)

    text = "Big model: the run waits for its limit of 60 calls a minute, spread over the minute"
    assert events(run) == [("minute_used", text)]

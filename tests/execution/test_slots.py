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

CALM = LimitRequest(wanted=8, in_flight=0, limit=8, cuts=0)


def lease(model, holder, wanted, *, in_flight=0, run=None):
    ask = replace(CALM, wanted=wanted, in_flight=in_flight)
    return agree(model.pk, (run or make_run()).pk, holder, ask).slots


def tell(model, run, holder, **news) -> LimitState:
    return agree(model.pk, run.pk, holder, replace(CALM, **news))


def register_run_worker(run, token, worker="w"):
    now = timezone.now()
    RunWorker.objects.create(run=run, token=token, worker=worker, started_at=now, heartbeat_at=now)


def events(run):
    return list(run.events.order_by("id").values_list("kind", "text"))


def as_if_past(model, seconds):
    """Let so many seconds have gone by since the starts were granted."""
    for grant in StartGrant.objects.filter(model=model):
        grant.granted_at -= timedelta(seconds=seconds)
        grant.save()


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


def test_two_workers_refused_together_lower_the_limit_once_and_both_know_it():
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    for holder in ("a", "b"):
        register_run_worker(run, holder)
        tell(model, run, holder)

    first = tell(model, run, "a", is_refused=True, pause_s=2.0, in_flight=4)
    second = tell(model, run, "b", is_refused=True, pause_s=2.0, in_flight=4)

    assert (first.limit, first.cuts) == (second.limit, second.cuts) == (4, 1)
    assert (first.pause_s, second.pause_s) == (2.0, 2.0)
    assert events(run) == [
        (
            "limit_lowered",
            "Big model: at most 4 calls at a time, was 8 (429 from the server, paused for 2.0 s)",
        )
    ]
    model.refresh_from_db()
    assert (model.limit_now, model.limit_cuts) == (4, 1)
    assert model.limit_reason == "429 from the server, paused for 2.0 s"


def test_a_pause_counts_for_all_and_is_never_shortened():
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", is_refused=True, pause_s=30.0)
    tell(model, run, "b", pause_s=2.0)

    assert tell(model, run, "c").pause_s == 30.0


def test_nobody_raises_what_another_has_lowered_without_having_earned_it():
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", is_refused=True)
    late = tell(model, run, "b", has_earned=True, limit=8)
    assert (late.limit, late.cuts) == (4, 1)

    assert tell(model, run, "b", has_earned=True, limit=4, cuts=1).limit == 5
    assert tell(model, run, "a", has_earned=True, limit=4, cuts=1).limit == 5
    # A refusal under a limit that others have only raised since then counts.
    assert tell(model, run, "a", is_refused=True, limit=4, cuts=1).limit == 2


def test_a_limit_that_falls_and_rises_again_and_again_is_told_in_two_events():
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    register_run_worker(run, "a")
    cuts = 0
    for _ in range(20):
        cuts = tell(model, run, "a", is_refused=True, limit=8, cuts=cuts).cuts
        tell(model, run, "a", has_earned=True, limit=4, cuts=cuts)
        raised = ("limit_raised", "Big model: raised to 5 calls at a time after successful calls")
        assert raised in events(run)
        for limit in (5, 6, 7):
            tell(model, run, "a", has_earned=True, limit=limit, cuts=cuts)

    assert events(run) == [
        ("limit_lowered", "Big model: at most 4 calls at a time, was 8 (429 from the server)"),
        ("limit_raised", "Big model: back to 8 calls at a time"),
    ]
    model.refresh_from_db()
    assert (model.limit_now, model.limit_reason) == (None, "")


def test_a_pause_of_a_model_that_cannot_go_lower_is_told_too():
    run, model = make_run(), make_model(name="Small model", concurrency=1)
    for pause_s in (3.0, 20.0, 0.4):
        tell(model, run, "a", pause_s=pause_s)

    assert events(run) == [
        (
            "model_paused",
            "Small model: no calls for 20.0 s (429 from the server)",
        )
    ]


def test_every_run_whose_calls_are_affected_tells_of_it_once():
    model = make_model(name="Big model", concurrency=8)
    met, shares, later, other = (make_run() for _ in range(4))
    for run, holder in ((met, "a"), (shares, "b"), (shares, "b2"), (other, "d")):
        register_run_worker(run, holder)
    for run, holder in ((met, "a"), (shares, "b"), (shares, "b2")):
        tell(model, run, holder)
    tell(make_model(), other, "d")

    tell(model, met, "a", is_refused=True)
    lowered = "Big model: at most 4 calls at a time, was 8 (429 from the server)"
    assert events(met) == events(shares) == [("limit_lowered", lowered)]
    assert events(other) == []
    tell(model, later, "c")
    assert events(later) == [
        (
            "limit_lowered",
            "Big model: at most 4 calls at a time instead of 8 (429 from the server)",
        )
    ]


def test_an_event_brought_up_to_date_is_the_newest(clock):
    run, model = make_run(), make_model(concurrency=8)
    tell(model, run, "a", is_refused=True)
    RunEvent.objects.create(run=run, kind="retry", text="Retried")
    clock.advance(seconds=1)
    tell(model, run, "a", is_refused=True, limit=4, cuts=1)

    assert run.events.first().text.endswith(
        "at most 2 calls at a time, was 4 (429 from the server)"
    )


def test_a_lowered_limit_is_forgotten_when_nobody_has_worked_under_it_for_a_while():
    long_ago = timezone.now() - timedelta(minutes=5)
    model = make_model(concurrency=8, limit_now=2, limit_cuts=3, limit_changed_at=long_ago)

    assert lease(model, "a", 8) == 8
    assert LanguageModel.objects.get(pk=model.pk).limit_now is None


def test_a_lowered_limit_that_is_worked_under_holds_until_a_raise_is_earned():
    model = make_model(concurrency=8, limit_now=2, limit_changed_at=timezone.now())
    lease(model, "a", 8)
    LanguageModel.objects.update(limit_changed_at=timezone.now() - timedelta(minutes=5))

    assert lease(model, "b", 8) + lease(model, "a", 8) <= 2
    assert LanguageModel.objects.get(pk=model.pk).limit_now == 2


def test_the_minute_is_one_for_all_holders_and_does_not_forget_those_that_died():
    model = make_model(requests_per_minute=60)
    assert grant_starts(model.pk, "killed", 50, {}).calls == 50
    assert grant_starts(model.pk, "new", 10, {}).calls == 10

    none = grant_starts(model.pk, "new", 1, {})
    assert none.calls == 0
    assert none.wait_s == COUNTS_S + MARGIN_S
    as_if_past(model, COUNTS_S - MARGIN_S)
    assert grant_starts(model.pk, "new", 1, {}).calls == 0
    as_if_past(model, MARGIN_S)
    assert grant_starts(model.pk, "new", 1, {}).calls == 1


def test_starts_that_were_not_used_are_free_for_others_and_given_back_once():
    model, run = make_model(requests_per_minute=60), make_run()
    first, second = (grant_starts(model.pk, "a", 30, {}) for _ in range(2))
    assert grant_starts(model.pk, "b", 20, {first.grant: 10}).calls == 0, "not the grant of b"

    for _ in range(2):
        tell(model, run, "a", used={first.grant: 10})
    assert grant_starts(model.pk, "b", 20, {}).calls == 20
    leave("a", {second.grant: 0})
    assert grant_starts(model.pk, "b", 30, {}).calls == 30
    assert StartGrant.objects.aggregate(calls=Sum("calls"))["calls"] == 60


def test_starts_of_long_ago_are_removed():
    model = make_model(requests_per_minute=60)
    grant_starts(model.pk, "a", 50, {})
    as_if_past(model, 63)
    grant_starts(model.pk, "a", 1, {})
    assert StartGrant.objects.count() == 1
    as_if_past(model, 63)
    leave("a", {})
    assert not StartGrant.objects.exists()


def test_who_waits_longest_for_the_minute_comes_first_and_no_dead_are_waited_for(clock):
    model, run = make_model(requests_per_minute=2), make_run()
    for holder in ("a", "b", "c"):
        tell(model, run, holder, wanted=2)
    assert grant_starts(model.pk, "a", 2, {}).calls == 2
    assert grant_starts(model.pk, "b", 2, {}).calls == 0
    assert grant_starts(model.pk, "c", 2, {}).calls == 0
    as_if_past(model, 63)
    clock.advance(seconds=1)

    behind = grant_starts(model.pk, "a", 2, {})
    assert (behind.calls, behind.wait_s) == (0, BEHIND_OTHERS_S)
    assert grant_starts(model.pk, "b", 2, {}).calls == 1
    SlotLease.objects.filter(holder="c").update(expires_at=timezone.now())
    assert grant_starts(model.pk, "a", 2, {}).calls == 1


def test_who_has_nothing_to_start_any_more_is_not_waited_for():
    model, run = make_model(requests_per_minute=2), make_run()
    for holder in ("a", "b"):
        tell(model, run, holder, wanted=2)
    grant_starts(model.pk, "a", 2, {})
    grant_starts(model.pk, "b", 2, {})
    as_if_past(model, 63)
    tell(model, run, "b", wanted=0)

    assert grant_starts(model.pk, "a", 2, {}).calls == 2


def test_waiting_for_the_minute_is_told_with_its_figure():
    run, model = make_run(), make_model(name="Big model", requests_per_minute=60)
    note_wait(run.pk, model.pk)
    note_wait(run.pk, model.pk)

    text = "Big model: 60 calls a minute are used up; the run waits"
    assert events(run) == [("minute_used", text)]

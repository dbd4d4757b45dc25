from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from evaluators.models import LanguageModel, SlotLease
from runs.execution.slots import give_slots_back, lease_slots, report_limit
from runs.models import RunEvent
from tests.factories import make_model, make_run

pytestmark = pytest.mark.django_db


def test_holders_never_have_more_than_the_model_allows_together():
    model = make_model(concurrency=8)

    assert lease_slots(model.pk, "a", 6) == 6
    assert lease_slots(model.pk, "b", 6) == 2
    assert lease_slots(model.pk, "c", 6) == 0


def test_while_another_is_short_nobody_keeps_more_than_an_even_share():
    model = make_model(concurrency=8)
    lease_slots(model.pk, "a", 8)
    assert lease_slots(model.pk, "b", 8) == 0

    assert lease_slots(model.pk, "a", 8) == 4
    assert lease_slots(model.pk, "b", 8) == 4


def test_slots_in_use_stay_held_until_their_calls_end():
    model = make_model(concurrency=8)
    lease_slots(model.pk, "a", 8)
    lease_slots(model.pk, "b", 8)

    assert lease_slots(model.pk, "a", 8, in_use=7) == 7
    assert lease_slots(model.pk, "b", 8) == 1


def test_slots_of_the_dead_expire_and_those_given_back_are_free():
    model = make_model(concurrency=4)
    lease_slots(model.pk, "dead", 4)
    SlotLease.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert lease_slots(model.pk, "a", 4) == 4

    give_slots_back("a")
    assert lease_slots(model.pk, "b", 4) == 4


def test_a_lowered_limit_counts_for_all_and_is_told_on_the_run():
    run, model = make_run(), make_model(name="Big model", concurrency=8)
    report_limit(run.pk, model.pk, 4, "429 from the server")
    assert lease_slots(model.pk, "a", 8) == 4
    report_limit(run.pk, model.pk, 8, "")

    assert LanguageModel.objects.get(pk=model.pk).limit_now is None
    assert list(RunEvent.objects.order_by("id").values_list("kind", "text")) == [
        (
            "limit_lowered",
            "Big model: at most 4 calls at a time, was 8 (429 from the server)",
        ),
        ("limit_raised", "Big model: back to 8 calls at a time"),
    ]


def test_a_lowered_limit_is_forgotten_after_a_while():
    model = make_model(
        concurrency=8, limit_now=2, limit_changed_at=timezone.now() - timedelta(minutes=5)
    )
    assert lease_slots(model.pk, "a", 8) == 8

"""Several reviewers at once: no item is ever held or decided by two."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from django.contrib.auth.models import User

from evaluators.scoring.types import Verdict
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from runs.reviews.services import ReviewDecision, decide, next_item
from runs.running.retrying import retry_results
from tests.support.factories import make_user
from tests.support.queue import item_of, queued_run
from tests.support.threads import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_database]
PASS = ReviewDecision(Verdict.PASS)


def work_through(by: User) -> list[int]:
    """Decide all that can be had; what is said of each item shows that it is only theirs."""
    done = []
    while item := next_item(by):
        assert item.reserved_by_id == by.pk
        decide(item, PASS, by=by)
        done.append(item.pk)
    return done


def test_four_reviewers_work_through_the_queue_and_none_decides_what_another_has() -> None:
    queued_run(["borderline"] * 24)
    people = [make_user(role="reviewer") for _ in range(4)]
    answers = at_once(*[partial(work_through, person) for person in people])
    done = [pk for answer in answers if isinstance(answer, list) for pk in answer]
    assert sorted(done) == sorted(ReviewItem.objects.values_list("id", flat=True))
    assert set(Counter(done).values()) == {1}
    assert Review.objects.count() == 24
    assert not ReviewItem.objects.waiting().exists()
    assert set(Result.objects.values_list("reviewed_verdict", flat=True)) == {"pass"}


def test_of_two_who_ask_for_the_only_item_one_gets_it() -> None:
    queued_run(["borderline"])
    people = [make_user(role="reviewer") for _ in range(4)]
    got = at_once(*[partial(next_item, person) for person in people])
    assert sum(item is not None for item in got) == 1


def test_a_decision_sent_twice_at_once_stands_once() -> None:
    item, reviewer = item_of(queued_run(["borderline"])), make_user(role="reviewer")
    at_once(*[partial(decide, item, PASS, by=reviewer)] * 4)
    assert Review.objects.standing().count() == 1


def test_a_retry_and_a_decision_at_once_leave_no_verdict_on_an_output_nobody_saw() -> None:
    run = queued_run(["borderline"] * 3)
    reviewer = make_user(role="reviewer")
    ids = list(run.results.values_list("id", flat=True))
    retry = partial(retry_results, run, asked_by=None, result_ids=ids)
    at_once(retry, partial(decide, item_of(run), PASS, by=reviewer))
    assert set(run.results.values_list("reviewed_verdict", "generation")) == {("", 2)}
    assert not Review.objects.standing().exists()

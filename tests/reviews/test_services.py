"""Deciding what waits: what counts, what is kept, what comes back, and who gets what next."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from evaluators.models import AuditEntry
from evaluators.scoring.types import DomainError, Verdict
from runs.finishing import summarise_run
from runs.models.results import Result, ResultOutput
from runs.models.reviews import QueueQuery, Review, ReviewItem, ReviewSkip
from runs.models.runs import Run
from runs.reviews import services as queue
from runs.reviews.services import (
    ReviewDecision,
    decide,
    decide_together,
    identical_items,
    last_decided_items,
    undo,
)
from runs.running.retrying import retry_results
from tests.support.factories import again, make_score, make_scored_run, make_suite, make_user
from tests.support.queue import NO_AUDIT, item_of, queued_run

pytestmark = pytest.mark.django_db
PASS, BORDERLINE, FAIL = (
    ReviewDecision(verdict) for verdict in (Verdict.PASS, Verdict.BORDERLINE, Verdict.FAIL)
)


@pytest.fixture
def ann(db: None) -> User:
    return make_user(role="reviewer", name="ann")


@pytest.fixture
def ben(db: None) -> User:
    return make_user(role="reviewer", name="ben")


def key_of(item: ReviewItem | None) -> str:
    return item.result.case.key if item else ""


class TestIdenticalOutputs:
    @pytest.fixture
    def items(self, db: None) -> list[ReviewItem]:
        """Make five runs of one case, whose results wait; four gave the same output, one of them by another way."""
        suite, found = make_suite(**NO_AUDIT), []
        for text, tool, took_ms in (
            ("Held.", "find_order", 4),
            ("Held.", "find_order", 9),
            ("Held.", "find_order", 2),
            ("Held.", "guess", 4),
            ("Sent.", "find_order", 4),
        ):
            run = make_scored_run(verdicts=["borderline"], suite=suite, summary=None)
            assert summarise_run(run.pk)
            item = item_of(run)
            steps = [{"type": "tool", "name": tool, "input": "FO-1", "duration_ms": took_ms}]
            ResultOutput.objects.update_or_create(
                result=item.result, defaults={"text": text, "trace": steps}
            )
            found.append(item)
        return found

    def test_one_decision_covers_those_that_wait_and_is_undone_on_all(
        self, ann: User, items: list[ReviewItem]
    ) -> None:
        first, second, third, guessed, other = items
        identical = identical_items(first, ann)
        assert identical == [second, third]
        assert identical_items(first, ann, QueueQuery(run=first.run_id)) == []
        said = ReviewDecision(Verdict.FAIL, note="No rule", seconds=8, metric_labels={"tone": 1})
        decide_together(first, identical, said, by=ann)
        reviews = list(Review.objects.order_by("id"))
        assert [review.result_id for review in reviews] == [
            item.result_id for item in (first, second, third)
        ]
        assert {(review.verdict, review.note) for review in reviews} == {("fail", "No rule")}
        # One output was looked at, and labels are of the metrics of its run.
        assert [review.seconds for review in reviews] == [8, None, None]
        assert [review.metric_labels for review in reviews] == [{"tone": 1}, {}, {}]
        assert reviews[0].together is not None
        assert len({review.together for review in reviews}) == 1
        assert [again(item.result).reviewed_verdict for item in items] == ["fail"] * 3 + [""] * 2
        assert set(ReviewItem.objects.waiting()) == {guessed, other}
        assert last_decided_items(ann) == [first, second, third]
        # One that is decided anew is no longer one of them.
        decide(second, PASS, by=ann)
        assert last_decided_items(ann) == [second]
        undo(second, by=ann)
        assert last_decided_items(ann) == [first, third]
        for item in last_decided_items(ann):
            undo(item, by=ann)
        assert ReviewItem.objects.waiting().count() == 5

    def test_what_others_hold_or_was_rerun_is_left_out(
        self, ann: User, ben: User, items: list[ReviewItem]
    ) -> None:
        first, second, third, *_ = items
        identical = identical_items(first, ann)
        queue.reserve(second, ben)
        assert identical_items(first, ann) == [third]
        Result.objects.filter(pk=third.result_id).update(generation=2)
        decide_together(first, identical, FAIL, by=ann)
        assert [review.result_id for review in Review.objects.all()] == [first.result_id]


class TestDeciding:
    def test_a_decision_stands_beside_the_machines_and_takes_the_item_out(self, ann: User) -> None:
        run = queued_run()
        item = item_of(run)
        said = ReviewDecision(
            Verdict.PASS,
            note=" Right. ",
            tags=["wrong  reason", "tone", "tone", " "],
            outcome_marks="10-",
            metric_labels={"tone": 4},
            seconds=41,
            generation=1,
        )
        consensus = decide(item, said, by=ann)
        assert (consensus.verdict, consensus.how) == (Verdict.PASS, "")
        result = again(item.result)
        assert (result.verdict, result.score, result.reviewed_verdict) == (
            "borderline",
            item.result.score,
            "pass",
        )
        review = Review.objects.get()
        assert (review.reviewer, review.note, review.tags) == (
            ann,
            "Right.",
            ["wrong reason", "tone"],
        )
        assert (review.outcome_marks, review.metric_labels, review.seconds) == (
            "10-",
            {"tone": 4},
            41,
        )
        assert (review.machine_verdict, review.machine_score, review.generation) == (
            "borderline",
            result.score,
            1,
        )
        item.refresh_from_db()
        assert item.closed_at
        assert item.reserved_by is None
        entry = AuditEntry.objects.get(action="override")
        assert (entry.actor, entry.object_type, entry.object_id) == (ann, "result", str(result.pk))
        assert entry.before == {"verdict": "borderline", "reviewed_verdict": ""}
        assert entry.after == {"verdict": "borderline", "reviewed_verdict": "pass"}

    def test_it_can_be_changed_and_what_was_said_before_is_kept(self, ann: User) -> None:
        item = item_of(queued_run())
        decide(item, PASS, by=ann)
        decide(item, FAIL, by=ann)
        assert again(item.result).reviewed_verdict == "fail"
        history = Review.objects.order_by("id").values_list("verdict", "withdrawn_at")
        assert [(verdict, at is None) for verdict, at in history] == [
            ("pass", False),
            ("fail", True),
        ]
        before_after = AuditEntry.objects.order_by("id").values_list("before", "after")
        assert [(b["reviewed_verdict"], a["reviewed_verdict"]) for b, a in before_after] == [
            ("", "pass"),
            ("pass", "fail"),
        ]

    def test_undone_it_waits_again_for_the_same_person_first(self, ann: User, ben: User) -> None:
        run = queued_run()
        item = item_of(run)
        decide(item, PASS, by=ann)
        assert last_decided_items(ann) == [item]
        undone = undo(item, by=ann)
        assert undone is not None
        assert undone.is_open
        assert again(item.result).reviewed_verdict == ""
        assert key_of(queue.next_item(ben)) == "C-002"
        assert key_of(queue.next_item(ann)) == "C-001"
        assert undo(item, by=ann) is None
        assert last_decided_items(ann) == []
        assert Review.objects.get().withdrawn_at

    def test_two_reviewers_agree_or_a_third_decides(self, ann: User, ben: User) -> None:
        run = queued_run(review_reviewers=2)
        agreed, differing = item_of(run), item_of(run, "C-002")
        assert decide(agreed, FAIL, by=ann).is_open
        assert again(agreed.result).reviewed_verdict == ""
        assert key_of(queue.next_item(ann)) == "C-002"
        queue.release(differing, ann)
        assert key_of(queue.next_item(ben)) == "C-001"
        assert decide(agreed, FAIL, by=ben).how == "all 2 agree"
        assert again(agreed.result).reviewed_verdict == "fail"
        decide(differing, PASS, by=ann)
        assert decide(differing, FAIL, by=ben).wanted == 3
        differing.refresh_from_db()
        assert (differing.wanted, differing.closed_at) == (3, None)
        third = make_user(role="reviewer")
        assert decide(differing, PASS, by=third).how == "2 of 3 say pass"
        assert again(differing.result).reviewed_verdict == "pass"

    def test_a_second_opinion_that_differs_opens_it_again(self, ann: User, ben: User) -> None:
        item = item_of(queued_run())
        decide(item, PASS, by=ann)
        with pytest.raises(DomainError, match="reviewed while you had it open"):
            decide(item, FAIL, by=ben)
        assert again(item.result).reviewed_verdict == "pass"
        assert decide(item, FAIL, by=ben, is_second_opinion=True).is_open
        assert again(item.result).reviewed_verdict == ""
        item.refresh_from_db()
        assert (item.wanted, item.closed_at) == (3, None)
        undo(item, by=ben)
        assert again(item.result).reviewed_verdict == "pass"

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ({"outcome_marks": "1x"}, "A mark of an outcome is met, missed or none"),
            ({"outcome_marks": "1" * 201}, "A mark of an outcome"),
            ({"metric_labels": {"tone": 6}}, "tone: 6 is not a whole number from 0 to 5"),
            ({"metric_labels": {"tone": 2.5}}, "tone: 2.5 is not a whole number"),
            ({"tags": ["x" * 61]}, "has 61 characters, and 60 is the limit"),
            (
                {"tags": [f"cause {n}" for n in range(21)]},
                "21 causes are too many: the limit is 20",
            ),
            ({"generation": 2}, "was rerun since you opened it"),
        ],
    )
    def test_what_cannot_be_is_refused_and_nothing_is_kept(
        self, ann: User, said: dict[str, Any], why: str
    ) -> None:
        item = item_of(queued_run())
        with pytest.raises(DomainError, match=why):
            decide(item, ReviewDecision(Verdict.PASS, **said), by=ann)
        assert not Review.objects.exists()
        assert again(item.result).reviewed_verdict == ""

    def test_a_person_can_overrule_an_error(self, ann: User) -> None:
        run = queued_run(["error"])
        result = run.results.get()
        item = queue.ask_for_review(result, by=ann)
        assert (item.why[0].label, item.sampling_rate, item.added_by) == (
            "Added by hand",
            None,
            ann,
        )
        decide(item, PASS, by=ann)
        assert (again(result).status, again(result).reviewed_verdict) == ("error", "pass")
        assert Review.objects.get().machine_verdict == ""


class TestFigures:
    def test_where_reviews_count_they_come_anew_and_say_so(self, ann: User) -> None:
        run = queued_run(["pass", "borderline"], count_reviews=True)
        assert (run.summary["passed"], run.summary["reviews"]) == (1, 0)
        decide(item_of(run, "C-002"), PASS, by=ann)
        run.refresh_from_db()
        assert run.summary is None
        assert summarise_run(run.pk)
        run.refresh_from_db()
        assert (run.summary["passed"], run.summary["reviews"]) == (2, 1)
        assert (run.pass_count, run.borderline_count) == (1, 1)

    def test_where_they_do_not_count_nothing_moves(self, ann: User) -> None:
        run = queued_run(["pass", "borderline"])
        decide(item_of(run, "C-002"), PASS, by=ann)
        run.refresh_from_db()
        assert run.summary["passed"] == 1

    def test_a_decision_while_they_are_computed_makes_them_anew(
        self, ann: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = queued_run(["pass", "borderline"], count_reviews=True)
        Run.objects.filter(pk=run.pk).update(summary=None)
        item = item_of(run, "C-002")
        packed = "runs.finishing.pack_leaf_scores"

        def meanwhile(run_id: int) -> bytes:
            if not Review.objects.exists():
                decide(item, PASS, by=ann)
            return b""

        monkeypatch.setattr(packed, meanwhile)
        assert not summarise_run(run.pk)
        assert summarise_run(run.pk)
        run.refresh_from_db()
        assert run.summary["passed"] == 2


class TestRetries:
    @pytest.fixture
    def item(self, ann: User) -> ReviewItem:
        item = item_of(queued_run())
        ResultOutput.objects.create(result=item.result, text="Hello")
        make_score(result=item.result, path="tone", score=0.7)
        decide(item, PASS, by=ann)
        return item

    def retry(self, item: ReviewItem, **choices: Any) -> None:
        run = Run.objects.get(pk=item.result.run_id)
        retry_results(run, asked_by=None, result_ids=[item.result_id], **choices)

    def test_a_new_output_was_judged_by_nobody(self, item: ReviewItem) -> None:
        self.retry(item)
        assert again(item.result).reviewed_verdict == ""
        review = Review.objects.get()
        assert review.stale_at
        assert review.generation == 1
        assert not ReviewItem.objects.filter(pk=item.pk).exists()

    def test_an_output_that_stays_keeps_what_was_said_of_it(
        self, item: ReviewItem, ann: User
    ) -> None:
        self.retry(item, keep_output=True)
        assert again(item.result).reviewed_verdict == "pass"
        assert Review.objects.standing().count() == 1
        with pytest.raises(DomainError, match="is being rerun"):
            decide(item, FAIL, by=ann)

    def test_who_had_it_open_is_told(self, ben: User, ann: User) -> None:
        item = item_of(queued_run())
        assert queue.next_item(ben) == item
        self.retry(item)
        with pytest.raises(DomainError, match="your review was not stored"):
            decide(item, PASS, by=ben)
        assert key_of(queue.next_item(ben)) == "C-002"


class TestTheQueue:
    def test_the_most_doubtful_come_first_and_a_page_opened_again_shows_the_same(
        self, ann: User
    ) -> None:
        run = queued_run()
        for key, distance in (("C-001", 0.09), ("C-002", 0.01), ("C-003", 0.05)):
            ReviewItem.objects.filter(pk=item_of(run, key).pk).update(distance=distance)
        seen = []
        while item := queue.next_item(ann):
            assert queue.next_item(ann) == item
            seen.append(key_of(item))
            decide(item, PASS, by=ann)
        assert seen == ["C-002", "C-003", "C-001"]

    def test_nobody_gets_what_another_has_open_until_its_time_is_over(
        self, ann: User, ben: User
    ) -> None:
        run = queued_run(["borderline"])
        item = queue.next_item(ann)
        assert item is not None
        assert queue.next_item(ben) is None
        with pytest.raises(DomainError, match="ann has this result open"):
            queue.reserve(item, ben)
        with pytest.raises(DomainError, match="ann has this result open"):
            decide(item, PASS, by=ben)
        ReviewItem.objects.update(reserved_until=timezone.now() - timedelta(seconds=1))
        assert queue.next_item(ben) == item
        with pytest.raises(DomainError, match="ben has this result open"):
            decide(item_of(run), PASS, by=ann)
        queue.release(item, ann)
        assert queue.next_item(ann) is None
        queue.release(item, ben)
        assert queue.next_item(ann) == item

    def test_what_is_gone_meanwhile_is_not_skipped(self, ann: User) -> None:
        item = item_of(queued_run(["borderline"]))
        ReviewItem.objects.filter(pk=item.pk).delete()
        queue.skip(item, ann)
        assert not ReviewSkip.objects.exists()

    def test_what_was_skipped_comes_last_and_only_for_who_skipped(
        self, ann: User, ben: User
    ) -> None:
        run = queued_run()
        for expected in ("C-001", "C-002"):
            item = queue.next_item(ann)
            assert key_of(item) == expected
            assert item is not None
            queue.skip(item, ann)
        assert key_of(queue.next_item(ben)) == "C-001"
        queue.release(item_of(run), ben)
        seen = []
        while item := queue.next_item(ann):
            seen.append(key_of(item))
            decide(item, PASS, by=ann)
        assert seen == ["C-003", "C-001", "C-002"]

    def test_what_is_assigned_goes_to_nobody_else(self, ann: User, ben: User) -> None:
        run = queued_run()
        assert queue.assign([item_of(run).pk], ben, by=ann) == 1
        assert key_of(queue.next_item(ann)) == "C-002"
        assert key_of(queue.next_item(ben, QueueQuery(assignee=ben.pk))) == "C-001"

    def test_an_address_narrows_it(self, ann: User) -> None:
        run, other = queued_run(), queued_run()
        case = item_of(other, "C-003").result.case
        case.tags = ["åpen", "refunds"]
        case.save()
        ReviewItem.objects.filter(pk=item_of(other, "C-002").pk).update(
            reasons=" borderline near_threshold "
        )
        found = {
            name: {(one.result.run_id, key_of(one)) for one in query.items()}
            for name, query in {
                "suite": QueueQuery(suite=run.suite.slug),
                "run": QueueQuery(run=other.pk, tag="refunds"),
                "tag": QueueQuery(tag="åpen"),
                "part of a tag": QueueQuery(tag="refund"),
                "reason": QueueQuery(reason="near_threshold"),
                "nothing": QueueQuery(reason="audit"),
                "all": QueueQuery(),
            }.items()
        }
        assert {name: len(items) for name, items in found.items()} == {
            "suite": 3,
            "run": 1,
            "tag": 1,
            "part of a tag": 0,
            "reason": 1,
            "nothing": 0,
            "all": 6,
        }
        assert found["reason"] == {(other.pk, "C-002")}
        assert key_of(queue.next_item(ann, QueueQuery(run=other.pk, tag="åpen"))) == "C-003"

    def test_what_is_asked_for_comes_first_and_once(self, ann: User) -> None:
        run = queued_run(["borderline", "pass", "pending"])
        clear, pending = (run.results.get(case__key=key) for key in ("C-002", "C-003"))
        item = queue.ask_for_review(clear, by=ann)
        assert queue.ask_for_review(clear, by=ann) == item
        waiting = queue.ask_for_review(item_of(run).result, by=ann)
        assert waiting.reasons == " asked_for borderline "
        entries = AuditEntry.objects.filter(actor=ann, action="ask_reviews")
        assert [entry.after for entry in entries] == [{"results": 1}] * 2
        assert waiting.sampling_rate == 1.0
        assert {key_of(one) for one in ReviewItem.objects.filter(rank=0)} == {"C-001", "C-002"}
        with pytest.raises(DomainError, match="has not ended"):
            queue.ask_for_review(pending, by=ann)

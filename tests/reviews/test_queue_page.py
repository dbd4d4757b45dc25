"""The review queue's page: who gets what, what is said when it cannot be kept, and what blind mode leaves out."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.models import AuditEntry
from evaluators.scoring.types import Verdict
from runs.engine.plan import METRICS_KIND, OUTCOMES_KIND, OUTCOMES_PATH
from runs.finishing import summarise_run
from runs.models.results import Result, ResultOutput
from runs.models.reviews import Review, ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews import services
from runs.reviews.services import ReviewDecision, decide, undo
from runs.running.retrying import mark_reviews_stale
from tests.support.factories import make_score, make_scored_run, make_suite
from tests.support.members import make_client, make_member
from tests.support.queue import NO_AUDIT, item_of, queued_run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]
QUEUE = "/review/"
HTMX = {"HX-Request": "true"}


@pytest.fixture
def ann(db: None) -> User:
    return make_member("reviewer", "ann")


@pytest.fixture
def ben(db: None) -> User:
    return make_member("reviewer", "ben")


def shown(client: Client, address: str = QUEUE, **extra: Any) -> str:
    response = client.get(address, **extra)
    assert response.status_code == 200
    return words(response.content.decode())


def words(html: str) -> str:
    """Return the page's main part with spaces as they are read."""
    main = html.partition("<main")[2].partition("</main>")[0] or html
    return " ".join(main.split())


def to(name: str, item: ReviewItem, query: str = "") -> str:
    return reverse(f"runs:review-{name}", args=[item.pk]) + query


def describe(item: ReviewItem, **output: Any) -> None:
    """Give an item's result an output and a judge that spoke."""
    said = {"text": "It is **held** until both ship."} | output
    ResultOutput.objects.create(result=item.result, **said)
    make_score(result=item.result, path="tone", score=0.41, reasoning="Invents a reason.")


def give_metric(item: ReviewItem) -> None:
    """Let a judge have scored one metric of an item's result."""
    metrics = {"metrics": [{"key": "tone", "name": "Tone", "score": 3.0, "weight": 1.0}]}
    make_score(result=item.result, path="judge", score=0.6, kind=METRICS_KIND, details=metrics)


class TestQueue:
    def test_it_shows_the_most_doubtful_item_reserved_with_all_it_takes_to_decide(
        self, ann: User
    ) -> None:
        run = queued_run()
        item = item_of(run)
        outcomes = [
            {"text": "Adds both amounts", "passed": True, "justification": "438 in all."},
            {"text": "Names KB-207", "passed": False, "justification": "No such rule."},
        ]
        steps = [{"type": "tool", "name": "find_order", "input": "FO-1", "output": "249"}]
        describe(item, outcomes=outcomes, trace=steps)
        # Expected outcomes have a line of their own.
        make_score(result=item.result, path=OUTCOMES_PATH, score=0.2, kind=OUTCOMES_KIND)
        page = shown(make_client(ann))
        assert "<code>tone</code> 0.41" in page
        for decision_message in (
            *("1 of 3", "C-001", "The tent arrived torn", "<strong>held</strong>"),
            *("Adds both amounts", "Judge: missed", "No such rule.", "find_order"),
            *("The judge", "Invents a reason.", "Below pass by", "0.09", "tone", "Why it is here"),
            *("Reserved for you until", "Save and next", "Skip", "2 left", "C-002"),
        ):
            assert decision_message in page, decision_message
        assert 'aria-keyshortcuts="p"' in page
        # Negated, the lowest is the one that found what must not be.
        tree = run.snapshot["evaluators"]
        tree["children"][0]["negate"] = True
        make_score(result=item.result, path="refund", score=0.5)
        run.repetitions = 2
        run.save()
        page = shown(make_client(ann))
        assert "<code>refund</code> 0.50" in page
        assert page.partition('id="next"')[2].count("<small>repetition 1</small>") == 2
        item.refresh_from_db()
        assert item.reserved_by == ann

    def test_two_people_never_see_the_same_one_and_the_second_is_told_who_has_it(
        self, ann: User, ben: User
    ) -> None:
        run = queued_run()
        item = item_of(run)
        assert "C-001" in shown(make_client(ann))
        page = shown(make_client(ben))
        assert "2 left" not in page
        assert "1 of 3, 1 reserved" in page
        assert "Case C-001" not in page
        taken = shown(make_client(ben), to("item", item))
        assert "ann is reviewing this result" in taken
        assert "<strong>Taken.</strong>" in taken
        assert "Not saved" not in taken
        assert "Next result" in taken
        assert "Save and next" not in taken

    def test_the_address_narrows_it_and_stays_while_one_decides(self, ann: User) -> None:
        run, other = queued_run(), queued_run()
        client = make_client(ann)
        query = f"?suite={other.suite.slug}&run={other.pk}&reason=borderline"
        page = shown(client, QUEUE + query)
        assert other.suite.title in page
        assert "1 of 3" in page
        item = item_of(other)
        response = client.post(to("decide", item, query), {"verdict": "pass"})
        assert response["Location"] == QUEUE + query
        assert "2 of 3" in shown(client, response["Location"])
        assert "Nothing matches these filters" in shown(client, f"{QUEUE}?suite=nowhere&tag=x")
        assert run.suite.title in shown(client, f"{QUEUE}?run=none&reason=mood")

    def test_why_there_is_none(self, ann: User, ben: User) -> None:
        client = make_client(ann)
        assert "Nothing to review" in shown(client)
        run = queued_run(["borderline"])
        item = item_of(run)
        services.reserve(item, ben)
        page = shown(client)
        assert "Other reviewers have the rest open" in page
        assert re.search(r"ben until \d\d:\d\d", page)
        services.release(item, ben)
        services.assign([item.pk], ben, by=ben)
        assert "Nothing left for you" in shown(client)
        decide(item, ReviewDecision(Verdict.PASS), by=ben)
        assert "All reviewed" in shown(client)

    def test_what_was_skipped_comes_back_last_and_is_said_to(self, ann: User) -> None:
        run = queued_run(["borderline"] * 2)
        client = make_client(ann)
        first, second = item_of(run), item_of(run, "C-002")
        response = client.post(to("skip", first))
        assert "C-002" in shown(client, response["Location"])
        page = shown(client, client.post(to("skip", second))["Location"])
        assert "You skipped this one before" in page
        assert "<code>C-001</code> Case C-001</a></h2>" in page

    def test_what_is_gone_is_left_without_an_error(self, ann: User) -> None:
        item, client = item_of(queued_run()), make_client(ann)
        Result.objects.filter(pk=item.result_id).delete()
        assert "Case C-002" in shown(client, client.post(to("skip", item))["Location"])
        assert client.post(to("release", item))["Location"] == reverse("home")

    def test_a_viewer_reads_it_and_is_told_why_not_to_decide(self, viewer_client: Client) -> None:
        item = item_of(queued_run())
        page = shown(viewer_client)
        assert "You can read the queue but not decide" in page
        assert "C-003" in page
        one = shown(viewer_client, to("item", item))
        assert "Your role can read the queue" in one
        for address in (to("decide", item), to("skip", item), to("hold", item)):
            assert viewer_client.post(address, {"verdict": "pass"}).status_code == 403
        item.refresh_from_db()
        assert item.reserved_by is None

    def test_reserved_it_stays_as_long_as_its_page_is_open(self, ann: User, ben: User) -> None:
        item = item_of(queued_run())
        client = make_client(ann)
        shown(client, to("item", item))
        ReviewItem.objects.update(reserved_until=timezone.now() + timedelta(seconds=5))
        kept = client.post(to("hold", item))
        assert "Reserved for you until" in kept.content.decode()
        item.refresh_from_db()
        assert item.reserved_until is not None
        assert item.reserved_until > timezone.now() + timedelta(minutes=10)
        ReviewItem.objects.update(reserved_by=ben)
        lost = client.post(to("hold", item))
        assert lost.status_code == 286
        assert "ben has this result open" in lost.content.decode()
        assert client.post(to("release", item)).status_code == 302
        item.refresh_from_db()
        assert item.reserved_by == ben

    def test_queries_do_not_grow_with_the_queue(
        self, ann: User, django_assert_max_num_queries: Any
    ) -> None:
        client = make_client(ann)
        decide(item_of(queued_run()), ReviewDecision(Verdict.PASS, tags=["tone"]), by=ann)
        client.get(QUEUE)
        with django_assert_max_num_queries(36) as few:
            client.get(QUEUE)
        queued_run(["borderline"] * 12)
        with django_assert_max_num_queries(len(few.captured_queries)):
            client.get(QUEUE)


class TestDeciding:
    def test_all_that_was_said_is_kept_and_undo_brings_it_back_filled_in(self, ann: User) -> None:
        run = queued_run()
        item = item_of(run)
        item.result.case.expected_outcomes = ["Adds", "Names"]
        item.result.case.save()
        give_metric(item)
        client = make_client(ann)
        said = {
            "verdict": "fail",
            "note": "Sum is right, the reason is invented.",
            "tags": "invented, tone",
            "outcome-0": "1",
            "outcome-1": "0",
            "label-tone": "4",
            "shown": int(timezone.now().timestamp()) - 41,
            "generation": 1,
        }
        response = client.post(to("decide", item), said)
        review = Review.objects.get()
        assert (review.verdict, review.tags) == ("fail", ["invented", "tone"])
        assert (review.outcome_marks, review.metric_labels) == ("10", {"tone": 4})
        assert review.seconds == 41
        page = shown(client, response["Location"])
        assert "saved." in page
        assert "automatic verdict" in page
        assert "Borderline 0.71" in page
        assert "You and the judge" in page
        assert reverse("runs:suite-agreement", args=[item.run.suite.slug]) in page
        assert 'value="invented"' in page
        assert "saved." not in shown(client)
        back = client.post(reverse("runs:review-undo"))
        filled = shown(client, back["Location"])
        assert "the reason is invented.</textarea>" in filled
        assert 'value="invented, tone"' in filled
        assert re.search(r'value="fail"[^>]* checked', filled)
        assert Result.objects.get(pk=item.result_id).reviewed_verdict == ""

    def test_htmx_gets_the_next_one_and_what_changed_beside_it(self, ann: User) -> None:
        item = item_of(queued_run())
        client = make_client(ann)
        response = client.post(to("decide", item), {"verdict": "pass"}, headers=HTMX)
        part = response.content.decode()
        assert "<html" not in part
        assert part.index('id="item"') < part.index("C-002")
        assert 'id="review-head" hx-swap-oob="true"' in part
        assert "2<span" in part.partition('id="review-count"')[2]
        assert response["HX-Replace-Url"] == QUEUE

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            ({}, "Choose pass, borderline or fail."),
            ({"verdict": "perfect"}, "Choose pass, borderline or fail."),
        ],
    )
    def test_what_is_missing_is_said_and_what_was_typed_stays(
        self, ann: User, said: dict[str, str], problem: str
    ) -> None:
        item = item_of(queued_run())
        response = make_client(ann).post(to("decide", item), said | {"note": "So far"})
        page = words(response.content.decode())
        assert response.status_code == 422
        assert problem in page
        assert "So far</textarea>" in page

    @pytest.mark.parametrize(
        ("said", "problem"),
        [
            ({"label-tone": "9"}, "not a whole number from 0 to 5"),
            ({"label-to\0ne": "3"}, "names a metric that this result does not have"),
            ({"tags": "x" * 61}, "60 is the limit for a cause"),
            ({"generation": "7"}, "rerun since you opened it"),
        ],
    )
    def test_what_cannot_be_kept_is_refused_with_its_reason(
        self, ann: User, said: dict[str, str], problem: str
    ) -> None:
        item = item_of(queued_run())
        give_metric(item)
        said = {"verdict": "pass", "note": "So far"} | said
        response = make_client(ann).post(to("decide", item), said)
        page = words(response.content.decode())
        assert response.status_code == 409
        assert problem in page
        assert "So far</textarea>" in page
        assert not Review.objects.exists()

    def test_the_second_of_two_gets_a_banner_and_keeps_the_note(self, ann: User, ben: User) -> None:
        item = item_of(queued_run())
        client, said = make_client(ben), {"verdict": "fail", "note": "No such rule"}
        services.reserve(item, ann)
        refused = client.post(to("decide", item), said)
        page = words(refused.content.decode())
        assert refused.status_code == 409
        assert "ann has this result open" in page
        assert re.search(r"reserved until \d\d:\d\d", page)
        assert "No such rule</textarea>" in page
        decide(item, ReviewDecision(Verdict.PASS), by=ann)
        late = words(client.post(to("decide", item), said).content.decode())
        assert "was reviewed while you had it open" in late
        assert "No such rule</textarea>" in late
        assert "Your second opinion" in late
        assert Review.objects.count() == 1
        client.post(to("decide", item), said | {"second": "on"})
        item.refresh_from_db()
        assert (Review.objects.count(), item.closed_at) == (2, None)

    def test_what_was_replaced_meanwhile_gives_the_note_back(self, ann: User) -> None:
        item = item_of(queued_run())
        mark_reviews_stale([item.result_id])
        said = {"verdict": "fail", "note": "No such rule"}
        refused = make_client(ann).post(to("decide", item), said)
        page = words(refused.content.decode())
        assert refused.status_code == 409
        assert "was rerun" in page
        assert "No such rule" in page
        assert "C-002" in page

    def test_several_decide_and_who_said_what_is_shown_afterwards(
        self, ann: User, ben: User
    ) -> None:
        item = item_of(queued_run(review_reviewers=2))
        decide(item, ReviewDecision(Verdict.PASS, note="Ann's note"), by=ann)
        before = shown(make_client(ben), to("item", item))
        assert "1 of 2 decided" in before
        assert "one more reviewer is asked" in before
        assert "Ann&#x27;s note" not in before
        decide(item, ReviewDecision(Verdict.PASS), by=ben)
        after = shown(make_client(ben), to("item", item))
        assert "Ann&#x27;s note" in after
        assert "All 2 agree" in after
        assert "Change and next" in after

    def test_one_item_or_a_whole_part_is_for_one_person(self, ann: User, ben: User) -> None:
        run = queued_run()
        client, address = make_client(ann), reverse("runs:review-assign")
        client.post(address, {"item": item_of(run).pk, "to": ben.pk})
        assert services.next_item(ann) == item_of(run, "C-002")
        client.post(f"{address}?run={run.pk}", {"to": ben.pk})
        assert services.next_item(ben) is not None
        assert ReviewItem.objects.filter(assigned_to=ben).count() == 3
        assert "Other reviewers have the rest open" in shown(client, f"{QUEUE}?assignee={ben.pk}")
        client.post(address, {"to": 0})
        assert "Choose a reviewer, editor or admin." in client.get(QUEUE).content.decode()
        client.post(f"{address}?run={run.pk}", {"to": ""})
        assert not ReviewItem.objects.exclude(assigned_to=None).exists()
        entries = AuditEntry.objects.filter(actor=ann, action="assign_reviews").order_by("pk")
        assert [(entry.object_name, entry.after) for entry in entries] == [
            (f"{run.suite.slug} #{run.number}", {"results": count, "assigned_to": name})
            for count, name in ((1, "ben"), (3, "ben"), (3, "everyone"))
        ]

    @pytest.mark.parametrize("named", ["abc", "\0", "9" * 30, "-1"])
    def test_an_item_that_cannot_be_is_none(self, ann: User, named: str) -> None:
        client, item = make_client(ann), item_of(queued_run())
        for address in ("runs:review-judge", "runs:review-assign"):
            said = client.post(reverse(address), {"item": named, "to": ann.pk}, headers=HTMX)
            assert said.status_code in (200, 302)
        item.refresh_from_db()
        assert item.assigned_to is None


BLIND_WORDS = (
    *("0.71", "0.7100", "Invents a reason", "No such rule", "Judge:", "Below pass by"),
    *("You and the judge", "against the bands"),
)


class TestBlind:
    def test_nothing_of_the_machine_is_in_the_page_until_one_has_decided(self, ann: User) -> None:
        run = queued_run(review_blind=True)
        item = item_of(run)
        describe(
            item,
            outcomes=[{"text": "Names KB-207", "passed": False, "justification": "No such rule."}],
        )
        decide(item_of(run, "C-003"), ReviewDecision(Verdict.PASS), by=ann)
        client = make_client(ann)
        page = shown(client)
        assert "Names KB-207" in page
        assert "hides the judge until you decide" in page
        assert "Verdict, scores and reasons appear after you decide" in page
        choices = page.partition('name="verdict"')[2].partition("</fieldset>")[2]
        assert not [word for word in BLIND_WORDS if word in page]
        assert not re.findall(r"(?i)borderline|disagree", choices)
        decision_message = words(
            client.post(to("decide", item), {"verdict": "pass"}, headers=HTMX).content.decode()
        )
        assert "automatic verdict" in decision_message
        assert "Borderline 0.71" in decision_message
        assert decision_message.count("0.71") == 1
        assert "0.71" not in shown(client)

    def test_a_person_hides_it_too_and_what_was_typed_stays(self, ann: User) -> None:
        item = item_of(queued_run())
        describe(item)
        client, address = make_client(ann), reverse("runs:review-judge")
        said = {"blind": "on", "item": item.pk, "note": "So far"}
        part = words(client.post(address, said, headers=HTMX).content.decode())
        assert "So far</textarea>" in part
        assert not [word for word in BLIND_WORDS if word in part]
        assert not [word for word in BLIND_WORDS if word in shown(client)]
        client.post(address, {"item": item.pk})
        assert "Borderline 0.71" in shown(client)

    def test_what_the_others_said_is_hidden_from_who_has_not_decided(
        self, ann: User, ben: User
    ) -> None:
        item = item_of(queued_run(review_blind=True))
        decide(item, ReviewDecision(Verdict.PASS, note="Ann's note"), by=ann)
        page = shown(make_client(ben), to("item", item))
        assert "Ann&#x27;s note" not in page
        assert "0.71" not in page
        place = {"slug": item.result.run.suite.slug, "number": 1, "key": "C-001", "repetition": 1}
        own_page = shown(make_client(ben), reverse("runs:result", kwargs=place))
        assert "Ann&#x27;s note" not in own_page
        assert "reviewed as" not in own_page
        assert "You see their decisions after yours." in own_page
        assert "Ann&#x27;s note" in shown(make_client(ann), reverse("runs:result", kwargs=place))
        decide(item, ReviewDecision(Verdict.PASS), by=ben, is_second_opinion=True)
        assert "Ann&#x27;s note" in shown(make_client(ben), to("item", item))

    def test_the_page_of_a_result_that_waits_keeps_the_verdict_too(self, ann: User) -> None:
        item = item_of(queued_run(review_blind=True))
        said = [{"text": "Names KB-207", "passed": False, "justification": "No such rule."}]
        describe(item, outcomes=said)
        place = {"slug": item.result.run.suite.slug, "number": 1, "key": "C-001", "repetition": 1}
        address, calls = (
            reverse(name, kwargs=place) for name in ("runs:result", "runs:result-calls")
        )
        client = make_client(ann)
        page = shown(client, address)
        assert not [word for word in BLIND_WORDS if word in page]
        assert "data-verdict" not in page
        assert "Its verdict is hidden until you decide." in page
        assert f'href="{to("item", item)}"' in page
        assert "<strong>held</strong>" in page
        assert "show it all the same" not in page
        assert "0.71" not in shown(client, f"{address}?shown=1")
        assert client.get(calls)["Location"] == address
        # Who mends the evaluators may look, knowing what that means; who does not decide needs no protection.
        editor = make_client(make_member("editor", "eve"))
        assert "show it all the same" in shown(editor, address)
        assert "0.71" in shown(editor, f"{address}?shown=1")
        assert editor.get(calls).status_code == 200
        assert "0.71" in shown(make_client(make_member("viewer", "vic")), address)
        decide(item, ReviewDecision(Verdict.PASS), by=ann)
        assert "0.71" in shown(client, address)
        assert client.get(calls).status_code == 200


class TestPlaces:
    def test_the_rail_the_home_page_and_the_suite_say_how_much_waits(self, ann: User) -> None:
        run = queued_run()
        home = make_client(ann).get("/").content.decode()
        assert "3<span" in home.partition('id="review-count"')[2]
        assert 'Waiting for review</dt><dd><a href="/review/">3</a>' in home
        assert f'href="/review/?suite={run.suite.slug}">3<' in home

    def test_an_archived_suite_and_a_deleted_case_are_reviewed_as_they_were(
        self, ann: User
    ) -> None:
        run = queued_run(["borderline"])
        Suite.objects.filter(pk=run.suite_id).update(archived_at=timezone.now())
        run.suite.cases.update(is_current=False)
        page = shown(make_client(ann))
        assert "archived" in page
        assert "Case C-001" in page

    @pytest.mark.writes_results
    def test_what_is_tried_again_waits_for_no_one(self, ann: User) -> None:
        run = queued_run(["borderline"])
        item = item_of(run)
        Result.objects.filter(run=run).update(status="running")
        Run.objects.filter(pk=run.pk).update(status="running")
        client = make_client(ann)
        assert "Nothing to review" in shown(client)
        assert "Being rerun" in shown(client, to("item", item))

    def test_a_person_asks_for_a_review_of_a_result_and_decides_on_its_page(
        self, ann: User
    ) -> None:
        run: Run = queued_run(["pass"])
        client = make_client(ann)
        place = {"slug": run.suite.slug, "number": 1, "key": "C-001", "repetition": 1}
        page = shown(client, reverse("runs:result", kwargs=place))
        assert "Add to review queue" in page
        asked = client.post(reverse("runs:result-review", kwargs=place))
        assert asked["Location"] == reverse("runs:result", kwargs=place)
        waiting = shown(client, asked["Location"])
        assert "in the review queue" in waiting.lower()
        item = item_of(run)
        rerun = {"verdict": "fail", "note": "Invented", "generation": "7"}
        refused = client.post(reverse("runs:result-review", kwargs=place), rerun)
        assert "was rerun since you opened it" in client.get(refused["Location"]).content.decode()
        decided = {"verdict": "fail", "note": "Invented", "generation": "1"}
        saved = client.post(reverse("runs:result-review", kwargs=place), decided)
        assert "Review saved." in client.get(saved["Location"]).content.decode()
        after = shown(client, saved["Location"])
        assert "Invented" in after
        assert "Review again" in after
        undo(item, by=ann)
        page = shown(client, reverse("runs:result", kwargs=place))
        assert re.search(r'In the review queue,\s+<a\s+href="[^"]*\?run=\d+"\s*>1 left</a>', page)


def test_identical_outputs_are_offered_and_each_decision_says_so(ann: User) -> None:
    suite, items = make_suite(**NO_AUDIT), []
    for _ in range(3):
        run = make_scored_run(verdicts=["borderline"], suite=suite, summary=None)
        assert summarise_run(run.pk)
        item = item_of(run)
        ResultOutput.objects.update_or_create(result=item.result, defaults={"text": "Held."})
        items.append(item)
    client, (first, second, third) = make_client(ann), items
    page = shown(client, to("item", first))
    assert "Also decide 2 identical outputs" in page
    assert "1 in run #2, 1 in run #3" in page
    given = {"verdict": "pass", "generation": "1"}
    # One of them is decided elsewhere before the form is sent.
    decide(third, ReviewDecision(Verdict.FAIL), by=make_member("reviewer", "cleo"))
    together = {"together": f"{second.pk},{third.pk}"}
    response = client.post(to("decide", first), given | together, follow=True)
    assert "saved on 2 identical outputs." in words(response.text)
    verdicts = Review.objects.order_by("id").values_list("result", "verdict")
    assert set(verdicts) == {
        (third.result_id, "fail"),
        (first.result_id, "pass"),
        (second.result_id, "pass"),
    }
    place = (suite.slug, second.run.number, "C-001", 1)
    assert "together with identical outputs" in shown(client, reverse("runs:result", args=place))
    response = client.post(reverse("runs:review-undo"), headers=HTMX)
    assert "2 identical outputs are back in the queue." in words(response.text)
    assert Review.objects.standing().count() == 1
    # Without the tick a decision is on one output.
    client.post(to("decide", first), given)
    assert Review.objects.standing().count() == 2


def test_an_item_that_goes_while_it_is_opened_is_not_found(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, reserve = item_of(queued_run(["borderline"])), services.reserve

    def delete_then_reserve(item: ReviewItem, by: User) -> ReviewItem:
        ReviewItem.objects.filter(pk=item.pk).delete()
        return reserve(item, by)

    monkeypatch.setattr(services, "reserve", delete_then_reserve)
    assert make_client(ann).get(to("item", item)).status_code == 404

"""Many results or cases at once: what is asked first, what is done, who may do it, and at which cost in queries."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.models import AuditEntry
from runs.cases.services import put_cases, remove_cases, tag_cases
from runs.models.results import Result, ResultOutput
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.reviews.services import ask_for_review, ask_for_reviews
from runs.specs.profiles import get_profile
from runs.specs.suites import CaseSpec
from runs.suites.services import create_suite
from tests.support.factories import make_result, make_run, make_scored_run, make_suite
from tests.support.members import make_client, make_member

pytestmark = pytest.mark.django_db
RUN = "/suites/support/runs/1/"


@pytest.fixture
def ada() -> User:
    return make_member("editor", "ada")


@pytest.fixture
def editor(ada: User) -> Client:
    return make_client(ada)


@pytest.fixture
def suite(ada: User) -> Suite:
    profile = get_profile("verdicts")
    suite = create_suite(slug="support", title="Support", by=ada, profile=profile)
    ask = [
        CaseSpec(key=f"C-{n}", input=({"role": "user", "content": f"Ask {n}"},)) for n in range(4)
    ]
    put_cases(suite, ask, by=ada)
    return suite


@pytest.fixture
def run(suite: Suite) -> Run:
    """Make a run of four cases that have outputs, the first two of which failed."""
    run = make_run(suite=suite)
    for case in suite.cases.filter(is_current=True).order_by("position"):
        verdict = "fail" if case.key < "C-2" else "pass"
        make_result(run=run, case=case, verdict=verdict, output={"text": f"Answer to {case.key}"})
    return run


def ids(run: Run, *keys: str) -> list[int]:
    return list(run.results.filter(case__key__in=keys).values_list("case_id", flat=True))


def sent(client: Client, name: str, fields: Any, *, status: int = 200, **options: Any) -> str:
    response = client.post(f"{RUN}selected/{name}/", fields, follow=status == 200, **options)
    assert response.status_code == status, response.content.decode()
    return response.content.decode()


FAILED = {"everything": "on", "verdict": "fail"}
ALL_FAILED = FAILED | {"sure": "1"}


def test_the_bar_offers_what_a_role_may_do(
    run: Run, viewer_client: Client, reviewer_client: Client, editor: Client
) -> None:
    offers = {
        viewer_client: ("file",),
        reviewer_client: ("file", "review"),
        editor: ("file", "review", "tags", "suite"),
    }
    for client, offered in offers.items():
        page = client.get(RUN, {"verdict": "fail"}).content.decode()
        assert "Select all 2 that match" in page
        assert page.count('name="case"') == 2
        assert [
            name for name in ("file", "review", "tags", "suite") if f"selected/{name}/" in page
        ] == list(offered)
        for name in ("review", "tags", "suite"):
            if name not in offered:
                sent(client, name, ALL_FAILED, status=403)
    assert not ReviewItem.objects.exists()


def test_results_of_an_imported_run_are_chosen_but_not_rerun(editor: Client, run: Run) -> None:
    run.snapshot["imported"] = {"file": "results.jsonl", "sha256": "0"}
    run.save()
    page = editor.get(RUN).content.decode()
    assert page.count('name="case"') == 4
    assert "picks-retry" not in page
    assert "selected/review/" in page


def test_many_results_join_the_review_queue(editor: Client, ada: User, run: Run) -> None:
    rita = make_member("reviewer", "rita")
    make_member("viewer", "vic")
    first = run.results.get(case__key="C-0")
    ask_for_review(first, by=None)
    asked = sent(editor, "review", FAILED, headers={"HX-Request": "true"})
    assert "Add 2 results to the review queue" in asked
    assert "1 result is in the queue or decided" in asked
    assert "rita" in asked
    assert "vic" not in asked
    assert ReviewItem.objects.count() == 1, "it only asks"
    said = sent(editor, "review", ALL_FAILED | {"to": rita.pk})
    assert "1 result added to the review queue, assigned to rita. 1 result already there." in said
    items = ReviewItem.objects.order_by("result__position")
    assert [item.result.case.key for item in items] == ["C-0", "C-1"]
    assert {(item.assigned_to, str(item), item.wanted) for item in items} == {
        (rita, "Added by hand", 1)
    }
    assert items[1].added_by == ada
    entry = AuditEntry.objects.get(action="ask_reviews", actor=ada)
    assert (entry.actor, entry.object_name, entry.after) == (
        ada,
        "support #1",
        {"results": 2, "assigned_to": "rita"},
    )


def test_rules_and_requests_of_one_result_are_both_told(ada: User, run: Run) -> None:
    result = run.results.first()
    ReviewItem.objects.create(result=result, run=run, reasons=" near ", rank=3)
    ask_for_reviews(run, run.results.all(), by=ada)
    item = ReviewItem.objects.get(result=result)
    alone = ReviewItem.objects.exclude(pk=item.pk).first()
    assert item.reasons == " asked_for near "
    assert (item.rank, item.added_by) == (alone.rank, ada)


def test_results_that_nobody_can_decide_on_are_left_out(editor: Client, run: Run) -> None:
    removed = ResultOutput.objects.get(result__case__key="C-0")
    removed.removed_at = run.created_at
    removed.save()
    Result.objects.filter(case__key="C-1").update(status="cancelled", verdict="", score=None)
    page = sent(editor, "review", {"everything": "on"})
    assert "Add 2 results" in page
    assert "2 results left out" in page
    none = {"case": ids(run, "C-0", "C-1")}
    assert "Nothing to review" in sent(editor, "review", none)


@pytest.mark.each_database
def test_many_are_added_in_as_many_queries_as_a_few(
    ada: User, django_assert_max_num_queries: Any
) -> None:
    def queries(count: int) -> int:
        run = make_scored_run(verdicts=["fail"] * count, suite=make_suite())
        with CaptureQueriesContext(connection) as captured:
            assert ask_for_reviews(run, run.results.all(), by=ada, assigned_to=ada).added == count
        return len(captured)

    assert queries(3) == queries(60)


@pytest.mark.parametrize("what", ["suite", "tags", "review"])
def test_everything_under_a_filter_that_nothing_matches_chooses_nothing(
    editor: Client, suite: Suite, run: Run, what: str
) -> None:
    sent = {"everything": "1", "q": "verdict = pass verdict = fail", "title": "Empty", "tags": "a"}
    address = f"/suites/{suite.slug}/runs/{run.number}/selected/{what}/"
    page = editor.post(address, {**sent, "change": "add", "confirmed": "1"}, follow=True)
    assert "No result matches the filter" in page.content.decode()
    assert Suite.objects.count() == 1


def test_no_suite_is_made_of_cases_that_are_gone(editor: Client, suite: Suite) -> None:
    sent = {"everything": "1", "q": "nothing-has-this-word", "title": "Empty", "sure": "1"}
    page = editor.post(f"/suites/{suite.slug}/case-suite/", sent, follow=True)
    assert "No case matches the filter" in page.content.decode()
    assert Suite.objects.count() == 1


def test_tags_of_many_cases_are_one_version(editor: Client, suite: Suite, run: Run) -> None:
    remove_cases(suite, ["C-0"], by=None)
    asked = sent(editor, "tags", FAILED)
    assert "Tag 1 case of Support" in asked
    assert "1 case of run #1 is no longer in the suite" in asked
    everything = {"everything": "on", "sure": "1", "change": "add", "tags": "weak, slow"}
    said = sent(editor, "tags", everything)
    suite.refresh_from_db()
    assert f"3 cases tagged weak, slow: Support is at version {suite.version}." in said
    version = suite.versions.get(number=suite.version)
    assert version.note == "3 cases tagged weak, slow"
    assert version.author.username == "ada"
    assert AuditEntry.objects.filter(object_name="support").first().after["note"] == version.note
    removed = everything | {"change": "remove", "tags": "slow"}
    assert "3 cases no longer tagged slow" in sent(editor, "tags", removed)
    assert "No case changed" in sent(editor, "tags", removed)
    tags = suite.cases.filter(is_current=True).values_list("tags", flat=True)
    assert list(tags) == [["weak"]] * 3
    assert "Enter at least one tag" in sent(editor, "tags", everything | {"tags": ","}, status=422)


def test_tags_are_refused_when_somebody_else_saved_meanwhile(
    editor: Client, suite: Suite, run: Run, ada: User
) -> None:
    def seen(page: str) -> str:
        return page.partition('name="seen" value="')[2].partition('"')[0]

    asked = sent(editor, "tags", FAILED)
    tag_cases(suite, ["C-3"], ["mine"], by=ada)
    fields = ALL_FAILED | {"change": "add", "tags": "weak", "seen": seen(asked)}
    assert "2 cases tagged weak" in sent(editor, "tags", fields), "one's own edits do no harm"
    asked = sent(editor, "tags", FAILED)
    tag_cases(suite, ["C-3"], ["theirs"], by=make_member("editor", "bob"))
    fields = ALL_FAILED | {"change": "remove", "tags": "weak", "seen": seen(asked)}
    refused = sent(editor, "tags", fields, status=422)
    assert "bob saved Support meanwhile" in refused
    assert suite.cases.get(is_current=True, key="C-0").tags == ["weak"]
    assert 'name="everything" value="on"' in refused, "the selection is kept"
    again = fields | {"seen": seen(refused)}
    assert "2 cases no longer tagged weak" in sent(editor, "tags", again)


def test_a_new_suite_takes_cases_and_evaluators(editor: Client, suite: Suite, run: Run) -> None:
    asked = sent(editor, "suite", FAILED)
    assert "New suite from 2 cases" in asked
    assert "Support, 2 cases" in asked
    named = ALL_FAILED | {"title": "Weak spots", "slug": ""}
    assert "Weak spots is created" in sent(editor, "suite", named)
    made = Suite.objects.get(slug="weak-spots")
    cases = made.cases.filter(is_current=True).order_by("position")
    assert [case.key for case in cases] == ["C-0", "C-1"]
    assert made.version == 1
    assert made.versions.get().note == "2 cases of support v2"
    assert made.spec.evaluators == suite.spec.evaluators
    assert made.spec.policy == suite.spec.policy
    taken = sent(editor, "suite", named | {"slug": "support"}, status=422)
    assert "There is already a suite “support”" in taken
    assert Suite.objects.get(slug="support").cases.count() == 4
    ticked = {"case": ["C-1", "C-3"], "title": "Two", "sure": "1"}
    page = editor.post("/suites/support/case-suite/", ticked, follow=True).content.decode()
    assert "Two is created" in page
    assert Suite.objects.get(slug="two").cases.count() == 2


def test_a_file_has_what_is_chosen(viewer_client: Client, run: Run) -> None:
    def rows(**fields: Any) -> list[str]:
        response = viewer_client.post(f"{RUN}selected/file/", fields)
        assert response.status_code == 200
        return b"".join(response.streaming_content).decode().splitlines()

    ticked = {"case": ids(run, "C-1", "C-3")}
    table = rows(**ticked, format="csv")
    assert [row.partition(",")[0] for row in table] == ["case", "C-1", "C-3"]
    assert "Answer to C-3" in rows(**ticked, format="texts")[2]
    assert len(rows(everything="on", verdict="fail", format="jsonl")) == 2
    assert "Tick at least one result" in sent(viewer_client, "file", {"format": "csv"}, status=422)


@pytest.mark.parametrize("name", ["review", "tags", "suite"])
def test_a_wrong_selection_is_told(editor: Client, run: Run, name: str) -> None:
    for fields, text in (
        ({}, "Tick at least one result"),
        ({"case": ["x"]}, "is not a case of this run"),
        ({"case": ["99999"]}, "is not in run"),
        ({"everything": "on", "q": "tone <"}, "The filter cannot be read"),
    ):
        assert text in sent(editor, name, fields, status=422)


def test_a_retry_of_all_that_match_keeps_to_flaky_ones(editor: Client, suite: Suite) -> None:
    run = make_run(suite=suite, repetitions=2)
    for case in suite.cases.filter(is_current=True).order_by("position"):
        for repetition in (1, 2):
            verdict = "fail" if case.key == "C-0" and repetition == 1 else "pass"
            make_result(run=run, case=case, repetition=repetition, verdict=verdict)
    page = editor.post(f"{RUN}retry/ask/", {"everything": "on", "flaky": "on"}).content.decode()
    assert 'name="flaky"' in page, "the form that confirms it names the same results"


def test_a_rescore_offers_nothing_else(editor: Client, run: Run) -> None:
    page = editor.post(f"{RUN}retry/ask/", FAILED | {"rescore": "on"}).content.decode()
    assert "Rescore 2 results" in page
    assert "Rerun the target" not in page
    assert '<input type="hidden" name="keep_output" value="on">' in page

"""Judge against people: one worked example whose figures were made by hand, and every state of the page."""

from __future__ import annotations

import csv
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.scoring.types import Verdict
from runs.models.reviews import ReviewItem
from runs.models.runs import Run
from runs.models.suites import Suite, SuiteDraft
from runs.reviews.services import ReviewDecision, ask_for_review, decide
from runs.suites.drafts import change_draft, get_draft, save_draft
from runs.suites.edits import Describe, SetPolicy
from tests.support.factories import make_score, make_suite, make_user
from tests.support.members import make_client, make_member
from tests.support.queue import item_of, queued_run

pytestmark = pytest.mark.django_db
PAGE = "/suites/support/agreement/"


def words(client: Client, address: str = PAGE, **headers: str) -> str:
    """Return what a page says, its tags left out and its space put together."""
    response = client.get(address, headers=headers)
    assert response.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def worked_example(**columns: object) -> Run:
    """Return a run of which people decided ten executions.

    Machine by person: pass 3 pass, 1 fail; borderline 2 pass, 1 borderline; fail 1 borderline, 2 fail. All were
    drawn alike. Observed agreement 6/10; by chance (4·5 + 3·2 + 3·3)/100 = 0.35; kappa 0.25/0.65 = 0.384615…
    Of 5 that people passed the machine passed 3; of 5 that they did not it did not pass 4.
    """
    said = [
        *(("pass", "pass"),) * 3,
        ("pass", "fail"),
        *(("borderline", "pass"),) * 2,
        ("borderline", "borderline"),
        ("fail", "borderline"),
        *(("fail", "fail"),) * 2,
    ]
    run = queued_run([machine for machine, _ in said], slug="support", **columns)
    ann = make_user(role="reviewer", name="ann")
    for number, (_, person) in enumerate(said, 1):
        result = run.results.get(case__key=f"C-{number:03}")
        item = ask_for_review(result, by=ann)
        ReviewItem.objects.filter(pk=item.pk).update(sampling_rate=1.0)
        note = "Cites no rule" if number == 4 else ""
        decide(item, ReviewDecision(Verdict(person), note=note), by=ann)
    return run


def test_the_figures_of_the_page_are_those_made_by_hand(viewer_client: Client) -> None:
    run = worked_example()
    said = words(viewer_client)
    assert "10 results reviewed, 1 run, v1" in said
    # Wilson's interval of 6 in 10 and of 3 and 4 in 5, from tables.
    assert "60.0% agree 31.2% to 83.1%, κ 0.38 (" in said
    assert "Agreed on passes 60.0% 23.0% to 88.2%, of 5 decisions" in said
    assert "Agreed on not passed 80.0% 37.5% to 96.3%, of 5 decisions" in said
    assert "Fewer than 20 decisions" in said
    row = "Automatic: pass 3 0 1 Automatic: borderline 2 1 0 Automatic: fail 0 1 2"
    assert row in said
    assert "Verdict whole result 10 few 60.0% 31.2% to 83.1%" in said
    # Three were stricter than people, one kinder.
    assert re.search(r"83\.1% 0\.38 \(\S+ to 0\.\d+\) 3 1 ", said)
    assert viewer_client.get(f"{PAGE}?run={run.number + 1}").status_code == 200
    lines = viewer_client.get("/suites/support/agreement.csv").text.splitlines()
    verdicts = next(csv.DictReader(lines))
    assert (verdicts["judge"], verdicts["decisions"]) == ("Verdict", "10")
    assert (float(verdicts["agreement"]), float(verdicts["kappa"])) == (
        0.6,
        pytest.approx(0.25 / 0.65),
    )
    assert (verdicts["stricter"], verdicts["more_lenient"]) == ("3", "1")
    no_run = viewer_client.get(f"/suites/support/agreement.csv?run={run.number + 1}").text
    assert "Verdict,whole result,0," in no_run


def test_a_cell_lists_its_cases(viewer_client: Client) -> None:
    run = worked_example()
    address = f"{PAGE}?by=verdict&machine=pass&person=fail"
    for headers in ({}, {"HX-Request": "true"}):
        said = words(viewer_client, address, **headers)
        assert "Automatic pass, human fail 1 result" in said
        assert "Cites no rule" in said
        assert f"run # {run.number}" in said or f"run #{run.number}" in said
        assert "C-004" in said
        assert "C-001" not in said
    page = viewer_client.get(PAGE).content.decode()
    assert "machine=pass&amp;person=fail#cases" in page
    part = viewer_client.get(address, headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div class="stack judge" id="judge">')
    assert "No such result" in words(viewer_client, f"{PAGE}?machine=fail&person=pass")
    assert "Automatic: pass" in words(
        viewer_client, f"{PAGE}?by=evaluator&evaluator=none&page=99&since=x"
    )


@pytest.mark.writes_results
def test_evaluators_outcomes_and_metrics_have_their_own_matrix(viewer_client: Client) -> None:
    run = queued_run(slug="support")
    run.results.update(outcome_marks="10")
    ann = make_user(role="reviewer")
    for key in ("C-001", "C-002"):
        item = item_of(run, key)
        make_score(result=item.result, path="tone", score=0.9)
        metrics = {"metrics": [{"key": "clear", "score": 4}]}
        make_score(result=item.result, path="m", score=0.8, kind="metrics_judge", details=metrics)
        label = 4 if key == "C-001" else 1
        said = ReviewDecision(Verdict.PASS, outcome_marks="11", metric_labels={"clear": label})
        decide(item, said, by=ann)
    said = words(viewer_client)
    for judge in (
        "tone verdict of its score",
        "Expected outcomes each outcome met",
        "clear metric, labels 0 to 5",
    ):
        assert judge in said
    assert "Automatic: pass 2 0 0" in words(viewer_client, f"{PAGE}?by=evaluator&evaluator=tone")
    outcomes = words(viewer_client, f"{PAGE}?by=outcomes")
    assert "Automatic: met 2 0 Automatic: missed 2 0" in outcomes
    assert "2 decisions" in outcomes
    labels = words(viewer_client, f"{PAGE}?by=metric&evaluator=clear")
    assert "Automatic: 4 0 1 0 0 1 0" in labels
    assert "quadratic weights" in labels


def test_what_the_figures_stand_for_is_said(viewer_client: Client) -> None:
    run = queued_run(["pass", "pass", "pass", "borderline", "fail"], slug="support")
    ann = make_user(role="reviewer")
    decide(item_of(run, "C-004"), ReviewDecision(Verdict.PASS), by=ann)
    said = words(viewer_client)
    assert "None of 3 passes was sampled, so wrong passes would go unnoticed" in said
    assert "None of 1 fail was sampled" in said
    picked = ask_for_review(run.results.get(case__key="C-001"), by=ann)
    decide(picked, ReviewDecision(Verdict.PASS), by=ann)
    ask_for_review(run.results.get(case__key="C-002"), by=ann)
    said = words(viewer_client)
    assert "1 decision was on results added by hand" in said
    assert "1 sampled result is not reviewed yet" in said
    assert "Pass 3 0 2 1" in said


def test_without_a_decision_the_page_says_what_it_will_show(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    assert "No decision yet" in words(viewer_client)
    Suite.objects.filter(pk=suite.pk).update(archived_at="2026-01-01T00:00Z")
    assert "This suite is archived" in words(viewer_client)


def test_decisions_of_other_versions_judges_and_unreadable_runs(viewer_client: Client) -> None:
    run = worked_example()
    Run.objects.filter(pk=run.pk).update(judge_name="juno-1")
    other = queued_run(slug="other")
    Run.objects.filter(pk=other.pk).update(
        suite=run.suite, number=7, suite_version=2, judge_name="juno-2"
    )
    item = ReviewItem.objects.filter(result__run=other).first()
    decide(item, ReviewDecision(Verdict.PASS), by=make_user(role="reviewer"))
    said = words(viewer_client)
    assert "11 results reviewed, 2 runs, v1 to v2" in said
    assert "2 judges are counted together" in said
    for query in ("since=2", "judge=juno-2", "run=7"):
        assert "1 result reviewed, 1 run, v2" in words(viewer_client, f"{PAGE}?{query}")
    assert "These runs have no reviews" in words(viewer_client, f"{PAGE}?since=3")
    Run.objects.filter(pk=other.pk).update(snapshot=other.snapshot | {"version": 99})
    said = words(viewer_client)
    assert "1 decision left out." in said
    assert "10 results reviewed, 1 run, v1" in said


@pytest.fixture
def bands_run() -> Run:
    """Return a run whose executions people passed from 0.7 on, where the suite passes from 0.8."""
    run = queued_run(["borderline"] * 4, slug="support")
    ann = make_user(role="reviewer")
    for number, (score, said) in enumerate(
        ((0.72, "pass"), (0.75, "pass"), (0.65, "borderline"), (0.62, "borderline")), 1
    ):
        item = item_of(run, f"C-{number:03}")
        run.results.filter(pk=item.result_id).update(score=score)
        decide(item, ReviewDecision(Verdict(said)), by=ann)
    return run


def test_better_bands_go_into_the_draft_and_leave_the_rest_of_it(bands_run: Run) -> None:
    editor = make_member("editor", "ed")
    client = make_client(editor)
    draft = change_draft(
        (begun := get_draft(bands_run.suite, editor)), begun.stamp, Describe(title="Another title")
    )
    said = words(client)
    assert "Pass from 0.80 → 0.72" in said
    assert "Agreement 50.0% → 100.0%" in said
    assert "Verdicts that change 2 of 4 reviewed" in said
    assert "Your draft has other bands" not in said
    sent = dict(
        re.findall(r'name="(run|\w+_threshold)" value="([^"]*)"', client.get(PAGE).content.decode())
    )
    change_draft(draft, draft.stamp, SetPolicy({"borderline_threshold": 0.5}))
    stale = client.post(f"{PAGE}bands/", sent, follow=True)
    assert "has changed since this page was opened" in stale.content.decode()
    draft = SuiteDraft.objects.get(author=editor)
    assert draft.policy.pass_threshold == 0.8
    change_draft(draft, draft.stamp, SetPolicy({"borderline_threshold": 0.6}))
    moved = client.post(f"{PAGE}bands/", sent)
    assert moved["Location"] == f"/suites/support/evaluators/?run={bands_run.number}"
    draft = SuiteDraft.objects.get(author=editor)
    assert draft.content["title"] == "Another title"
    assert draft.content["policy"]["pass_threshold"] == 0.72
    assert draft.content["policy"]["borderline_threshold"] == 0.6
    assert "It has these thresholds" in words(client)
    change_draft(draft, draft.stamp, SetPolicy({"pass_threshold": 0.9}))
    assert "Your draft already has other thresholds: pass from 0.90, borderline from 0.60" in words(
        client
    )
    bands_run.suite.refresh_from_db()
    assert bands_run.suite.policy.pass_threshold == 0.8


def test_better_bands_notice_what_a_colleague_saved_meanwhile(bands_run: Run) -> None:
    client, kim = make_client(make_member("editor", "ed")), make_member("editor", "kim")
    suite = bands_run.suite
    fields = r'name="(run|\w+_threshold)" value="([^"]*)"'
    sent = dict(re.findall(fields, client.get(PAGE).content.decode()))
    theirs = get_draft(suite, kim)
    changed = change_draft(theirs, theirs.stamp, SetPolicy({"pass_threshold": 0.9}))
    save_draft(changed, changed.stamp)
    stale = client.post(f"{PAGE}bands/", sent, follow=True)
    assert "has changed since this page was opened" in stale.content.decode()
    assert not SuiteDraft.objects.exists()
    suite.refresh_from_db()
    theirs = get_draft(suite, kim)
    changed = change_draft(theirs, theirs.stamp, Describe(title="Theirs"))
    sent = dict(re.findall(fields, client.get(PAGE).content.decode()))
    save_draft(changed, changed.stamp)
    client.post(f"{PAGE}bands/", sent)
    draft = SuiteDraft.objects.get()
    assert (draft.content["title"], draft.policy.pass_threshold) == ("Theirs", 0.72)


def test_who_may_not_change_suites_sees_the_bands_without_the_button(
    bands_run: Run, viewer_client: Client
) -> None:
    said = words(viewer_client)
    assert "Pass from 0.80 → 0.72" in said
    assert "Editors can try them" in said
    assert "bands/" not in viewer_client.get(PAGE).content.decode()
    assert viewer_client.post(f"{PAGE}bands/").status_code == 403


def test_an_archived_suite_keeps_its_bands(bands_run: Run) -> None:
    client = make_client(make_member("editor", "ed"))
    Suite.objects.filter(pk=bands_run.suite_id).update(archived_at="2026-01-01T00:00Z")
    assert "Try in what-if" not in words(client)
    answer = client.post(
        f"{PAGE}bands/", {"pass_threshold": "0.7", "borderline_threshold": "0.6"}, follow=True
    )
    assert "is archived" in answer.content.decode()
    assert not SuiteDraft.objects.exists()


def test_the_queries_do_not_grow(viewer_client: Client) -> None:
    run = queued_run(["borderline"] * 30, slug="support")
    ann = make_user(role="reviewer")
    decide(item_of(run), ReviewDecision(Verdict.PASS), by=ann)
    counts = []
    for key in ("C-001", *(f"C-{number:03}" for number in range(2, 31))):
        if key != "C-001":
            decide(item_of(run, key), ReviewDecision(Verdict.FAIL, note="no"), by=ann)
        if key in ("C-001", "C-030"):
            with CaptureQueriesContext(connection) as made:
                viewer_client.get(PAGE)
            counts.append(len(made))
    assert counts[0] == counts[1]
    assert counts[0] <= 25

"""What people decided stands beside the machine's verdict wherever a result is shown."""

from __future__ import annotations

import csv
import json
import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evaluators.scoring.types import Verdict
from runs.campaigns.documents import campaign_detail_document
from runs.documents import DetailLevel
from runs.finishing import summarise_run
from runs.formats.junit import write_junit
from runs.models.runs import Campaign, Run
from runs.results.documents import run_document, run_file_document
from runs.results.files import junit_run, result_lines
from runs.results.report import summary_table
from runs.results.runs import conclude, with_list_columns
from runs.reviews.services import ReviewDecision, decide, undo
from runs.sharing.frozen import shared_run
from tests.sharing.linked import share
from tests.support.factories import make_scored_run, make_user
from tests.support.queue import item_of, queued_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(make_user(role="viewer", name="vera"))
    return client


@pytest.fixture
def ann(db: None) -> User:
    return make_user(role="reviewer", name="ann")


def text_of(client: Client, name: str, *args: object, query: str = "") -> str:
    """Return what a page says, without its marks, each gap a single space."""
    response = client.get(f"{reverse(name, args=args)}{query}")
    assert response.status_code == 200, name
    html = "".join(part.decode() for part in response) if response.streaming else response.text
    bare = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    titles = " ".join(re.findall(r'title="([^"]*)"', bare))
    return " ".join(unescape(f"{re.sub('<[^>]*>', ' ', bare)} {titles}").split())


def reviewed_run(ann: User, *, says: Verdict = Verdict.PASS, **policy: object) -> Run:
    run = queued_run(["borderline", "pass"], **policy)
    decide(item_of(run), ReviewDecision(says, note="Names the date.", tags=["tone"]), by=ann)
    return run


class TestEveryPage:
    def test_pages_of_a_run_show_both_and_who_decided(self, viewer: Client, ann: User) -> None:
        run = reviewed_run(ann)
        slug, key = run.suite.slug, "C-001"
        rows = text_of(viewer, "runs:run-results", slug, run.number)
        assert "Borderline , reviewed as Pass (ann, " in rows
        assert ", not counted" in rows
        page = text_of(viewer, "runs:result", slug, run.number, key, 1)
        assert re.search("reviewed as pass ?, not counted", page)
        assert "Names the date." in page
        assert "Automatic verdict: borderline." in page
        case = text_of(viewer, "runs:case", slug, key)
        assert f"Run {run.number}, borderline, with reviews pass" in case
        other = text_of(viewer, "runs:result", slug, run.number, "C-002", 1)
        assert "reviewed as" not in other

    def test_of_a_confirmed_verdict_it_says_so(self, viewer: Client, ann: User) -> None:
        run = reviewed_run(ann, says=Verdict.BORDERLINE)
        rows = text_of(viewer, "runs:run-results", run.suite.slug, run.number)
        assert "Borderline , confirmed by review" in rows
        # A comparison repeats no verdict that people confirmed.
        slug, number = run.suite.slug, run.number
        make_scored_run(verdicts=["fail", "pass"], suite=run.suite, number=number + 1)
        pair = f"?baseline={slug}:{number}&candidate={slug}:{number + 1}&show=all"
        compared = text_of(viewer, "runs:compare", query=pair)
        assert "C-001" in compared
        assert f"#{number} Borderline" not in compared


class TestHistory:
    def test_changed_and_undone_decisions_are_kept_with_the_one_that_decided(
        self, viewer: Client, ann: User
    ) -> None:
        run = reviewed_run(ann, review_reviewers=2)
        item, ben = item_of(run), make_user(role="reviewer", name="ben")
        place = ("runs:result", run.suite.slug, run.number, "C-001", 1)
        assert "1 more decision needed" in text_of(viewer, *place)
        decide(item, ReviewDecision(Verdict.FAIL, note="Second thoughts."), by=ann)
        decide(item, ReviewDecision(Verdict.FAIL), by=ben)
        page = text_of(viewer, *place)
        assert "all 2 agree" in page
        assert "If they differ, one more reviewer is asked" in page
        assert "1 earlier decision" in page
        assert "ann withdrawn" in page
        undo(item, by=ben)
        undo(item, by=ann)
        page = text_of(viewer, *place)
        assert "3 earlier decisions" in page
        assert "Reviews 2 more decisions needed" in page
        assert "reviewed as fail" not in page


def outputs_of(client: Client, run: Run) -> dict[str, str]:
    """Return everything that tells what a run came to, by what it is."""
    slug, number, word = run.suite.slug, run.number, f"{run.suite.slug}:{run.number}"
    other = make_scored_run(verdicts=["fail", "pass"], suite=run.suite, number=number + 1)
    pair = f"?baseline={word}&candidate={slug}:{other.number}"
    assert run.campaign
    pages = {
        "run page": text_of(client, "runs:run", slug, number),
        "list of runs": text_of(client, "runs:run-list"),
        "charts": text_of(client, "runs:suite-charts", slug),
        "comparison": text_of(client, "runs:compare", query=pair),
        "campaign": text_of(client, "runs:campaign", run.campaign.pk),
    }
    conclusion = conclude(run)
    summary = run_file_document(run, url="")
    junit = "".join(write_junit(junit_run(run, conclusion, url=""), result_lines(run)))
    listed_run = with_list_columns(Run.objects.filter(pk=run.pk)).get()
    return pages | {
        "share": shared_run(
            run, detail_level=DetailLevel.FIGURES, now=timezone.now()
        ).figures.gates.model_dump_json(),
        "command line": summary_table(run),
        "summary file": f"with {summary.summary.reviews if summary.summary else 0} review",
        "JUnit": junit,
        "API": run_document(listed_run).model_dump_json(),
        "leaderboard file": json.dumps(campaign_detail_document(run.campaign).as_json()),
    }


SAID = {
    "JUnit": 'name="reviews" value="1"',
    "leaderboard file": '"reviews": 1',
    "comparison": ", with 1 → 0 reviews",
}


@pytest.mark.parametrize(("counts", "passed"), [(True, 2), (False, 1)])
def test_every_figure_says_that_reviews_count_or_is_the_machines(
    viewer: Client, ann: User, counts: bool, passed: int
) -> None:
    run = reviewed_run(ann, count_reviews=counts)
    campaign = Campaign.objects.create(suite=run.suite, name="Both")
    Run.objects.filter(pk=run.pk).update(campaign=campaign)
    summarise_run(run.pk)
    run = Run.objects.select_related("suite", "campaign").get(pk=run.pk)
    assert run.summary is not None
    assert (run.summary["passed"], run.summary["distribution"]["pass"]) == (passed, passed)
    assert run.summary["means"]["score"] == pytest.approx(run.score_sum / run.score_count)
    said = outputs_of(viewer, run)
    has = {name: SAID.get(name, "with 1 review") in text for name, text in said.items()}
    assert has == dict.fromkeys(said, counts)
    assert ('failures="0"' in said["JUnit"]) is counts
    assert 'name="reviewed_verdict" value="pass"' in said["JUnit"]
    assert f"{passed} of 2 results passed" in said["run page"]
    assert f"{passed} of 2 → 1 of 2 results" in said["comparison"]
    assert ("Numbers include 1 human review." in said["run page"]) is counts
    shown = "Human reviews are shown but don't change these numbers."
    assert (shown in said["run page"]) is not counts
    assert "automatic verdict borderline, reviewed as pass" in said["campaign"]


def test_both_verdicts_stand_in_a_comparison_side_by_side_and_in_its_files(
    viewer: Client, ann: User
) -> None:
    run = reviewed_run(ann)
    slug = run.suite.slug
    after = make_scored_run(verdicts=["fail", "pass"], suite=run.suite, number=run.number + 1)
    pair = f"?baseline={slug}:{run.number}&candidate={slug}:{after.number}&show=all"
    assert f"#{run.number} Borderline , reviewed as Pass" in text_of(
        viewer, "runs:compare", query=pair
    )
    beside = text_of(viewer, "runs:compare-case", query=f"{pair}&case=C-001")
    assert "Verdict Borderline , reviewed as Pass (ann, " in beside
    columns, row, *_ = csv.reader(
        viewer.get(f"{reverse('runs:comparison-table')}{pair}").getvalue().decode().splitlines()
    )
    line = dict(zip(columns, row, strict=True))
    assert line["baseline_machine_verdict"] == "borderline"
    assert line["baseline_reviewed_verdict"] == "pass"
    assert line["candidate_reviewed_verdict"] == ""


def test_the_audit_tells_who_overrode_which_result_and_can_be_narrowed_to_it(
    client: Client, ann: User
) -> None:
    run = reviewed_run(ann)
    client.force_login(make_user(role="editor", name="ed"))
    page = client.get(f"{reverse('runs:audit')}?kind=result&who=ann").text
    said = " ".join(unescape(re.sub("<[^>]*>", " ", page)).split())
    assert f"{run.suite.slug} #{run.number} C-001" in said
    assert "verdict: borderline → pass, automatic verdict: borderline" in said
    assert reverse("runs:result", args=(run.suite.slug, run.number, "C-001", 1)) in page
    assert "reviewed" in said


def test_the_api_tells_each_decision_with_its_author(viewer: Client, ann: User) -> None:
    run = reviewed_run(ann)
    decide(item_of(run), ReviewDecision(Verdict.FAIL, outcome_marks="1-"), by=ann)
    result = item_of(run).result
    found = viewer.get(f"/api/results/{result.pk}").json()
    assert (found["verdict"], found["reviewed_verdict"]) == ("borderline", "fail")
    said = [(one["by"], one["verdict"], one["counts"]) for one in found["reviews"]]
    assert said == [("ann", "fail", True), ("ann", "pass", False)]
    assert found["reviews"][0]["outcome_marks"] == "1-"


def test_a_late_review_changes_every_figure_and_a_share_link_says_so(
    client: Client, ann: User
) -> None:
    run = queued_run(["borderline", "pass"], count_reviews=True)
    client.force_login(make_user(role="editor", name="ed"))
    subject = {"kind": "run", "run": f"{run.suite.slug}:{run.number}"}
    link = share(client, subject, "case_names")
    assert "has since changed" not in client.get(link).text
    campaign = Campaign.objects.create(suite=run.suite, name="Both")
    Run.objects.filter(pk=run.pk).update(campaign=campaign)
    other = make_scored_run(verdicts=["fail", "pass"], suite=run.suite, number=run.number + 1)
    slug = run.suite.slug
    pair = f"?baseline={slug}:{run.number}&candidate={slug}:{other.number}"

    def said_of_it() -> list[str]:
        return [
            text_of(client, "runs:compare", query=pair),
            text_of(client, "runs:campaign", campaign.pk),
            text_of(client, "runs:suite-trend-file", slug),
            text_of(client, "runs:score-cost-file", slug),
        ]

    before, around = text_of(client, "runs:run-list"), said_of_it()
    decide(item_of(run), ReviewDecision(Verdict.PASS, note="Only for colleagues"), by=ann)
    run.refresh_from_db()
    assert run.summary is None
    assert summarise_run(run.pk)
    after = text_of(client, "runs:run-list")
    rates = [(text.count("50.0%"), text.count("100.0%")) for text in (before, after)]
    assert rates == [(2, 0), (1, 1)]
    changes = [
        ("Pass rate Within limit ±0.0", "Over limit −50.0 pts 100.0%", "with 1 → 0 reviews"),
        ("1 of 2 results) at $0.032", "2 of 2 results) at $0.016", "with 1 review"),
        (",0.5,0.094531206,0.905468794,failed,0", ",1.0,0.342380228,1.0,passed,1"),
        (",0.032000000,3400.0,front,,0", ",0.016000000,3400.0,front,,1"),
    ]
    for (gone, *came), old, new in zip(changes, around, said_of_it(), strict=True):
        assert (gone in old, gone in new) == (True, False), gone
        assert [word for word in came if word not in new] == [], gone
    assert "has since changed" in client.get(link).text
    late = client.get(share(client, subject, "outputs")).text
    # Its verdict counts the review, so it says that people decided, and not twice what.
    assert ">reviewed</small>" in late
    assert "with 1 review" in late
    assert "ann" not in re.findall(r"\w+", re.sub(r"<[^>]*>", " ", late))
    assert "Only for colleagues" not in late


def test_a_run_scored_again_says_of_which_run_its_decisions_are(viewer: Client, ann: User) -> None:
    run = reviewed_run(ann)
    Run.objects.filter(pk=run.pk).update(snapshot={**run.snapshot, "rescored": {"run": 41}})
    page = text_of(viewer, "runs:result", run.suite.slug, run.number, "C-001", 1)
    assert "with reviews pass" in page
    assert "belong to run #41, whose output this is" in page

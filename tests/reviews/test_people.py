"""Agreement between people: a worked example on its page, in its file and by the API."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.scoring.types import Verdict
from runs.engine.review_rules import VERDICTS as VERDICTS_IN_ORDER
from runs.models.results import Result
from runs.models.reviews import Review
from runs.models.runs import Run
from runs.reviews.people_page import SubjectRow
from runs.reviews.reliability import DecidedUnit, measure_people
from runs.reviews.services import ReviewDecision, ask_for_review, decide, undo
from tests.api.site import get
from tests.support.factories import make_score, make_suite, make_user
from tests.support.members import make_client, make_member
from tests.support.queue import item_of, queued_run

pytestmark = pytest.mark.django_db
PAGE = "/suites/support/agreement/people/"
SAID = {
    # The first letters of what ann, ben and, to break a tie, cat decided.
    "C-001": "PP",
    "C-002": "PP",
    "C-003": "PFF",
    "C-004": "BB",
    "C-005": "BPP",
    "C-006": "FF",
    "C-007": "FF",
    "C-008": "FB",
    "C-009": "P",
}
NAMES = ("ann", "ben", "cat")
VERDICTS = {"P": Verdict.PASS, "B": Verdict.BORDERLINE, "F": Verdict.FAIL}


def page_words(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


@pytest.fixture
def run() -> Run:
    """Return a run of nine results that people decided as above; C-008 and C-009 still wait for a reviewer.

    Of seven closed ones, ann and ben agree about five. The automatic verdict is borderline, as in 3 of these 14
    decisions.
    """
    run = queued_run(["borderline"] * 9, slug="support", review_reviewers=2, review_blind=True)
    people = [make_user(role="reviewer", name=name) for name in NAMES]
    for key, said in SAID.items():
        item = item_of(run, key)
        make_score(result=item.result, path="tone", score=0.9)
        for person, letter in zip(people, said, strict=False):
            marks = "10"[: len(said)] if letter == "P" else "00"
            decided = ReviewDecision(
                VERDICTS[letter],
                note=f"{person.username} says {letter}",
                outcome_marks=marks,
                metric_labels={"clear": 4 if letter == "P" else 1},
            )
            decide(item_of(run, key), decided, by=person)
    Result.objects.update(outcome_marks="10")
    run.cases.refresh(run.pk, run.results.values_list("case_id", flat=True))
    return run


def test_the_page_has_the_figures_made_by_hand(run: Run, viewer_client: Client) -> None:
    said = page_words(viewer_client, PAGE)
    # Five of seven pairs are equal. Alpha by hand: the categories occur 5, 3 and 6 times among 14 decisions.
    assert "71.4% agree" in said
    assert "Verdict whole result 7 of 7 few 71.4%" in said
    assert "tone verdict" not in said
    assert "tone results that it scored 7 of 7" in said
    assert "Expected outcomes each outcome met or missed 14 of 14" in said
    assert "clear metric, labels 0 to 5 7 of 7" in said
    assert "21.4%" in said
    assert "ann and ben 2 decisions differ 7 few 71.4%" in said
    assert "ann and cat" not in said
    # The widest apart first; who broke the tie is listed, too.
    first, second = said.index("C-003"), said.index("C-005")
    assert first < second
    assert "Fail ben: ben says F Fail cat: cat says F 2 of 3 say fail" in said
    assert "2 disagreements" in said
    assert "7 of 7 results with two decisions or more were decided blind" in said
    assert "2 decisions came after those that count, to break a tie or unasked" in said
    assert "1 result waits for one more reviewer" in said
    assert "C-008" not in said
    assert "Too few results were decided by two people" in said
    pair = page_words(viewer_client, f"{PAGE}?first=ben&second=cat")
    assert "No disagreement" in pair
    outcomes = page_words(viewer_client, f"{PAGE}?by=outcomes")
    assert "To talk over 2 disagreements" in outcomes
    assert "outcome 1 Met Met ann" in outcomes
    labels = page_words(viewer_client, f"{PAGE}?by=metric&evaluator=clear&first=ann&second=ben")
    assert "To talk over: ann and ben 2 disagreements" in labels
    assert "with quadratic weights" in labels
    # What nobody decided is the verdict, with what it rests on.
    unknown = page_words(viewer_client, f"{PAGE}?by=metric&evaluator=charm")
    assert "Verdict: each pair of people" in unknown
    assert "with quadratic weights" not in unknown


ALTERNATE = ("pass", "fail") * 12


@pytest.mark.parametrize(
    ("ann", "ben", "machine", "conclusion"),
    [
        (ALTERNATE[:19], ALTERNATE[:19], ALTERNATE[:19], "Too few results"),
        (["pass"] * 24, ["pass"] * 24, ["pass"] * 24, "Agreement is the same in every case"),
        (ALTERNATE, ALTERNATE, [""] * 24, "The judge decided none of these"),
        (ALTERNATE, ALTERNATE, [*ALTERNATE[:23], "pass"], "Nothing shows that the judge agrees"),
        (ALTERNATE, ALTERNATE, ["fail"] * 24, "The judge agrees with people less than"),
        (ALTERNATE, ["pass"] * 2 + ["fail", "pass"] * 11, ALTERNATE, "more than"),
    ],
)
def test_the_conclusion_says_how_far_the_judge_agrees_beside_people(
    ann: Sequence[str], ben: Sequence[str], machine: Sequence[str], conclusion: str
) -> None:
    units = [
        DecidedUnit(f"C-{place}", {"ann": first, "ben": second}, automatic)
        for place, (first, second, automatic) in enumerate(zip(ann, ben, machine, strict=True))
    ]
    figures = measure_people(units, VERDICTS_IN_ORDER, is_ordinal=True, seed=1)
    assert conclusion in SubjectRow("Verdict", "whole result", figures, "", is_on=True).conclusion


def test_file_and_api_have_the_same_figures(run: Run, viewer_client: Client) -> None:
    table = viewer_client.get("/suites/support/agreement-people.csv").content.decode()
    lines = list(csv.DictReader(table.splitlines()))
    verdict, pair = lines[0], lines[1]
    assert (verdict["results"], verdict["of"], verdict["coefficient"]) == ("7", "7", "alpha")
    assert (pair["first"], pair["second"], pair["coefficient"]) == ("ann", "ben", "kappa")
    found = get(
        viewer_client,
        "/api/suites/support/agreement/people",
        "/api/suites/{slug}/agreement/people",
    )
    subject = found["subjects"][0]
    assert subject["agreement"]["share"] == pytest.approx(5 / 7)
    assert float(verdict["value"]) == pytest.approx(subject["alpha"]["value"], abs=1e-6)
    # The packages krippendorff 0.9.0 and statsmodels 0.15.0, of the seven decisions of both.
    assert subject["alpha"]["value"] == pytest.approx(0.5661976911976911, abs=1e-9)
    assert subject["automatic"]["share"] == pytest.approx(3 / 14)
    assert subject["pairs"][0]["kappa"]["value"] == pytest.approx(0.5625, abs=1e-9)
    assert [row["case"] for row in subject["disagreements"]] == ["C-003", "C-005"]
    assert subject["disagreements"][0]["decisions"] == {"ann": "pass", "ben": "fail", "cat": "fail"}
    assert (found["results"], found["blind"], found["later"], found["waiting"]) == (
        7,
        7,
        2,
        1,
    )
    assert (found["unasked"], found["unread"]) == (0, 0)
    refused = viewer_client.get("/api/suites/support/agreement/people?since=x")
    assert refused.status_code == 400


def test_changed_and_undone_decisions_keep_the_order_and_queries_do_not_grow(
    run: Run, viewer_client: Client
) -> None:
    with CaptureQueriesContext(connection) as few:
        viewer_client.get(PAGE)
    ann, cat = (User.objects.get(username=name) for name in ("ann", "cat"))
    # Who changes a decision stays the first: cat still only broke the tie.
    decide(item_of(run, "C-003"), ReviewDecision(Verdict.FAIL), by=ann)
    assert "ann and ben 1 decision differs 7 few 85.7%" in page_words(viewer_client, PAGE)
    undo(item_of(run, "C-005"), by=cat)
    assert "6 of 6 few" in page_words(viewer_client, PAGE)
    dan = make_user(role="reviewer", name="dan")
    decide(item_of(run, "C-008"), ReviewDecision(Verdict.FAIL), by=dan)
    with CaptureQueriesContext(connection) as more:
        viewer_client.get(PAGE)
    assert len(more) == len(few)
    assert len(few) <= 25


def test_second_opinions_that_nobody_asked_for_and_an_empty_page(viewer_client: Client) -> None:
    suite = make_suite(slug="support")
    assert "No result was decided by two people" in page_words(viewer_client, PAGE)
    assert "Suite settings" in page_words(make_client(make_member("editor", "ed")), PAGE)
    suite.delete()
    run = queued_run(slug="support")
    ann, ben = (make_user(role="reviewer", name=name) for name in ("ann", "ben"))
    item = ask_for_review(run.results.get(case__key="C-001"), by=ann)
    decide(item, ReviewDecision(Verdict.PASS), by=ann)
    decide(item, ReviewDecision(Verdict.PASS), by=ben, is_second_opinion=True)
    said = page_words(viewer_client, PAGE)
    assert "100.0% agree" in said
    assert "1 result got a second opinion that the suite does not ask for" in said
    assert "0 of 1 result with two decisions or more was decided blind" in said
    assert "No disagreement" in said
    cat = make_user(role="reviewer", name="cat")
    decide(item, ReviewDecision(Verdict.PASS), by=cat, is_second_opinion=True)
    said = page_words(viewer_client, PAGE)
    assert (
        "1 decision came after those that count, to break a tie or unasked: it is left out" in said
    )
    assert "broke a tie" not in said


def test_only_the_metrics_with_the_most_labels_have_figures(
    run: Run, viewer_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of reviews may name thousands, and the figures of each are drawn again 2,000 times."""
    for review in Review.objects.all():
        review.metric_labels = {"tone": 4, "aim": 3} | {f"m{review.pk}": 1}
        review.save(update_fields=["metric_labels"])
    monkeypatch.setattr("runs.reviews.people.MAX_METRICS", 2)
    monkeypatch.setattr("runs.reviews.people_page.MAX_METRICS", 2)
    address = "suites/support/agreement/people"
    found = get(viewer_client, f"/api/{address}", "/api/suites/{slug}/agreement/people")
    metrics = [row for row in found["subjects"] if row["kind"] == "metric"]
    assert ([row["name"] for row in metrics], found["metrics_left"]) == (["aim", "tone"], 16)
    words = page_words(viewer_client, PAGE)
    assert (
        "Only the 2 metrics with labels on the most results have figures; 16 others are left out."
        in words
    )

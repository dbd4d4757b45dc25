"""Reading the review queue and deciding from programs."""

from __future__ import annotations

import pytest

from evalsite.access.roles import Scope
from runs.models.results import Result
from runs.models.reviews import Review, ReviewItem
from tests.api.site import Program, get
from tests.support.factories import make_case, make_result, make_run, make_suite, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def result() -> Result:
    suite = make_suite(slug="support")
    case = make_case(suite=suite, key="C-1", expected_outcomes=["Says hello", "Asks why"])
    return make_result(
        run=make_run(suite=suite), case=case, verdict="borderline", score=0.7, output={"text": "Hi"}
    )


@pytest.fixture
def reviewer() -> Program:
    return Program(make_user(role="reviewer", name="rita"), Scope.REVIEW)


def test_a_result_is_put_into_the_queue_listed_and_decided(
    result: Result, reviewer: Program
) -> None:
    asked = reviewer.send("post", "/results/{result}/review/ask", result=result.pk)
    assert (asked["verdict"], asked["wanted"]) == (None, 1)
    (waiting,) = get(reviewer.client, "/api/reviews?suite=support", "/api/reviews")["results"]
    assert (waiting["result"], waiting["run"], waiting["case"]) == (result.pk, "support:1", "C-1")
    assert "verdict" not in waiting
    body = {
        "verdict": "fail",
        "note": "It does not ask.",
        "tags": ["tone"],
        "outcomes": ["met", "missed"],
    }
    review = reviewer.send("post", "/results/{result}/review", body, result=result.pk)
    assert review == {"result": result.pk, "verdict": "fail", "wanted": 1, "how": ""}
    assert get(reviewer.client, "/api/reviews", "/api/reviews")["results"] == []
    stored = Review.objects.get()
    assert (stored.reviewer_word, stored.outcome_marks, stored.tags) == ("rita", "10", ["tone"])
    result.refresh_from_db()
    assert (result.verdict, result.reviewed_verdict) == ("borderline", "fail")


def test_a_decision_needs_no_place_in_the_queue_and_replaces_the_own_one(
    result: Result, reviewer: Program
) -> None:
    for verdict in ("pass", "fail"):
        reviewer.send("post", "/results/{result}/review", {"verdict": verdict}, result=result.pk)
    assert [review.verdict for review in Review.objects.standing()] == ["fail"]
    other = Program(make_user(role="editor"), Scope.REVIEW)
    late = other.send(
        "post", "/results/{result}/review", {"verdict": "pass"}, 409, result=result.pk
    )
    assert late["code"] == "already_decided"
    second = {"verdict": "pass", "second_opinion": True}
    review = other.send("post", "/results/{result}/review", second, result=result.pk)
    assert review["verdict"] is None


@pytest.mark.parametrize(
    ("change", "status", "where"),
    [
        ({"verdict": "good"}, 400, "/verdict"),
        ({"outcomes": ["yes"]}, 400, "/outcomes/0"),
        ({"metric_labels": {"tone": 6}}, 400, "/metric_labels/tone"),
        ({"metric_labels": {"tone": 5}}, 409, "no metric 'tone'"),
        ({"tags": ["t"] * 3 + [str(n) for n in range(20)]}, 409, "causes are too many"),
        ({"generation": 7}, 409, "rerun since"),
    ],
)
def test_a_wrong_decision_is_refused_and_leaves_nothing(
    result: Result, reviewer: Program, change: dict[str, object], status: int, where: str
) -> None:
    body = {"verdict": "pass", **change}
    problem = reviewer.send("post", "/results/{result}/review", body, status, result=result.pk)
    assert where in (problem["errors"] if status == 400 else problem["detail"])
    assert not ReviewItem.objects.exists()
    assert not Review.objects.exists()


def test_only_a_reviewer_with_the_scope_decides(result: Result) -> None:
    for role, scope in (("viewer", Scope.READ), ("reviewer", Scope.READ)):
        program = Program(make_user(role=role), scope)
        program.send("post", "/results/{result}/review", {"verdict": "pass"}, 403, result=result.pk)
        program.send("post", "/results/{result}/review/ask", None, 403, result=result.pk)

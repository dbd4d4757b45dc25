"""What-if over HTTP: runs that ended early, came from a file or an older version, and cost in queries."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluators.scoring.tree import EvaluatorSpec
from runs.models.results import Result
from runs.models.runs import Run, RunStatus
from runs.models.suites import Suite
from runs.suites.drafts import get_draft
from runs.suites.services import record_version
from runs.what_if import stored
from tests.support.factories import (
    change_evaluator,
    change_suite,
    make_case,
    make_model,
    make_scored_run,
)
from tests.support.members import make_client, make_member
from tests.support.scored_runs import TEXTS, finished_run
from tests.support.trees import JUDGED
from tests.support.white_space import text_of
from tests.what_if.test_panel import STRICT, address, ask

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada(db: None) -> User:
    return make_member("editor", "ada")


@pytest.fixture
def client(ada: User) -> Client:
    return make_client(ada)


@pytest.fixture
def run(db: None) -> Run:
    return finished_run()


def early(run: Run, status: str, *, left: int = 0) -> None:
    """Have a run ended early, with its last executions never carried out."""
    gone = run.results.order_by("-position").values("pk")[:left]
    Result.objects.filter(pk__in=list(gone.values_list("pk", flat=True))).update(
        status="cancelled", verdict="", score=None
    )
    Run.objects.filter(pk=run.pk).update(status=status, leaf_scores=None)
    stored.KEPT.values.clear()


@pytest.mark.parametrize(
    ("status", "left", "message"),
    [
        ("stopped", 2, "was cancelled before its end. 2 of 5 results have no verdict."),
        ("failed", 1, "failed before its end. 1 of 5 results has no verdict."),
        ("budget_reached", 0, "stopped at its budget. Its gates are not evaluated"),
    ],
)
@pytest.mark.writes_results
def test_a_run_that_ended_early_is_asked_with_what_it_has_and_says_so(
    client: Client, run: Run, ada: User, status: str, left: int, message: str
) -> None:
    early(run, status, left=left)
    panel = ask(client, run.suite, ada, run="1", **STRICT)
    text = text_of(panel)
    assert f"Run #1 {message}" in text
    assert text.count("Not evaluated") == 2
    assert f"Creates a new run from its {5 - left} stored results" in text
    assert "1 case would flip" in text
    form_key = panel.context["form_key"]
    sent = {"stamp": get_draft(run.suite, ada).stamp, "run": "1", "form_key": form_key, **STRICT}
    made = client.post(address(run.suite, "score/"), sent, follow=True)
    assert made.redirect_chain == [(f"/suites/{run.suite.slug}/runs/2/", 302)]
    assert Run.objects.get(number=2).status == RunStatus.STOPPED


@pytest.mark.writes_results
def test_a_run_that_has_no_result_at_all_says_so(client: Client, run: Run, ada: User) -> None:
    early(run, "failed", left=5)
    Run.objects.filter(pk=run.pk).update(done_count=0)
    text = text_of(ask(client, run.suite, ada, run="1"))
    assert "Run #1 failed before its end. 5 of 5 results have no verdict." in text
    assert "Can't be applied: run #1 has no stored scores." in text
    assert "No finished run yet" in text_of(ask(client, run.suite, ada))


def test_a_run_that_scored_outputs_again_is_asked_where_it_is_chosen(
    client: Client, run: Run, ada: User
) -> None:
    again = make_scored_run(suite=run.suite, verdicts=["pass"], source_run=run)

    def asked(**chosen: str) -> Run:
        return ask(client, run.suite, ada, **chosen).context["what_if"].run

    assert asked() == run
    assert asked(run=str(again.number)) == again
    Run.objects.filter(pk=run.pk).update(status="stopped")
    assert asked() == again


def test_cases_that_the_suite_has_otherwise_by_now_are_counted(
    client: Client, run: Run, ada: User
) -> None:
    def notes() -> str:
        return text_of(ask(client, run.suite, ada, **STRICT))

    assert "here each is as it was run" not in notes()
    cases = run.suite.cases
    cases.filter(key__in=["C-0", "C-1", "C-2"]).update(is_current=False)
    make_case(suite=run.suite, key="C-1", revision=2, expected_output="Otherwise")
    new = "Of its 5 cases 1 has changed since and 2 are not in the suite now; here each is as it was run."
    text = notes()
    assert new in text
    assert "not in it." not in text
    # What the case expected when it was run decides.
    assert "1 case would flip" in text
    make_case(suite=run.suite, key="D-1")
    make_case(suite=run.suite, key="D-2")
    assert f"{new} 2 cases of the suite were not in it." in notes()


def test_evaluators_that_came_and_went_since_an_older_version_are_told(
    client: Client, run: Run, ada: User
) -> None:
    suite = change_evaluator(run.suite, "exact")
    root, judged = suite.spec.evaluators, EvaluatorSpec.model_validate(JUDGED)
    root = root.replace(children=(*root.children, judged))
    change_suite(suite, judge=make_model(), evaluators=root)
    record_version(suite, author=ada, note="Asks a judge")
    text = text_of(ask(client, suite, ada))
    assert "Run #1 used v1; its stored scores are reused." in text
    assert "The stored scores aren't enough for an exact answer." in text
    assert f"{JUDGED['name']} needs new model calls" in text
    assert "Can't be applied to run #1" in text


def test_a_panel_costs_the_same_queries_for_5_and_for_50_results(client: Client, ada: User) -> None:
    def costs(suite: Suite) -> list[int]:
        counted = []
        for question in (
            lambda: client.get(f"/suites/{suite.slug}/evaluators/"),
            lambda: ask(client, suite, ada, **STRICT),
            lambda: ask(client, suite, ada, htmx=False, **STRICT),
        ):
            with CaptureQueriesContext(connection) as queries:
                assert question().status_code == 200
            counted.append(len(queries))
        return counted

    few, many = finished_run(TEXTS), finished_run(TEXTS * 10)
    client.get("/")
    assert costs(few.suite) == costs(many.suite)

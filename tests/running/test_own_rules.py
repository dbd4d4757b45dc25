"""A run with its own rules keeps them when it is retried, resumed, repeated or rescored."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.execution.run_worker import work_on_run
from runs.models.results import Result
from runs.models.runs import Run
from runs.models.suites import Case, Suite
from runs.running.retrying import resume_run, retry_results, stop_run
from runs.running.rules import RunRules
from runs.running.services import start_run
from runs.suites.drafts import get_draft
from runs.suites.edits import Configure, change
from runs.what_if.services import NewCallsNeededError, score_again
from tests.support.factories import (
    change_evaluator,
    change_suite,
    make_case,
    make_model,
    make_suite,
    make_target,
)
from tests.support.model_server import ModelServer, good, malformed
from tests.support.sent_forms import sent_unchanged
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)

OWN = RunRules(
    policy={"pass_threshold": 0.75},
    weights={"right": 3.0},
    required={"mentions_refund": 0.5},
    samples=2,
)
# 0.775 where the judge weighs 3 and the check 1; by the suite both weigh the same and 0.8 is needed.
GOOD = {"reasoning": "Right.", "hits": [], "misses": [], "score": 0.7}


@pytest.fixture
def suite(model_server: ModelServer) -> Suite:
    """Make a suite of three cases: two that mention the refund and one that does not."""
    judge = make_model(slug="juno", base_url=model_server.base_url, send_trace_headers=True)
    made = make_suite(slug="desk", tree=tree(JUDGED, CHECK), judge=judge)
    for number, text in enumerate(("A refund.", "The refund.", "No money.")):
        case = {"key": f"C-{number}", "position": number, "recorded_output": {"output": text}}
        make_case(suite=made, **case)
    model_server.behave(then=good(GOOD))
    return made


def started(suite: Suite, **choices: Any) -> Run:
    return start_run(suite=suite, target=make_target(), started_by=None, rules=OWN, **choices)


def let_suite_change(suite: Suite) -> None:
    """Change what the suite goes by, as a new version would."""
    change_suite(suite, pass_threshold=0.99, borderline_threshold=0.98)
    for child in suite.spec.evaluators.children:
        change_evaluator(suite, child.name, weight=9.0, required=True)


def standing(run: Run) -> dict[str, tuple[str, float | None, str]]:
    found = Result.objects.filter(run=run).order_by("position")
    return {
        key: (verdict, None if score is None else round(score, 6), decided_by)
        for key, verdict, score, decided_by in found.values_list(
            "case__key", "verdict", "score", "decided_by"
        )
    }


ALL_RIGHT = {
    "C-0": ("pass", 0.775, "0.77 ≥ 0.75"),
    "C-1": ("pass", 0.775, "0.77 ≥ 0.75"),
    "C-2": ("fail", 0.525, "required: mentions_refund 0.00 < 0.50"),
}


def finished(run: Run) -> Run:
    """Execute the waiting results of a run."""
    work_on_run(run.pk)
    run.refresh_from_db()
    return run


def asked_of_judge(server: ModelServer) -> int:
    """Return how often the judge was asked since the last look."""
    count = len(server.chats)
    server.requests.clear()
    return count


def test_what_is_tried_again_goes_by_the_rules_the_run_was_started_with(
    suite: Suite, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "evaluators.model_calls.limit_policy.Retries.wait_s", lambda *one, **two: None
    )
    model_server.behave(then=malformed())
    run = finished(started(suite))
    assert run.error_count == 3
    let_suite_change(suite)
    model_server.behave(then=good(GOOD))
    asked_of_judge(model_server)

    retry_results(run, asked_by=None, which="errored")
    assert standing(finished(run)) == ALL_RIGHT
    assert asked_of_judge(model_server) == 3 * 2
    gates = run.summary["cases_gate"]

    retry_results(run, asked_by=None, which="failed", keep_output=True)
    assert standing(finished(run)) == ALL_RIGHT
    assert asked_of_judge(model_server) == 2

    model_server.behave(then=good({**GOOD, "score": 0.9}))
    retry_results(
        run, asked_by=None, result_ids=[run.results.order_by("position")[0].pk], paths=["right"]
    )
    better = ("pass", 0.925, "0.92 ≥ 0.75")
    assert standing(finished(run)) == {**ALL_RIGHT, "C-0": better}
    assert asked_of_judge(model_server) == 2
    assert run.summary["cases_gate"] == gates


def test_a_stopped_run_goes_on_by_its_own_rules(suite: Suite, model_server: ModelServer) -> None:
    run = started(suite)
    stop_run(run, stopped_by=None)
    run.refresh_from_db()
    assert run.results.filter(status="cancelled").count() == 3
    let_suite_change(suite)

    assert resume_run(run, resumed_by=None) == 3

    assert standing(finished(run)) == ALL_RIGHT
    assert asked_of_judge(model_server) == 3 * 2
    assert run.status == "completed"


def test_started_again_wholly_or_by_chosen_rows_a_run_has_the_same_rules(
    suite: Suite, editor_client: Client
) -> None:
    run = finished(started(suite))
    chosen = editor_client.post(
        reverse("runs:run-chosen", args=["desk", run.number]),
        {"case": [Case.objects.get(key="C-2").pk]},
    )
    for address in (f"{reverse('runs:run-new', args=['desk'])}?again={run.number}", chosen.url):
        page = editor_client.get(address)
        editor_client.post(
            reverse("runs:run-new", args=["desk"]), sent_unchanged(page.text, "start-run")
        )
        again = Run.objects.latest("pk")
        assert again.pk != run.pk
        for part in ("changed", "policy", "evaluators"):
            assert again.snapshot[part] == run.snapshot[part], (address, part)
    assert list(standing(finished(again))) == ["C-2"]
    assert standing(again)["C-2"] == ALL_RIGHT["C-2"]


def test_scored_again_a_run_goes_by_other_rules_keeps_its_samples_and_says_so(
    suite: Suite, editor: User, editor_client: Client, model_server: ModelServer
) -> None:
    run = finished(started(suite))
    draft = get_draft(suite, editor)
    panel = editor_client.post(reverse("runs:what-if", args=["desk"]), {"stamp": draft.stamp})
    shown = " ".join(panel.text.split())
    assert (
        "started with its own settings (Pass from 0.80 → 0.75, right: Weight ×1 → ×3,"
        " mentions_refund: Required no → 0.50 or more)." in shown
    )
    assert "They are ignored here; only v1 counts." in shown
    assert "Samples" not in shown
    asked_of_judge(model_server)

    made = score_again(run, draft.suite.spec, draft.content, version=1, by=editor)

    assert asked_of_judge(model_server) == 0
    assert standing(made) == {
        "C-0": ("pass", 0.85, "0.85 ≥ 0.80"),
        "C-1": ("pass", 0.85, "0.85 ≥ 0.80"),
        "C-2": ("fail", 0.35, "0.35 < 0.60"),
    }
    page = editor_client.get(reverse("runs:run", args=["desk", made.number])).text
    assert "under v1" in page
    assert "changed for this run: right: Samples 1 → 2<" in page
    new = reverse("runs:run-new", args=["desk"])
    assert "was rescored" not in editor_client.get(new, {"again": made.number}).text
    let_suite_change(suite)
    form = editor_client.get(new, {"again": made.number})
    assert (
        f"Run #{made.number} was rescored from run #{run.number} with other rules, under v1. "
        "Those rules do not apply here. The new run uses the suite as it is, v1" in form.text
    )
    assert "as in suite v1" in form.text
    assert "was rescored" not in editor_client.get(new, {"again": run.number}).text


def test_samples_the_suite_changed_since_need_the_judge_again(suite: Suite, editor: User) -> None:
    run = finished(started(suite))
    draft = get_draft(suite, editor)
    [judge, _] = draft.content["evaluators"]["children"]
    content = change(draft.content, Configure(judge["id"], {**judge["config"], "samples": 3}))
    with pytest.raises(NewCallsNeededError, match="right"):
        score_again(run, draft.suite.spec, content, version=1, by=editor)

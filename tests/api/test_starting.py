"""Starting runs from programs, following them, and pushing outputs into them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from evalsite.access.roles import Scope
from evalsite.access.sessions import CONFIRMED_AT
from runs.api.bodies import MAX_JSON_BYTES
from runs.execution.run_worker import work_on_run
from runs.models.runs import Run
from runs.models.suites import Suite
from runs.models.temporary import KEPT, IdempotentRequest
from runs.suites.drafts import get_draft
from runs.waiting import HEADER
from tests.api.site import assert_described, assert_refused, token_of
from tests.support.factories import make_case, make_model, make_suite, make_target, make_user
from tests.support.members import make_client
from tests.support.model_server import ModelServer
from tests.support.trees import CHECK, JUDGED, tree

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = "You get a refund."


@pytest.fixture
def suite() -> Suite:
    """Return a suite of two cases, and the targets that its runs are against."""
    suite = make_suite(slug="support", tree=tree(CHECK))
    for number in range(2):
        output = {"output": GOOD, "cost_usd": "0.25"}
        make_case(suite=suite, key=f"C-{number}", position=number, recorded_output=output)
    make_target(name="recorded")
    make_target(name="pipeline", kind="pushed")
    return suite


@pytest.fixture
def member() -> User:
    return make_user(role="editor")


class Program:
    """A program with a token, whose answers are held to the schema."""

    def __init__(self, token: str) -> None:
        """Use the token."""
        self.client = Client(headers={"Authorization": f"Bearer {token}"})

    def post(
        self, address: str, body: Any, path: str = "", status: int = 200, **headers: str
    ) -> Any:
        response = self.client.post(
            f"/api{address}", body, content_type="application/json", headers=headers
        )
        assert response.status_code == status, response.content
        return assert_described(response, f"/api{path or address}", method="post")

    def refused(self, address: str, body: Any, status: int, **headers: str) -> dict[str, Any]:
        response = self.client.post(
            f"/api{address}", body, content_type="application/json", headers=headers
        )
        return assert_refused(response, status)


@pytest.fixture
def program(member: User) -> Program:
    return Program(token_of(member, scopes=[Scope.RUN, Scope.EDIT]))


def test_a_program_estimates_starts_and_reads_a_run(suite: Suite, program: Program) -> None:
    choices = {"suite": "support", "targets": ["recorded"], "cases": ["C-1"]}
    estimate = program.post("/runs/estimate", choices)
    assert (estimate["runs"], estimate["results"], estimate["target_calls"]) == (1, 1, 0)

    body = {**choices, "repetitions": 2, "note": "nightly", "budget_usd": 1.5}
    body["rules"] = {"policy": {"pass_threshold": 0.9}, "weights": {"mentions_refund": 3}}
    started = program.post("/runs", body, status=201)

    [document] = started["runs"]
    assert (started["campaign"], document["status"]) == (None, "queued")
    run = Run.objects.get()
    assert (run.note, run.repetitions, run.case_count) == ("nightly", 2, 1)
    assert run.budget_usd == Decimal("1.5")
    assert {change["name"] for change in run.snapshot["changed"]} == {"pass_threshold", "weight"}
    work_on_run(run.pk)
    assert program.client.get("/api/runs/support:1").json()["status"] == "completed"


def test_several_targets_become_a_campaign(suite: Suite, program: Program) -> None:
    body = {"suite": "support", "targets": ["recorded", "pipeline"], "campaign": "May"}
    started = program.post("/runs", body, status=201)
    assert [run["target"] for run in started["runs"]] == ["recorded", "pipeline"]
    assert Run.objects.filter(campaign=started["campaign"], campaign__name="May").count() == 2


def test_outputs_pushed_in_any_order_are_scored_and_complete_the_run(
    suite: Suite, program: Program
) -> None:
    program.post("/runs", {"suite": "support", "targets": ["pipeline"]}, status=201)
    first = {"outputs": [{"case": "C-1", "output": GOOD, "latency_ms": 12}]}
    path = "/runs/{run}/outputs"
    answer = program.post("/runs/support:1/outputs", first, path)
    assert answer == {"accepted": 1, "repeated": 0, "awaited": 1, "refused": []}
    assert program.post("/runs/support:1/outputs", first, path)["repeated"] == 1
    run = Run.objects.get()
    work_on_run(run.pk)
    # It is not over, and its figures can be asked for.
    report = program.client.get("/api/runs/support:1/report").json()["text"]
    assert "Mean score   on course, so far 100.0% of 80% (The remaining case must" in report
    other = {"outputs": [{"case": "C-1", "output": "No."}, {"case": "C-0", "error": "crashed"}]}
    answer = program.post("/runs/support:1/outputs", other, path)
    assert (answer["accepted"], answer["refused"][0]["place"]) == (1, 0)
    work_on_run(run.pk)

    run.refresh_from_db()
    assert (run.status, run.pass_count, run.error_count) == ("completed", 1, 1)


def test_a_wrong_batch_names_its_places_and_stores_nothing(suite: Suite, program: Program) -> None:
    program.post("/runs", {"suite": "support", "targets": ["pipeline"]}, status=201)
    wrong = [
        {"case": "C-0", "output": GOOD},
        {"case": "C-9", "output": GOOD},
        {"case": "C-1", "output": GOOD, "repetition": 0},
    ]
    problem = program.refused("/runs/support:1/outputs", {"outputs": wrong}, 400)
    assert set(problem["errors"]) == {"/outputs/2/repetition"}
    problem = program.refused("/runs/support:1/outputs", {"outputs": wrong[:2]}, 400)
    assert problem["errors"] == {"/outputs/1": ["Run #1 has no case 'C-9'."]}
    assert Run.objects.get().results.filter(awaits_output=True).count() == 2


def test_runs_are_closed_stopped_resumed_and_retried(suite: Suite, program: Program) -> None:
    program.post("/runs", {"suite": "support", "targets": ["pipeline"]}, status=201)
    at = "/runs/support:1"
    program.post(
        f"{at}/outputs", {"outputs": [{"case": "C-0", "output": "No."}]}, "/runs/{run}/outputs"
    )
    assert program.post(f"{at}/stop", {}, "/runs/{run}/stop")["status"] == "stopped"
    problem = program.refused(f"{at}/stop", {}, 409)
    assert problem["code"] == "run_not_active"
    assert program.post(f"{at}/resume", {}, "/runs/{run}/resume") == {"results": 2}
    assert program.post(f"{at}/close", {}, "/runs/{run}/close") == {"missing": 1}
    work_on_run(Run.objects.get().pk)
    for unknown in (0, 2**63, 10**299):
        assert "/results/0" in program.refused(f"{at}/retry", {"results": [unknown]}, 400)["errors"]
    retry = {"which": "failed", "keep_output": True}
    assert program.post(f"{at}/retry", retry, "/runs/{run}/retry") == {"results": 1}


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        ({}, {"/suite": "It is missing.", "/targets": "It is missing."}),
        ({"suite": "support", "targets": []}, {"/targets": None}),
        ({"suite": "nope", "targets": ["recorded"]}, {"/suite": "There is no suite 'nope'."}),
        (
            {"suite": "support", "targets": ["recorded", "gone"]},
            {"/targets/1": "There is no target 'gone'."},
        ),
        ({"suite": "support", "targets": ["recorded"], "judge": "x"}, {"/judge": None}),
        ({"suite": "support", "targets": ["recorded"], "repetitions": 0}, {"/repetitions": None}),
        (
            {"suite": "support", "targets": ["recorded"], "budget_usd": 0},
            {"/budget_usd": "The budget must be more than $0."},
        ),
        ({"suite": "support", "targets": ["recorded"], "repetition": 2}, {"/repetition": None}),
        (
            {"suite": "support", "targets": ["recorded"], "rules": {"weights": {"a": -1}}},
            {"/rules/weights/a": None},
        ),
        ([], {"/": None}),
    ],
)
def test_a_wrong_body_names_each_place(
    suite: Suite, program: Program, body: Any, errors: dict[str, str | None]
) -> None:
    problem = program.refused("/runs", body, 400)
    assert set(problem["errors"]) == set(errors)
    for place, text in errors.items():
        assert text is None or problem["errors"][place] == [text]
    assert not Run.objects.exists()


def test_a_body_with_very_many_wrong_places_gets_a_short_answer(
    suite: Suite, program: Program
) -> None:
    for wrong in ({f"k{n}": 1 for n in range(5000)}, {"cases": [1] * 5000}):
        body = {"suite": "support", "targets": ["recorded"], **wrong}
        problem = program.refused("/runs", body, 400)
        assert "5,000 errors" in problem["detail"]
        assert len(str(problem)) < 1000


def test_a_body_that_is_no_json_or_too_large_is_refused(suite: Suite, program: Program) -> None:
    for text in ("{", '{"a": 1, "a": 2}', "[" * 300 + "]" * 300, "\xff", '{"a": "\\ud800"}'):
        program.refused("/runs", text, 400)
    problem = program.refused("/runs", {"suite": "x" * MAX_JSON_BYTES}, 413)
    assert problem["detail"] == "The body has more than 8 MB. Send it in parts."


def test_a_key_makes_a_start_safe_to_repeat(suite: Suite, program: Program) -> None:
    body = {"suite": "support", "targets": ["recorded"]}
    first = program.post("/runs", body, status=201, **{"Idempotency-Key": "k1"})
    again = program.post("/runs", body, status=201, **{"Idempotency-Key": "k1"})
    assert (first, Run.objects.count()) == (again, 1)
    other = {**body, "repetitions": 2}
    program.refused("/runs", other, 422, **{"Idempotency-Key": "k1"})
    program.refused("/runs", body, 400, **{"Idempotency-Key": "k" * 201})
    # What was refused can be tried again with its key.
    program.refused("/runs", {**body, "cases": ["C-9"]}, 409, **{"Idempotency-Key": "k2"})
    program.post("/runs", body, status=201, **{"Idempotency-Key": "k2"})
    IdempotentRequest.objects.forget_old(now=timezone.now() + KEPT * 2)
    program.post("/runs", body, status=201, **{"Idempotency-Key": "k1"})
    assert Run.objects.count() == 3


@pytest.mark.parametrize(
    ("role", "scopes", "detail"),
    [
        ("viewer", [], "Your role may not start and stop runs. An admin can change your role."),
        (
            "editor",
            [Scope.EDIT, Scope.REVIEW],
            "The scopes of this token (read edit review) do not let it start and stop runs. "
            "Make one with the scope you need under “API tokens”.",
        ),
    ],
)
def test_only_a_role_and_a_token_that_may_start_runs_start_them(
    suite: Suite, role: str, scopes: list[Scope], detail: str
) -> None:
    program = Program(token_of(make_user(role=role), scopes=scopes))
    problem = program.refused("/runs", {"suite": "support", "targets": ["recorded"]}, 403)
    assert problem["detail"] == detail
    assert not Run.objects.exists()


def test_a_session_needs_the_token_of_its_forms(suite: Suite, member: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    body = {"suite": "support", "targets": ["recorded"]}
    assert client.post("/api/runs", body, content_type="application/json").status_code == 403


def test_a_session_changes_something_only_after_its_member_confirmed_who_it_is(
    suite: Suite, member: User
) -> None:
    client = Client()
    client.force_login(member)
    session = client.session
    session[CONFIRMED_AT] = "2026-01-01T00:00:00+00:00"
    session.save()
    body = {"suite": "support", "targets": ["recorded"]}
    assert client.get("/api/runs").status_code == 200
    refused = client.post("/api/runs", body, content_type="application/json")
    assert "Confirm that it is you first, at /account/confirm/" in refused.json()["detail"]
    assert not Run.objects.exists()
    confirmed = make_client(member).post("/api/runs", body, content_type="application/json")
    assert confirmed.status_code == 201


def test_an_active_run_asks_to_wait_and_tells_how_it_ended_once_it_has(
    suite: Suite, program: Program
) -> None:
    program.post("/runs", {"suite": "support", "targets": ["recorded"]}, status=201)
    waits = program.client.get("/api/runs/support:1?wait=60")
    assert (waits[HEADER], waits.json()["exit_code"], waits.json()["conclusion"]) == (
        "60",
        None,
        None,
    )
    assert HEADER not in program.client.get("/api/runs/support:1")
    work_on_run(Run.objects.get().pk)
    ended = program.client.get("/api/runs/support:1?wait=60")
    assert HEADER not in ended
    assert (ended.json()["exit_code"], ended.json()["conclusion"]) == (0, "Passed: both gates met.")
    assert program.client.get("/api/runs/support:1?wait=61").status_code == 400


def test_a_program_judges_stored_outputs_again_after_it_asked_what_that_takes(
    suite: Suite, program: Program, member: User
) -> None:
    [source] = program.post("/runs", {"suite": "support", "targets": ["recorded"]}, status=201)[
        "runs"
    ]
    work_on_run(source["id"])
    draft = get_draft(suite, member)
    added = {**CHECK, "name": "polite", "config": {"operator": "contains", "value": "please"}}
    draft.content = {**draft.content, "evaluators": tree(CHECK, added)}
    body = {"outputs_of": ["support:1"], "draft": True, "filter": "case = C-1"}
    assert "no draft of support" in program.refused("/runs/judge-again", body, 400)["detail"]
    draft.save()

    [estimate] = program.post("/runs/judge-again/estimate", body)["runs"]
    assert (estimate["results"], estimate["chosen"], estimate["judge_calls"]) == (1, 1, 0)
    assert estimate["evaluators"] == [
        {"evaluator": "mentions_refund", "kept": 1, "judged": {}, "judge_calls": 0},
        {"evaluator": "polite", "kept": 0, "judged": {"new": 1}, "judge_calls": 0},
    ]
    assert Run.objects.count() == 1
    answer = program.post("/runs/judge-again", {**body, "note": "politer"}, status=201)
    [started] = answer["runs"]
    work_on_run(started["id"])
    run = Run.objects.get(pk=started["id"])
    assert (started["judges_outputs_of"], started["scored_again_from"], started["results"]) == (
        1,
        None,
        1,
    )
    assert (run.created_by, run.note, run.fail_count) == (member, "by draft of v1, politer", 1)

    for wrong, place in (
        ({"outputs_of": ["support:9"]}, "/outputs_of/0"),
        ({"judge": "nobody"}, "/judge"),
        ({"version": 1}, "/version"),
        ({"outputs_of": []}, "/outputs_of"),
    ):
        refused = program.refused("/runs/judge-again", body | wrong, 400)
        assert list(refused["errors"]) == [place]
    gone = program.refused("/runs/judge-again", body | {"filter": "case = C-9"}, 409)
    assert (gone["code"], Run.objects.count()) == ("cannot_judge_again", 2)


def test_a_program_asks_the_same_judge_the_same_question_again(
    model_server: ModelServer, program: Program
) -> None:
    judge = make_model(slug="judge", base_url=model_server.base_url)
    suite = make_suite(slug="support", tree=tree(JUDGED), judge=judge)
    make_case(suite=suite, expected_output="refund", recorded_output={"output": GOOD})
    make_target(name="recorded")
    program.post("/runs", {"suite": "support", "targets": ["recorded"]}, status=201)
    work_on_run(Run.objects.get().pk)
    for asks, calls in ((False, 0), (True, 1)):
        body = {"outputs_of": ["support:1"], "ask_again": asks}
        [estimate] = program.post("/runs/judge-again/estimate", body)["runs"]
        [started] = program.post("/runs/judge-again", body, status=201)["runs"]
        work_on_run(started["id"])
        made = Run.objects.get(pk=started["id"]).model_calls.count()
        assert (estimate["judge_calls"], made) == (calls, calls)

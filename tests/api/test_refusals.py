"""Who the API answers, and how it refuses: always problem details."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError
from django.test import Client
from django.urls import get_resolver

from evalsite.access.models import ApiToken
from evalsite.access.roles import Role, Scope, role_scopes
from evalsite.access.tokens import revoke_token
from tests.api.site import assert_described, assert_refused, token_of
from tests.reviews.aligning import make_alignment
from tests.support.addresses import all_patterns
from tests.support.factories import (
    make_campaign,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
)
from tests.support.members import make_client, make_member

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
NOW = datetime.now(tz=UTC)
CALLS = (
    *("/api/", "/api/schema", "/api/suites", "/api/suites/support", "/api/suites/support/versions"),
    *("/api/suites/support/versions/1", "/api/suites/support/agreement/people"),
    *("/api/suites/support/agreement/judges", "/api/suites/support/agreement/drift"),
    *("/api/suites/support/cases", "/api/runs"),
    *("/api/suites/support/views", "/api/suites/support/alignments"),
    "/api/suites/support/alignments/{alignment}",
    *("/api/suites/support/cases/C-1", "/api/runs/support:1", "/api/runs/support:1/results"),
    *("/api/targets", "/api/targets/{target}", "/api/models", "/api/models/juno"),
    *("/api/reviews", "/api/shares"),
    *("/api/results/{result}", "/api/results/{result}/output", "/api/campaigns"),
    *(
        "/api/campaigns/{campaign}",
        "/api/runs/compare?baseline_run_id=support:1&candidate_run_id=support:2",
        "/api/runs/compare/report?baseline_run_id=support:1&candidate_run_id=support:2",
        "/api/runs/support:1/report",
        "/api/runs/compare/many?runs=support:1,support:2",
        "/api/runs/compare/cases/C-1?baseline_run_id=support:1&candidate_run_id=support:2",
        "/api/runs/compare/cases.csv?baseline_run_id=support:1&candidate_run_id=support:2",
        "/api/runs/compare/comparison.jsonl?baseline_run_id=support:1&candidate_run_id=support:2",
    ),
    *("/api/suites/support/file", "/api/comments", "/api/reviews.jsonl", "/api/reviews.csv"),
    *(
        f"/api/runs/support:1/{name}"
        for name in ("awaited", "results.jsonl", "results.csv", "junit.xml", "cases.jsonl")
    ),
)
FILTERS = {
    "scoer < 0.5": "Did you mean score?",
    "score <": "Write a value after “score <”.",
    "score fell": "“score fell” needs two runs: use it in a comparison.",
    "x" * 1001: "no more than 1000 characters",
}
# What only exists for the member who asked for it.
WRITES = {
    "runs:api-traces",
    *("runs:api-suite-check", "runs:api-suite-baseline", "runs:api-runs-estimate"),
    *("runs:api-runs-judge-again", "runs:api-runs-judge-again-estimate"),
    *("runs:api-run-measure-judge", "runs:api-run-measure-judge-estimate"),
    *("runs:api-suite-alignments-estimate", "runs:api-alignment-stop"),
    *("runs:api-alignment-resume", "runs:api-alignment-take"),
    *("runs:api-draft-cases", "runs:api-draft-cases-estimate"),
    *("runs:api-case-proposal-store", "runs:api-case-proposal-stop"),
    "runs:api-result-attempt",
    *("runs:api-result-review", "runs:api-result-review-ask", "runs:api-share"),
    *(
        f"runs:api-run-{change}"
        for change in ("stop", "resume", "retry", "outputs", "close", "scores")
    ),
}
OF_ONE_MEMBER = {"runs:api-export", "runs:api-export-file", "runs:api-case-proposal"}


def calls() -> list[str]:
    """Make what they ask for and give every call that is answered."""
    suite = make_suite(slug="support")
    make_model(slug="juno")
    campaign = make_campaign(suite=suite)
    run, _ = make_run(suite=suite, campaign=campaign), make_run(suite=suite)
    case = make_case(suite=suite, key="C-1")
    result = make_result(run=run, case=case, verdict="pass", score=0.9, output={"text": "Hi."})
    numbers = {"result": result.pk, "campaign": campaign.pk, "target": run.target_id}
    numbers["alignment"] = make_alignment(suite).pk
    return [call.format(**numbers) for call in CALLS]


def ask(secret: str, address: str = "/api/runs", *, scheme: str = "Bearer") -> Any:
    return Client().get(address, headers={"authorization": f"{scheme} {secret}"})


def test_every_call_answers_each_role_and_nobody_without_a_token() -> None:
    paths = {name for name, _ in all_patterns(get_resolver()) if name.startswith("runs:api")}
    rest = OF_ONE_MEMBER | WRITES | {"runs:api-docs", "runs:api-nothing"}
    assert len(CALLS) == len(paths - rest)
    secrets = [
        token_of(make_member(role, f"m-{role}"), scopes=role_scopes(Role(role)))
        for role in Role.values
    ]
    for address in calls():
        for secret in secrets:
            assert ask(secret, address).status_code == 200, address
        refused = Client().get(address)
        assert_refused(refused, 401)
        assert refused["WWW-Authenticate"] == 'Bearer realm="Evalsite"'
        assert_refused(ask("evs_wrong", address), 401)
        assert_refused(make_client(make_member("", f"n{address}"[:100])).get(address), 403)


def test_an_ended_token_is_refused(editor: User, admin: User) -> None:
    assert ask(token_of(editor, days=1)).status_code == 200
    assert_refused(ask(token_of(editor, days=-1)), 401)
    secret = token_of(editor)
    assert ask(secret).status_code == 200
    revoke_token(editor.api_tokens.first() or ApiToken(), actor=admin, now=NOW)
    problem = assert_refused(ask(secret), 401)
    assert problem["detail"] == "This token is wrong, expired or revoked."
    secret = token_of(editor)
    User.objects.filter(pk=editor.pk).update(is_active=False)
    assert_refused(ask(secret), 401)


def test_a_token_does_no_more_than_its_owner_may_now(editor: User) -> None:
    secret = token_of(editor, scopes=Scope)
    editor.groups.set([Group.objects.get(name="viewer")])
    assert ask(secret).status_code == 200
    editor.groups.clear()
    assert_refused(ask(secret), 403)


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
def test_the_scheme_ignores_case(editor: User, scheme: str) -> None:
    assert ask(token_of(editor), scheme=scheme).status_code == 200


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Token evs_x", "Basic YTpi", "evs_x"])
def test_a_malformed_token_is_refused(header: str) -> None:
    assert_refused(Client().get("/api/runs", headers={"authorization": header}), 401)


def test_a_wrong_token_is_refused_even_with_a_session(viewer_client: Client) -> None:
    response = viewer_client.get("/api/runs", headers={"authorization": "Bearer evs_x"})
    assert_refused(response, 401)


def test_a_token_does_not_open_pages(editor: User) -> None:
    response = ask(token_of(editor), "/runs/")
    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


def test_the_use_of_a_token_is_shown_in_the_list(editor: User) -> None:
    secret, client = token_of(editor, days=1), make_client(editor)
    assert "<td>Never</td>" in client.get("/account/tokens/").text
    assert ask(secret).status_code == 200
    assert "<td>Never</td>" not in client.get("/account/tokens/").text


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
@pytest.mark.parametrize("address", ["/api/results/1", "/api/runs/support:1", "/api/"])
def test_other_methods_than_those_of_an_address_are_refused(
    editor: User, method: str, address: str
) -> None:
    headers = {"authorization": f"Bearer {token_of(editor)}"}
    response = getattr(Client(), method)(address, headers=headers)
    assert_refused(response, 405)
    assert "GET" in response["Allow"]


MISSING = (
    *("/api/suites/nobody", "/api/suites/support/versions/7", "/api/suites/support/cases/zz"),
    *("/api/suites/support/cases/C-1?revision=9", "/api/runs/77", "/api/runs/support:9"),
    *("/api/runs/nobody", "/api/runs/99999999999999999999", "/api/runs/support:1:2"),
    *("/api/runs/77/results", "/api/results/77", "/api/results/99999999999999999999/output"),
    *("/api/campaigns/77", "/api/suites/", "/api/nothing/at/all", "/api/runs?x=%00"),
    *("/api/runs/compare?baseline_run_id=support:1&candidate_run_id=77", "/api/runs/²"),
)


def test_missing_things_are_not_found(viewer_client: Client) -> None:
    calls()
    for address in MISSING:
        assert_refused(viewer_client.get(address), 404)
    of_two = "/api/runs/compare?baseline_run_id=support:1&candidate_run_id=support:99"
    assert "There is no run 'support:99'." in viewer_client.get(of_two).json()["detail"]


COMPARED = "/api/runs/compare?baseline_run_id=support:1&candidate_run_id=support:2"


WRONG = (
    ("/api/runs?limit=0", "limit", "greater than or equal to 1"),
    ("/api/runs?limit=501", "limit", "less than or equal to 500"),
    ("/api/runs?limit=many", "limit", "valid integer"),
    ("/api/runs?cursor=xyz", "cursor", "This is not a cursor of this list"),
    ("/api/runs?cursor=1~2", "cursor", "This is not a cursor of this list"),
    ("/api/runs?cursor=1.5", "cursor", "This is not a cursor of this list"),
    ("/api/runs?cursor=%C3%A9", "cursor", "This is not a cursor of this list"),
    ("/api/runs?cursor=99999999999999999999", "cursor", "This is not a cursor"),
    ("/api/suites?cursor=a%2500", "cursor", "This is not a cursor of this list"),
    ("/api/runs?status=done", "status", "not a valid choice"),
    ("/api/runs?since=yesterday", "since", "wrong format"),
    ("/api/runs?since=0001-01-01T00:00:00Z", "since", "This time is out of range"),
    ("/api/runs?campaign=99999999999999999999", "campaign", "less than or equal to"),
    ("/api/runs?suit=support", "suit", "No such parameter. There are limit, cursor, q, suite"),
    ("/api/suites/support?full=1", "full", "No such parameter. There are none"),
    ("/api/runs/support:1?full=1", "full", "No such parameter. There is wait"),
    ("/api/runs/support:1/results?verdict=good", "verdict", "not a valid choice"),
    ("/api/suites/support/cases/C-1?revision=0", "revision", "greater than or equal to 1"),
    ("/api/runs/compare?baseline_run_id=support:1", "candidate_run_id", "required"),
    (COMPARED.replace(":2", ":1"), "candidate_run_id", "the same run"),
    (
        COMPARED.replace(":2", ":1").replace("?", "/cases/C-1?"),
        "candidate_run_id",
        "the same run",
    ),
    (f"{COMPARED}&max_pass_rate_drop=1.5", "max_pass_rate_drop", "less than or equal to 1"),
    (f"{COMPARED}&max_avg_score_drop=-1", "max_avg_score_drop", "greater than or equal to 0"),
    (f"{COMPARED}&max_avg_score_drop=nan", "max_avg_score_drop", "valid number"),
    (f"{COMPARED}&max_latency_increase_pct=inf", "max_latency_increase_pct", "valid number"),
    (f"{COMPARED}&cases=some", "cases", "not a valid choice"),
)


def test_a_wrong_parameter_is_named(viewer_client: Client) -> None:
    calls()
    for address, parameter, words in WRONG:
        response = viewer_client.get(address)
        problem = assert_refused(response, 400)
        assert words in " ".join(problem["errors"][parameter]), address
        assert parameter in problem["detail"]
        assert_described(response, "/api/runs")


def test_an_unsupported_format_is_refused(viewer_client: Client) -> None:
    assert_refused(viewer_client.get("/api/runs", headers={"accept": "text/csv"}), 406)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ValueError("secret"), 500, "An unexpected error occurred"),
        (OperationalError("secret"), 503, "The database does not answer"),
    ],
)
def test_an_unexpected_error_is_a_problem_without_secrets(
    viewer: User, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, words: str
) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise error

    client = make_client(viewer)
    client.raise_request_exception = False
    monkeypatch.setattr("runs.results.runs.with_list_columns", fail)
    problem = assert_refused(client.get("/api/runs"), status)
    assert words in problem["detail"]
    assert "secret" not in str(problem)


def test_the_api_page_needs_a_login(client: Client) -> None:
    response = client.get("/api/docs/")
    assert response.status_code == 302
    assert response["Location"] == "/login/?next=/api/docs/"


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_that_cannot_be_read_is_refused(viewer_client: Client, text: str) -> None:
    calls()
    answer = viewer_client.get("/api/runs/support:1/results", {"filter": text})
    assert answer.status_code == 400
    assert FILTERS[text] in answer.json()["errors"]["filter"][0]

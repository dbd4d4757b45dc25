"""One small site with everything the API tells of, and answers held to the published schema."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from datetime import timedelta
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator

from evalsite.access.roles import Scope
from evalsite.access.tokens import make_token
from runs.finishing import summarise_run
from runs.models.results import Result
from runs.models.runs import Run
from tests.results.test_result_page import judged
from tests.support.factories import (
    make_call,
    make_campaign,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)

PROBLEM = "application/problem+json"
OUTCOMES = [{"text": "Names the days", "passed": False, "justification": "It does not."}]


def make_site() -> tuple[Run, Run, Result]:
    """Make two runs of a suite in one campaign, a third of another suite, and one result in full."""
    suite = make_suite(
        slug="support", title="Support", judge=make_model(slug="juno"), tags=["live"]
    )
    make_suite(slug="empty")
    campaign = make_campaign(suite=suite, name="May")
    cases = [
        make_case(
            suite=suite, key=key, position=number, tags=tags, expected_outcomes=["Names the days"]
        )
        for number, (key, tags) in enumerate(
            [("C/1", ["refunds"]), ("C-2", ["refunds", "über"]), ("C-3", [])], start=1
        )
    ]
    before = make_run(
        suite=suite, campaign=campaign, target=make_target(name="agent 1"), repetitions=2
    )
    whole = judged(suite=suite, case=cases[0], run=before, outcomes=OUTCOMES, outcome_marks="0")
    make_call(result=whole)
    make_result(run=before, case=cases[0], repetition=2, verdict="pass", score=0.91)
    for case in cases[1:]:
        make_result(
            run=before, case=case, verdict="pass", score=1 / 3 + 0.6, output={"text": "Yes."}
        )
        make_result(run=before, case=case, repetition=2, verdict="fail", score=0.2)
    after = make_run(suite=suite, campaign=campaign, target=make_target(name="agent 2"))
    make_result(run=after, case=cases[0], verdict="borderline", score=0.7, latency_ms=9000)
    make_result(run=after, case=cases[1], status="error", error="HTTP 502", error_stage="target")
    for run in (before, after):
        summarise_run(run.pk)
    make_run(suite=make_suite(slug="other"), status="running")
    return before, after, whole


@cache
def schema() -> dict[str, Any]:
    """Return the schema with every object closed, so that an undescribed field is an error."""
    document = deepcopy(SchemaGenerator().get_schema(request=None, public=True))
    for part in document["components"]["schemas"].values():
        if part.get("type") == "object" and part.get("properties"):
            part["additionalProperties"] = False
    return document


def assert_described(response: HttpResponse, path: str, method: str = "get") -> Any:
    """Validate an answer against the schema of its path and status, and return its content."""
    answers = schema()["paths"][path][method]["responses"]
    content = answers[str(response.status_code)]["content"]
    kind = response["Content-Type"]
    expected = {**content[kind]["schema"], "components": schema()["components"]}
    answer = response.json()
    errors = [
        f"{cause.json_path}: {cause.message[-200:]}"
        for error in Draft202012Validator(expected).iter_errors(answer)
        for cause in (error.context or [error])
    ]
    assert errors == [], errors
    return answer


def get(client: Client, address: str, path: str = "") -> Any:
    """Return the answer at an address; with `path` it is validated against the schema."""
    response = client.get(address)
    assert response.status_code == 200, response.content
    return assert_described(response, path) if path else response.json()


def token_of(owner: User, *, scopes: Collection[Scope] = (), days: float | None = None) -> str:
    """Return the secret of a new token."""
    expires_at = None if days is None else timezone.now() + timedelta(days=days)
    return make_token(owner=owner, name="t", scopes=scopes, expires_at=expires_at)[1]


def assert_refused(response: HttpResponse, status: int) -> dict[str, Any]:
    """Check that an answer is problem details of that status, and return them."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == PROBLEM
    problem: dict[str, Any] = response.json()
    path = response.wsgi_request.path
    assert (problem["status"], problem["instance"], problem["type"]) == (
        status,
        path,
        "about:blank",
    )
    assert problem["title"]
    assert problem["detail"]
    return problem


class Program:
    """A program with a token of a member, and with these scopes."""

    def __init__(self, owner: User, *scopes: Scope) -> None:
        """Make the token."""
        self.client = Client(headers={"authorization": f"Bearer {token_of(owner, scopes=scopes)}"})

    def send(
        self, method: str, path: str, body: Any = None, status: int = 200, **place: Any
    ) -> Any:
        """Send a body to a call described by its path; return its described answer, None for none."""
        response = getattr(self.client, method)(
            f"/api{path}".format(**place), body, content_type="application/json"
        )
        assert response.status_code == status, response.content
        if status >= 400:
            return assert_refused(response, status)
        if status == 204:
            return None
        return assert_described(response, f"/api{path}", method=method)

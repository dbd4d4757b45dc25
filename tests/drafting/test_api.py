"""Drafting by the API: the price, the drafting, its cases, and what is stored of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from runs.models.jobs import ModelJob
from runs.models.suites import Suite
from tests.support.factories import make_case, make_model, make_run, make_suite

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
BODY = {"description": "A shop", "model": "mock", "count": 2}
OUTCOME = {
    "rows": [
        {"title": "Gift", "input": "Can I return a gift?", "expected_output": "Yes", "tags": ["a"], "part": 0},
        {"title": "Same", "input": "where is my refund", "part": 0},
        {"unread": "the model gave no case here", "text": "7", "part": 0},
    ],
    "batches": [], "problem": "",
}  # fmt: skip


@pytest.fixture
def suite(db: None) -> Suite:
    suite = make_suite(slug="refunds", title="Refunds")
    make_case(suite=suite, key="C-1", input=[{"role": "user", "content": "Where is my refund?"}])
    make_model(slug="mock", name="Mock", input_price_usd_per_mtok=1, output_price_usd_per_mtok=1)
    return suite


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(f"/api/{path}", json.dumps(body or {}), content_type="application/json")


def test_cases_are_priced_drafted_read_and_stored(editor_client: Client, suite: Suite) -> None:
    estimate = post(editor_client, "suites/refunds/draft-cases/estimate", BODY).json()
    assert (estimate["material"], estimate["parts"], estimate["calls"]) == ("a description", 1, 1)
    assert estimate["cost_usd"].startswith("0.00")
    assert not ModelJob.objects.exists()
    made = post(editor_client, "suites/refunds/draft-cases", BODY | {"budget_usd": "0.5"})
    assert (made.status_code, made.json()["state"], made.json()["budget_usd"]) == (
        201,
        "waiting",
        "0.5",
    )
    place = f"case-proposals/{made.json()['id']}"
    refused = post(editor_client, f"{place}/store")
    assert "no drafted cases" in refused.json()["detail"]

    ModelJob.objects.update(state="done", outcome=OUTCOME)
    gift, same, unread = editor_client.get(f"/api/{place}").json()["cases"]
    assert (gift["key"], gift["is_chosen"], gift["repeats"], gift["problems"]) == (
        "gift",
        True,
        [],
        [],
    )
    assert gift["input"] == [{"role": "user", "content": "Can I return a gift?"}]
    assert same["repeats"] == [{"key": "C-1", "is_drafted": False, "likeness": 100.0}]
    assert (same["is_chosen"], unread["is_chosen"]) == (False, False)
    assert unread["problems"] == ["The model gave no case here."]
    for body, reason in (
        ({"cases": [9]}, {"/cases": ["There is no drafted case 9."]}),
        ({"leave_out": ["key"]}, None),
    ):
        refused = post(editor_client, f"{place}/store", body)
        assert refused.status_code == 400
        assert reason is None or refused.json()["errors"] == reason
    stored = post(editor_client, f"{place}/store", {"leave_out": ["tags"]})
    assert stored.json() == {"added": 1, "left": 2, "version": 2}
    assert post(editor_client, f"{place}/store").json() == stored.json()
    case = suite.cases.get(key="gift")
    assert (case.tags, case.metadata["drafted"]["by"]) == ([], "Mock")
    assert editor_client.get(f"/api/{place}").json()["stored"] == stored.json()
    drafted = editor_client.get("/api/suites/refunds/cases?filter=meta.drafted.by+%3D+Mock").json()
    assert [row["key"] for row in drafted["results"]] == ["gift"]


def test_a_drafting_is_stopped_and_deleted_by_who_asked(
    editor_client: Client, admin_client: Client, viewer_client: Client, suite: Suite
) -> None:
    place = f"case-proposals/{post(editor_client, 'suites/refunds/draft-cases', BODY).json()['id']}"
    assert admin_client.get(f"/api/{place}").status_code == 404
    assert post(viewer_client, "suites/refunds/draft-cases", BODY).status_code == 403
    assert post(editor_client, f"{place}/stop").json()["state"] == "stopped"
    assert editor_client.delete(f"/api/{place}").status_code == 204
    assert editor_client.get(f"/api/{place}").json()["material"] == ""


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"model": "gone"}, 400, "There is no language model 'gone'."),
        ({"count": 101}, 400, "/count"),
        ({"sources": "x"}, 400, "/sources"),
        ({"source": "web"}, 400, "/source"),
        ({"description": ""}, 409, "Describe the agent"),
        ({"source": "results"}, 409, "Choose a run"),
        ({"source": "results", "run": "other:1"}, 400, "other:1 is not a run of refunds."),
        ({"source": "results", "run": "other:9"}, 404, "other:9"),
        ({"source": "documents", "documents": [{"name": "a"}]}, 400, "/documents/0/text"),
    ],
)
def test_what_cannot_be_drafted_is_refused_with_its_place(
    editor_client: Client, suite: Suite, body: dict[str, Any], status: int, reason: str
) -> None:
    make_run(suite=make_suite(slug="other"), number=1)
    refused = post(editor_client, "suites/refunds/draft-cases", BODY | body)
    assert (refused.status_code, reason in refused.content.decode()) == (status, True)

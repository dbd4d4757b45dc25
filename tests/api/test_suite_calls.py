"""Storing suites, cases and baselines from programs."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
from django.test import Client

from evalsite.access.roles import Scope
from runs.models.suites import Case, Suite
from tests.api.site import assert_described, assert_refused, token_of
from tests.support.factories import make_case, make_scored_run, make_suite, make_user
from tests.support.threads import at_once

pytestmark = pytest.mark.django_db
CAPITALS: dict[str, Any] = {
    "name": "capitals",
    "evaluators": [{"name": "right", "type": "expected_output", "match": "contains"}],
    "tests": [{"id": "france", "input": "Capital of France?", "expected_output": "Paris"}],
}


@pytest.fixture
def client() -> Client:
    token = token_of(make_user(role="editor", name="rita"), scopes=[Scope.EDIT])
    return Client(headers={"Authorization": f"Bearer {token}"})


def send(
    client: Client,
    method: str,
    path: str,
    body: Any,
    status: int = 200,
    *,
    at: str = "",
    **headers: str,
) -> Any:
    """Send JSON and return the answer, which the schema must describe."""
    response = getattr(client, method)(
        f"/api{at or path}", body, content_type="application/json", headers=headers
    )
    assert response.status_code == status, response.content
    if status >= 400:
        return assert_refused(response, status)
    return assert_described(response, f"/api{path}", method=method) if response.content else None


def test_a_suite_is_created_once_and_then_stored_under_its_name(client: Client) -> None:
    stored = send(client, "post", "/suites", CAPITALS, 201)
    assert stored["slug"] == "capitals"
    assert (stored["version"], stored["version_before"], stored["cases"]) == (1, None, 1)
    problem = send(client, "post", "/suites", CAPITALS, 409)
    assert problem["code"] == "slug_taken"

    more = {**CAPITALS, "tests": [*CAPITALS["tests"], {"id": "peru", "input": "Peru?"}]}
    put = {"path": "/suites/{slug}", "at": "/suites/capitals"}
    stored = send(client, "put", body=more, **put)
    assert (stored["version"], stored["version_before"], stored["cases"]) == (2, 1, 2)
    assert send(client, "put", body=more, **put)["version"] == 2
    assert Suite.objects.get().versions.count() == 2


def test_a_suite_that_someone_else_saved_is_not_replaced(client: Client) -> None:
    put = {"path": "/suites/{slug}", "at": "/suites/capitals"}
    send(client, "put", body=CAPITALS, **put)
    body = {**CAPITALS, "description": "Cities"}
    problem = send(client, "put", body=body, status=412, **put, **{"If-Match": '"7"'})
    assert "rita saved version 1 of “capitals”" in problem["detail"]
    assert send(client, "put", body=body, **put, **{"If-Match": '"1"'})["version"] == 2
    missing = {"path": "/suites/{slug}", "at": "/suites/cities"}
    for state in ('"1"', "*"):
        problem = send(client, "put", body=body, status=412, **missing, **{"If-Match": state})
        assert problem["detail"].startswith("There is no suite “cities”. ")
    assert send(client, "put", body=CAPITALS, **put, **{"If-Match": "*"})["version"] == 3


def test_a_wrong_suite_names_every_place_and_stores_nothing(client: Client) -> None:
    wrong = {
        **CAPITALS,
        "evaluators": [{"name": "right", "type": "expected_outputs"}],
        "tests": [{"id": "france", "input": ""}, {"input": "Peru?"}],
    }
    for path in ("/suites", "/suite-check"):
        problem = send(client, "post", path, wrong, 400)
        assert {place.rpartition("/")[0] for place in problem["errors"]} >= {"/evaluators/0"}
        assert any(place.startswith("/tests/") for place in problem["errors"])
    send(client, "post", "/suites", "tests: [", 400)
    send(client, "post", "/suites", {}, 400)
    assert not Suite.objects.exists()


def test_a_tree_with_more_evaluators_than_a_page_shows_is_refused(client: Client) -> None:
    leaves = [{"name": f"e{n}", "type": "contains", "value": "a"} for n in range(100)]
    groups = [{"name": f"g{n}", "type": "composite", "evaluators": leaves} for n in range(5)]
    said = "there are 505 evaluators, composites included, and 500 is the limit; remove some"

    wrong = {**CAPITALS, "evaluators": groups}
    problem = send(client, "post", "/suites", wrong, 400)
    assert said in problem["errors"]["/evaluators"][0]
    assert not Suite.objects.exists()
    send(client, "post", "/suites", {**CAPITALS, "evaluators": groups[1:]}, 201)

    nodes = [
        {
            "name": group["name"],
            "kind": "composite",
            "config": {"aggregator": {"type": "weighted_average"}},
            "children": [
                {"name": leaf["name"], "kind": "text_check", "config": {"value": "a"}}
                for leaf in leaves
            ],
        }
        for group in groups
    ]
    tree = {"name": "all", "kind": "composite", "children": nodes}
    tree["config"] = nodes[0]["config"]
    at = "/suites/capitals/cases/france"
    path = "/suites/{slug}/cases/{key}"
    problem = send(client, "put", path, {"input": "Hi?", "evaluators": tree}, 400, at=at)
    assert said in problem["errors"]["/evaluators"][0]


def test_a_suite_can_be_checked_without_being_stored(client: Client) -> None:
    checked = send(client, "post", "/suite-check", {**CAPITALS, "colour": "red"})
    assert (checked["slug"], checked["cases"], checked["evaluators"]) == ("capitals", 1, 1)
    assert "colour" in checked["warnings"][0]
    assert not Suite.objects.exists()


def test_a_suite_comes_as_yaml_or_as_a_zip_with_its_files(client: Client) -> None:
    text = "name: towns\nevaluators: [{name: r, type: llm_judge, prompt: file://p.md, judge: ''}]\n"
    text += "tests: [{id: a, input: Hi}]\n"
    plain = "name: plain\nevaluators: [{name: r, type: contains, value: x}]\ntests: [{id: a, input: Hi}]"
    response = client.post("/api/suites", plain, content_type="application/yaml")
    assert response.status_code == 201, response.content
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("suite.yaml", text.replace(", judge: ''", ""))
        archive.writestr("p.md", "Is {{ output }} kind?")
    response = client.post("/api/suites", packed.getvalue(), content_type="application/zip")
    assert response.status_code == 201, response.content
    assert list(Suite.objects.get(slug="towns").files.values_list("path", flat=True)) == ["p.md"]
    assert client.post("/api/suites", plain, content_type="text/plain").status_code == 415


# What YAML reads otherwise than JSON: escapes in two halves, ends of lines, and characters that it refuses.
@pytest.mark.parametrize(
    "text", ["\U0001f600", "a\u2028b", "a\x85 b", "a\u2029", "\x7f", "\ufffe", "\\ud83d"]
)
@pytest.mark.parametrize("is_escaped", [True, False])
def test_every_text_of_json_is_stored_as_it_is(client: Client, text: str, is_escaped: bool) -> None:
    case = {"id": text, "input": text, "expected_output": f"\\{text}", "metadata": {text: text}}
    body = json.dumps({**CAPITALS, "tests": [case]}, ensure_ascii=is_escaped)

    send(client, "post", "/suites", body, 201)

    stored = Case.objects.get()
    assert (stored.key, stored.expected_output) == (text, f"\\{text}")
    assert stored.metadata == {text: text}


def test_cases_are_added_and_changed_together_or_not_at_all(client: Client) -> None:
    suite = make_suite(slug="support", cases=1)
    place = {"path": "/suites/{slug}/cases", "at": "/suites/support/cases"}
    cases = [
        {"key": "C-001", "input": "Where is it?", "tags": ["late"]},
        {
            "key": "C-9",
            "input": [{"role": "user", "content": "Hi"}],
            "expected_outcomes": ["Greets"],
        },
    ]
    stored = send(client, "post", body={"cases": cases}, **place)
    assert (stored["added"], stored["changed"], stored["unchanged"]) == (1, 1, 0)
    again = send(client, "post", body={"cases": cases}, **place)
    assert (again["added"], again["changed"], again["unchanged"]) == (0, 0, 2)
    assert suite.cases.get(key="C-9").input == [{"role": "user", "content": "Hi"}]

    wrong = [*cases, {"key": "C-10", "input": [{"role": "robot", "content": "Hi"}]}]
    problem = send(client, "post", body={"cases": wrong}, status=400, **place)
    assert set(problem["errors"]) == {"/cases/2/input"}
    problem = send(client, "post", body={"cases": [{"input": "Hi"}]}, status=400, **place)
    assert problem["errors"] == {"/cases/0/key": ["It is missing."]}
    assert not Case.objects.filter(key="C-10").exists()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"content": "Hi"}]}, "input"),
        ({"input": [{"role": "user", "content": 5}]}, "input"),
        ({"input": [{"role": "user", "content": "Hi", "blocks": [{"type": "file"}]}]}, "input"),
        (
            {"input": "Hi", "evaluators": {"name": "a", "kind": "composite", "config": "x"}},
            "evaluators/config",
        ),
        (
            {
                "input": "Hi",
                "evaluators": {"name": "a", "kind": "composite", "config": {"aggregator": 5}},
            },
            "evaluators",
        ),
    ],
)
def test_a_case_of_another_shape_is_refused_at_its_place(
    client: Client, wrong: dict[str, Any], place: str
) -> None:
    make_suite(slug="support")
    put = {"path": "/suites/{slug}/cases/{key}", "at": "/suites/support/cases/C-1"}
    assert f"/{place}" in send(client, "put", body=wrong, status=400, **put)["errors"]
    assert not Case.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_several_members_who_create_a_suite_at_once_one_does(client: Client) -> None:
    def create() -> int:
        return client.post("/api/suites", CAPITALS, content_type="application/json").status_code

    assert sorted(map(str, at_once(*[create] * 4))) == ["201", "409", "409", "409"]
    assert Suite.objects.get().version == 1


def test_one_case_is_stored_and_deleted_unless_someone_else_changed_it(client: Client) -> None:
    make_case(suite=make_suite(slug="support"), key="a/b")
    place = {"path": "/suites/{slug}/cases/{key}", "at": "/suites/support/cases/a/b"}
    assert (
        send(client, "put", body={"input": "New"}, **place, **{"If-Match": '"1"'})["changed"] == 1
    )
    problem = send(client, "put", body={"input": "Old"}, status=412, **place, **{"If-Match": '"1"'})
    assert "rita saved revision 2 of the case a/b. You know 1." in problem["detail"]
    send(client, "delete", body=None, status=412, **place, **{"If-Match": '"1"'})
    send(client, "delete", body=None, status=204, **place)
    send(client, "delete", body=None, status=204, **place)
    problem = send(client, "put", body={"input": "Old"}, status=412, **place, **{"If-Match": "*"})
    assert problem["detail"] == "The case a/b does not exist. Nothing was changed."
    assert not Case.objects.filter(key="a/b", is_current=True).exists()


def test_a_completed_run_becomes_the_baseline_and_stops_being_it(client: Client) -> None:
    run = make_scored_run(verdicts=["pass"])
    slug = run.suite.slug
    place = {"path": "/suites/{slug}/baseline", "at": f"/suites/{slug}/baseline"}
    name = f"{slug}:{run.number}"
    assert send(client, "put", body={"run": name}, **place) == {"run": name}
    assert Suite.objects.get(slug=slug).baseline_run == run
    assert send(client, "put", body={"run": None}, **place) == {"run": None}
    assert Suite.objects.get(slug=slug).baseline_run is None
    other = make_scored_run(verdicts=["pass"])
    problem = send(client, "put", body={"run": str(other.pk)}, status=400, **place)
    assert "/run" in problem["errors"]

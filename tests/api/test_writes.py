"""What holds for every call that changes something: keys, states, and places of errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User

from evalsite.access.roles import Role, Scope
from evaluators.models import LanguageModel
from runs.models.attempt_contents import pack_contents
from runs.models.results import Attempt
from runs.models.runs import Run
from runs.models.suites import Suite
from tests.api.site import Program, assert_refused, make_site, schema
from tests.drafting.test_pages import ROW, make_job
from tests.reviews.aligning import make_alignment, make_decided_suite
from tests.support.factories import (
    STARTED,
    make_case,
    make_model,
    make_result,
    make_run,
    make_suite,
    make_target,
)
from tests.support.members import make_member
from tests.support.trees import JUDGED, tree

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
FILE = {"name": "new", "evaluators": [{"name": "right", "type": "contains", "value": "x"}]}
FILE |= {"tests": [{"id": "a", "input": "Hi"}]}
RUN = {"suite": "support", "targets": ["pipeline"], "cases": ["C-2", "C-3"]}
SCORE = {"case": "C-2", "source": "ragas", "name": "faithfulness", "value": 0.5}
MODEL = {"name": "Gpt", "slug": "gpt", "base_url": "https://api.example.com/v1", "model_id": "gpt"}
DRAFT = {"description": "A shop", "model": "mock"}
ALIGN = {"evaluator": "tone", "writer": "mock", "candidates": 1}
# Every call that makes something, with a body that it takes, in an order in which each finds what it needs.
POSTS: Mapping[str, Any] = {
    "/suite-check": FILE,
    "/suites": FILE,
    "/suites/{slug}/cases": {"cases": [{"key": "C-9", "input": "Hi"}]},
    "/targets": {"name": "pipeline", "kind": "pushed"},
    "/models": MODEL,
    "/shares": {"kind": "run", "run": "support:1"},
    "/results/{result}/attempt": {"attempt": 1, "reason": "The judge was down."},
    "/results/{result}/review/ask": {},
    "/results/{result}/review": {"verdict": "pass"},
    "/runs/estimate": RUN,
    "/runs": RUN,
    "/runs/{run}/outputs": {"outputs": [{"case": "C-2", "output": "x"}]},
    "/runs/{run}/scores": {"scores": [SCORE]},
    "/runs/{run}/stop": {},
    "/runs/{run}/resume": {},
    "/runs/{run}/close": {},
    "/runs/{run}/retry": {"which": "errored"},
    "/runs/judge-again/estimate": {"outputs_of": ["support:1"]},
    "/runs/judge-again": {"outputs_of": ["support:1"]},
    "/runs/{run}/measure-judge/estimate": {"results": 1},
    "/runs/{run}/measure-judge": {"results": 1},
    "/suites/{slug}/alignments/estimate": ALIGN,
    "/suites/{slug}/alignments/{alignment}/stop": {},
    "/suites/{slug}/alignments/{alignment}/resume": {},
    "/suites/{slug}/alignments/{alignment}/take": {"candidate": 1},
    "/suites/{slug}/alignments": ALIGN,
    "/suites/{slug}/draft-cases/estimate": DRAFT,
    "/suites/{slug}/draft-cases": DRAFT,
    "/case-proposals/{proposal}/stop": {},
    "/case-proposals/{proposal}/store": {},
}
CREATED = {
    *("/suites", "/targets", "/models", "/shares", "/runs", "/runs/judge-again"),
    *("/runs/{run}/measure-judge", "/suites/{slug}/alignments", "/suites/{slug}/draft-cases"),
}
# What two people may edit.
EDITED = {
    ("put", "/suites/{slug}"),
    ("post", "/suites/{slug}/cases"),
    ("put", "/suites/{slug}/cases/{key}"),
    ("delete", "/suites/{slug}/cases/{key}"),
    ("put", "/targets/{target}"),
    ("put", "/models/{slug}"),
}


@pytest.fixture
def admin() -> User:
    return make_member(Role.ADMIN, "ada")


def described(header: str) -> set[tuple[str, str]]:
    """Return the calls that take a header, by method and path."""
    return {
        (method, path.removeprefix("/api"))
        for path, calls in schema()["paths"].items()
        for method, call in calls.items()
        if header in {parameter["name"] for parameter in call.get("parameters", ())}
    }


def test_every_post_is_safe_to_repeat_with_a_key(admin: User) -> None:
    keyed = {path for _, path in described("Idempotency-Key")}
    posts = {
        path.removeprefix("/api") for path, calls in schema()["paths"].items() if "post" in calls
    }
    # Spans have ids of their own.
    assert POSTS.keys() == keyed == posts - {"/v1/traces"}
    _, _, result = make_site()
    client = Program(admin, *Scope).client
    place = {"slug": "support", "result": result.pk, "run": "support:3"}
    judged = make_suite(slug="judged", tree=tree(JUDGED))
    stored = {"text": "Hi."}
    make_result(
        run=make_run(suite=judged), case=make_case(suite=judged), verdict="pass", output=stored
    )
    kept = pack_contents([result.pk])[result.pk]
    facts = {"pk": 1, "attempt": 1, "generation": 1, "status": "scored", "content": kept}
    Attempt.objects.create(result=result, ended_at=STARTED, **facts)
    aligned, run = make_decided_suite(slug="aligned")
    place["alignment"] = make_alignment(aligned, run, subject="other", state="waiting").pk
    place["proposal"] = make_job(Suite.objects.get(slug="support"), ROW).pk
    for path, body in POSTS.items():
        others = {"run": "judged:1"} if "measure-judge" in path else {}
        others |= {"slug": "aligned"} if "alignments" in path else {}
        address = f"/api{path}".format(**place | others)
        headers = {"Idempotency-Key": path}
        first, again = (
            client.post(address, body, "application/json", headers=headers) for _ in range(2)
        )
        assert first.status_code == again.status_code == (201 if path in CREATED else 200), (
            path,
            first.content,
        )
        assert first.json() == again.json()
        assert "Idempotency-Replayed" not in first
        assert again["Idempotency-Replayed"] == "true"
    assert Suite.objects.filter(slug="new").count() == 1
    assert Run.objects.filter(target__name="pipeline").count() == 1


def test_what_two_people_may_edit_is_not_replaced_unseen(admin: User) -> None:
    assert described("If-Match") == EDITED
    make_site()
    mine, theirs = Program(admin, *Scope), Program(make_member(Role.ADMIN, "rita"), *Scope)
    target, model = make_target(name="agent", kind="pushed"), make_model(slug="gpt")
    mine.send("put", "/suites/{slug}", FILE, slug="new")
    agent = {"name": "agent", "kind": "pushed"}
    for path, body, change in (
        ("suites/new", FILE, {"tests": [{"id": "a", "input": "Theirs"}]}),
        ("suites/new/cases/a", {"input": "Mine"}, {"title": "Theirs"}),
        (f"targets/{target.pk}", agent, {"description": "Theirs"}),
        (f"models/{model.slug}", MODEL, {"name": "Theirs"}),
    ):
        address = f"/api/{path}"

        def put(program: Program, content: Any, state: str, address: str = address) -> Any:
            headers = {"If-Match": state}
            return program.client.put(address, content, "application/json", headers=headers)

        seen = mine.client.get(address)["ETag"]
        assert put(theirs, {**body, **change}, seen).status_code == 200
        refused = assert_refused(put(mine, body, seen), 412)
        assert "rita" in refused["detail"], path
        assert put(mine, body, mine.client.get(address)["ETag"]).status_code == 200
    assert LanguageModel.objects.get(slug="gpt").name == "Gpt"


def test_every_wrong_body_is_answered_with_its_place(admin: User) -> None:
    _, _, result = make_site()
    client = Program(admin, *Scope).client
    place = {"slug": "support", "key": "C-2", "run": "support:1", "result": result.pk}
    place |= {"target": make_target(kind="pushed").pk}
    place["alignment"] = make_alignment(Suite.objects.get(slug="support")).pk
    place["proposal"] = make_job(Suite.objects.get(slug="support"), ROW).pk
    make_model(slug="support")
    bodies = 0
    for path, calls in schema()["paths"].items():
        for method, call in calls.items():
            content = call.get("requestBody", {}).get("content", {})
            if set(content) != {"application/json"} or path == "/v1/traces":
                continue
            bodies += 1
            address = path.format(**place)
            for body, pointer in (({"nonsense": 1}, "/nonsense"), ([1], "/")):
                answer = getattr(client, method)(address, body, "application/json")
                assert pointer in assert_refused(answer, 400)["errors"], path
    assert bodies >= 15

"""Reading, adding, changing and deleting language models from programs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from evalsite.access.roles import Scope
from evaluators.model_calls.models import decrypt
from evaluators.models import AuditEntry, LanguageModel
from runs.api.model_calls import ModelBody
from tests.api.site import Program, get
from tests.support.factories import make_suite, make_user

pytestmark = pytest.mark.django_db
ADDED = {
    "name": "Juno 2",
    "base_url": "https://models.example/v1/",
    "model_id": "juno-2",
    "api_key": "sk-secret-of-ours",
    "parameters": {"temperature": 0.5, "max_tokens": 800},
    "input_price_usd_per_mtok": "1.25",
    "output_price_usd_per_mtok": 10,
}


@pytest.fixture
def admin() -> Program:
    return Program(make_user(role="admin", name="ada"), Scope.EDIT)


def test_a_model_is_added_read_changed_and_deleted_and_its_key_never_given(admin: Program) -> None:
    model = admin.send("post", "/models", ADDED, 201)
    assert (model["slug"], model["base_url"]) == ("juno-2", "https://models.example/v1")
    assert (model["parameters"], model["concurrency"]) == (ADDED["parameters"], 8)
    assert Decimal(model["input_price_usd_per_mtok"]) == Decimal("1.25")
    assert model["has_stored_key"]
    assert "sk-secret" not in str(model)
    assert decrypt(LanguageModel.objects.get().encrypted_key) == "sk-secret-of-ours"
    assert get(admin.client, "/api/models", "/api/models")["results"] == [model]
    assert get(admin.client, "/api/models/juno-2", "/api/models/{slug}") == model

    kept = {**ADDED, "api_key": "", "concurrency": 20}
    changed = admin.send("put", "/models/{slug}", kept, slug="juno-2")
    assert (changed["concurrency"], changed["has_stored_key"]) == (20, True)
    moved = {**kept, "base_url": "https://elsewhere.example/v1"}
    assert not admin.send("put", "/models/{slug}", moved, slug="juno-2")["has_stored_key"]

    suite = make_suite(slug="support", judge=LanguageModel.objects.get())
    in_use = admin.send("delete", "/models/{slug}", None, 409, slug="juno-2")
    assert in_use["code"] == "model_in_use"
    suite.delete()
    admin.send("delete", "/models/{slug}", None, 204, slug="juno-2")
    admin.send("delete", "/models/{slug}", None, 404, slug="juno-2")
    audit = AuditEntry.objects.filter(object_type="language_model", actor__username="ada")
    assert list(audit.order_by("pk").values_list("action", flat=True)) == [
        "create",
        "change",
        "change",
        "delete",
    ]


@pytest.mark.parametrize(
    ("change", "place", "text"),
    [
        ({"name": ""}, "/name", "at least 1"),
        ({"base_url": "ftp://x"}, "/base_url", "http"),
        ({"api_key": "two words"}, "/api_key", "visible ASCII"),
        ({"parameters": {"model": "other"}}, "/parameters", "set by Evalsite"),
        ({"parameters": {"temperature": 3}}, "/parameters/temperature", "less than or equal to 2"),
        ({"concurrency": 0}, "/concurrency", "from 1 to 500"),
        ({"reply_mode": "xml"}, "/reply_mode", "not one of"),
        ({"slug": "new"}, "/slug", "another short name"),
        ({"output_price_usd_per_mtok": None}, "/output_price_usd_per_mtok", "set the output price"),
        ({"colour": "blue"}, "/colour", "no such field"),
    ],
)
def test_each_wrong_place_is_named(
    admin: Program, change: dict[str, object], place: str, text: str
) -> None:
    problem = admin.send("post", "/models", {**ADDED, **change}, 400)
    assert text in problem["errors"][place][0]
    assert not LanguageModel.objects.exists()


@pytest.mark.parametrize("price", ["1e-99999", "1e99999"])
def test_a_price_is_never_written_out_with_all_its_zeros(admin: Program, price: str) -> None:
    body = ModelBody.model_validate({**ADDED, "input_price_usd_per_mtok": price})
    assert len(body.model_dump_json()) < 1000
    problem = admin.send("post", "/models", {**ADDED, "input_price_usd_per_mtok": price}, 400)
    assert list(problem["errors"]) == ["/input_price_usd_per_mtok"]


def test_the_short_name_stays_and_is_unique(admin: Program) -> None:
    admin.send("post", "/models", ADDED, 201)
    assert "/slug" in admin.send("post", "/models", ADDED, 400)["errors"]
    refused = admin.send("put", "/models/{slug}", {**ADDED, "slug": "other"}, 400, slug="juno-2")
    assert refused["errors"] == {"/slug": ["It is 'juno-2' and cannot change."]}


def test_only_an_admin_with_the_scope_changes_models() -> None:
    for role, scope in (("editor", Scope.EDIT), ("admin", Scope.RUN)):
        Program(make_user(role=role), scope).send("post", "/models", ADDED, 403)

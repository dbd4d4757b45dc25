"""The pages of language models: what they tell, what they never tell, who may change what."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from evaluators.catalog.forms import LanguageModelForm, ModelChangedError
from evaluators.model_calls.models import decrypt, encrypt, model_key, model_spec
from evaluators.models import AuditEntry, LanguageModel
from tests.evaluators.catalog.model_forms import SECRET, done, posted
from tests.support.clock import Clock
from tests.support.factories import (
    change_evaluator,
    make_model,
    make_suite,
    make_target,
    throttle_state,
)
from tests.support.members import make_client, make_member
from tests.support.sent_forms import sent_unchanged

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock"), pytest.mark.one_database]

AGO = datetime(2026, 5, 12, 9, tzinfo=UTC)


def test_a_model_is_added_with_its_key_encrypted_and_never_shown(
    admin_client: Client, admin: User
) -> None:
    response = admin_client.post("/models/new/", posted(), follow=True)

    model = LanguageModel.objects.get(slug="house-judge")
    assert response.redirect_chain == [("/models/house-judge/", 302)]
    assert model.encrypted_key
    assert SECRET not in model.encrypted_key
    assert decrypt(model.encrypted_key) == SECRET
    assert model.parameters == {"temperature": 0.0}
    entry = AuditEntry.objects.get(object_type="language_model")
    assert (entry.action, entry.actor, entry.object_name) == ("create", admin, "House judge")
    pages = [
        admin_client.get(address).content.decode()
        for address in ("/models/", "/models/house-judge/", "/models/house-judge/edit/")
    ]
    told = [*pages, json.dumps([entry.before, entry.after]), json.dumps(model.facts())]
    assert not any(SECRET in text or model.encrypted_key in text for text in told)
    assert "stored" in pages[1]


def test_an_empty_list_says_what_to_do(admin_client: Client, viewer_client: Client) -> None:
    assert "Add a model" in admin_client.get("/models/").content.decode()
    page = viewer_client.get("/models/").content.decode()
    assert "An admin can add it." in page
    assert "/models/new/" not in page


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("base_url", "ftp://example.com", "http:// or https://"),
        ("base_url", "not a url", "http:// or https://"),
        ("base_url", "http://169.254.169.254/v1", "metadata"),
        ("base_url", "http://user:pw@example.com/v1", "user and password"),
        ("slug", "new", "the address of this page"),
        ("slug", "with blanks", "slug"),
        ("api_key", "sk-ключ", "ASCII"),
        ("key_variable", "DATABASE_URL", "valid choice"),
        ("parameters", "{temperature: 0}", "not JSON"),
        ("parameters", "[1]", "one JSON object"),
        ("parameters", '{"stop": "\\ud800"}', "a text contains a character that cannot be stored"),
        ("parameters", '{"a": NaN}', "NaN"),
        ("parameters", '{"stream": true}', "stream is set by Evalsite"),
        ("parameters", '{"temperature": 1}', "own field"),
        ("temperature", "3", "less than or equal to 2"),
        ("concurrency", "0", "from 1 to 500"),
        ("timeout_s", "601", "from 1 to 600"),
        ("requests_per_minute", "0", "at least 1"),
        ("input_price_usd_per_mtok", "-1", "0 or more"),
        ("input_price_usd_per_mtok", "1", "set the output price too"),
        ("name", "", "required"),
    ],
    ids=range(21),
)
def test_a_wrong_field_is_refused_by_name_and_nothing_is_saved(
    admin_client: Client, field: str, value: str, words: str
) -> None:
    response = admin_client.post("/models/new/", posted(**{field: value}))

    page = response.content.decode()
    assert response.status_code == 422
    assert words in page
    assert "House judge" in page or field == "name"
    assert SECRET not in page
    assert not LanguageModel.objects.exists()


def test_a_short_name_that_was_taken_meanwhile_is_refused_and_nothing_lost(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(slug="house-judge")
    # Both forms were checked before either was stored.
    monkeypatch.setattr(LanguageModel, "validate_unique", lambda *args, **options: None)
    response = admin_client.post("/models/new/", posted(name="Second judge"))
    assert response.status_code == 422
    assert "There is already a language model “house-judge”." in response.text
    assert "Second judge" in response.text
    assert SECRET not in response.text
    assert LanguageModel.objects.count() == 1
    assert not AuditEntry.objects.exists()


def test_key_and_variable_together_are_refused(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.MODEL_KEYS, "EVALSITE_MODEL_KEY_HOUSE", SECRET)

    response = admin_client.post("/models/new/", posted(key_variable="EVALSITE_MODEL_KEY_HOUSE"))

    assert response.status_code == 422
    assert "not both" in response.content.decode()


def test_a_key_can_come_from_a_variable_that_is_named_and_not_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.MODEL_KEYS, "EVALSITE_MODEL_KEY_HOUSE", SECRET)

    admin_client.post("/models/new/", posted(api_key="", key_variable="EVALSITE_MODEL_KEY_HOUSE"))

    model = LanguageModel.objects.get()
    page = admin_client.get("/models/house-judge/").content.decode()
    assert (model.encrypted_key, model_key(model).value) == ("", SECRET)
    assert "from EVALSITE_MODEL_KEY_HOUSE" in page
    assert SECRET not in page


def test_a_variable_that_is_gone_is_told_before_calls_fail(admin_client: Client) -> None:
    make_model(slug="m", key_variable="EVALSITE_MODEL_KEY_GONE")

    for address in ("/models/", "/models/m/"):
        assert "EVALSITE_MODEL_KEY_GONE is not set" in admin_client.get(address).content.decode()


def test_a_new_base_url_drops_the_stored_key_and_says_so(admin_client: Client) -> None:
    admin_client.post("/models/new/", posted())
    changed = posted(base_url="http://127.0.0.1:9001/v1", api_key="")

    page = admin_client.post("/models/house-judge/edit/", changed, follow=True).content.decode()

    assert LanguageModel.objects.get().encrypted_key == ""
    assert "stored key was removed" in page


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"name": "Other"}, SECRET),
        ({"base_url": "http://127.0.0.1:9000/v1/"}, SECRET),
        ({"remove_key": "on"}, ""),
        ({"api_key": "sk-new"}, "sk-new"),
        ({"api_key": "sk-new", "base_url": "http://127.0.0.1:9001/v1"}, "sk-new"),
    ],
    ids=["other-field", "same-address", "removed", "replaced", "replaced-with-address"],
)
def test_the_key_stays_until_it_is_replaced_removed_or_its_address_changes(
    admin_client: Client, changes: dict[str, str], kept: str
) -> None:
    admin_client.post("/models/new/", posted())

    admin_client.post("/models/house-judge/edit/", posted(api_key="") | changes)

    assert model_key(LanguageModel.objects.get()).value == kept
    entry = AuditEntry.objects.filter(action="change").get()
    assert entry.before is not None
    assert "sk-" not in json.dumps([entry.before, entry.after])


def test_the_short_name_cannot_be_changed(admin_client: Client) -> None:
    admin_client.post("/models/new/", posted())

    admin_client.post("/models/house-judge/edit/", posted(slug="other", name="Other"))

    assert LanguageModel.objects.get().slug == "house-judge"
    assert LanguageModel.objects.get().name == "Other"


def test_a_change_of_the_connection_forgets_the_last_test(admin_client: Client) -> None:
    admin_client.post("/models/new/", posted())
    LanguageModel.objects.update(last_test=done(), last_tested_at=timezone.now())

    admin_client.post("/models/house-judge/edit/", posted(api_key="", name="Other"))
    assert LanguageModel.objects.get().last_test is not None
    admin_client.post("/models/house-judge/edit/", posted(api_key="", model_id="juno-3"))
    assert LanguageModel.objects.get().last_test is None


def test_the_price_of_the_library_is_the_default_and_an_own_price_wins(
    admin_client: Client,
) -> None:
    make_model(slug="m", base_url="https://api.openai.com/v1", model_id="gpt-4o-mini")

    form = admin_client.get("/models/m/edit/").content.decode()
    assert 'placeholder="0.15"' in form
    assert "genai-prices" in form
    assert "$0.60" in admin_client.get("/models/").content.decode()
    LanguageModel.objects.update(output_price_usd_per_mtok=3)
    assert "$3.00" in admin_client.get("/models/").content.decode()


def test_an_unknown_price_is_missing_and_not_zero(admin_client: Client) -> None:
    make_model(slug="m")

    page = admin_client.get("/models/m/").content.decode()

    assert "not known" in page
    assert "$0" not in page


@pytest.mark.parametrize("role", ["viewer", "reviewer", "editor"])
def test_others_than_admins_read_and_change_nothing(role: str, request: Any) -> None:
    client: Client = request.getfixturevalue(f"{role}_client")
    make_model(slug="m", encrypted_key=encrypt(SECRET))

    page = client.get("/models/m/")

    assert page.status_code == 200
    assert "<form" not in page.content.decode().split("<main")[1]
    assert client.get("/models/").status_code == 200
    assert client.get("/models/m/test/").status_code == 200
    for address in (
        "/models/new/",
        "/models/m/edit/",
        "/models/m/delete/",
        "/models/m/test/start/",
    ):
        assert client.post(address, posted()).status_code == 403
    assert LanguageModel.objects.get().slug == "m"


def test_nobody_sees_models_without_logging_in(client: Client) -> None:
    make_model(slug="m")

    for address in ("/models/", "/models/m/", "/models/m/test/"):
        assert client.get(address).status_code == 302


def test_a_model_nothing_uses_is_deleted_and_written_down(admin_client: Client) -> None:
    make_model(slug="m", name="Old judge")

    page = admin_client.post("/models/m/delete/", follow=True).content.decode()

    assert "Old judge deleted." in page
    assert not LanguageModel.objects.exists()
    assert AuditEntry.objects.get().before["slug"] == "m"


def test_a_model_in_use_is_kept_and_its_users_are_named(admin_client: Client) -> None:
    model = make_model(slug="m")
    make_suite(slug="support", title="Customer support", judge=model)
    make_target(name="bot", kind="chat", model=model)
    suite = make_suite(slug="other")
    change_evaluator(suite, "tone", config={"model": "m"})

    response = admin_client.post("/models/m/delete/")

    page = response.content.decode()
    assert response.status_code == 409
    assert LanguageModel.objects.exists()
    for name in ("suite Customer support", "target bot", "evaluator tone"):
        assert name in page


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"slow_since": AGO, "rate": 9.25}, "9.3 calls a second, slowed"),
        ({"silent_since": AGO}, "does not answer (429 from the server), noticed"),
    ],
)
def test_what_holds_calls_back_is_shown_with_its_reason(
    viewer_client: Client, facts: dict[str, Any], shown: str
) -> None:
    make_model(slug="m", throttle_state=throttle_state(**facts))

    for address in ("/models/", "/models/m/"):
        page = " ".join(viewer_client.get(address).content.decode().split())
        assert "up to 8" in page
        assert shown in page
        assert "429 from the server" in page


def test_what_nobody_has_used_for_a_while_is_not_shown(viewer_client: Client) -> None:
    state = throttle_state(slow_since=AGO, rate=9.3, used_at=AGO)
    make_model(slug="m", throttle_state=state)

    assert "slowed" not in viewer_client.get("/models/").content.decode()


def test_a_pause_is_shown_until_it_is_over(viewer_client: Client) -> None:
    until = timezone.now() + timedelta(seconds=90)
    make_model(slug="m", throttle_state=throttle_state(paused_until=until))
    over = timezone.now() - timedelta(seconds=1)
    make_model(slug="n", throttle_state=throttle_state(paused_until=over))

    for address in ("/models/", "/models/m/"):
        assert viewer_client.get(address).content.decode().count("no calls until") == 1
    assert "no calls until" not in viewer_client.get("/models/n/").content.decode()


def test_a_change_leaves_what_the_workers_found_meanwhile(admin: User) -> None:
    seen_by_the_form = make_model(slug="house-judge", concurrency=8)
    LanguageModel.objects.update(throttle_state=throttle_state(rate=2.0))
    form = LanguageModelForm(posted(concurrency="4"), instance=seen_by_the_form)
    assert form.is_valid(), form.errors
    form.save_as(admin)

    model = LanguageModel.objects.get()
    assert (model.concurrency, model.throttle.rate) == (4, 2.0)


def test_two_who_change_a_model_at_once_do_not_overwrite_each_other(
    admin_client: Client, clock: Clock
) -> None:
    model = make_model(slug="house-judge")
    theirs = make_client(make_member("admin", "mira"))
    edit = "/models/house-judge/edit/"
    mine = sent_unchanged(admin_client.get(edit).content.decode(), "model-form").dict()
    prices = {"input_price_usd_per_mtok": "3", "output_price_usd_per_mtok": "9"}
    clock.advance(seconds=1)
    theirs.post(edit, mine | prices)

    refused = admin_client.post(edit, mine | {"timeout_s": "22"})
    page = refused.content.decode()
    assert refused.status_code == 422
    assert "This model was changed by mira after you opened the form" in page
    model.refresh_from_db()
    assert (model.timeout_s, model.input_price_usd_per_mtok) == (60, 3)

    again = sent_unchanged(page, "model-form").dict()
    assert again["timeout_s"] == "22"
    admin_client.post(edit, again)
    model.refresh_from_db()
    assert (model.timeout_s, model.input_price_usd_per_mtok) == (22, None)


def test_a_model_that_is_deleted_while_it_is_changed_stays_deleted(admin: User) -> None:
    model = make_model(slug="house-judge")
    form = LanguageModelForm(posted(), instance=model)
    assert form.is_valid(), form.errors
    LanguageModel.objects.get().remove(actor=admin)
    with pytest.raises(ModelChangedError, match="deleted by admin after you opened the form"):
        form.save_as(admin)
    assert not LanguageModel.objects.exists()


def test_the_list_takes_one_query_however_long_it_is(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        make_model(slug=f"few-{number}")
    with django_assert_max_num_queries(12) as few:
        admin_client.get("/models/")
    for number in range(20):
        make_model(slug=f"many-{number}")
    with django_assert_max_num_queries(len(few.captured_queries)):
        admin_client.get("/models/")


def test_a_run_keeps_the_address_and_never_sends_a_key_elsewhere() -> None:
    model = make_model(slug="m", encrypted_key=encrypt(SECRET))
    frozen = json.loads(json.dumps(model_spec(model).as_json()))
    assert SECRET not in json.dumps(frozen)
    assert model_spec(model, frozen).api_key == SECRET

    model.base_url, model.parameters = "http://127.0.0.1:10/v1", {"temperature": 2}
    moved = model_spec(model, frozen)

    assert (moved.base_url, moved.parameters, moved.api_key) == ("http://127.0.0.1:9/v1", {}, "")
    assert "now points at" in moved.key_problem


def test_an_unreadable_key_is_told(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(slug="m", encrypted_key=encrypt(SECRET))
    other = "5Z2n9qJ0l9H3p1sC2m7v8x6y4w0t5r3e1q9u7i5o3a8="
    monkeypatch.setattr(settings, "ENCRYPTION_KEY", other)

    assert "EVALSITE_ENCRYPTION_KEY" in admin_client.get("/models/m/").content.decode()

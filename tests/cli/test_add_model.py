"""A model comes to a site from a shell, by the rules of its page."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from evaluators.models import AuditEntry, LanguageModel

pytestmark = pytest.mark.django_db

LOCAL = ("--url", "http://127.0.0.1:11434/v1/")


def add_model(*arguments: str) -> str:
    err = StringIO()
    call_command("add_model", *arguments, stderr=err)
    return err.getvalue().strip()


@pytest.fixture(autouse=True)
def variables(settings) -> None:
    settings.MODEL_KEYS = {"OPENAI_API_KEY": "one", "EVALSITE_MODEL_KEY_JUDGE": "two"}
    settings.OPENAI_BASE_URL = ""


def test_a_model_is_added_and_changed_with_audit_entries():
    assert add_model("local", "--model-id", "llama3.1", *LOCAL) == (
        "local is added: llama3.1 at http://127.0.0.1:11434/v1, with no key."
    )
    output = add_model(
        "local",
        "--input-price",
        "0",
        "--output-price",
        "0.5",
        "--key-variable",
        "EVALSITE_MODEL_KEY_JUDGE",
    )
    assert output == (
        "local is changed: llama3.1 at http://127.0.0.1:11434/v1, with the key in EVALSITE_MODEL_KEY_JUDGE."
    )
    model = LanguageModel.objects.get()
    assert (model.concurrency, model.timeout_s) == (8, 60)
    assert (model.input_price_usd_per_mtok, model.output_price_usd_per_mtok) == (0, Decimal("0.5"))
    entries = AuditEntry.objects.filter(object_type="language_model").order_by("pk")
    assert [(one.action, one.actor_name) for one in entries] == [
        ("create", "command line"),
        ("change", "command line"),
    ]


@pytest.mark.parametrize(
    ("base_url", "at"),
    [("", "https://api.openai.com/v1"), ("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1")],
)
def test_a_key_in_the_environment_is_used_only_for_its_server(settings, base_url, at):
    settings.OPENAI_BASE_URL = base_url

    assert add_model("gpt") == f"gpt is added: gpt at {at}, with the key in OPENAI_API_KEY."


def test_another_server_gets_the_key_only_if_it_is_named_again():
    add_model("gpt")

    assert add_model("gpt", "--model-id", "gpt-4.1-mini").endswith(
        "with the key in OPENAI_API_KEY."
    )
    assert add_model("gpt", "--url", "https://api.openai.com/v1/").endswith("OPENAI_API_KEY.")
    assert add_model("gpt", *LOCAL).endswith("with no key.")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("new", *LOCAL), "SLUG: “new” is the address of this page. Choose another short name."),
        (("local", "--url", "ollama"), "--url: Write a URL that starts with http:// or https://"),
        (("local", *LOCAL, "--key-variable", "SECRET"), "--key-variable: Select a valid choice."),
        (("local", *LOCAL, "--input-price", "-1"), "--input-price: A price is 0 or more."),
        (("local", *LOCAL, "--concurrency", "0"), "--concurrency: Write a number from 1 to 500."),
    ],
)
def test_invalid_settings_are_refused_with_their_option(arguments, reason):
    with pytest.raises(CommandError) as refusal:
        add_model(*arguments)
    assert refusal.value.returncode == 3
    assert reason in str(refusal.value)
    assert not LanguageModel.objects.exists()

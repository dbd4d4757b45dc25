"""Add a language model, or change one, so that evaluations can be run where no browser is."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from evaluators.catalog.forms import LanguageModelForm
from evaluators.model_calls.models import OPENAI_VARIABLE
from evaluators.models import LanguageModel
from runs.cli.answering import AnsweringCommand
from runs.cli.names import COULD_NOT

OPENAI_URL = "https://api.openai.com/v1"
# Each option, and the field of the model's form that it fills.
FIELDS = {
    "model_id": "model_id",
    "url": "base_url",
    "key_variable": "key_variable",
    "input_price": "input_price_usd_per_mtok",
    "output_price": "output_price_usd_per_mtok",
    "concurrency": "concurrency",
    "timeout": "timeout_s",
}
EPILOG = """\
SLUG is what evaluate, import and suite files call the model by. Without --url it is asked at
OPENAI_BASE_URL, else at OpenAI, with the key in OPENAI_API_KEY where that is set. Another server
gets a key only by --key-variable. Keys stay in the environment; to store one, use the page Language
models.

Safe to repeat: a model that is there already gets what is given here and keeps the rest.

exit codes:
  0  the model is there as described
  2  the command line was not understood
  3  nothing was changed: a setting cannot be used

examples:
  evalsite add_model gpt --model-id gpt-4.1-mini
  evalsite add_model local --model-id llama3.1 --url http://127.0.0.1:11434/v1 --input-price 0 --output-price 0
  evalsite add_model judge --model-id big-1 --url https://models.example.com/v1 --key-variable EVALSITE_MODEL_KEY_JUDGE
"""


class Command(AnsweringCommand):
    """Add a language model by the rules of its form."""

    help = "Add a language model of an OpenAI-compatible server, or change one that is there."
    epilog = EPILOG
    action = "That"
    begins_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the short name, where the model answers and what it costs."""
        parser.add_argument("slug", metavar="SLUG", help="Short name of the model.")
        parser.add_argument(
            "--model-id", metavar="ID", help="As the server spells it; default: the short name."
        )
        parser.add_argument("--url", help="Base URL, the part before /chat/completions.")
        parser.add_argument(
            "--key-variable",
            metavar="NAME",
            help="Variable that holds the key: EVALSITE_MODEL_KEY_… or OPENAI_API_KEY.",
        )
        parser.add_argument(
            "--input-price", metavar="USD", help="US dollars per million tokens of input."
        )
        parser.add_argument(
            "--output-price", metavar="USD", help="US dollars per million tokens of output."
        )
        parser.add_argument("--concurrency", metavar="N", help="Calls in flight, 1 to 500 (8).")
        parser.add_argument(
            "--timeout", metavar="S", help="Longest a call may take, 1 to 600 seconds (60)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Fill the form of the page from the options and store it."""
        slug = options["slug"].strip()
        found = LanguageModel.objects.filter(slug=slug).first()
        given = {
            FIELDS[option]: options[option] for option in FIELDS if options[option] is not None
        }
        if "base_url" in given and (
            found is None or given["base_url"].rstrip("/") != found.base_url
        ):
            # The key of one server is not sent to another unless somebody says so.
            given.setdefault("key_variable", "")
        form = LanguageModelForm(
            {**_as_it_is(slug, found), **given}, instance=found or LanguageModel()
        )
        if not form.is_valid():
            raise CommandError(_reasons(form), returncode=COULD_NOT)
        model = form.save_as(None)
        key = f"the key in {model.key_variable}" if model.key_variable else "no key"
        key = "its stored key" if model.encrypted_key else key
        self.stderr.write(
            f"{model.slug} is {'changed' if found else 'added'}: {model.model_id} at {model.base_url}, with {key}."
        )
        if form.dropped_key:
            self.stderr.write("The base URL changed, so the stored key was removed.")


def _as_it_is(slug: str, found: LanguageModel | None) -> dict[str, Any]:
    """Return what the form would be posted with if nothing were typed."""
    form = LanguageModelForm(instance=found)
    shown = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    posted = {name: value for name, value in shown.items() if value not in (None, False)}
    if found is not None:
        return posted
    has_key = OPENAI_VARIABLE in settings.MODEL_KEYS
    url = settings.OPENAI_BASE_URL or OPENAI_URL
    return {**posted, "slug": slug, "name": slug, "model_id": slug, "base_url": url} | (
        {"key_variable": OPENAI_VARIABLE} if has_key else {}
    )


def _reasons(form: LanguageModelForm) -> str:
    options = {field: "--" + option.replace("_", "-") for option, field in FIELDS.items()} | {
        "slug": "SLUG"
    }
    return "\n".join(
        f"{options.get(field, field)}: {reason}"
        for field, reasons in form.errors.items()
        for reason in reasons
    )

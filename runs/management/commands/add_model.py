"""Add a language model, or change one."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from evaluators.catalog.forms import LanguageModelForm
from evaluators.model_calls.models import OPENAI_VARIABLE
from evaluators.models import LanguageModel
from runs.cli.command import FAILED, SiteCommand

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
SLUG is the short name of the model in evaluate, import and suite files. Without --url its server is
OPENAI_BASE_URL or else OpenAI, with the key in OPENAI_API_KEY if that is set. Any other server gets
a key only by --key-variable. Keys stay in the environment; to store one, use the page Language
models.

Safe to repeat: an existing model gets the settings given here and keeps the others.

exit codes:
  0  the model is stored as described
  2  wrong usage
  3  nothing was changed: a setting cannot be used

examples:
  evalsite add_model gpt --model-id gpt-4.1-mini
  evalsite add_model local --model-id llama3.1 --url http://127.0.0.1:11434/v1 --input-price 0 --output-price 0
  evalsite add_model judge --model-id big-1 --url https://models.example.com/v1 --key-variable EVALSITE_MODEL_KEY_JUDGE
"""


class Command(SiteCommand):
    """Add a language model by the rules of its form."""

    help = "Add a language model of an OpenAI-compatible server, or change an existing one."
    epilog = EPILOG
    action = "Adding the model"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the short name, the server and the prices."""
        parser.add_argument("slug", metavar="SLUG", help="Short name of the model.")
        parser.add_argument(
            "--model-id", metavar="ID", help="Its name on the server; default: the short name."
        )
        parser.add_argument("--url", help="Base URL, the part before /chat/completions.")
        parser.add_argument(
            "--key-variable",
            metavar="NAME",
            help="Variable with the key: EVALSITE_MODEL_KEY_… or OPENAI_API_KEY.",
        )
        parser.add_argument(
            "--input-price", metavar="USD", help="US dollars per million tokens of input."
        )
        parser.add_argument(
            "--output-price", metavar="USD", help="US dollars per million tokens of output."
        )
        parser.add_argument("--concurrency", metavar="N", help="Calls in flight, 1 to 500 (8).")
        parser.add_argument(
            "--timeout", metavar="S", help="Time limit of a call, 1 to 600 seconds (60)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Fill the form of the page from the options and save it."""
        slug = options["slug"].strip()
        existing = LanguageModel.objects.filter(slug=slug).first()
        changes = {
            FIELDS[option]: options[option] for option in FIELDS if options[option] is not None
        }
        if "base_url" in changes and (
            existing is None or changes["base_url"].rstrip("/") != existing.base_url
        ):
            # The key of one server must not be sent to another by default.
            changes.setdefault("key_variable", "")
        form = LanguageModelForm(
            {**_current_values(slug, existing), **changes}, instance=existing or LanguageModel()
        )
        if not form.is_valid():
            raise CommandError(_reasons(form), returncode=FAILED)
        model = form.save_as(None)
        key = f"the key in {model.key_variable}" if model.key_variable else "no key"
        key = "its stored key" if model.encrypted_key else key
        self.stderr.write(
            f"{model.slug} is {'changed' if existing else 'added'}: {model.model_id} at {model.base_url}, with {key}."
        )
        if form.dropped_key:
            self.stderr.write("The base URL changed, so the stored key was removed.")


def _current_values(slug: str, existing: LanguageModel | None) -> dict[str, Any]:
    """Return what the form would post if nothing were changed."""
    form = LanguageModelForm(instance=existing)
    initial = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    posted = {name: value for name, value in initial.items() if value not in (None, False)}
    if existing is not None:
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

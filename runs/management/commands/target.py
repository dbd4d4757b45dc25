"""Add a target, or change its settings."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from runs.cli.command import FAILED, MISUSED, SiteCommand, get_model
from runs.cli.terminal import print_line
from runs.models.suites import Target
from runs.specs.problems import most_similar
from runs.target_kinds import target_kinds
from runs.targets.forms import HeadersField, TargetForm, form_data, target_form

EPILOG = """\
KIND is chat (a language model), http (an agent behind an address), command (a program, in the sandbox)
or pushed (outputs that a program sends by the API). Recorded outputs are imported: evalsite import
--outputs FILE.

--set gives a setting of the kind, as text or as JSON; without settings, the message names them.
--header and --secret-header add headers of requests; secret values are stored encrypted.

Safe to repeat: an existing target gets the settings given here and keeps the others.

exit codes:
  0  the target is stored as described
  2  wrong usage
  3  nothing was changed: a setting cannot be used

examples:
  evalsite target add "support agent" --kind http --set url=https://agent.example/ask
  evalsite target add "support agent" --kind http --secret-header "Authorization: Bearer …"
  evalsite target add gpt --kind chat --model gpt --set system_prompt="Be brief."
  evalsite target add pipeline --kind pushed
"""


class Command(SiteCommand):
    """Fill the form of the page from the options and save it."""

    help = "Add a target, the system under test, or change its settings."
    epilog = EPILOG
    action = "The change"
    creates_site = True

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the settings."""
        kinds = [kind.name for kind in target_kinds().values() if not kind.replays]
        parser.add_argument("do", choices=("add",), metavar="add", help="Add or change it.")
        parser.add_argument("name", metavar="NAME", help="Its name, as runs will call it.")
        parser.add_argument("--kind", choices=kinds, metavar="KIND", help=", ".join(kinds))
        parser.add_argument("--description", metavar="TEXT", help="What it is.")
        parser.add_argument("--model", metavar="SLUG", help="Its language model; for chat.")
        for option, text in (
            ("--set", "A setting of the kind; repeatable."),
            ("--header", "A header of requests, “Name: value”; repeatable."),
            ("--secret-header", "A header whose value is stored encrypted; repeatable."),
        ):
            metavar = "NAME=VALUE" if option == "--set" else "HEADER"
            parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        """Save it."""
        name = options["name"].strip()
        target = Target.objects.select_related("model").filter(name=name).first()
        kind = options["kind"] or (target.kind if target else None)
        if kind is None:
            raise CommandError("--kind says what the new target is.", returncode=MISUSED)
        if target and kind != target.kind:
            raise CommandError(
                f"{name} is of the kind {target.kind}, which cannot change.", returncode=FAILED
            )
        blank = target_form(kind, target=target)
        values = {"name": name, "description": target.description if target else ""}
        values |= (target.config if target else {}) | _settings(blank, options["set"])
        if options["description"] is not None:
            values["description"] = options["description"]
        if model := get_model(options["model"]) if options["model"] else target and target.model:
            values["model"] = model.pk
        if headers := _headers(options):
            values |= _with_headers(blank, values, headers)
        form = target_form(kind, form_data(blank, values), target=target)
        if not form.is_valid():
            raise CommandError(_reasons(form), returncode=FAILED)
        saved = form.save(saved_by=None)
        print_line(
            self.stderr, f"{saved.name} is {'changed' if target else 'added'}: {saved.kind}."
        )


def _settings(form: TargetForm, given: list[str]) -> dict[str, Any]:
    """Return the settings that were given; raises CommandError for a name that the kind does not have."""
    settings: dict[str, Any] = {}
    known = list(form.kind.config.model_fields)
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign:
            raise CommandError(f"--set {pair}: write NAME=VALUE.", returncode=MISUSED)
        if name not in known:
            similar = most_similar(name, known)
            question = f" Did you mean {similar}?" if similar else ""
            there = f"there are {', '.join(known)}" if known else "there are none"
            raise CommandError(
                f"--set {name}: {form.kind.name} has no such setting;{question} {there}.",
                returncode=FAILED,
            )
        settings[name] = _value(value)
    return settings


def _value(text: str) -> Any:
    """Return JSON as its value, anything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _headers(options: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for option, is_secret in (("header", False), ("secret_header", True)):
        for header in options[option]:
            name, sign, value = header.partition(":")
            if not sign:
                raise CommandError(f"{header!r}: write “Name: value”.", returncode=MISUSED)
            row = {"name": name.strip(), "value": value.strip()}
            rows.append(row | ({"secret": "on"} if is_secret else {}))
    return rows


def _with_headers(
    form: TargetForm, values: dict[str, Any], headers: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the rows of headers with these added, or in place of those of the same name."""
    field = next(
        (name for name in form.fields if isinstance(form.fields[name], HeadersField)), None
    )
    if field is None:
        raise CommandError(
            f"A target of the kind {form.kind.name} has no headers.", returncode=FAILED
        )
    given = {row["name"].lower() for row in headers}
    kept = [row for row in values.get(field) or () if row["name"].lower() not in given]
    return {field: [*kept, *headers]}


def _reasons(form: TargetForm) -> str:
    return "\n".join(
        f"{name}: {reason}" for name, reasons in form.errors.items() for reason in reasons
    )

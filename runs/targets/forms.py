"""Forms to add and change targets. The config of a kind gives its fields; values of secret headers are write-only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from django.forms import BoundField
from django.template.loader import render_to_string
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from evaluators.catalog.kind_forms import JsonField, LinesField, number_bounds, plain_type
from evaluators.detours import ADD_MODEL, offer
from evaluators.kinds._prompts import variables_in
from evaluators.model_calls.addresses import address_problem
from evaluators.model_calls.models import encrypt
from evaluators.models import AuditEntry, LanguageModel
from evaluators.scoring.types import DomainError
from runs.files.importing import import_recorded_outputs
from runs.models.suites import Target
from runs.models.temporary import TargetTrial
from runs.requests import RUN_SCRIPTS
from runs.scan import holds_key
from runs.specs.problems import Problem
from runs.suites.services import MAY_NOT_RUN, ProgramsRefusedError
from runs.target_kinds import get_target_kind, target_kinds
from runs.target_kinds._base import Header, TargetKind
from runs.target_kinds.http import MIN_SECRET, url_origin, value_problem
from runs.targets.trials import TriedSettings

MAX_ROWS = 20
SECRET_NAMES = re.compile("authorization|cookie|key|token|secret|passw|credential", re.IGNORECASE)
OPEN_ROWS = 2
SPARE_ROWS = 6


class HeaderRows(forms.Widget):
    """Rows of headers, one each; a secret value can be entered and is never shown again."""

    use_fieldset = True

    def __init__(self) -> None:
        """Begin without stored values."""
        super().__init__()
        self.stored: frozenset[str] = frozenset()

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, Any]]:
        """Return the rows that were sent."""
        return [
            {
                "name": data.get(f"{name}-{number}-name", "").strip(),
                "value": data.get(f"{name}-{number}-value", "").strip(),
                "secret": bool(data.get(f"{name}-{number}-secret")),
            }
            for number in range(MAX_ROWS)
            if f"{name}-{number}-name" in data
        ]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Tell whether no row was sent."""
        return f"{name}-0-name" not in data

    def id_for_label(self, id_: str) -> str:
        """Return no id: the rows have a legend, not a label."""
        return ""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> Any:
        """Render the rows with a value, some empty ones, and more behind a fold."""
        rows = [self._shown(row) for row in value or () if row.get("name") or row.get("value")]
        empty = min(OPEN_ROWS + SPARE_ROWS, MAX_ROWS - len(rows))
        numbered = [
            {**row, "number": number} for number, row in enumerate(rows + [self._shown({})] * empty)
        ]
        opened = len(rows) + OPEN_ROWS
        context = {"name": name, "rows": numbered[:opened], "more": numbered[opened:]}
        return render_to_string("components/header_rows.html", context)

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        is_secret = bool(row.get("secret"))
        return {
            "name": row.get("name", ""),
            "value": "" if is_secret else row.get("value", ""),
            "secret": is_secret,
            "is_stored": is_secret and str(row.get("name", "")).lower() in self.stored,
        }


class HeadersField(forms.Field):
    """Rows of headers; a row without name and value is ignored, and one that looks secret is."""

    widget = HeaderRows

    def clean(self, value: Any) -> list[dict[str, Any]]:
        """Return the rows that are filled in; raises ValidationError naming the header."""
        rows = [row for row in value or () if row["name"] or row["value"]]
        for row in rows:
            row["secret"] = row["secret"] or _looks_secret(row["name"], row["value"])
            if problem := _row_problem(row):
                raise forms.ValidationError(problem)
        return rows


def _looks_secret(name: str, value: str) -> bool:
    """Tell whether a plain value would show a key to everybody who sees the target."""
    if len(value) < MIN_SECRET or variables_in(value):
        return False
    return SECRET_NAMES.search(name) is not None or holds_key(f"{name}: {value}")


def _row_problem(row: Mapping[str, Any]) -> str:
    name, value = row["name"], row["value"]
    if not name:
        return "A header has a value and no name."
    if not value and not row["secret"]:
        return f"{name} has no value."
    if not (row["secret"] and value):
        return ""
    if variables_in(value):
        return f"{name} names a variable of the server; do not mark it as secret."
    if len(value) < MIN_SECRET:
        return f"The secret value of {name} has fewer than {MIN_SECRET} characters."
    problem = value_problem(name, value)
    # The message never shows the secret value itself.
    return f"{problem[:1].upper()}{problem[1:]}." if problem else ""


PLACEHOLDER = re.compile(r"\{\{[^{}]*\}?\}?")
SHORT = (forms.TextInput, forms.NumberInput, forms.Select)
LONG_TEXTS = ("prompt", "instructions", "text", "template")


def with_line(message: str, typed: str, field: forms.Field | None) -> str:
    """Return a message about a JSON document with the line of the variable that it names."""
    named = PLACEHOLDER.search(message)
    if named is None or not isinstance(field, JsonField):
        return message
    lines = enumerate(typed.splitlines(), 1)
    number = next((number for number, line in lines if named[0] in line), 0)
    return f"Line {number}, {message}" if number else message


def in_sections(
    kind: TargetKind, fields: Sequence[BoundField]
) -> list[tuple[str, list[list[BoundField]]]]:
    """Return the fields under the titles of their sections; those without one under the kind's label."""
    settings = kind.config.model_fields
    titles: dict[str, list[BoundField]] = {kind.label: []}
    titles |= {title: [] for title in kind.config.sections}
    for field in fields:
        title = _hint(settings[field.name], "section") if field.name in settings else ""
        titles.setdefault(title or kind.label, []).append(field)
    return [(title, _side_by_side(fields)) for title, fields in titles.items() if fields]


def _side_by_side(fields: Sequence[BoundField]) -> list[list[BoundField]]:
    """Return the fields in groups: adjacent short fields together, each long field alone."""
    groups: list[list[BoundField]] = []
    was_short = False
    for field in fields:
        is_short = isinstance(field.field.widget, SHORT)
        if is_short and was_short:
            groups[-1].append(field)
        else:
            groups.append([field])
        was_short = is_short
    return groups


def setting_field(name: str, setting: FieldInfo) -> forms.Field:
    """Return the form field for one setting of a kind."""
    options: dict[str, Any] = {
        "required": setting.is_required(),
        "label": setting.title or name.replace("_", " ").capitalize(),
        "help_text": setting.description or "",
        "initial": None
        if setting.is_required()
        else setting.get_default(call_default_factory=True),
    }
    annotation = plain_type(setting.annotation)
    if annotation is bool:
        return forms.BooleanField(**options | {"required": False})
    if annotation in (int, float):
        number = forms.IntegerField if annotation is int else forms.FloatField
        return number(**number_bounds(setting), **options)
    if annotation is str:
        return forms.CharField(**options, widget=_text_widget(name, setting), strip=False)
    return _listed_field(name, annotation, setting, options)


def _listed_field(
    name: str, annotation: Any, setting: FieldInfo, options: dict[str, Any]
) -> forms.Field:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        choices = [(word, str(word).replace("_", " ")) for word in parts]
        return forms.ChoiceField(choices=choices, **options | {"required": True})
    if origin is tuple and parts[0] is Header:
        return HeadersField(**options)
    if origin is tuple and parts[0] is str:
        return LinesField(**options)
    return JsonField(rows=8 if _hint(setting, "widget") == "json" else 3, **options)


def _text_widget(name: str, setting: FieldInfo) -> forms.Widget:
    if _hint(setting, "widget") == "code":
        return forms.TextInput(attrs={"spellcheck": "false", "data-code": ""})
    if _hint(setting, "widget") == "program":
        return forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "data-code": ""})
    is_long = any(part in name for part in LONG_TEXTS) or _hint(setting, "widget") == "textarea"
    return forms.Textarea(attrs={"rows": 6}) if is_long else forms.TextInput()


def _hint(setting: FieldInfo, name: str) -> Any:
    extra = setting.json_schema_extra
    return extra.get(name, "") if isinstance(extra, dict) else ""


class TargetNameTakenError(DomainError):
    """Another target got the name first."""

    code = "name_taken"


class TargetChangedError(DomainError):
    """Somebody else changed the target since the form was opened."""

    code = "target_changed"


def name_taken_message(name: str) -> str:
    """Return the message for a name that another target has."""
    return f"There is already a target “{name}”. Choose another name."


def lock_state(target: Target) -> str:
    """Return the state of a target that a form compares, and lock its row until the transaction ends."""
    stored = Target.objects.select_for_update(no_key=True).values_list("updated_at", flat=True)
    return stored.get(pk=target.pk).isoformat()


def record_change(
    target: Target, before: dict[str, Any] | None, entered: list[str], changed_by: User | None
) -> None:
    """Record a change in the audit log, with the names of secret headers whose values were entered."""
    AuditEntry.objects.record(
        "change" if before else "add",
        by=changed_by,
        object_type="target",
        object_id=target.pk,
        object_name=target.name,
        before=before,
        after=audited_facts(target) | ({"secrets_entered": entered} if entered else {}),
    )


def audited_facts(target: Target) -> dict[str, Any]:
    """Return the settings without the values of secret headers, which are stored apart."""
    return {
        "name": target.name,
        "description": target.description,
        "config": target.config,
        "model": target.model.slug if target.model else None,
    }


Secrets = Mapping[str, str]


def kept_secrets(target: Target | None, trial: TargetTrial | None) -> dict[str, tuple[str, str]]:
    """Return the encrypted values by name, each with the server it was entered for.

    A value entered for the last try replaces the one that the target stores.
    """
    secrets: dict[str, tuple[str, str]] = {}
    for holder in (target, trial):
        if holder is not None:
            origin = url_origin(holder.config.get("url", ""))
            secrets |= {name: (value, origin) for name, value in holder.encrypted_secrets.items()}
    return secrets


def merge_secrets(
    rows: Sequence[Mapping[str, Any]], kept: Mapping[str, tuple[str, str]], url: Any
) -> dict[str, str]:
    """Return the encrypted values of the secret headers.

    Raises ValidationError for a header without a value, and for one whose value was entered for
    another server, so that no server receives the secret of another.
    """
    merged: dict[str, str] = {}
    for row in rows:
        if not row["secret"]:
            continue
        name = row["name"].lower()
        if row["value"]:
            merged[name] = encrypt(row["value"])
            continue
        if name not in kept:
            raise forms.ValidationError(f"{row['name']} is secret and has no value yet. Enter it.")
        value, origin = kept[name]
        if origin != url_origin(url):
            raise forms.ValidationError(
                f"The value of {row['name']} was entered for {origin} and is not sent to "
                f"{url_origin(url)}. Enter it again."
            )
        merged[name] = value
    return merged


def header_settings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as a config stores them: secret headers without their values."""
    return [
        {"name": row["name"], "secret": True}
        if row["secret"]
        else {"name": row["name"], "value": row["value"]}
        for row in rows
    ]


class TargetForm(forms.Form):
    """Name and description of a target, with the settings of its kind.

    `trial` is the same member's last try of this form; secrets entered for it need not be entered again.
    After saving, `notes` tell what was kept without being understood.
    """

    notes: tuple[Problem, ...] = ()

    name = forms.CharField(max_length=120, help_text="As runs and comparisons will call it")
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 2}))
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(
        self,
        kind: TargetKind,
        *args: Any,
        target: Target | None = None,
        trial: TargetTrial | None = None,
        **options: Any,
    ) -> None:
        """Add the fields of the kind's settings, filled in from the target."""
        super().__init__(*args, **options)
        self.kind, self.target = kind, target
        self.secrets: dict[str, str] = {}
        self._kept = kept_secrets(target, trial)
        paragraphs = [" ".join(part.split()) for part in kind.manual.split("\n\n")]
        self.summary, self.manual = paragraphs[0], "\n\n".join(paragraphs[1:])
        for name, setting in kind.config.model_fields.items():
            field = setting_field(name, setting)
            self.fields[name] = field
            if isinstance(field.widget, HeaderRows):
                field.widget.stored = frozenset(self._kept)
        if target is not None:
            self.initial = {
                "name": target.name,
                "description": target.description,
                "model": target.model_id,
                "seen": target.updated_at.isoformat(),
                **target.config,
                **self.initial,
            }

    def sections(self) -> list[tuple[str, list[list[BoundField]]]]:
        """Return the fields under the titles of their sections, in the order the kind gives.

        Adjacent short fields share a group; a long field has its own.
        """
        return in_sections(self.kind, self.visible_fields())

    def clean_name(self) -> str:
        """Refuse a name that is taken."""
        name = str(self.cleaned_data["name"]).strip()
        others = Target.objects.filter(name=name)
        if self.target is not None:
            others = others.exclude(pk=self.target.pk)
        if others.exists():
            raise forms.ValidationError(name_taken_message(name))
        return name

    def clean(self) -> dict[str, Any]:
        """Refuse settings that the kind refuses, at their field, and any for an archived target."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if self.target is not None and self.target.archived_at is not None:
            self.add_error(None, "This target is archived, so it cannot be changed. Add a new one.")
        for name, field in self.fields.items():
            if isinstance(field, HeadersField) and name in values:
                self._merge_secrets(name, values)
        self._refuse_closed_network(str(values.get("url") or ""))
        try:
            self.kind.config.model_validate(self._settings(values))
        except ValidationError as refusal:
            for error in refusal.errors():
                name = str(error["loc"][0]) if error["loc"] else ""
                if name not in self.errors:
                    message = str(error["msg"]).removeprefix("Value error, ")
                    typed = str(self.data.get(self.add_prefix(name), ""))
                    self.add_error(
                        name if name in self.fields else None,
                        with_line(message, typed, self.fields.get(name)),
                    )
        return values

    def is_tryable(self) -> bool:
        """Tell whether the settings can be tried, for which they need no name."""
        self.full_clean()
        self.errors.pop("name", None)
        return self.is_bound and not self.errors

    def remember_secrets(self) -> None:
        """Mark the entered secrets as stored, since the queued try keeps them."""
        for field in self.fields.values():
            if isinstance(field.widget, HeaderRows):
                field.widget.stored |= frozenset(self.secrets)

    def settings_to_try(self) -> TriedSettings:
        """Return the settings in the form."""
        return TriedSettings(
            self.kind.name,
            self._config(self.cleaned_data),
            self.secrets,
            self.cleaned_data.get("model"),
            self.target,
        )

    def save(self, *, saved_by: User | None) -> Target:
        """Store the target and audit the change, without a member that of the command line.

        Raises TargetNameTakenError, TargetChangedError and ProgramsRefusedError.
        """
        with transaction.atomic():
            self._refuse_if_changed()
            target = self.target or Target(kind=self.kind.name)
            before = audited_facts(target) if target.pk else None
            stored = target.config if target.pk else None
            self._fill(target)
            self._check_program(stored, target.config, saved_by)
            try:
                with transaction.atomic():
                    target.save()
            except IntegrityError as error:
                raise TargetNameTakenError(name_taken_message(target.name)) from error
            record_change(target, before, self._typed_secrets(), saved_by)
        return target

    def _fill(self, target: Target) -> None:
        chosen = self.cleaned_data
        target.name, target.description = chosen["name"], chosen["description"]
        target.config, target.model = self._config(chosen), chosen.get("model")
        target.encrypted_secrets = self.secrets

    def _check_program(
        self, stored: dict[str, Any] | None, config: dict[str, Any], saved_by: User | None
    ) -> None:
        """Raise ProgramsRefusedError for a new or changed program that the member may not run."""
        if not self.kind.uses_sandbox or saved_by is None or saved_by.has_perm(RUN_SCRIPTS):
            return
        read = self.kind.config.model_validate
        if stored is None or read(stored) != read(config):
            raise ProgramsRefusedError(f"This target runs a program, and {MAY_NOT_RUN}")

    def _refuse_if_changed(self) -> None:
        """Raise TargetChangedError once: the form that is then shown again may be saved."""
        if self.target is None or not self.cleaned_data.get("seen"):
            return
        now = lock_state(self.target)
        if now == self.cleaned_data["seen"]:
            return
        data = self.data.copy()  # type: ignore[attr-defined]  # what was sent
        data["seen"] = now
        self.data = data
        who = AuditEntry.objects.last_changer("target", self.target.pk)
        raise TargetChangedError(
            f"This target was changed by {who} after you opened the form, and your "
            "entries would replace that change. Look at the target in another window, or save again to "
            "replace it."
        )

    def _refuse_closed_network(self, url: str) -> None:
        """Refuse an address in a private network that is not open to targets; names are checked when called."""
        networks = settings.TARGET_NETWORKS
        if url and not address_problem(url, may_have_query=True):
            problem = address_problem(url, may_have_query=True, networks=networks)
            if problem:
                self.add_error("url", problem)

    def _merge_secrets(self, name: str, values: dict[str, Any]) -> None:
        try:
            self.secrets = merge_secrets(values[name], self._kept, values.get("url", ""))
        except forms.ValidationError as refusal:
            self.add_error(name, refusal)

    def _typed_secrets(self) -> list[str]:
        """Return the names of the secret headers whose values were entered now."""
        rows = [
            row
            for name, field in self.fields.items()
            if isinstance(field, HeadersField)
            for row in self.cleaned_data[name]
        ]
        return [row["name"] for row in rows if row["secret"] and row["value"]]

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        settings = {
            name: values[name]
            for name in self.kind.config.model_fields
            if values.get(name) is not None
        }
        for name, value in settings.items():
            if isinstance(self.fields[name], HeadersField):
                settings[name] = header_settings(value)
        return settings

    def _config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        config = self.kind.config.model_validate(self._settings(values))
        return config.model_dump(mode="json", exclude_unset=True)


MAX_UPLOAD = 200 * 1024 * 1024


class ChatTargetForm(TargetForm):
    """A model behind an OpenAI-compatible endpoint."""

    model = forms.ModelChoiceField(
        LanguageModel.objects.all(), initial=LanguageModel.find_only, empty_label="Choose a model"
    )

    field_order = ("name", "model")

    def __init__(self, *args: Any, **options: Any) -> None:
        """Offer to add a model."""
        super().__init__(*args, **options)
        offer(self, "model", ADD_MODEL)


class RecordedTargetForm(TargetForm):
    """Recorded outputs, one line of JSON for each case."""

    file_name = "outputs.jsonl"

    file = forms.FileField(
        label="Recorded outputs",
        help_text='JSONL, one line for each case: {"id": "CS-001", "output": "…"}',
        widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}),
    )

    def clean_file(self) -> bytes:
        """Return the content; refuse a file that is too large."""
        upload: UploadedFile[bytes] = self.cleaned_data["file"]
        if (upload.size or 0) > MAX_UPLOAD:
            raise forms.ValidationError(
                "The file is larger than 200 MB. Split it over several targets."
            )
        self.file_name = upload.name or self.file_name
        content: bytes = upload.read()
        return content

    @transaction.atomic
    def save(self, *, saved_by: User | None) -> Target:
        """Store the target with its outputs; raises DomainError naming the line that is wrong."""
        chosen = self.cleaned_data
        imported = import_recorded_outputs(
            target_name=chosen["name"],
            lines=chosen["file"],
            imported_by=saved_by,
            file=self.file_name,
        )
        self.notes, target = imported.notes, imported.target
        if chosen["description"]:
            target.description = chosen["description"]
            target.save(update_fields=["description"])
        return target


def target_form(
    kind_name: str,
    *args: Any,
    target: Target | None = None,
    trial: TargetTrial | None = None,
) -> TargetForm:
    """Return the form of a kind; raises UnknownTargetKindError."""
    kind = get_target_kind(kind_name)
    if kind.uses_model:
        return ChatTargetForm(kind, *args, target=target, trial=trial)
    if kind.replays and target is None:
        return RecordedTargetForm(kind, *args)
    return TargetForm(kind, *args, target=target, trial=trial)


def form_data(form: TargetForm, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by field as a page sends them, so that programs and commands are held to the same rules.

    What is left out of the settings has the default of its kind. Headers are rows of name, value and secret.
    """
    usual = {name: form.fields[name].initial for name in form.kind.config.model_fields}
    data: dict[str, Any] = {}
    for name, value in {**usual, **values}.items():
        if value is not None:
            data |= _field_data(name, form.fields[name], value)
    return data


def _field_data(name: str, field: forms.Field, value: Any) -> Mapping[str, Any]:
    if isinstance(field, HeadersField):
        return {
            f"{name}-{number}-{part}": text
            for number, header in enumerate(value)
            for part, text in header.items()
        }
    if isinstance(field, LinesField) and isinstance(value, list):
        return {name: "\n".join(map(str, value))}
    if isinstance(field, JsonField):
        return {name: json.dumps(value)}
    if isinstance(field, forms.BooleanField):
        return {name: "on"} if value else {}
    return {name: str(value)}


def target_choices() -> list[TargetKind]:
    """Return the kinds of target, in the order of the tabs."""
    return list(target_kinds().values())

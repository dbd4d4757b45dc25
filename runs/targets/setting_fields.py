"""Form fields for the settings of a target kind, read from its pydantic config class."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from django import forms
from django.forms import BoundField
from django.template.loader import render_to_string
from pydantic.fields import FieldInfo

from evaluators.catalog.kind_forms import LinesField, number_bounds, plain_type
from evaluators.kinds._variables import variables_in
from runs.target_kinds._base import Header, TargetKind
from runs.target_kinds.http import MIN_SECRET, value_problem

MAX_ROWS = 20
OPEN_ROWS = 2
SPARE_ROWS = 6


class HeaderRows(forms.Widget):
    """One row a header; a secret value goes in and never comes out."""

    use_fieldset = True

    def __init__(self) -> None:
        """Know no stored values yet."""
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
        """Draw the rows there are, some empty ones, and more behind a fold."""
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
    """Rows of headers; a row without a name and value is none."""

    widget = HeaderRows

    def clean(self, value: Any) -> list[dict[str, Any]]:
        """Return the rows that say something; raises ValidationError naming the header."""
        rows = [row for row in value or () if row["name"] or row["value"]]
        for row in rows:
            if problem := _row_problem(row):
                raise forms.ValidationError(problem)
        return rows


def _row_problem(row: Mapping[str, Any]) -> str:
    name, value = row["name"], row["value"]
    if not name:
        return "A header has a value and no name."
    if not value and not row["secret"]:
        return f"{name} has no value."
    if not (row["secret"] and value):
        return ""
    if variables_in(value):
        return f"{name} names a variable of the server; leave its tick for secret out."
    if len(value) < MIN_SECRET:
        return f"The secret value of {name} has fewer than {MIN_SECRET} characters."
    problem = value_problem(name, value)
    # Not the value itself: what is wrong with it is said without showing it.
    return f"{problem[:1].upper()}{problem[1:]}." if problem else ""


PLACEHOLDER = re.compile(r"\{\{[^{}]*\}?\}?")
SHORT = (forms.TextInput, forms.NumberInput, forms.Select)
LONG_TEXTS = ("prompt", "instructions", "text", "template")


class JsonText(forms.CharField):
    """A JSON document as its author writes it; what is no JSON is refused by its line."""

    def __init__(self, *, rows: int, **options: Any) -> None:
        """Show so many rows."""
        widget = forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "data-code": ""})
        super().__init__(widget=widget, strip=False, **options)

    def prepare_value(self, value: Any) -> Any:
        """Return stored values as JSON, and what was typed as it was typed."""
        if isinstance(value, str):
            return value
        return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)

    def to_python(self, value: Any) -> Any:
        """Return the values; None for an empty field."""
        text = str(value or "")
        if not text.strip():
            return None
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            said = f"Line {error.lineno}, character {error.colno}, is not JSON: {error.msg}."
            raise forms.ValidationError(said) from error
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def with_line(message: str, typed: str, field: forms.Field | None) -> str:
    """Return what is wrong with a JSON document with the line of the variable it speaks of."""
    named = PLACEHOLDER.search(message)
    if named is None or not isinstance(field, JsonText):
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
    """Return the fields in groups: short ones that follow one another together, long ones alone."""
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
    return JsonText(rows=8 if _hint(setting, "widget") == "json" else 3, **options)


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

"""A form for the settings of any kind, built from its config class."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import count, takewhile
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from django import forms
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evaluators.kinds import read_config
from evaluators.kinds._base import Kind
from evaluators.kinds._refusals import InvalidConfigError, Refusal
from evaluators.reading.json import read_json
from evaluators.reading.yaml import FIELD_LIMITS, UnreadableYamlError, read_yaml, write_yaml

BLANK_ROWS = 2
WEIGHT = "weight"
REMOVE = "remove"
CHECKED = "on"
LONG = 200


@dataclass(frozen=True, slots=True)
class SettingColumn:
    """One setting of every row; `type` is the type of its input, select if it has `choices`."""

    name: str
    label: str
    help: str
    type: str
    is_long: bool
    choices: tuple[str, ...] = ()


class TableWidget(forms.Widget):
    """Rows of inputs with a few blank ones at the end; next to each weight, its share of the sum."""

    use_fieldset = True

    def __init__(self, row: type[BaseModel]) -> None:
        """Make a column for every setting of a row."""
        super().__init__(attrs={"rows": 1})
        self.columns = [_column(name, info) for name, info in row.model_fields.items()]

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """Draw the table."""
        rows = [*(value or ()), *({} for _ in range(BLANK_ROWS))]
        shares = _shares(rows)
        drawn = [self._row(name, n, row, shares[n]) for n, row in enumerate(rows)]
        context = {
            "columns": self.columns,
            "rows": drawn,
            "has_shares": any(column.name == WEIGHT for column in self.columns),
        }
        return render_to_string("components/setting_rows.html", context)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        """Return the rows that are neither empty nor marked for removal."""
        rows_given = data.get(name)
        if isinstance(rows_given, list):
            return rows_given
        first = self.columns[0].name
        numbers = takewhile(lambda n: f"{name}-{n}-{first}" in data, count())
        rows = [self._sent(data, f"{name}-{n}") for n in numbers]
        return [row for row in rows if any(value for value in row.values())]

    def _row(self, name: str, number: int, row: Mapping[str, Any], share: float | None) -> Any:
        cells = [
            {
                "column": column,
                "name": f"{name}-{number}-{column.name}",
                "value": row.get(column.name, ""),
                "label": f"{column.label} of row {number + 1}",
            }
            for column in self.columns
        ]
        exists = bool(row)
        return {
            "cells": cells,
            "share": share,
            "remove": f"{name}-{number}-{REMOVE}" if exists else "",
        }

    def _sent(self, data: Any, prefix: str) -> dict[str, Any]:
        if data.get(f"{prefix}-{REMOVE}"):
            return {}
        row: dict[str, Any] = {}
        for column in self.columns:
            key = f"{prefix}-{column.name}"
            value = str(data.get(key, "")).strip()
            if column.type == "checkbox" and key in data:
                row[column.name] = value == CHECKED
            elif value:
                row[column.name] = value
        return row


class TableField(forms.Field):
    """A list of rows of settings."""

    def __init__(self, row: type[BaseModel], **options: Any) -> None:
        """Make the table from the model of a row."""
        super().__init__(widget=TableWidget(row), **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the rows as plain values."""
        rows: Sequence[Any] = value or ()
        return [row.model_dump(mode="json") if isinstance(row, BaseModel) else row for row in rows]


def refusal_text(refusal: Refusal, field: forms.Field | None) -> str:
    """Return the text of a refusal at a field, with its place in the field: `Row 3, weight: …` in a table."""
    inner = "".join(refusal.setting.partition("[")[1:])
    if inner and isinstance(field, TableField):
        words = [f"row {part + 1}" if isinstance(part, int) else part for part in refusal.path[1:]]
        inner = ", ".join(words).capitalize()
    return f"{inner}: {refusal.reason}" if inner else refusal.reason


def _column(name: str, info: FieldInfo) -> SettingColumn:
    kinds: dict[Any, str] = {bool: "checkbox", float: "number", int: "number"}
    max_length = next((m.max_length for m in info.metadata if hasattr(m, "max_length")), 0)
    is_choice = get_origin(info.annotation) is Literal
    return SettingColumn(
        name=name,
        label=info.title or name.replace("_", " ").capitalize(),
        help=info.description or "",
        type="select" if is_choice else kinds.get(info.annotation, "text"),
        is_long=max_length > LONG,
        choices=get_args(info.annotation) if is_choice else (),
    )


def _shares(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the share of each weight in their sum, None if it is unknown."""
    weights = [_number(row.get(WEIGHT)) for row in rows]
    total = math.fsum(weight for weight in weights if weight is not None)
    return [None if weight is None or total <= 0 else weight / total for weight in weights]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


LONG_ROWS = 6
LIST_ROWS = 4
EMPTY: tuple[Any, ...] = (None, "", [], {}, ())
NUMBERS: Mapping[Any, type[forms.Field]] = {
    int: forms.IntegerField,
    float: forms.FloatField,
    Decimal: forms.DecimalField,
}


MAX_FIELD_LENGTH = 200_000
MAX_LINES = 10_000


def typed_text(value: Any) -> str:
    """Return the text of a field; raises ValidationError for one too long to be shown again."""
    text = str(value or "")
    if len(text) > MAX_FIELD_LENGTH:
        message = f"This has {len(text):,} characters; {MAX_FIELD_LENGTH:,} is the limit."
        raise forms.ValidationError(message)
    return text


class LinesField(forms.CharField):
    """A list of texts, one per line."""

    widget = forms.Textarea(attrs={"rows": LIST_ROWS, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """Return the texts on one line each."""
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """Return the lines that are not empty."""
        lines = [line.strip() for line in typed_text(value).splitlines() if line.strip()]
        if len(lines) > MAX_LINES:
            raise forms.ValidationError(
                f"There are {len(lines):,} lines; {MAX_LINES:,} is the limit."
            )
        return lines


class JsonField(forms.CharField):
    """A JSON document; what cannot be read or stored is refused with its line."""

    def __init__(self, *, rows: int, **options: Any) -> None:
        """Show this number of rows."""
        widget = forms.Textarea(attrs={"rows": rows, "spellcheck": "false", "data-code": ""})
        super().__init__(widget=widget, strip=False, **options)

    def prepare_value(self, value: Any) -> Any:
        """Return a stored value as JSON, and typed text unchanged."""
        if isinstance(value, str):
            return value
        return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)

    def to_python(self, value: Any) -> Any:
        """Return the parsed value; None for an empty field."""
        text = typed_text(value)
        if not text.strip():
            return None
        try:
            return read_json(text, max_values=FIELD_LIMITS.values)
        except json.JSONDecodeError as error:
            message = f"Line {error.lineno}, character {error.colno}, is not JSON: {error.msg}."
            raise forms.ValidationError(message) from error
        except ValueError as error:
            raise forms.ValidationError(f"This JSON cannot be used: {error}.") from error


class StructureField(forms.CharField):
    """A mapping or list in YAML, as in a suite file."""

    widget = forms.Textarea(attrs={"rows": LONG_ROWS, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """Return the values as YAML."""
        if isinstance(value, str):
            return value
        return "" if value in EMPTY else write_yaml(value)

    def to_python(self, value: Any) -> Any:
        """Return the values; raises ValidationError naming the line that cannot be read."""
        try:
            content = read_yaml(typed_text(value), FIELD_LIMITS)
        except UnreadableYamlError as error:
            raise forms.ValidationError(f"Line {max(error.line, 1)}: {error}.") from error
        return content and content.value


class KindForm(forms.Form):
    """The settings of one evaluator; `config` holds them once the form is valid."""

    def __init__(self, kind: Kind, *args: Any, **kwargs: Any) -> None:
        """Make a field for every setting of the kind."""
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.config: dict[str, Any] = {}
        for name, setting in kind.config.model_fields.items():
            self.fields[name] = setting_field(name, setting)

    def clean(self) -> dict[str, Any]:
        """Check the settings by the rules of the kind; every refusal is shown at its field."""
        data: dict[str, Any] = super().clean() or {}
        if self.errors:
            return data
        names = self.kind.config.model_fields
        settings = {name: _sent(data[name]) for name in names if data.get(name) not in EMPTY}
        settings = self.kind.read(settings) if self.kind.read else settings
        try:
            config = read_config(self.kind.name, settings)
        except InvalidConfigError as error:
            for refusal in error.refusals:
                name = str(refusal.path[0]) if refusal.path else ""
                message = refusal_text(refusal, self.fields.get(name))
                self.add_error(name if name in self.fields else None, message)
            return data
        self.config = config.model_dump(mode="json")
        return data


def kind_settings(kind: Kind) -> list[dict[str, Any]]:
    """Return name, type, default and meaning of every setting, as the gallery lists them."""
    return [
        {
            "name": name,
            "type": _type_words(setting),
            "default": _default_words(setting),
            "meaning": setting.description or "",
        }
        for name, setting in kind.config.model_fields.items()
    ]


def _sent(value: Any) -> Any:
    """Return a text with the line ends it had before the browser changed them."""
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def setting_field(name: str, setting: FieldInfo) -> forms.Field:
    """Return the form field of a setting."""
    options: dict[str, Any] = {
        "label": setting.title or name.replace("_", " ").capitalize(),
        "help_text": setting.description or "",
        "required": setting.is_required(),
        "initial": None
        if setting.is_required()
        else setting.get_default(call_default_factory=True),
    }
    annotation = plain_type(setting.annotation)
    if annotation is bool:
        return forms.BooleanField(**{**options, "required": False})
    if get_origin(annotation) is Literal:
        choices = [(word, str(word).replace("_", " ")) for word in get_args(annotation)]
        return forms.ChoiceField(choices=choices, **options)
    if annotation in NUMBERS:
        return NUMBERS[annotation](**number_bounds(setting), **options)
    if annotation is str:
        return forms.CharField(strip=False, widget=_text_widget(setting), **options)
    if get_origin(annotation) is tuple and get_args(annotation)[0] is str:
        return LinesField(**options)
    if _widget(setting) == "table":
        return TableField(get_args(annotation)[0], **options)
    return StructureField(**{**options, "initial": _structure(options["initial"])})


def _structure(initial: Any) -> Any:
    return initial.model_dump(mode="json") if hasattr(initial, "model_dump") else initial


def _text_widget(setting: FieldInfo) -> forms.Widget:
    is_long = _widget(setting) == "textarea"
    return forms.Textarea(attrs={"rows": LONG_ROWS}) if is_long else forms.TextInput()


def _widget(setting: FieldInfo) -> Any:
    """Return the name of the special field that a setting needs."""
    extra = setting.json_schema_extra
    return extra.get("widget") if isinstance(extra, Mapping) else None


def number_bounds(setting: FieldInfo) -> dict[str, Any]:
    """Return the bounds of a number setting as options of a form field."""
    return {"min_value": _bound(setting, Ge, "ge"), "max_value": _bound(setting, Le, "le")}


def _bound(setting: FieldInfo, kind: type, name: str) -> Any:
    return next((getattr(m, name) for m in setting.metadata if isinstance(m, kind)), None)


def plain_type(annotation: Any) -> Any:
    """Return a type without the None that makes it optional."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _type_words(setting: FieldInfo) -> str:
    annotation = plain_type(setting.annotation)
    words = {bool: "true or false", int: "whole number", str: "text"}
    words |= {float: "number", Decimal: "number"}
    if annotation in words:
        return words[annotation]
    if get_origin(annotation) is Literal:
        return ", ".join(str(word) for word in get_args(annotation))
    return "list" if get_origin(annotation) is tuple else "mapping"


def _default_words(setting: FieldInfo) -> str:
    needs_entries = any(isinstance(m, MinLen) for m in setting.metadata)
    default = () if setting.is_required() else setting.get_default(call_default_factory=True)
    if setting.is_required() or (needs_entries and not default):
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(str(item) for item in default)
    if hasattr(default, "model_dump"):
        return ", ".join(f"{key}: {value}" for key, value in default.model_dump().items() if value)
    return "" if default in EMPTY else str(default)

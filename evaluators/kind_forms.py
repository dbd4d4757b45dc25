"""A form for the settings of any kind, made from its Config."""

from __future__ import annotations

import types
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from django import forms
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from evaluators.kind_tables import TableField, refused_words
from evaluators.kinds import InvalidConfigError, read_config
from evaluators.kinds._base import Kind
from evaluators.kinds._yaml import yaml_of

LONG_ROWS = 6
LIST_ROWS = 4
EMPTY: tuple[Any, ...] = (None, "", [], {}, ())
NUMBERS: Mapping[Any, type[forms.Field]] = {
    int: forms.IntegerField,
    float: forms.FloatField,
    Decimal: forms.DecimalField,
}


class LinesField(forms.CharField):
    """A list of texts, one a line."""

    widget = forms.Textarea(attrs={"rows": LIST_ROWS, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """Return the texts one below the other."""
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        """Return the lines that hold something."""
        return [line.strip() for line in str(value or "").splitlines() if line.strip()]


class StructureField(forms.CharField):
    """A mapping or list written in YAML, as it stands in a suite file."""

    widget = forms.Textarea(attrs={"rows": LONG_ROWS, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """Return the values as YAML."""
        if isinstance(value, str):
            return value
        return "" if value in EMPTY else yaml_of(value)

    def to_python(self, value: Any) -> Any:
        """Return the values; raises ValidationError with the line that is not YAML."""
        try:
            return YAML(typ="safe", pure=True).load(str(value or ""))
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise forms.ValidationError(f"Line {line} is not YAML: {error.problem}.") from error
        except (YAMLError, ValueError, RecursionError) as error:
            raise forms.ValidationError(f"This is not YAML: {error}.") from error


class KindForm(forms.Form):
    """The settings of one evaluator; `config` holds them once the form is valid."""

    def __init__(self, kind: Kind, *args: Any, **kwargs: Any) -> None:
        """Make a field of every setting of the kind."""
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.config: dict[str, Any] = {}
        for name, setting in kind.config.model_fields.items():
            self.fields[name] = field_of(name, setting)

    def clean(self) -> dict[str, Any]:
        """Hold the settings to the kind's own rules; every refusal stands at its field."""
        found: dict[str, Any] = super().clean() or {}
        if self.errors:
            return found
        names = self.kind.config.model_fields
        given = {name: _sent(found[name]) for name in names if found.get(name) not in EMPTY}
        given = self.kind.read(given) if self.kind.read else given
        try:
            config = read_config(self.kind.name, given)
        except InvalidConfigError as error:
            for refusal in error.refusals:
                at = str(refusal.path[0]) if refusal.path else ""
                said = refused_words(refusal, self.fields.get(at))
                self.add_error(at if at in self.fields else None, said)
            return found
        self.config = config.model_dump(mode="json")
        return found


def settings_of(kind: Kind) -> list[dict[str, Any]]:
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
    """Return a text with the line ends it had before the browser sent it."""
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def field_of(name: str, setting: FieldInfo) -> forms.Field:
    """Return the field of a form that a setting is written in."""
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
        return NUMBERS[annotation](**bounds_of(setting), **options)
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
    """Return the word by which a setting asks for a field of its own."""
    extra = setting.json_schema_extra
    return extra.get("widget") if isinstance(extra, Mapping) else None


def bounds_of(setting: FieldInfo) -> dict[str, Any]:
    """Return the least and the largest number that a setting takes, as form fields name them."""
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
    needs_some = any(isinstance(m, MinLen) for m in setting.metadata)
    default = () if setting.is_required() else setting.get_default(call_default_factory=True)
    if setting.is_required() or (needs_some and not default):
        return "required"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return ", ".join(str(item) for item in default)
    if hasattr(default, "model_dump"):
        return ", ".join(f"{key}: {value}" for key, value in default.model_dump().items() if value)
    return "" if default in EMPTY else str(default)

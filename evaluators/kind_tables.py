"""A field for a list of settings: one row each, drawn as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Literal, get_args, get_origin

from django import forms
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evaluators.kinds._refusals import Refusal

BLANK_ROWS = 2
WEIGHT = "weight"
REMOVE = "remove"
CHECKED = "on"
LONG = 200


@dataclass(frozen=True, slots=True)
class Column:
    """One setting of every row; `type` is that of the input it is written in, select where it has `choices`."""

    name: str
    label: str
    help: str
    type: str
    is_long: bool
    choices: tuple[str, ...] = ()


class TableWidget(forms.Widget):
    """Rows of inputs, a few blank ones after them, and beside weights what share of their sum they are."""

    use_fieldset = True

    def __init__(self, row: type[BaseModel]) -> None:
        """Make a column of every setting of a row."""
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
        """Return the rows that hold something and are not to be removed; what is empty is left out."""
        given = data.get(name)
        if isinstance(given, list):
            return given
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
        is_there = bool(row)
        return {
            "cells": cells,
            "share": share,
            "remove": f"{name}-{number}-{REMOVE}" if is_there else "",
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
    """A list of settings that have a name each."""

    def __init__(self, row: type[BaseModel], **options: Any) -> None:
        """Make the table of what a row is."""
        super().__init__(widget=TableWidget(row), **options)

    def prepare_value(self, value: Any) -> Any:
        """Return the rows as plain values."""
        rows: Sequence[Any] = value or ()
        return [row.model_dump(mode="json") if isinstance(row, BaseModel) else row for row in rows]


def refused_words(refusal: Refusal, field: forms.Field | None) -> str:
    """Say what is refused at a field and where inside it: `Row 3, weight: …` in a table."""
    inner = "".join(refusal.setting.partition("[")[1:])
    if inner and isinstance(field, TableField):
        words = [f"row {part + 1}" if isinstance(part, int) else part for part in refusal.path[1:]]
        inner = ", ".join(words).capitalize()
    return f"{inner}: {refusal.reason}" if inner else refusal.reason


def _column(name: str, info: FieldInfo) -> Column:
    kinds: dict[Any, str] = {bool: "checkbox", float: "number", int: "number"}
    longest = next((m.max_length for m in info.metadata if hasattr(m, "max_length")), 0)
    is_choice = get_origin(info.annotation) is Literal
    return Column(
        name=name,
        label=info.title or name.replace("_", " ").capitalize(),
        help=info.description or "",
        type="select" if is_choice else kinds.get(info.annotation, "text"),
        is_long=longest > LONG,
        choices=get_args(info.annotation) if is_choice else (),
    )


def _shares(rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return what share of the sum each weight is, None where that cannot be said."""
    weights = [_number(row.get(WEIGHT)) for row in rows]
    total = math.fsum(weight for weight in weights if weight is not None)
    return [None if weight is None or total <= 0 else weight / total for weight in weights]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None

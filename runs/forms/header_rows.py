"""The headers of a request as rows of a form: name, value, and a tick for secret ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.template.loader import render_to_string

from runs.targets._headers import LEAST_SECRET, value_problem, variables_of

MOST_ROWS = 20
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
            for number in range(MOST_ROWS)
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
        empty = min(OPEN_ROWS + SPARE_ROWS, MOST_ROWS - len(rows))
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
    if variables_of(value):
        return f"{name} names a variable of the server; leave its tick for secret out."
    if len(value) < LEAST_SECRET:
        return f"The secret value of {name} has fewer than {LEAST_SECRET} characters."
    problem = value_problem(name, value)
    # Not the value itself: what is wrong with it is said without showing it.
    return f"{problem[:1].upper()}{problem[1:]}." if problem else ""

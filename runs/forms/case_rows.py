"""Messages and expected outcomes as rows of a form that are added, removed and moved.

The order of the rows is the order they are sent in. Without a script a row's buttons send the form,
which comes back with the row added, removed or moved and everything else as it was entered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import QueryDict
from django.template.loader import render_to_string

from runs.formats._turns import ROLES

DEED = "row"
MOST_ROWS = 3_000
NEXT_ROLE = {"system": "user", "developer": "user", "user": "assistant"}


class RowsField(forms.Field):
    """Rows that are empty are none."""

    def clean(self, value: Any) -> Any:
        """Return the rows; raises ValidationError for more than a form is made for."""
        if len(value or ()) > MOST_ROWS:
            raise forms.ValidationError(
                f"These are {len(value)} rows, and {MOST_ROWS} is the most."
            )
        return value or []


class _Rows(forms.Widget):
    use_fieldset = True
    template = ""

    def __init__(self) -> None:
        """Put the cursor into no row."""
        super().__init__()
        self.focus: int | None = None

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Tell that rows are never left out: none sent are none."""
        return False

    def id_for_label(self, id_: str) -> str:
        """Return no id: the rows have a legend, not a label."""
        return ""

    def render(
        self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None
    ) -> Any:
        """Draw the rows, one empty one where there are none."""
        given = attrs or {}
        context = {
            "rows": list(value or ()) or [self.empty(())],
            "blank": self.empty(value or ()),
            "name": name,
            "id": given.get("id", ""),
            "described_by": given.get("aria-describedby", ""),
            "is_bad": bool(given.get("aria-invalid")),
            "focus": self.focus,
            "roles": ROLES,
        }
        return render_to_string(self.template, context)

    def empty(self, rows: Sequence[Any]) -> Any:
        """Return a row to be filled in behind others."""
        raise NotImplementedError


class OutcomeRows(_Rows):
    """One text a row."""

    template = "suites/_outcome_rows.html"

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[str]:
        """Return the texts that were sent."""
        return [plain_lines(text) for text in _all(data, name)]

    def empty(self, rows: Sequence[Any]) -> str:
        """Return an empty text."""
        return ""


class MessageRows(_Rows):
    """Role and content a row; `origin` is its place in the messages that the form was made of."""

    template = "suites/_message_rows.html"

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        """Return the rows that were sent."""
        parts = (_all(data, f"{name}-{part}") for part in ("role", "content", "origin"))
        return [
            {"role": role, "content": plain_lines(content), "origin": origin}
            for role, content, origin in zip(*parts, strict=False)
        ]

    def empty(self, rows: Sequence[Any]) -> dict[str, str]:
        """Return an empty message of whoever speaks next."""
        last = rows[-1]["role"] if rows else "assistant"
        return {"role": NEXT_ROLE.get(last, "user"), "content": "", "origin": ""}


def rearranged(widget: _Rows, name: str, rows: Sequence[Any], deed: str) -> list[Any]:
    """Return the rows after a button was pressed, such as `input up 2`; those of other fields stay."""
    field, _, rest = deed.partition(" ")
    action, _, number = rest.partition(" ")
    found = list(rows) or [widget.empty(())]
    if field != name:
        return found
    if action == "add":
        widget.focus = len(found)
        return [*found, widget.empty(found)]
    place = int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else -1
    if not 0 <= place < len(found):
        return found
    row = found.pop(place)
    steps = {"up": -1, "down": 1}
    if action in steps:
        place = min(max(0, place + steps[action]), len(found))
        found.insert(place, row)
    elif action != "remove":
        found.insert(place, row)
    widget.focus = min(place, max(0, len(found) - 1))
    return found or [widget.empty(())]


def plain_lines(text: str) -> str:
    """Return a text with the line ends it had before a browser sent it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _all(data: Any, name: str) -> list[str]:
    return data.getlist(name) if isinstance(data, QueryDict) else list(data.get(name) or ())

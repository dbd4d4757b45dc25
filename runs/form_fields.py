"""Form fields that several features share: money, percents, and uploaded files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import IO, Any, cast

from django import forms
from django.core.files.uploadedfile import UploadedFile

MAX_DIGITS, DECIMALS = 18, 9


class MoneyField(forms.DecimalField):
    """An amount in US dollars, with or without the sign."""

    widget = forms.TextInput

    def __init__(self, **options: Any) -> None:
        """Hold what a money column holds."""
        super().__init__(max_digits=MAX_DIGITS, decimal_places=DECIMALS, **options)
        self.widget.attrs["inputmode"] = "decimal"

    def to_python(self, value: Any) -> Any:
        """Read the amount."""
        return super().to_python(value.strip().lstrip("$") if isinstance(value, str) else value)


def percent_field(label: str, help_text: str, most: int = 100) -> forms.DecimalField:
    """Return a field that takes percent, or points of 100, from 0 on."""
    return forms.DecimalField(
        label=label,
        min_value=0,
        max_value=most,
        max_digits=9,
        decimal_places=4,
        help_text=help_text,
        widget=forms.NumberInput(attrs={"step": "any"}),
    )


def shown_percent(share: float) -> Decimal:
    """Return a share from 0 to 1 in percent, as a form shows it."""
    return plain(Decimal(str(share)) * 100)


def as_share(percent: Decimal) -> float:
    """Return percent as a share from 0 to 1; −0 is 0."""
    return float(percent / 100) + 0.0


def plain(number: float | Decimal) -> Decimal:
    """Return a number without needless noughts or an exponent."""
    found = Decimal(str(number)).normalize()
    return found.quantize(Decimal(1)) if found == found.to_integral_value() else found


class ManyFilesInput(forms.ClearableFileInput):
    """A file input that takes several files."""

    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    """Several uploaded files, cleaned one by one."""

    widget = ManyFilesInput

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        """Return the uploaded files; refuse an empty list where one is required."""
        uploads = [upload for upload in data or [] if upload]
        if not uploads:
            found = super().clean(None, initial)
            return [found] if found else []
        return [super(ManyFilesField, self).clean(upload, initial) for upload in uploads]


def named_parts(
    uploads: Sequence[UploadedFile[Any]], paths: str = ""
) -> list[tuple[str, IO[bytes]]]:
    """Return uploads as streams by name.

    `paths` is a JSON list of their paths, in their order: of a name that browsers send, only the last
    part is kept. A list that does not fit is passed over.
    """
    try:
        given = json.loads(paths) if paths else []
    except (ValueError, RecursionError):
        given = []
    names = [str(upload.name) for upload in uploads]
    if isinstance(given, list) and len(given) == len(names):
        pairs = zip(given, names, strict=True)
        names = [path if isinstance(path, str) and path else name for path, name in pairs]
    # An upload reads like a file, which its types do not tell.
    return [(name, cast("IO[bytes]", upload)) for name, upload in zip(names, uploads, strict=True)]

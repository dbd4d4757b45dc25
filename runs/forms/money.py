"""Amounts of money in forms."""

from __future__ import annotations

from typing import Any

from django import forms

MOST_DIGITS, DECIMALS = 18, 9


class MoneyField(forms.DecimalField):
    """An amount in US dollars, with or without the sign."""

    widget = forms.TextInput

    def __init__(self, **options: Any) -> None:
        """Hold what a money column holds."""
        super().__init__(max_digits=MOST_DIGITS, decimal_places=DECIMALS, **options)
        self.widget.attrs["inputmode"] = "decimal"

    def to_python(self, value: Any) -> Any:
        """Read the amount."""
        return super().to_python(value.strip().lstrip("$") if isinstance(value, str) else value)

"""Shares from 0 to 1 that forms take and show in percent."""

from __future__ import annotations

from decimal import Decimal

from django import forms


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

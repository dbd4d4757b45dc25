"""How much worse a run may be, as it is entered on the page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms

from runs.comparison import Tolerances

# What a field's number is divided by to be stored.
UNITS = {"max_pass_rate_drop": 1.0, "max_avg_score_drop": 100.0, "max_latency_increase_pct": 1.0}


class TolerancesForm(forms.Form):
    """Three numbers in the units of the command line; an empty one is the suite's."""

    max_pass_rate_drop = forms.FloatField(
        label="Pass rate may fall by",
        help_text="a share from 0 to 1",
        required=False,
        min_value=0,
        max_value=1,
    )
    max_avg_score_drop = forms.FloatField(
        label="Mean score may fall by",
        help_text="points of 100",
        required=False,
        min_value=0,
        max_value=100,
    )
    max_latency_increase_pct = forms.FloatField(
        label="Mean latency may grow by", help_text="percent", required=False, min_value=0
    )

    def __init__(self, usual: Tolerances, sent: dict[str, str]) -> None:
        """Show what was sent, and the usual ones where nothing was."""
        self.usual, self.sent = usual, sent
        shown = {name: f"{getattr(usual, name) * unit:.10g}" for name, unit in UNITS.items()}
        super().__init__(data=shown | sent, use_required_attribute=False)
        for field in self.fields.values():
            field.widget.attrs["step"] = "any"

    @property
    def tolerances(self) -> Tolerances:
        """Return what was entered; the suite's where a number cannot be read."""
        self.is_valid()
        return with_limits(
            self.usual, {name: self.cleaned_data.get(name) for name in self.sent if name in UNITS}
        )


def with_limits(usual: Tolerances, given: Mapping[str, Any]) -> Tolerances:
    """Return the usual tolerances with those that are given, in the units of the command line."""
    changed: dict[str, Any] = {
        name: given[name] / unit for name, unit in UNITS.items() if given.get(name) is not None
    }
    return replace(usual, **changed)

"""The fields of rules for one run, and the row of one evaluator: what they hold and what the suite has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SCORES = ("pass_threshold", "borderline_threshold", "fallback_threshold")
RATES = ("metrics_pass_threshold", "cases_pass_threshold")
LABELS: Mapping[str, str] = {
    "pass_threshold": "Pass from",
    "borderline_threshold": "Borderline from",
    "fallback_threshold": "Without outcomes, pass from",
    "metrics_pass_threshold": "Metrics gate",
    "cases_pass_threshold": "Cases gate",
}


@dataclass(frozen=True, slots=True)
class RuleField:
    """One field: its name in the form, what it holds, what the suite has, and what is refused."""

    name: str
    text: str
    saved: str
    error: str = ""

    @property
    def label(self) -> str:
        """Return what the form calls a threshold."""
        return LABELS.get(self.name, self.name)

    @property
    def unit(self) -> str:
        """Return what its number is of."""
        return "percent" if self.name in RATES else "score"

    @property
    def is_changed(self) -> bool:
        """Tell whether it differs from the suite."""
        return self.text.strip() != self.saved


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One evaluator: where it stands, its weight, and whether and from where it is required."""

    path: str
    name: str
    kind: str
    depth: int
    weight: RuleField
    required_name: str
    required: bool
    required_saved: bool
    below: RuleField

    @property
    def saved_required(self) -> str:
        """Say what the suite requires of it, "" for nothing."""
        return (self.below.saved or "above 0") if self.required_saved else ""

"""The thresholds beside the evaluator tree: bands, gates of runs, and what comparisons allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from runs.drafting.describing import MOST_PERCENT
from runs.forms.tree_numbers import (
    BANDS_CROSSED,
    PERCENT,
    WrongNumberError,
    read_percent,
    read_share,
    spelt,
    spelt_share,
)

BANDS = ("borderline_threshold", "pass_threshold")
IN_PERCENT = (
    "metrics_pass_threshold",
    "cases_pass_threshold",
    "max_pass_rate_drop",
    "max_avg_score_drop",
)
GROWTH = "max_latency_increase_pct"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One threshold: what its field holds, what the base version has, and what is refused."""

    name: str
    text: str
    saved: str
    most: int
    step: str
    error: str = ""

    @property
    def largest(self) -> float:
        """Return the most its field takes; its slider ends at what is usual."""
        return MOST_PERCENT if self.name == GROWTH else self.most


@dataclass(slots=True)
class PolicyFields:
    """All thresholds of the page, of a draft's policy and of what was sent."""

    policy: Mapping[str, Any]
    base: Mapping[str, Any]
    data: QueryDict | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> int:
        """Return what the suite's scores are shown on."""
        return int(self.policy["scale"])

    def changes(self) -> dict[str, Any]:
        """Return the fields of the policy that were sent otherwise; what is refused is in `errors`."""
        found = {}
        for name in (*BANDS, *IN_PERCENT, GROWTH):
            text = self._text(name).strip()
            if text == self._spelt(name, self.policy):
                continue
            try:
                found[name] = self._read(name, text)
            except WrongNumberError as refusal:
                self.errors[name] = str(refusal)
        bands = {name: found.get(name, self.policy[name]) for name in BANDS}
        if not self.errors and bands["borderline_threshold"] > bands["pass_threshold"]:
            self.errors["borderline_threshold"] = BANDS_CROSSED
        return found

    def shown(self) -> dict[str, Threshold]:
        """Return every threshold by name."""
        return {
            name: Threshold(
                name=name,
                text=self._text(name),
                saved=self._spelt(name, self.base),
                most=self._most(name),
                step=spelt(self._most(name) / 100),
                error=self.errors.get(name, ""),
            )
            for name in (*BANDS, *IN_PERCENT, GROWTH)
        }

    def _text(self, name: str) -> str:
        kept = self._spelt(name, self.policy)
        return kept if self.data is None else self.data.get(name, kept)

    def _most(self, name: str) -> int:
        return self.scale if name in BANDS else PERCENT

    def _spelt(self, name: str, policy: Mapping[str, Any]) -> str:
        if name == GROWTH:
            return spelt(policy[name])
        return spelt_share(policy[name], self._most(name))

    def _read(self, name: str, text: str) -> float:
        if name == GROWTH:
            return read_percent(text, MOST_PERCENT)
        return read_share(text, self._most(name))

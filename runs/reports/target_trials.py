"""A try of a target on one case: how far it is, and what came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from runs.models import Case, Target, TargetTrial, TrialState

# A living worker takes a try at once; the longest a try may take is five minutes.
UNTAKEN = timedelta(seconds=10)
GIVEN_UP = timedelta(minutes=6)
MOST_OFFERED = 30


@dataclass(frozen=True, slots=True)
class TrialReport:
    """How far a try is: waiting, untaken, running, lost, failed or done; and what it found."""

    pk: int
    state: str
    asked_at: datetime
    asked_by: str
    case: str
    suite: str = ""
    title: str = ""
    reason: str = ""
    found: Mapping[str, Any] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: Decimal | None = None
    is_saved: bool = True

    @property
    def unreported(self) -> str:
        """Return which paths led nowhere, in words."""
        named = ", ".join(self.found.get("reports_nothing_of") or ())
        return f"{named}. The agent left it out this time, or the path is wrong."

    @property
    def is_open(self) -> bool:
        """Return whether the page has something to wait for."""
        return self.state in ("waiting", "untaken", "running")


def trial_report(trial: TargetTrial) -> TrialReport:
    """Return how far a try is and what it found."""
    found: Mapping[str, Any] = trial.found or {}
    usage: Mapping[str, Any] = found.get("usage") or {}
    usd = usage.get("cost_usd")
    return TrialReport(
        pk=trial.pk,
        state=_state(trial, found),
        asked_at=trial.asked_at,
        asked_by=trial.asked_by.get_username(),
        case=str(trial.case.get("key", "")),
        suite=trial.suite.slug if trial.suite else "",
        title=str(found.get("label", "")),
        reason=str(found.get("reason", "")),
        found=found,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cost_usd=None if usd is None else Decimal(usd),
        is_saved=trial.target is not None and trial.config == trial.target.config,
    )


def _state(trial: TargetTrial, found: Mapping[str, Any]) -> str:
    if trial.state == TrialState.DONE:
        return "failed" if "cause" in found else "done"
    waited = timezone.now() - trial.asked_at
    if waited > GIVEN_UP:
        return "lost"
    is_untaken = trial.state == TrialState.WAITING and waited > UNTAKEN
    return "untaken" if is_untaken else str(trial.state)


def last_trial(target: Target, member: User) -> TrialReport | None:
    """Return the last try of a member with a target, None without one."""
    trials = TargetTrial.objects.select_related("target", "asked_by", "suite")
    found = trials.filter(target=target, asked_by=member).first()
    return trial_report(found) if found else None


def offered_cases(slug: str, words: str) -> list[tuple[str, str]]:
    """Return keys and titles of a suite's cases that hold the words, in the order of the suite."""
    cases = Case.objects.filter(suite__slug=slug, is_current=True)
    if words:
        cases = cases.filter(Q(key__icontains=words) | Q(title__icontains=words))
    return list(cases.values_list("key", "title")[:MOST_OFFERED])
